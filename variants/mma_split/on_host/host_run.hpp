// For tests: from the value that names a kernel to its host program.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "variants/mma_split/mma_split.hpp"
#include "variants/mma_split/on_host/host_program.hpp"
#include "variants/mma_split/plain_launches.hpp"

namespace fwht::mma_split {

/// The launches of plain rows in all regimes, then those that rows with signs share with codes.
constexpr KernelId kernel_on_host(Dtype dtype, int log_n, int which) {
  const auto regime = static_cast<Regime>(which % kRegimes);
  return which < kRegimes ? plain_kernel(dtype, log_n, regime, Scaling::results)
                          : dense_kernel(dtype, log_n, regime, Scaling::results);
}

/// Runs Block<tile> over all blocks of the problem, if a dense kernel of this algorithm has the tile of `id`.
template <rows::Form form, template <Tile> class Block>
bool run_blocks(const KernelId& id, const Problem& problem, const rows::Bits& in, const rows::RowSigns& signs,
                const reference::TensorCore& core, rows::HostRun& run) {
  bool done = false;
  const auto try_tile = [&]<Dtype dtype, int log_n, int which, bool is_regular>() {
    constexpr KernelId plain = kernel_on_host(dtype, log_n, which);
    if constexpr (plain.launch.form == form && (!is_regular || takes_regular(log_n))) {
      constexpr Tile tile = (is_regular ? regular(plain) : plain).tile();
      if (done || tile != id.tile()) return;
      done = true;
      for (std::int64_t row = 0; row < problem.rows; row += tile.rows_per_block()) {
        Block<tile> block(problem, core, in, run.out, row, signs);
        block.run();
        run.failures += block.failures();
      }
    }
  };
  const auto try_one = [&]<Dtype dtype, int log_n, int which>() {
    try_tile.template operator()<dtype, log_n, which, false>();
    try_tile.template operator()<dtype, log_n, which, true>();
  };
  const auto try_all = [&]<Dtype dtype, int log_n, int... which>(std::integer_sequence<int, which...>) {
    (try_one.template operator()<dtype, log_n, which>(), ...);
  };
  const auto try_sizes = [&]<Dtype dtype, int... offset>(std::integer_sequence<int, offset...>) {
    (try_all.template operator()<dtype, kSmallestLogN + offset>(
         std::make_integer_sequence<int, 2 * kRegimes>{}),
     ...);
  };
  constexpr std::make_integer_sequence<int, kLargestLogN - kSmallestLogN + 1> kSizes{};
  try_sizes.template operator()<Dtype::f16>(kSizes);
  try_sizes.template operator()<Dtype::bf16>(kSizes);
  return done;
}

}  // namespace fwht::mma_split
