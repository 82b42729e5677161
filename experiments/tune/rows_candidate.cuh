// What the tuners of mma_split and butterflies have in common: a kernel on rows as a candidate.
#pragma once

#include <string>

#include "common/device/launcher.hpp"
#include "experiments/tune/launch_tune.hpp"
#include "variants/kit/rows_plan.hpp"

namespace fwht::rows {

inline constexpr const char* kLaunchColumns =
    "form,vectors,warps_per_row,threads,blocks_per_sm,skew_clocks,skew_groups";

inline std::string values_of(const Launch& launch) {
  std::string values = launch.form == Form::in_warps       ? "in_warps"
                       : launch.form == Form::across_warps ? "across_warps"
                                                           : "smem_passes";
  for (const int number : {launch.vectors, launch.warps_per_row, launch.threads, launch.blocks_per_sm,
                           launch.skew.clocks, launch.skew.groups})
    values += ',' + std::to_string(number);
  return values;
}

/// `values`: of the columns. `factors` are those of the variant, for the orthonormal scale.
inline LaunchCandidate tune_candidate(const KernelId& id, Kernel kernel, Factors (*factors)(const Problem&),
                                      const std::string& values) {
  const Tile tile = id.tile();
  const int shared_bytes = 4 * tile.exchange_words();
  allow_shared(kernel, shared_bytes);
  const cudaFuncAttributes attributes = attributes_of(kernel);
  const int multiprocessors = this_device().sm_count;
  const auto enqueue = [=](const void* in, void* out, std::int64_t rows, Stream stream) {
    const Problem problem = make_problem(tile.dtype, std::int64_t{1} << tile.log_n, rows);
    launch(kernel,
           {.blocks = ceil_div(rows, tile.rows_per_block()), .threads = tile.threads, .shared = shared_bytes},
           stream, batch_of(problem, tile, factors(problem), multiprocessors, in, out));
  };
  return {values, attributes.numRegs, static_cast<int>(attributes.localSizeBytes), enqueue};
}

}  // namespace fwht::rows
