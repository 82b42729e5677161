// butterflies_tune: measures launch configurations, for the table in launches.hpp.

#include <array>
#include <string>
#include <utility>

#include "common/host/static_dispatch.hpp"
#include "experiments/tune/rows_candidate.cuh"
#include "variants/butterflies/butterflies.hpp"
#include "variants/butterflies/launches.hpp"
#include "variants/butterflies/rows_in_registers.cuh"
#include "variants/butterflies/smem_passes.cuh"

namespace fwht::butterflies {
namespace {

using rows::across_warps;
using rows::in_warps;

inline constexpr int kMostCandidates = 7;
using Launches = std::array<Launch, kMostCandidates>;  // those behind the last one have no vectors

/// Left out, because they were slower: blocks of 1 KB, several rows in a block whose rows take several warps,
/// and registers capped until they spill.
constexpr Launches launches_to_try(int log_n) {
  switch (log_n) {
    case 8:
      return {{kTwoVectorsSmallBlocks, kTwoVectorsTinyBlocks, kTwoVectors, kTwoWarpsOfOne,
               kFourVectorsTinyBlocks}};
    case 9:
      return {{kTwoWarpsOfTwo, kFourWarpsOfOne, kFourVectorsTinyBlocks, kFourVectors}};
    case 10:
      return {{across_warps(4, 2), kFourWarpsOfTwo, kEightVectorsTinyBlocks, in_warps(8, 128)}};
    case 11:
      return {{across_warps(4, 4), kEightWarpsOfTwo, across_warps(8, 2), kPasses2048}};
    case 12:
      return {{kPasses4096, rows::smem_passes(8, 4, 10), across_warps(4, 8), across_warps(4, 8, 5)}};
    case 13:
      return {{kPasses8192, rows::smem_passes(8, 8, 5), rows::smem_passes(16, 4, 4), across_warps(8, 8, 4)}};
    case 14:
      return {{kPasses16384EightGroups, rows::smem_passes(16, 8, 2), kPasses16384, kPasses16384TwoGroups,
               across_warps(16, 8, 2)}};
    case 15:
      return {{kPasses32768EightGroups, kPasses32768FewWarps, rows::smem_passes(16, 16, 1, {1750, 4}),
               kPasses32768, kPasses32768TwoGroups, rows::smem_passes(8, 32, 1, {900, 8}),
               across_warps(16, 16)}};
    default:
      return {{kOneVector, kOneVectorSmallBlocks, kTwoVectorsSmallBlocks, kTwoVectors, kFourVectors}};
  }
}

template <Dtype dtype, int log_n, int which>
void add_candidate(std::vector<LaunchCandidate>& all) {
  constexpr Launch launch = launches_to_try(log_n)[which];
  if constexpr (launch.vectors > 0) {
    constexpr rows::LaunchCode code = rows::code_of(launch);
    rows::Kernel kernel = nullptr;
    if constexpr (launch.form == rows::Form::in_warps) {
      kernel = rows_in_warps<dtype, log_n, code, Access::dense, Trigger::at_end>;
    } else if constexpr (launch.form == rows::Form::across_warps) {
      kernel = rows_across_warps<dtype, log_n, code, Access::dense, Trigger::at_end>;
    } else {
      kernel = smem_passes<dtype, log_n, code, Access::dense, Trigger::at_end>;
    }
    const KernelId id{dtype, log_n, launch, Access::dense, Trigger::at_end, Scaling::results};
    all.push_back(rows::tune_candidate(id, kernel, factors, rows::values_of(launch)));
  }
}

template <Dtype dtype, int log_n>
std::vector<LaunchCandidate> candidates_for() {
  std::vector<LaunchCandidate> all;
  [&]<int... which>(std::integer_sequence<int, which...>) {
    (add_candidate<dtype, log_n, which>(all), ...);
  }
  (std::make_integer_sequence<int, kMostCandidates>{});
  return all;
}

/// None where the variant does not serve the length.
std::vector<LaunchCandidate> candidates(Dtype dtype, int log_n) {
  if (log_n > largest_log_n(dtype)) return {};
  return dispatch_dtype(dtype, [&](auto d) {
    return dispatch_int<1, largest_log_n(d())>(log_n, [&](auto l) { return candidates_for<d(), l()>(); });
  });
}

}  // namespace
}  // namespace fwht::butterflies

fwht::LaunchTuning fwht::launch_tuning() {
  return {butterflies::variant, rows::kLaunchColumns, 1, butterflies::kLargestWideLogN,
          butterflies::candidates};
}
