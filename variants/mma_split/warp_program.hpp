// What one warp computes, written once and executed twice. In the kernel `Warp` is the view of one lane:
// Float is a register. In the host test it is all 32 lanes at once: Float is an array of 32 registers, an mma
// is computed from the fragment maps, and a shuffle permutes the array. So the test proves the very code that
// the GPU runs.
//
// A Warp provides Float, Word (32 raw bits), first_stage_may_overflow(), and
//   first_stage(d, b0, b1)      d = H b, H +-1 in the data's type, b raw data; d four accumulators
//   remove_high(d, h0, h1)      d -= bf16 pairs h, through m16n8k8 with -I: exact
//   second_stage(d, b0, b1)     d = H' b, H' = +-2^-k in bf16;  second_stage_add: d += H' b
//   high_pair(a, b)             bf16 pair of the leading 8 bits of both (truncated);  low_pair: rounded
//   shuffle(x, lane_mask), lane_sign(bit)   -1 where that bit of the lane is set, else +1
//   fma(a, b, c), is_nan(x), any(flag)
//   widen(words, x)             the numbers of a vector times 2^-k;  keep_lanes(word, shift, row): word in
//   the
//                               lanes with lane >> shift = row, 0 in the others
//   put(from, v, quad, x)       a quad of vector v of warp `from` of the row into the exchange buffer
//   take(from, v, quad, x)      the same quad back
//   get(from, v, part, x)       the lane's piece of what warp `from` put for vector v; see Geometry
//   take_run(warp, unit, x), put_run(warp, unit, x)   a quad of the lane's run, and
//   take_number(warp, run, which, x), put_number(warp, run, which, x)   one number of a run: see Form::passes
//   sync()                      what lanes put, other lanes of the warp may take
#pragma once

#include "variants/mma_split/mma_split.hpp"

// Macros, because neither a function specifier nor a pragma can come from a template: the host compiler knows
// neither.
#ifdef __CUDACC__
#define FWHT_WARP_CODE __device__ __forceinline__
#define FWHT_UNROLL _Pragma("unroll")
#else
#define FWHT_WARP_CODE inline
#define FWHT_UNROLL
#endif

namespace fwht::mma_split {

/// Index bits 0 .. bits-1 of the register number.
template <int bits, int count, class Float>
FWHT_WARP_CODE void element_butterflies(Float (&x)[count]) {
  FWHT_UNROLL
  for (int half = 1; half < (1 << bits); half *= 2) {
    FWHT_UNROLL
    for (int e = 0; e < count; ++e) {
      if (e & half) continue;
      const Float a = x[e], b = x[e | half];
      x[e] = a + b;
      x[e | half] = a - b;
    }
  }
}

/// Index bits 0 .. bits-1 of the vector number.
template <int bits, int vectors, int count, class Float>
FWHT_WARP_CODE void vector_butterflies(Float (&x)[vectors][count]) {
  FWHT_UNROLL
  for (int half = 1; half < (1 << bits); half *= 2) {
    FWHT_UNROLL
    for (int v = 0; v < vectors; ++v) {
      if (v & half) continue;
      FWHT_UNROLL
      for (int e = 0; e < count; ++e) {
        const Float a = x[v][e], b = x[v | half][e];
        x[v][e] = a + b;
        x[v | half][e] = a - b;
      }
    }
  }
}

/// Index bits 0 .. bits-1 of the lane. sign * x + other is one rounding, as a + b or a - b: the product is
/// exact.
template <int bits, int vectors, int count, class Warp, class Float>
FWHT_WARP_CODE void lane_butterflies(const Warp& warp, Float (&x)[vectors][count]) {
  FWHT_UNROLL
  for (int bit = 0; bit < bits; ++bit) {
    const Float sign = warp.lane_sign(bit);
    FWHT_UNROLL
    for (int v = 0; v < vectors; ++v) {
      FWHT_UNROLL
      for (int e = 0; e < count; ++e)
        x[v][e] = warp.fma(sign, x[v][e], warp.shuffle(x[v][e], 1 << bit));
    }
  }
}

/// The element and lane bits of a row on CUDA cores, in ascending order.
template <int element_bits, int lane_bits, int vectors, int count, class Warp, class Float>
FWHT_WARP_CODE void butterflies(const Warp& warp, Float (&x)[vectors][count]) {
  FWHT_UNROLL
  for (int v = 0; v < vectors; ++v)
    element_butterflies<element_bits>(x[v]);
  lane_butterflies<lane_bits>(warp, x);
}

/// Bits b0..b7 (as far as they belong to a row) of `vectors` vectors by two tensor-core stages: x = 2^-k H
/// data. Stage by stage over all vectors, not vector by vector: the compiler keeps this order, so as many
/// tensor-core chains are in flight as there are vectors.
template <int vectors, class Warp, class Word, class Float>
FWHT_WARP_CODE void split_stages(const Warp& warp, const Word (&data)[vectors][4], Float (&x)[vectors][8]) {
  Float c[vectors][2][4];    // [b2][...]: after the first stage g counts (b0, b3, b4), 2t + p counts b5-b7
  Word high[vectors][2][2];  // [b2][b1]
  Float d[vectors][2][4];    // [b1][...]: elements are back in their places
  FWHT_UNROLL
  for (int v = 0; v < vectors; ++v) {
    FWHT_UNROLL
    for (int b2 = 0; b2 < 2; ++b2)
      warp.first_stage(c[v][b2], data[v][2 * b2], data[v][2 * b2 + 1]);
  }
  FWHT_UNROLL
  for (int v = 0; v < vectors; ++v) {
    FWHT_UNROLL
    for (int b2 = 0; b2 < 2; ++b2) {
      FWHT_UNROLL
      for (int b1 = 0; b1 < 2; ++b1)
        high[v][b2][b1] = warp.high_pair(c[v][b2][2 * b1], c[v][b2][2 * b1 + 1]);
      warp.remove_high(c[v][b2], high[v][b2][0], high[v][b2][1]);
    }
  }
  FWHT_UNROLL
  for (int v = 0; v < vectors; ++v) {
    FWHT_UNROLL
    for (int b1 = 0; b1 < 2; ++b1)
      warp.second_stage(d[v][b1], high[v][0][b1], high[v][1][b1]);
  }
  FWHT_UNROLL
  for (int v = 0; v < vectors; ++v) {
    FWHT_UNROLL
    for (int b1 = 0; b1 < 2; ++b1) {
      const Word low0 = warp.low_pair(c[v][0][2 * b1], c[v][0][2 * b1 + 1]);
      const Word low1 = warp.low_pair(c[v][1][2 * b1], c[v][1][2 * b1 + 1]);
      warp.second_stage_add(d[v][b1], low0, low1);
    }
  }
  FWHT_UNROLL
  for (int v = 0; v < vectors; ++v) {
    FWHT_UNROLL
    for (int e = 0; e < 8; ++e)
      x[v][e] = d[v][(e >> 1) & 1][2 * (e >> 2) + (e & 1)];
  }
}

/// At most four vectors at a time: more chains in flight than that only cost registers.
template <int vectors, class Warp, class Word, class Float>
FWHT_WARP_CODE void split_transform(const Warp& warp, const Word (&data)[vectors][4],
                                    Float (&x)[vectors][8]) {
  constexpr int kBatch = vectors < 4 ? vectors : 4;
  FWHT_UNROLL
  for (int first = 0; first < vectors; first += kBatch) {
    Word some_data[kBatch][4];
    Float some[kBatch][8];
    FWHT_UNROLL
    for (int v = 0; v < kBatch; ++v) {
      FWHT_UNROLL
      for (int w = 0; w < 4; ++w)
        some_data[v][w] = data[first + v][w];
    }
    split_stages(warp, some_data, some);
    FWHT_UNROLL
    for (int v = 0; v < kBatch; ++v) {
      FWHT_UNROLL
      for (int e = 0; e < 8; ++e)
        x[first + v][e] = some[v][e];
    }
  }
}

/// Whether, as this lane sees it, a vector held an infinity or a NaN, or a sum of the first stage overflowed.
/// Then hi = +-Inf or NaN, the residual multiplies it by the zeros of -I as well, and 0 * Inf = NaN reaches
/// every lo of its row of the first result, whatever the column. An infinite input does so in all 16 rows, so
/// that every output of the vector is NaN and one element a lane tells. An overflow (bf16 only) may befall a
/// single row, one value of (b0, b3, b4, b1): the lanes know every (b3, b4), the elements 0..3 every (b0,
/// b1). The butterflies of `vector_bits` come before the look: the first of the vectors that they join is
/// their sum, and tells for all of them.
template <int vector_bits, int vectors, class Warp, class Float>
FWHT_WARP_CODE auto split_failed(const Warp& warp, const Float (&x)[vectors][8]) {
  constexpr int kLooks = Warp::first_stage_may_overflow() ? 4 : 1;
  auto failed = warp.is_nan(x[0][0]);
  FWHT_UNROLL
  for (int v = 0; v < vectors; v += 1 << vector_bits) {
    FWHT_UNROLL
    for (int e = 0; e < kLooks; ++e)
      failed = failed | warp.is_nan(x[v][e]);
  }
  return failed;
}

/// Vectors on CUDA cores, on data times 2^-k like split_stages, but with infinities and NaN as plain sums
/// have them.
template <Geometry g, int vectors, class Warp, class Word, class Float>
FWHT_WARP_CODE void widened_butterflies(const Warp& warp, const Word (&data)[vectors][4],
                                        Float (&x)[vectors][g.vector_elements()]) {
  FWHT_UNROLL
  for (int v = 0; v < vectors; ++v)
    warp.widen(data[v], x[v]);
  butterflies<g.element_bits(), g.lane_bits()>(warp, x);
}

/// One vector by itself, and of the rows that it holds only row `row`, with zeros in place of the others: bit
/// for bit what it is in the company of finite rows, because sums with zeros are exact. By butterflies where
/// the tensor cores fail on it.
template <Geometry g, class Warp, class Word, class Float>
FWHT_WARP_CODE void transform_alone(const Warp& warp, int row, const Word (&data)[4], Float (&x)[1][8]) {
  Word alone[1][4];
  FWHT_UNROLL
  for (int w = 0; w < 4; ++w)
    alone[0][w] = warp.keep_lanes(data[w], g.lane_bits(), row);
  split_stages(warp, alone, x);
  if (warp.any(split_failed<0>(warp, x))) widened_butterflies<g>(warp, alone, x);
}

/// Vector `v` of warp `from` of the row into the exchange buffer.
template <int count, class Warp, class Float>
FWHT_WARP_CODE void put_vector(Warp& warp, int from, int v, const Float (&x)[count]) {
  FWHT_UNROLL
  for (int q = 0; q < count / 4; ++q) {
    const Float quad[4] = {x[4 * q], x[4 * q + 1], x[4 * q + 2], x[4 * q + 3]};
    warp.put(from, v, q, quad);
  }
}

/// The same vector back.
template <int count, class Warp, class Float>
FWHT_WARP_CODE void take_vector(const Warp& warp, int from, int v, Float (&x)[count]) {
  FWHT_UNROLL
  for (int q = 0; q < count / 4; ++q) {
    Float quad[4];
    warp.take(from, v, q, quad);
    FWHT_UNROLL
    for (int i = 0; i < 4; ++i)
      x[4 * q + i] = quad[i];
  }
}

/// Before the barrier of an exchange: warp `from` of the row hands out its vectors.
template <int vectors, int count, class Warp, class Float>
FWHT_WARP_CODE void exchange_put(Warp& warp, int from, const Float (&x)[vectors][count]) {
  FWHT_UNROLL
  for (int v = 0; v < vectors; ++v)
    put_vector(warp, from, v, x[v]);
}

/// After the barrier: gathers a part of vector `v` of every warp and transforms the warp bits.
template <int warps, int piece, class Warp, class Float>
FWHT_WARP_CODE void exchange_get(const Warp& warp, int v, int part, Float (&x)[warps][piece]) {
  FWHT_UNROLL
  for (int from = 0; from < warps; ++from)
    warp.get(from, v, part, x[from]);
  vector_butterflies<log2_floor(warps)>(x);
}

/// The first two passes of Form::passes over the elements of a warp, which are in the buffer and stay there.
template <Geometry g, class Float, class Warp>
FWHT_WARP_CODE void passes_of_warp(Warp& warp, int self) {
  constexpr int kVectors = g.vectors(), kNumbers = g.numbers_of_lane();
  Float x[4 * kVectors];
  FWHT_UNROLL
  for (int unit = 0; unit < kVectors; ++unit) {
    Float quad[4];
    warp.take_run(self, unit, quad);
    FWHT_UNROLL
    for (int i = 0; i < 4; ++i)
      x[4 * unit + i] = quad[i];
  }
  element_butterflies<2 + g.vector_bits()>(x);
  FWHT_UNROLL
  for (int unit = 0; unit < kVectors; ++unit) {
    const Float quad[4] = {x[4 * unit], x[4 * unit + 1], x[4 * unit + 2], x[4 * unit + 3]};
    warp.put_run(self, unit, quad);
  }
  warp.sync();
  Float y[32][kNumbers];
  FWHT_UNROLL
  for (int run = 0; run < 32; ++run) {
    FWHT_UNROLL
    for (int which = 0; which < kNumbers; ++which)
      warp.take_number(self, run, which, y[run][which]);
  }
  vector_butterflies<5>(y);
  FWHT_UNROLL
  for (int run = 0; run < 32; ++run) {
    FWHT_UNROLL
    for (int which = 0; which < kNumbers; ++which)
      warp.put_number(self, run, which, y[run][which]);
  }
}

}  // namespace fwht::mma_split
