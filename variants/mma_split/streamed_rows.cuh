// mma_split: rows of 32768 and 65536, one to a multiprocessor.
//
// The row comes to shared memory as it is. A group of its vectors makes room for the next row as soon as the
// tensor cores have had it, so that a block, which is alone on its multiprocessor, loads under its own
// arithmetic. Its warps hold 2^15 sums. Rows of 65536 take two passes over the row in shared memory: the
// first stage adds the second half to the first, or subtracts it.
//
//   where    e: register inside the 16-byte vector, l: lane, v: vector of the lane, w: warp, p: pass
//   load     cp.async, 16 bytes a lane: what a lane brings it reads itself, so no thread waits for another
//   b0-b2 e | b3-b7 l | b8-b11 v | b12-b14 w | b15 p
//      b15, b0,b1,b3,b4: mma 1 | b2,b5-b7: mma 2 | FADD over v | exchange (w <-> v) | FADD over w
//   store    16 bytes a lane, from registers
//
// The exchange takes two or four rounds, so that it fits a block beside the row: 128 and 192 KB, or 96 and
// 160 KB. It has no bank conflict.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/device/ptx/cp_async.cuh"
#include "common/device/ptx/global.cuh"
#include "common/device/ptx/griddepcontrol.cuh"
#include "variants/mma_split/device_warp.cuh"
#include "variants/mma_split/streamed_shape.hpp"

namespace fwht::mma_split {

/// What one warp does with the rows of its block.
template <Dtype dtype, int log_n, int rounds>
class StreamedWarp {
  static constexpr StreamedShape kShape{log_n, rounds};
  static constexpr int kVectors = StreamedShape::kVectors, kWarps = StreamedShape::kWarps;
  static constexpr int kGroup = StreamedShape::kGroup, kQuads = kShape.quads_at_once();
  using Word = std::uint32_t;
  using Data = std::conditional_t<kShape.halves() == 1, Word, SumOf<Word>>;

 public:
  static constexpr int kPasses = kShape.halves();

  __device__ StreamedWarp(const Batch& batch, uint4* shared) : batch_(batch), warp_(batch, nullptr) {
    constexpr StreamedShape here = kShape;  // an object that device code can call
    const int self = static_cast<int>(threadIdx.x >> 5), lane = rows::lane_of_warp();
    auto* const exchange = reinterpret_cast<float4*>(shared + here.row_bytes() / StreamedShape::kVectorBytes);
    const int first = StreamedShape::vector(0, self, 0, lane);
    in_ = static_cast<const uint4*>(batch.in) + first;
    row_ = shared + first;
    given_ = exchange + here.exchange_quad(self, 0, 0, lane);
    taken_ = exchange + here.exchange_quad(0, self, 0, lane);
    out_ = static_cast<uint4*>(batch.out) + StreamedShape::vector(0, 0, StreamedShape::taken(self, 0), lane);
  }

  __device__ void ask(unsigned row) const {
#pragma unroll
    for (int first = 0; first < kVectors; first += kGroup)
      ask(row, first);
  }

  /// x = 2^-k H over b0..b7 and b15 of the row at hand, group after group. In the last pass each group
  /// makes room for that of `next_row`.
  __device__ void transform(int pass, unsigned next_row, float (&x)[kVectors][8]) const {
    const Word flip = StreamedShape::signs_of_second_half(pass);
#pragma unroll
    for (int first = 0; first < kVectors; first += kGroup) {
      Data data[kGroup][4];
      float some[kGroup][8];
#pragma unroll
      for (int v = 0; v < kGroup; ++v)
        read(first + v, flip, data[v]);
      split_stages(warp_, data, some);
#pragma unroll
      for (int v = 0; v < kGroup; ++v) {
#pragma unroll
        for (int e = 0; e < 8; ++e)
          x[first + v][e] = some[v][e];
      }
      if (pass == kPasses - 1 && next_row <= batch_.last_block) ask(next_row, first);
    }
  }

  /// Hands out the vectors that every warp keeps as number `kept`, adds over the warps and stores.
  __device__ void exchange_and_store(unsigned row, int pass, int kept, const float (&x)[kVectors][8]) const {
    Word words[kWarps][4];
#pragma unroll
    for (int quad = 0; quad < 2; quad += kQuads) {
      __syncthreads();  // what was there has been taken
      hand_out(kept, quad, x);
      __syncthreads();
      take(quad, words);
    }
    auto* const out = out_ + vectors_before(row) + StreamedShape::vector(pass, 0, kept, 0);
#pragma unroll
    for (int from = 0; from < kWarps; ++from)
      ptx::st_global_if(true, out + StreamedShape::vector(0, from, 0, 0), words[from]);
  }

 private:
  __device__ std::int64_t vectors_before(unsigned row) const {
    return row * (batch_.row_stride / 8);
  }

  /// Vectors from `first` on of a row that is not there yet, of both halves.
  __device__ void ask(unsigned row, int first) const {
    const auto* const in = in_ + vectors_before(row);
#pragma unroll
    for (int half = 0; half < kPasses; ++half) {
#pragma unroll
      for (int v = first; v < first + kGroup; ++v) {
        const int place = StreamedShape::vector(half, 0, v, 0);
        ptx::cp_async_cg_shared_global_16(row_ + place, in + place);
      }
    }
  }
  __device__ void read(int v, Word flip, Data (&data)[4]) const {
    const uint4 a = row_[StreamedShape::vector(0, 0, v, 0)];
    if constexpr (kPasses == 1) {
      data[0] = a.x, data[1] = a.y, data[2] = a.z, data[3] = a.w;
    } else {
      const uint4 b = row_[StreamedShape::vector(1, 0, v, 0)];
      data[0] = {a.x, b.x ^ flip}, data[1] = {a.y, b.y ^ flip};
      data[2] = {a.z, b.z ^ flip}, data[3] = {a.w, b.w ^ flip};
    }
  }

  __device__ void hand_out(int kept, int quad, const float (&x)[kVectors][8]) const {
    constexpr StreamedShape here = kShape;
#pragma unroll
    for (int to = 0; to < kWarps; ++to) {
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        const float(&of)[8] = x[StreamedShape::taken(to, kept)];
        const int e = 4 * (quad + q);
        given_[here.exchange_quad(0, to, q, 0)] = {of[e], of[e + 1], of[e + 2], of[e + 3]};
      }
    }
  }
  /// y = scale 2^k H over the bits that count warps, rounded once.
  __device__ void take(int quad, Word (&words)[kWarps][4]) const {
    constexpr StreamedShape here = kShape;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      float y[kWarps][4];
#pragma unroll
      for (int from = 0; from < kWarps; ++from) {
        const float4 four = taken_[here.exchange_quad(from, 0, q, 0)];
        y[from][0] = four.x, y[from][1] = four.y, y[from][2] = four.z, y[from][3] = four.w;
      }
      rows::vector_butterflies<log2_floor(kWarps)>(y);
#pragma unroll
      for (int from = 0; from < kWarps; ++from) {
        Word two[2];
        rows::round_to_words<dtype>(batch_, y[from], two);
        words[from][2 * (quad + q)] = two[0], words[from][2 * (quad + q) + 1] = two[1];
      }
    }
  }

  const Batch& batch_;
  DeviceWarp<StreamedShape::tile(dtype)> warp_;
  // Where this lane's own first vector or quad is: the maps of StreamedShape are sums of what each of their
  // arguments adds.
  const uint4* in_;
  uint4 *row_, *out_;
  float4 *given_, *taken_;
};

/// Every block takes one row after the other, so many apart as there are blocks. A row is a block of `batch`.
template <Dtype dtype, int log_n, int rounds>
__global__ void __launch_bounds__(StreamedShape::kThreads, 1)
    streamed_rows(__grid_constant__ const Batch batch) {
  extern __shared__ uint4 streamed[];
  using Warp = StreamedWarp<dtype, log_n, rounds>;
  const Warp warp(batch, streamed);

  ptx::griddepcontrol_wait();
  warp.ask(blockIdx.x);
  ptx::griddepcontrol_launch_dependents();
#pragma unroll 1
  for (unsigned row = blockIdx.x; row <= batch.last_block; row += gridDim.x) {
    ptx::cp_async_wait_all();
#pragma unroll 1
    for (int pass = 0; pass < Warp::kPasses; ++pass) {
      float x[StreamedShape::kVectors][8];
      warp.transform(pass, row + gridDim.x, x);
      rows::vector_butterflies<log2_floor(StreamedShape::kVectors)>(x);
#pragma unroll
      for (int kept = 0; kept < StreamedShape::kKept; ++kept)
        warp.exchange_and_store(row, pass, kept, x);
    }
  }
}

}  // namespace fwht::mma_split
