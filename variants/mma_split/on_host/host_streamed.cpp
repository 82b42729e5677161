#include "variants/mma_split/on_host/host_program.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <memory>

#include "variants/mma_split/mma_split.hpp"
#include "variants/mma_split/on_host/host_warp.hpp"
#include "variants/mma_split/streamed_shape.hpp"

namespace fwht::mma_split {
namespace {

using rows::Floats;
using rows::Words;

/// streamed_rows.cuh, one row.
template <Dtype dtype>
class StreamedBlock {
  static constexpr rows::Tile kTile = StreamedShape::tile(dtype);
  static constexpr int kVectors = StreamedShape::kVectors, kWarps = StreamedShape::kWarps;

 public:
  StreamedBlock(const Problem& problem, const StreamedShape& shape, const reference::TensorCore& core,
                const rows::Bits& in, rows::Bits& out, std::int64_t row)
      : shape_(shape),
        last_(factors(problem).last),
        begin_(row << shape.log_n),
        in_(in),
        out_(out),
        exchange_(static_cast<std::size_t>(shape.exchange_bytes() / 4)),
        warp_(factors(problem).shrink, core, exchange_) {}

  void run() {
    for (int pass = 0; pass < shape_.halves(); ++pass) {
      for (int self = 0; self < kWarps; ++self) {
        Floats(&x)[kVectors][8] = sums_[self];
        if (shape_.halves() == 1) {
          transform(x, [&](int v, int w) { return word(0, self, v, w, 0U); });
        } else {
          const std::uint32_t flip = StreamedShape::signs_of_second_half(pass);
          transform(x, [&](int v, int w) {
            return SumOf<Words>{word(0, self, v, w, 0U), word(1, self, v, w, flip)};
          });
        }
        rows::vector_butterflies<log2_floor(kVectors)>(x);
      }
      for (int kept = 0; kept < StreamedShape::kKept; ++kept)
        exchange_and_store(pass, kept);
    }
  }

 private:
  template <class Read>
  void transform(Floats (&x)[kVectors][8], const Read& read) const {
    for (int first = 0; first < kVectors; first += StreamedShape::kGroup) {
      decltype(read(0, 0)) data[StreamedShape::kGroup][4];
      Floats some[StreamedShape::kGroup][8];
      for (int v = 0; v < StreamedShape::kGroup; ++v)
        for (int w = 0; w < 4; ++w)
          data[v][w] = read(first + v, w);
      split_stages(warp_, data, some);
      for (int v = 0; v < StreamedShape::kGroup; ++v)
        std::copy(std::begin(some[v]), std::end(some[v]), std::begin(x[first + v]));
    }
  }

  std::size_t element(int half, int warp, int v, std::size_t lane, int e) const {
    const int vector = StreamedShape::vector(half, warp, v, static_cast<int>(lane));
    return static_cast<std::size_t>(begin_ + std::int64_t{8} * vector + e);
  }
  Words word(int half, int warp, int v, int w, std::uint32_t flip) const {
    return Words::from([&](std::size_t lane) {
      return (in_.at(element(half, warp, v, lane, 2 * w)) | in_.at(element(half, warp, v, lane, 2 * w + 1))
                                                                << 16) ^
             flip;
    });
  }

  void exchange_and_store(int pass, int kept) {
    for (int quad = 0; quad < 2; quad += shape_.quads_at_once()) {
      std::fill(exchange_.begin(), exchange_.end(), NAN);
      each_four([&](int from, int to, int q, int lane, int i) {
        at(from, to, q, lane, i) = sums_[from][StreamedShape::taken(to, kept)][4 * (quad + q) + i].at.at(
            static_cast<std::size_t>(lane));
      });
      for (int to = 0; to < kWarps; ++to)
        take(pass, kept, quad, to);
    }
  }
  template <class Body>
  void each_four(const Body& body) const {
    for (int from = 0; from < kWarps; ++from)
      for (int to = 0; to < kWarps; ++to)
        for (int q = 0; q < shape_.quads_at_once(); ++q)
          for (int lane = 0; lane < 32; ++lane)
            for (int i = 0; i < 4; ++i)
              body(from, to, q, lane, i);
  }
  float& at(int from, int to, int q, int lane, int i) {
    return exchange_.at(static_cast<std::size_t>(4 * shape_.exchange_quad(from, to, q, lane) + i));
  }
  void take(int pass, int kept, int quad, int to) {
    for (int q = 0; q < shape_.quads_at_once(); ++q) {
      Floats y[kWarps][4];
      for (int from = 0; from < kWarps; ++from)
        for (int i = 0; i < 4; ++i)
          y[from][i] =
              Floats::from([&](std::size_t lane) { return at(from, to, q, static_cast<int>(lane), i); });
      rows::vector_butterflies<log2_floor(kWarps)>(y);
      for (int from = 0; from < kWarps; ++from) {
        for (int i = 0; i < 4; ++i) {
          for (std::size_t lane = 0; lane < 32; ++lane)
            out_.at(element(pass, from, StreamedShape::taken(to, kept), lane, 4 * (quad + q) + i)) =
                encode(dtype, y[from][i].at.at(lane) * last_);
        }
      }
    }
  }

  StreamedShape shape_;
  float last_;
  std::int64_t begin_;
  const rows::Bits& in_;
  rows::Bits& out_;
  rows::SharedRow exchange_;
  HostWarp<kTile> warp_;
  Floats sums_[kWarps][kVectors][8];
};

template <Dtype dtype>
void run_rows(const Problem& problem, const StreamedShape& shape, const reference::TensorCore& core,
              const rows::Bits& in, rows::Bits& out) {
  for (std::int64_t row = 0; row < problem.rows; ++row)
    std::make_unique<StreamedBlock<dtype>>(problem, shape, core, in, out, row)->run();
}

}  // namespace

rows::HostRun run_streamed(const Problem& problem, const rows::Bits& in, const reference::TensorCore& core,
                           int rounds) {
  const StreamedShape shape{log2_floor(problem.n()), rounds};
  rows::HostRun run;
  run.out.assign(in.size(), 0xFFFFU);
  if (problem.dtype() == Dtype::f16) {
    run_rows<Dtype::f16>(problem, shape, core, in, run.out);
  } else {
    run_rows<Dtype::bf16>(problem, shape, core, in, run.out);
  }
  return run;
}

}  // namespace fwht::mma_split
