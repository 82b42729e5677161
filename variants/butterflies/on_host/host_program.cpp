#include "variants/butterflies/on_host/host_program.hpp"

#include <bit>
#include <stdexcept>
#include <utility>

#include "variants/butterflies/butterflies.hpp"
#include "variants/butterflies/launches.hpp"
#include "variants/butterflies/passes_program.hpp"
#include "variants/kit/on_host/host_lanes.hpp"

namespace fwht::butterflies {
namespace {

using rows::Floats;
using rows::Form;
using rows::Words;

/// See WarpMachine and PassesMachine; the twin of DeviceWarp.
template <Tile tile, class Buffer = rows::ExchangeBuffer>
class HostWarp : public rows::HostLanesOf<tile, Buffer> {
 public:
  using rows::HostLanesOf<tile, Buffer>::HostLanesOf;

  void take_run(int warp, int unit, Floats (&x)[4]) const {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i)
        x[i].at[static_cast<std::size_t>(lane)] = this->word(this->kBuffer.run_word(warp, lane, unit) + i);
    }
  }
  void put_run(int warp, int unit, const Floats (&x)[4]) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i)
        this->word(this->kBuffer.run_word(warp, lane, unit) + i) = x[i].at[static_cast<std::size_t>(lane)];
    }
  }
  void take_number(int warp, int run, int which, Floats& x) const {
    for (int lane = 0; lane < 32; ++lane)
      x.at[static_cast<std::size_t>(lane)] = this->word(this->kBuffer.number_word(warp, run, which, lane));
  }
  void put_number(int warp, int run, int which, const Floats& x) {
    for (int lane = 0; lane < 32; ++lane)
      this->word(this->kBuffer.number_word(warp, run, which, lane)) = x.at[static_cast<std::size_t>(lane)];
  }
  static void sync() {}
};

/// rows_in_registers.cuh, the vectors of one warp up to their own bits.
template <Tile tile>
void transform_vectors(const HostWarp<tile>& warp, const rows::HostRows& rows, int self,
                       Floats (&x)[tile.vectors][tile.vector_elements()]) {
  Words words[tile.vectors][4];
  for (int v = 0; v < tile.vectors; ++v)
    rows.load(self, v, words[v]);
  rows::widened_butterflies<tile>(warp, words, x);
  rows::vector_butterflies<tile.vector_bits()>(x);
}

template <Tile tile>
void block_in_warps(float shrink, rows::HostRows& rows) {
  rows::SharedRow no_exchange;
  const HostWarp<tile> warp(shrink, no_exchange);
  for (int self = 0; self < tile.warps(); ++self) {
    Floats x[tile.vectors][tile.vector_elements()];
    transform_vectors<tile>(warp, rows, self, x);
    for (int v = 0; v < tile.vectors; ++v)
      rows.store(self, v, x[v]);
  }
}

/// Behind the barrier of a row.
template <Tile tile, class Warp>
void store_shares(const Warp& warp, rows::HostRows& rows) {
  for (int self = 0; self < tile.warps_per_row; ++self) {
    for (int v = tile.vector_taken(self); v < tile.vector_taken(self) + tile.kept(); ++v) {
      Floats x[tile.warps_per_row][tile.piece()];
      rows::exchange_get(warp, v, tile.part_taken(self), x);
      for (int from = 0; from < tile.warps_per_row; ++from)
        rows.store_piece(self, from, v, x[from]);
    }
  }
}

template <Tile tile>
void block_across_warps(float shrink, rows::HostRows& rows) {
  rows::SharedRow exchange(static_cast<std::size_t>(tile.exchange_words()));
  HostWarp<tile> warp(shrink, exchange);
  for (int self = 0; self < tile.warps_per_row; ++self) {
    Floats x[tile.vectors][tile.vector_elements()];
    transform_vectors<tile>(warp, rows, self, x);
    rows::exchange_put(warp, self, x);
  }
  store_shares<tile>(warp, rows);
}

/// smem_passes.cuh.
template <Tile tile>
void block_in_passes(float shrink, rows::HostRows& rows) {
  rows::SharedRow row(static_cast<std::size_t>(tile.exchange_words()));
  HostWarp<tile, RunBuffer> warp(shrink, row);
  constexpr RunBuffer kBuffer{tile};
  for (int self = 0; self < tile.warps_per_row; ++self) {
    for (int v = 0; v < tile.vectors; ++v) {
      Words words[4];
      rows.load(self, v, words);
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i)
          row.at(static_cast<std::size_t>(kBuffer.word(self, v, lane, i))) =
              std::bit_cast<float>(words[i].at[static_cast<std::size_t>(lane)]);
      }
    }
    passes_of_warp<tile>(warp, self);
  }
  store_shares<tile>(warp, rows);
}

/// Runs the kernel whose tile and algorithm those of `id` are; false: not of this size and regime.
template <Dtype dtype, int log_n, int regime>
bool run_one(const KernelId& id, const Problem& problem, const rows::Bits& in, rows::Bits& out) {
  constexpr KernelId here = dense_kernel(dtype, log_n, static_cast<Regime>(regime));
  constexpr Tile tile = here.tile();
  if (tile != id.tile() || here.launch.form != id.launch.form) return false;
  const rows::Factors f = factors(problem);
  for (std::int64_t row = 0; row < problem.rows; row += tile.rows_per_block()) {
    rows::HostRows block(tile, f, in, out, row);
    if constexpr (here.launch.form == Form::in_warps) block_in_warps<tile>(f.shrink, block);
    if constexpr (here.launch.form == Form::across_warps) block_across_warps<tile>(f.shrink, block);
    if constexpr (here.launch.form == Form::smem_passes) block_in_passes<tile>(f.shrink, block);
  }
  return true;
}

template <Dtype dtype>
bool run_dtype(const KernelId& id, const Problem& problem, const rows::Bits& in, rows::Bits& out) {
  return [&]<int... i>(std::integer_sequence<int, i...>) {
    return (run_one<dtype, i / kRegimes + 1, i % kRegimes>(id, problem, in, out) || ...);
  }
  (std::make_integer_sequence<int, kRegimes * largest_log_n(dtype)>{});
}

}  // namespace

rows::HostRun run_on_host(const Problem& problem, const rows::Bits& in, Regime regime) {
  const KernelId id = dense_kernel(problem.dtype(), log2_floor(problem.n()), regime);
  rows::HostRun run;
  run.out.assign(in.size(), 0xFFFFU);
  const bool done = id.dtype == Dtype::f16    ? run_dtype<Dtype::f16>(id, problem, in, run.out)
                    : id.dtype == Dtype::bf16 ? run_dtype<Dtype::bf16>(id, problem, in, run.out)
                                              : run_dtype<Dtype::f32>(id, problem, in, run.out);
  if (!done) throw std::logic_error("the host program has no " + rows::describe(id));
  return run;
}

}  // namespace fwht::butterflies
