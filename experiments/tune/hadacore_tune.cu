// hadacore_tune: measures launch configurations, for the table in hadacore.hpp: fp16 sums for f16, fp32 sums
// for bf16; none for f32.

#include <string>

#include "common/device/launcher.hpp"
#include "common/host/static_dispatch.hpp"
#include "experiments/tune/launch_tune.hpp"
#include "variants/hadacore/hadacore.hpp"
#include "variants/hadacore/hadacore_kernel.cuh"

namespace fwht::hadacore {
namespace {

/// {chunks per warp, warps per block, blocks per SM}, the published one first.
constexpr std::array<Config, 8> configs_to_try(int log_n) {
  switch (log_n) {
    case 10:
      return {{{2, 2, 16}, {2, 4, 8}, {2, 8, 4}, {4, 1, 24}, {4, 1, 32}, {4, 2, 12}, {4, 2, 16}, {4, 4, 8}}};
    case 11:
      return {{{2, 4, 8}, {2, 4, 16}, {2, 8, 4}, {4, 2, 12}, {4, 2, 16}, {4, 4, 8}, {8, 1, 16}, {8, 2, 8}}};
    case 12:
      return {{{2, 8, 4}, {2, 8, 8}, {4, 4, 8}, {4, 4, 12}, {4, 4, 16}, {8, 2, 8}, {8, 2, 12}, {4, 8, 6}}};
    case 13:
      return {{{2, 16, 3}, {2, 16, 4}, {4, 8, 4}, {4, 8, 6}, {4, 8, 8}, {8, 4, 6}, {8, 4, 8}, {16, 2, 8}}};
    case 14:
      return {{{4, 16, 2}, {4, 16, 3}, {4, 16, 4}, {8, 8, 2}, {8, 8, 3}, {8, 8, 4}, {16, 4, 4}, {4, 32, 1}}};
    case 15:
      return {
          {{8, 16, 1}, {8, 16, 2}, {8, 16, 3}, {16, 8, 1}, {16, 8, 2}, {16, 8, 3}, {8, 32, 1}, {16, 16, 1}}};
    default:
      return {{{2, 1, 24}, {2, 1, 32}, {2, 2, 16}, {2, 4, 8}, {2, 8, 4}, {4, 1, 16}, {4, 2, 12}, {4, 4, 6}}};
  }
}

template <Dtype dtype, int log_n, int which>
LaunchCandidate candidate() {
  constexpr Config config = configs_to_try(log_n)[which];
  constexpr Shape shape = shape_of(log_n, config);
  static_assert(fits(shape));
  const auto kernel =
      transform_tile<log_n, shape.log_chunks, shape.log_warps, config.blocks_per_sm, dtype, true>;
  allow_shared(kernel, shape.shared_bytes());
  const cudaFuncAttributes attributes = attributes_of(kernel);
  const auto enqueue = [kernel, shape](const void* in, void* out, std::int64_t rows, Stream stream) {
    const Problem problem = make_problem(dtype, std::int64_t{1} << log_n, rows);
    const RowBatch batch{in, out, rows, problem.row_stride(), encode(dtype, scale_constant(problem))};
    launch(kernel,
           {.blocks = grid_for(shape, rows).x, .threads = shape.threads(), .shared = shape.shared_bytes()},
           stream, batch);
  };
  return {std::to_string(config.chunks_per_warp) + ',' + std::to_string(config.warps_per_block) + ',' +
              std::to_string(config.blocks_per_sm),
          attributes.numRegs, static_cast<int>(attributes.localSizeBytes), enqueue};
}

std::vector<LaunchCandidate> candidates(Dtype dtype, int log_n) {
  if (dtype == Dtype::f32) return {};
  return dispatch_int<4, kLargestLogN>(log_n, [&](auto l) {
    return [&]<int... which>(std::integer_sequence<int, which...>) {
      if (dtype == Dtype::bf16) return std::vector{candidate<Dtype::bf16, l(), which>()...};
      return std::vector{candidate<Dtype::f16, l(), which>()...};
    }
    (std::make_integer_sequence<int, static_cast<int>(configs_to_try(l()).size())>{});
  });
}

}  // namespace
}  // namespace fwht::hadacore

fwht::LaunchTuning fwht::launch_tuning() {
  return {hadacore::variant, "chunks_per_warp,warps_per_block,blocks_per_sm", 4, hadacore::kLargestLogN,
          hadacore::candidates};
}
