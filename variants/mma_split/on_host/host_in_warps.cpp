#include "variants/mma_split/on_host/host_run.hpp"
#include "variants/mma_split/on_host/host_warp.hpp"

namespace fwht::mma_split {
namespace {

using rows::Floats;
using rows::Words;

/// rows_in_warps.cuh, one block.
template <Tile tile>
class BlockInWarps {
  static constexpr int kVectors = tile.vectors;

 public:
  BlockInWarps(const Problem& problem, const reference::TensorCore& core, const rows::Bits& in,
               rows::Bits& out, std::int64_t first_row, const rows::RowSigns& signs)
      : rows_(tile, factors(problem), in, out, first_row, signs),
        warp_(factors(problem).shrink, core, no_exchange_) {}

  void run() {
    for (int self = 0; self < tile.warps(); ++self) {
      Words words[kVectors][4];
      for (int v = 0; v < kVectors; ++v)
        rows_.load(self, v, words[v]);
      Floats x[kVectors][8];
      split_transform(warp_, words, x);
      rows::vector_butterflies<tile.vector_bits()>(x);
      if (warp_.any(split_failed<tile.vector_bits()>(warp_, x))) {
        ++failures_;
        transform_rows_alone(self);
        continue;
      }
      for (int v = 0; v < kVectors; ++v)
        rows_.store(self, v, x[v]);
    }
  }
  int failures() const { return failures_; }

 private:
  void transform_rows_alone(int self) {
    constexpr int kOfRow = tile.vectors_of_row();
    for (int first = 0; first < kVectors; first += kOfRow) {
      for (int row = 0; row < (1 << tile.log_rows_per_warp_vector()); ++row) {
        Floats x[kOfRow][8];
        for (int v = 0; v < kOfRow; ++v) {
          Words words[4];
          Floats one[1][8];
          rows_.load(self, first + v, words);
          transform_alone<tile>(warp_, row, words, one);
          for (int e = 0; e < 8; ++e)
            x[v][e] = one[0][e];
        }
        rows::vector_butterflies<tile.vector_bits()>(x);
        for (int v = 0; v < kOfRow; ++v)
          rows_.store(self, first + v, x[v], row);
      }
    }
  }

  rows::HostRows rows_;
  rows::SharedRow no_exchange_;
  HostWarp<tile> warp_;
  int failures_ = 0;
};

}  // namespace

bool run_in_warps(const KernelId& id, const Problem& problem, const rows::Bits& in,
                  const rows::RowSigns& signs, const reference::TensorCore& core, rows::HostRun& run) {
  return run_blocks<rows::Form::in_warps, BlockInWarps>(id, problem, in, signs, core, run);
}

}  // namespace fwht::mma_split
