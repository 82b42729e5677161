// What one warp computes on CUDA cores, written once and executed twice: a kernel runs it on DeviceWarp, the
// view of one lane, where Float is a register. A host test runs it on HostWarp, all 32 lanes at once, where
// Float is an array of 32 registers. So the test proves the very code that the GPU runs.
#pragma once

#include <concepts>

#include "common/host/bits.hpp"
#include "variants/kit/tile.hpp"

// Macros, because neither a function specifier nor a pragma can come from a template: the host compiler knows
// neither.
#ifdef __CUDACC__
#define FWHT_WARP_CODE __device__ __forceinline__
#define FWHT_UNROLL _Pragma("unroll")
#else
#define FWHT_WARP_CODE inline
#define FWHT_UNROLL
#endif

namespace fwht::rows {

/// A warp with fp32 registers, lanes and its row's exchange buffer. `from` is a warp of the row, `v` one of
/// its vectors.
///   Float, Word                a register: fp32, 32 raw bits
///   kVectorElements            numbers of a 16-byte vector
///   kPiece                     numbers of a vector that a lane takes in the exchange (Tile::piece)
///   shuffle(x, lane_mask)      x of the lane whose number differs by that mask
///   lane_sign(bit)             -1 where that bit of the lane is set, else +1
///   fma(a, b, c)               one rounding
///   widen(words, x)            the numbers of a vector times 2^-k
///   put(from, v, quad, x)      four numbers of a vector into the exchange buffer
///   take(from, v, quad, x)     the same four back
///   get(from, v, part, x)      the lane's piece of part `part` of what `from` put
template <class Warp>
concept WarpMachine = requires(Warp& warp, const Warp& machine, const typename Warp::Float& number,
                               typename Warp::Float (&quad)[4],
                               typename Warp::Float (&vector)[Warp::kVectorElements],
                               typename Warp::Float (&piece)[Warp::kPiece],
                               const typename Warp::Word (&words)[4], int i) {
  { machine.shuffle(number, i) } -> std::same_as<typename Warp::Float>;
  { machine.lane_sign(i) } -> std::same_as<typename Warp::Float>;
  { machine.fma(number, number, number) } -> std::same_as<typename Warp::Float>;
  machine.widen(words, vector);
  warp.put(i, i, i, quad);
  machine.take(i, i, i, quad);
  machine.get(i, i, i, piece);
};

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
template <int bits, int vectors, int count, WarpMachine Warp, class Float>
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

/// Vectors as they came from memory, widened; then the element and lane bits of their rows, in ascending
/// order: x = 2^-k H data.
template <Tile tile, int vectors, WarpMachine Warp, class Word, class Float>
FWHT_WARP_CODE void widened_butterflies(const Warp& warp, const Word (&data)[vectors][4],
                                        Float (&x)[vectors][tile.vector_elements()]) {
  FWHT_UNROLL
  for (int v = 0; v < vectors; ++v)
    warp.widen(data[v], x[v]);
  FWHT_UNROLL
  for (int v = 0; v < vectors; ++v)
    element_butterflies<tile.element_bits()>(x[v]);
  lane_butterflies<tile.lane_bits()>(warp, x);
}

/// Vector `v` of warp `from` of the row into the exchange buffer.
template <int count, WarpMachine Warp, class Float>
FWHT_WARP_CODE void put_vector(Warp& warp, int from, int v, const Float (&x)[count]) {
  FWHT_UNROLL
  for (int q = 0; q < count / 4; ++q) {
    const Float quad[4] = {x[4 * q], x[4 * q + 1], x[4 * q + 2], x[4 * q + 3]};
    warp.put(from, v, q, quad);
  }
}

/// The same vector back.
template <int count, WarpMachine Warp, class Float>
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
template <int vectors, int count, WarpMachine Warp, class Float>
FWHT_WARP_CODE void exchange_put(Warp& warp, int from, const Float (&x)[vectors][count]) {
  FWHT_UNROLL
  for (int v = 0; v < vectors; ++v)
    put_vector(warp, from, v, x[v]);
}

/// After the barrier: gathers a part of vector `v` of every warp and transforms the warp bits.
template <int warps, int piece, WarpMachine Warp, class Float>
FWHT_WARP_CODE void exchange_get(const Warp& warp, int v, int part, Float (&x)[warps][piece]) {
  FWHT_UNROLL
  for (int from = 0; from < warps; ++from)
    warp.get(from, v, part, x[from]);
  vector_butterflies<log2_floor(warps)>(x);
}

}  // namespace fwht::rows
