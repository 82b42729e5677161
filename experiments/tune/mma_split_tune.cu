// mma_split_tune: measures launch configurations, for the table in launches.hpp, and what the look for
// infinities and NaN costs and the last multiplication.

#include <array>
#include <string>
#include <utility>

#include "common/host/static_dispatch.hpp"
#include "experiments/tune/rows_candidate.cuh"
#include "variants/mma_split/mma_split.hpp"
#include "variants/mma_split/plain_launches.hpp"
#include "variants/mma_split/rows_across_warps.cuh"
#include "variants/mma_split/rows_in_warps.cuh"

namespace fwht::mma_split {
namespace {

using rows::across_warps;
using rows::in_warps;

inline constexpr int kMostCandidates = 7;
using Launches = std::array<Launch, kMostCandidates>;  // those behind the last one have no vectors

/// Left out, because they were slower: blocks of 1 KB, several rows in a block whose rows take several warps,
/// and registers capped until they spill.
constexpr Launches launches_to_try(Dtype dtype, int log_n) {
  const Launch four = dtype == Dtype::bf16 ? kFourVectorsOneWave : kFourVectors;
  switch (log_n) {
    case 9:
      return {{kTwoVectors, across_warps(1, 2), kTwoVectorsSmallBlocks, kFourVectorsSmallBlocks,
               kFourVectorsMidBlocks, four}};
    case 10:
      return {{across_warps(2, 2), kFourWarpsOfOne, kFourVectorsSmallBlocks, kFourVectorsMidBlocks, four}};
    case 11:
      return {{kTwoWarpsOfFour, kFourWarpsOfTwo, in_warps(8, 64), kEightWarpsOfOne, across_warps(1, 8, 8),
               across_warps(2, 4, 12), across_warps(2, 4, 16)}};
    case 12:
      return {{kFourWarpsOfFour, kEightWarpsOfTwo, across_warps(8, 2)}};
    case 13:
      return {{across_warps(8, 4, 5), across_warps(8, 4, 4), kEightWarpsOfFour, across_warps(4, 8, 4)}};
    case 14:
      return {{kThreeLongRowsApart, kThreeLongRows, across_warps(16, 4, 3, {400, 0}),
               across_warps(16, 4, 3, {800, 0}), across_warps(8, 8, 3), kTwoLongRows,
               across_warps(4, 16, 2)}};
    default:
      return {{kTwoVectors, kOneVector, kTwoVectorsSmallBlocks, kFourVectorsSmallBlocks,
               kFourVectorsMidBlocks, four}};
  }
}

/// Looks at nothing, so that a comparison shows what the look costs.
struct IgnoreNonFinite {
  template <Tile tile>
  __device__ static bool needed(const DeviceWarp<tile>&, const float (&)[tile.vectors][8]) {
    return false;
  }
  template <Tile tile, Access access, class Prologue>
  __device__ static bool stored_rows(const Batch&, const DeviceWarp<tile>&, const Prologue&, int, bool) {
    return false;
  }
  template <Tile tile, Access access, class Writer, class Prologue>
  __device__ static bool put_and_meet(const Batch&, DeviceWarp<tile>& warp, const Prologue&, int self,
                                      const float (&x)[tile.vectors][8], bool) {
    rows::exchange_put(warp, self, x);
    __syncthreads();
    return false;
  }
};

template <class Repair>
constexpr const char* kName = "handled";
template <>
constexpr const char* kName<IgnoreNonFinite> = "ignored";

template <Dtype dtype, int log_n, int which, class Repair = NonFiniteRepair,
          Scaling scaling = has_scale_in_constants(dtype, log_n) ? Scaling::constants : Scaling::results>
void add_candidate(std::vector<LaunchCandidate>& all) {
  constexpr Launch launch = launches_to_try(dtype, log_n)[which];
  if constexpr (launch.vectors > 0) {
    constexpr rows::LaunchCode code = rows::code_of(launch);
    rows::Kernel kernel = nullptr;
    if constexpr (launch.form == rows::Form::in_warps) {
      kernel = rows_in_warps<dtype, log_n, code, Access::dense, Trigger::at_end, scaling, Repair>;
    } else {
      kernel = rows_across_warps<dtype, log_n, code, Access::dense, Trigger::at_end, scaling, Repair>;
    }
    const KernelId id{dtype, log_n, launch, Access::dense, Trigger::at_end, scaling};
    const std::string values = rows::values_of(launch) + ',' + kName<Repair> +
                               (scaling == Scaling::results ? ",results" : ",constants");
    all.push_back(rows::tune_candidate(id, kernel, factors, values));
  }
}

template <Dtype dtype, int log_n>
std::vector<LaunchCandidate> candidates_for() {
  std::vector<LaunchCandidate> all;
  [&]<int... which>(std::integer_sequence<int, which...>) {
    (add_candidate<dtype, log_n, which>(all), ...);
  }
  (std::make_integer_sequence<int, kMostCandidates>{});
  add_candidate<dtype, log_n, 0, IgnoreNonFinite>(all);
  if constexpr (has_scale_in_constants(dtype, log_n))
    add_candidate<dtype, log_n, 0, NonFiniteRepair, Scaling::results>(all);
  return all;
}

template <Dtype dtype>
std::vector<LaunchCandidate> candidates_of(int log_n) {
  return dispatch_int<kSmallestLogN, kLargestLogN>(log_n,
                                                   [](auto l) { return candidates_for<dtype, l()>(); });
}

/// The first candidate comes once more without the look for infinities and NaN, and with a last
/// multiplication where it needs none. None where the variant does not serve the length.
std::vector<LaunchCandidate> candidates(Dtype dtype, int log_n) {
  if (dtype == Dtype::f32 || log_n < kSmallestLogN || log_n > kLargestLogN) return {};
  return dtype == Dtype::f16 ? candidates_of<Dtype::f16>(log_n) : candidates_of<Dtype::bf16>(log_n);
}

}  // namespace
}  // namespace fwht::mma_split

fwht::LaunchTuning fwht::launch_tuning() {
  return {mma_split::variant, std::string(rows::kLaunchColumns) + ",non_finite,scaling",
          mma_split::kSmallestLogN, mma_split::kLargestLogN, mma_split::candidates};
}
