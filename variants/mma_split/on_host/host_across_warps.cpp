#include "variants/mma_split/on_host/host_run.hpp"
#include "variants/mma_split/on_host/host_warp.hpp"

namespace fwht::mma_split {
namespace {

using rows::Floats;
using rows::Words;

/// rows_across_warps.cuh, one block, which is one row.
template <Tile tile>
class BlockAcrossWarps {
  static constexpr int kVectors = tile.vectors, kWarps = tile.warps_per_row;

 public:
  BlockAcrossWarps(const Problem& problem, const reference::TensorCore& core, const rows::Bits& in,
                   rows::Bits& out, std::int64_t first_row, const rows::RowSigns& signs)
      : rows_(tile, factors(problem), in, out, first_row, signs),
        exchange_(static_cast<std::size_t>(tile.exchange_words())),
        warp_(factors(problem).shrink, core, exchange_) {}

  void run() {
    std::vector<int> failed;
    for (int self = 0; self < kWarps; ++self) {
      Words words[kVectors][4];
      for (int v = 0; v < kVectors; ++v)
        rows_.load(self, v, words[v]);
      Floats x[kVectors][8];
      split_transform(warp_, words, x);
      rows::vector_butterflies<tile.vector_bits()>(x);
      if (warp_.any(split_failed<tile.vector_bits()>(warp_, x))) failed.push_back(self);
      rows::exchange_put(warp_, self, x);
    }
    for (const int self : failed)  // behind the barrier that votes
      put_again(self);
    failures_ = static_cast<int>(failed.size());
    for (int self = 0; self < kWarps; ++self) {
      for (int v = tile.vector_taken(self); v < tile.vector_taken(self) + tile.kept(); ++v) {
        Floats x[kWarps][tile.piece()];
        rows::exchange_get(warp_, v, tile.part_taken(self), x);
        for (int from = 0; from < kWarps; ++from)
          rows_.store_piece(self, from, v, x[from]);
      }
    }
  }
  int failures() const { return failures_; }

 private:
  /// By way of the exchange buffer, as the kernel does.
  void put_again(int self) {
    for (int v = 0; v < kVectors; ++v) {
      Words words[4];
      Floats one[1][8];
      rows_.load(self, v, words);
      transform_alone<tile>(warp_, 0, words, one);
      rows::put_vector(warp_, self, v, one[0]);
    }
    Floats x[kVectors][8];
    for (int v = 0; v < kVectors; ++v)
      rows::take_vector(warp_, self, v, x[v]);
    rows::vector_butterflies<tile.vector_bits()>(x);
    rows::exchange_put(warp_, self, x);
  }

  rows::HostRows rows_;
  rows::SharedRow exchange_;
  HostWarp<tile> warp_;
  int failures_ = 0;
};

}  // namespace

bool run_across_warps(const KernelId& id, const Problem& problem, const rows::Bits& in,
                      const rows::RowSigns& signs, const reference::TensorCore& core, rows::HostRun& run) {
  return run_blocks<rows::Form::across_warps, BlockAcrossWarps>(id, problem, in, signs, core, run);
}

}  // namespace fwht::mma_split
