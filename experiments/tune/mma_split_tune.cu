#include "experiments/tune/mma_split_tune.hpp"

#include <array>
#include <string>
#include <utility>

#include "common/cuda_check.hpp"
#include "common/static_dispatch.hpp"
#include "variants/mma_split/mma_split_kernel.cuh"

namespace fwht::mma_split {
namespace {

inline constexpr int kMostCandidates = 7;
using Launches = std::array<Launch, kMostCandidates>;  // those behind the last one have no vectors

/// {vectors a lane, warps a row, threads, blocks per SM, form, stagger, groups}. Left out, because they were
/// slower: blocks of 1 KB, several rows in a block whose rows take several warps, and registers capped until
/// they spill.
constexpr Launches launches_to_try_16(Dtype dtype, int log_n) {
  const Launch limited{4, 1, 256, dtype == Dtype::bf16 ? 4 : 0};
  switch (log_n) {
    case 6:
    case 7:
    case 8:
      return {{{2, 1, 128}, {1, 1, 128}, {2, 1, 64}, {4, 1, 64}, {4, 1, 128}, limited}};
    case 9:
      return {{{2, 1, 128}, {1, 2, 64}, {2, 1, 64}, {4, 1, 64}, {4, 1, 128}, limited}};
    case 10:
      return {{{2, 2, 64}, {1, 4, 128}, {4, 1, 64}, {4, 1, 128}, limited}};
    case 11:
      return {{{4, 2, 64}, {2, 4, 128}, {8, 1, 64}}};
    case 12:
      return {{{4, 4, 128}, {2, 8, 256}, {8, 2, 64}}};
    case 13:
      return {{{8, 4, 128, 5}, {8, 4, 128, 4}, {4, 8, 256}, {4, 8, 256, 4}}};
    case 14:
      return {{{16, 4, 128, 3, Form::registers, 600},
               {16, 4, 128, 3},
               {16, 4, 128, 3, Form::registers, 400},
               {16, 4, 128, 3, Form::registers, 800},
               {8, 8, 256, 3},
               {8, 8, 256, 2},
               {4, 16, 512, 2}}};
    default:
      return {{{1, 1, 256}, {1, 1, 128}, {2, 1, 128}, {2, 1, 256}, {4, 1, 128}}};
  }
}

constexpr Launches launches_to_try_32(int log_n) {
  switch (log_n) {
    case 8:
      return {{{2, 1, 128}, {2, 1, 64}, {2, 1, 256}, {1, 2, 64}, {4, 1, 64}}};
    case 9:
      return {{{2, 2, 64}, {1, 4, 128}, {4, 1, 64}, {4, 1, 128}}};
    case 10:
      return {{{4, 2, 64}, {2, 4, 128}, {8, 1, 64}}};
    case 11:
      return {{{4, 4, 128}, {2, 8, 256}, {8, 2, 64}, {8, 2, 64, 16, Form::passes}}};
    case 12:
      return {{{8, 4, 128, 8, Form::passes}, {8, 4, 128, 10, Form::passes}, {4, 8, 256}, {4, 8, 256, 5}}};
    case 13:
      return {{{8, 8, 256, 4, Form::passes},
               {8, 8, 256, 5, Form::passes},
               {16, 4, 128, 4, Form::passes},
               {8, 8, 256, 4}}};
    case 14:
      return {{{16, 8, 256, 2, Form::passes, 300, 8},
               {16, 8, 256, 2, Form::passes},
               {8, 16, 512, 2, Form::passes},
               {8, 16, 512, 2, Form::passes, 1500, 2},
               {16, 8, 256, 2}}};
    case 15:
      return {{{16, 16, 512, 1, Form::passes, 900, 8},
               {16, 16, 512, 1, Form::passes},
               {16, 16, 512, 1, Form::passes, 1750, 4},
               {8, 32, 1024, 1, Form::passes},
               {8, 32, 1024, 1, Form::passes, 3500, 2},
               {8, 32, 1024, 1, Form::passes, 900, 8},
               {16, 16, 512}}};
    default:
      return {{{1, 1, 256}, {1, 1, 128}, {2, 1, 128}, {2, 1, 256}, {4, 1, 128}}};
  }
}

constexpr Launches launches_to_try(Dtype dtype, int log_n) {
  return dtype == Dtype::f32 ? launches_to_try_32(log_n) : launches_to_try_16(dtype, log_n);
}

int sm_count() {
  static const int count = this_device().sm_count;
  return count;
}

void enqueue(const Geometry& g, Kernel kernel, const void* in, void* out, std::int64_t rows, Stream stream) {
  const Problem problem = make_problem(g.dtype, std::int64_t{1} << g.log_n, rows);
  const auto blocks = static_cast<unsigned>(ceil_div(rows, g.rows_per_block()));
  kernel<<<blocks, static_cast<unsigned>(g.threads()), static_cast<std::size_t>(g.shared_bytes()), stream>>>(
      batch_of(problem, g, sm_count(), in, out));
  FWHT_CUDA(cudaGetLastError());
}

template <Dtype dtype, int log_n, int which, NonFinite non_finite = NonFinite::handled,
          Scale scale = Scale::in_constants>
void add_candidate(std::vector<LaunchCandidate>& all) {
  constexpr Launch l = launches_to_try(dtype, log_n)[which];
  if constexpr (l.vectors > 0) {
    constexpr Geometry g{dtype, log_n, l};
    constexpr Scale kScale = has_scale_in_constants(g) ? scale : Scale::multiplied;
    const Kernel kernel = kernel_of<g, Access::dense, Trigger::at_end, non_finite, kScale>();
    FWHT_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, g.shared_bytes()));
    cudaFuncAttributes attributes{};
    FWHT_CUDA(cudaFuncGetAttributes(&attributes, kernel));
    std::string values = l.form == Form::passes ? "passes" : "registers";
    for (const int number : {l.vectors, l.warps_per_row, l.threads, l.blocks_per_sm, l.stagger, l.groups})
      values += ',' + std::to_string(number);
    values += non_finite == NonFinite::handled ? ",handled" : ",ignored";
    values += kScale == Scale::multiplied ? ",multiplied" : ",in_constants";
    all.push_back({values, attributes.numRegs, static_cast<int>(attributes.localSizeBytes),
                   [kernel, shape = g](const void* in, void* out, std::int64_t rows, Stream stream) {
                     enqueue(shape, kernel, in, out, rows, stream);
                   }});
  }
}

template <Dtype dtype, int log_n>
std::vector<LaunchCandidate> candidates_for() {
  std::vector<LaunchCandidate> all;
  [&]<int... which>(std::integer_sequence<int, which...>) {
    (add_candidate<dtype, log_n, which>(all), ...);
  }
  (std::make_integer_sequence<int, kMostCandidates>{});
  if constexpr (Geometry{dtype, log_n, {}}.kind() == Kind::split_mma) {
    add_candidate<dtype, log_n, 0, NonFinite::ignored>(all);
  }
  if constexpr (has_scale_in_constants({dtype, log_n, {}})) {
    add_candidate<dtype, log_n, 0, NonFinite::handled, Scale::multiplied>(all);
  }
  return all;
}

}  // namespace

std::vector<LaunchCandidate> candidates(Dtype dtype, int log_n) {
  if (log_n > largest_log_n(dtype)) return {};
  return dispatch_dtype(dtype, [&](auto d) {
    return dispatch_int<1, largest_log_n(d())>(log_n, [&](auto l) { return candidates_for<d(), l()>(); });
  });
}

}  // namespace fwht::mma_split
