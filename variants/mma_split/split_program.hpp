// mma_split: what one warp computes on tensor cores, written once and executed twice; see
// variants/kit/warp_program.hpp.
//
// Two stages for 256 consecutive elements of a warp, data as operand B both times. The accumulators of the
// first stage, read as operand B of the second, are transposed: what was counted by g (lane / 4) is now
// counted by k. After the second stage every element is back where it was loaded.
//
//             bits behind k0, k1, k2, k3    columns g       one mma for each value of
//   stage 1   b0, b3, b4, b1                b5, b6, b7      b2
//   stage 2   b5, b6, b7, b2                b0, b3, b4      b1
//
// Sylvester's matrix does not change when rows and columns have their bits permuted alike, so the same
// fragment serves any four bits. Nor does the regular matrix, if both bits of a base-4 digit lie in one
// stage: Tile::place_of_lane exchanges b3 with b4 and b5. Then k0, k3 and k1, k2 are b0, b1 and b4, b5 in
// stage 1, and b3, b2 and b6, b7 in stage 2.
#pragma once

#include <concepts>
#include <cstdint>

#include "common/device/ptx/fragments.hpp"
#include "variants/kit/tile.hpp"
#include "variants/kit/warp_program.hpp"

namespace fwht::mma_split {

using rows::Tile;

// ---- constant matrices

inline constexpr int kFirstStageBits[4] = {0, 3, 4, 1};
inline constexpr int kSecondStageBits[4] = {5, 6, 7, 2};

/// Which of the four bits of k belong to a row of n = 2^log_n; the others tell rows apart.
constexpr unsigned transformed_bits(const int (&bits)[4], int log_n) {
  unsigned mask = 0;
  for (int i = 0; i < 4; ++i)
    mask |= bits[i] < log_n ? 1U << i : 0U;
  return mask;
}

/// Half of a matrix fragment: the Sylvester entry over the `transformed` bits of row m and column k where all
/// other bits agree, else 0. `one` is the 16-bit pattern of a positive entry.
constexpr std::uint32_t matrix_entry(unsigned m, unsigned k, unsigned transformed, std::uint32_t one) {
  if (((m ^ k) & ~transformed & 15U) != 0) return 0;
  return one ^ (((0x6996U >> (m & k & transformed)) & 1U) << 15);  // 0x6996: parities of 0..15
}

/// Register r of the 16 x 16 matrix as operand A, where bit 3 is transformed: H16 = [H8 H8; H8 -H8], and
/// register r holds the quarter with m3 = r & 1, k3 = r >> 1.
constexpr std::uint32_t matrix_fragment(int lane, int r, unsigned transformed, std::uint32_t one) {
  const auto m = static_cast<unsigned>(ptx::a_row(lane, 0));
  const auto k = static_cast<unsigned>(ptx::a_column(lane, 0, 0));
  const std::uint32_t signed_one = r == 3 ? one ^ 0x8000U : one;
  return matrix_entry(m, k, transformed, signed_one) | matrix_entry(m, k | 1U, transformed, signed_one) << 16;
}

/// The same for the regular matrix: -1 where an odd number of the pairs k0, k3 and k1, k2 differ in both
/// bits.
/// `transformed` has both bits of a pair, or none.
constexpr std::uint32_t regular_fragment(int lane, int r, unsigned transformed, std::uint32_t one) {
  constexpr unsigned kNegative = 0x6AC0;  // bit m ^ k
  const auto entry = [&](int half) -> std::uint32_t {
    const auto differ = static_cast<unsigned>(ptx::a_row(lane, r) ^ ptx::a_column(lane, r, half));
    return (differ & ~transformed) != 0 ? 0 : one ^ ((kNegative >> differ & 1U) << 15);
  };
  return entry(0) | entry(1) << 16;
}

/// What a kernel of `tile` multiplies by.
constexpr std::uint32_t fragment_of(const Tile& tile, int lane, int r, unsigned transformed,
                                    std::uint32_t one) {
  return tile.regular ? regular_fragment(lane, r, transformed, one)
                      : matrix_fragment(lane, r, transformed, one);
}

// ---- the program

/// A warp with the tensor core and its constant matrices: H of +-1 in the data's type, H' = 2^-k H in bf16.
///   first_stage(d, b0, b1)       d = H b, b raw data; d four accumulators
///   first_stage_add(d, b0, b1)   d += H b
///   high_pair(a, b)              bf16 pair of the leading 8 bits of both (truncated)
///   remove_high(d, h0, h1)       d -= bf16 pairs h, through m16n8k8 with -I: exact
///   low_pair(a, b)               bf16 pair, rounded
///   second_stage(d, b0, b1)      d = H' b
///   second_stage_add(d, b0, b1)  d += H' b
///   is_nan(x), any(flag)         a flag a lane, and whether any lane has it set
///   keep_lanes(word, shift, row) word in the lanes with lane >> shift = row, 0 in the others
///   first_stage_may_overflow()   whether sums of 16 numbers may exceed fp32: bf16
template <class Warp>
concept SplitMachine = rows::WarpMachine<Warp> &&
    requires(const Warp& machine, const typename Warp::Float& number, const typename Warp::Word& word,
             typename Warp::Float (&d)[4], int i) {
  machine.first_stage(d, word, word);
  machine.first_stage_add(d, word, word);
  { machine.high_pair(number, number) } -> std::same_as<typename Warp::Word>;
  machine.remove_high(d, word, word);
  { machine.low_pair(number, number) } -> std::same_as<typename Warp::Word>;
  machine.second_stage(d, word, word);
  machine.second_stage_add(d, word, word);
  { machine.any(machine.is_nan(number) | machine.is_nan(number)) } -> std::same_as<bool>;
  { machine.keep_lanes(word, i, i) } -> std::same_as<typename Warp::Word>;
  { Warp::first_stage_may_overflow() } -> std::same_as<bool>;
};

/// Raw words whose sum is transformed: they pass the first stage one behind the other, into the same sums.
template <class Word>
struct SumOf {
  Word first, second;
};

template <SplitMachine Warp, class Word, class Float>
FWHT_WARP_CODE void first_stage_of(const Warp& warp, Float (&d)[4], const Word& b0, const Word& b1) {
  warp.first_stage(d, b0, b1);
}
template <SplitMachine Warp, class Word, class Float>
FWHT_WARP_CODE void first_stage_of(const Warp& warp, Float (&d)[4], const SumOf<Word>& b0,
                                   const SumOf<Word>& b1) {
  warp.first_stage(d, b0.first, b1.first);
  warp.first_stage_add(d, b0.second, b1.second);
}

/// Bits b0..b7 (as far as they belong to a row) of `vectors` vectors by two tensor-core stages: x = 2^-k H
/// data. Stage by stage over all vectors, not vector by vector: the compiler keeps this order, so as many
/// tensor-core chains are in flight as there are vectors.
///
/// @tparam Data  words, or sums of two
template <int vectors, SplitMachine Warp, class Data, class Float>
FWHT_WARP_CODE void split_stages(const Warp& warp, const Data (&data)[vectors][4], Float (&x)[vectors][8]) {
  using Word = typename Warp::Word;
  Float c[vectors][2][4];    // [b2][...]: after the first stage g counts (b0, b3, b4), 2t + p counts b5-b7
  Word high[vectors][2][2];  // [b2][b1]
  Float d[vectors][2][4];    // [b1][...]: elements are back in their places
  // c = H data: exact products, fp32 sums
  FWHT_UNROLL
  for (int v = 0; v < vectors; ++v) {
    FWHT_UNROLL
    for (int b2 = 0; b2 < 2; ++b2)
      first_stage_of(warp, c[v][b2], data[v][2 * b2], data[v][2 * b2 + 1]);
  }
  // high = c cut off to bf16; c = c - high, exact
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
  // d = H' high
  FWHT_UNROLL
  for (int v = 0; v < vectors; ++v) {
    FWHT_UNROLL
    for (int b1 = 0; b1 < 2; ++b1)
      warp.second_stage(d[v][b1], high[v][0][b1], high[v][1][b1]);
  }
  // d = d + H' low, low = c rounded to bf16
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
template <int vectors, SplitMachine Warp, class Word, class Float>
FWHT_WARP_CODE void split_transform(const Warp& warp, const Word (&data)[vectors][4],
                                    Float (&x)[vectors][8]) {
  constexpr int kInFlight = vectors < 4 ? vectors : 4;
  FWHT_UNROLL
  for (int first = 0; first < vectors; first += kInFlight) {
    Word some_data[kInFlight][4];
    Float some[kInFlight][8];
    FWHT_UNROLL
    for (int v = 0; v < kInFlight; ++v) {
      FWHT_UNROLL
      for (int w = 0; w < 4; ++w)
        some_data[v][w] = data[first + v][w];
    }
    split_stages(warp, some_data, some);
    FWHT_UNROLL
    for (int v = 0; v < kInFlight; ++v) {
      FWHT_UNROLL
      for (int e = 0; e < 8; ++e)
        x[first + v][e] = some[v][e];
    }
  }
}

// ---- infinities and NaN

/// Whether, as this lane sees it, a vector held an infinity or a NaN, or a sum of the first stage overflowed.
/// Then hi = +-Inf or NaN, the residual multiplies it by the zeros of -I as well, and 0 * Inf = NaN reaches
/// every lo of its row of the first result, whatever the column. An infinite input does so in all 16 rows, so
/// that every output of the vector is NaN and one element a lane tells. An overflow (bf16 only) may befall a
/// single row, one value of (b0, b3, b4, b1): the lanes know every (b3, b4), the elements 0..3 every (b0,
/// b1). The butterflies of `vector_bits` come before the look: the first of the vectors that they join is
/// their sum, and tells for all of them.
template <int vector_bits, int vectors, SplitMachine Warp, class Float>
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

/// The regular matrix by plain sums, digit by digit of base 4 of one vector: of the four values of a digit
/// three are added, and the one that differs in both bits is subtracted.
template <Tile tile, SplitMachine Warp, class Float>
FWHT_WARP_CODE void regular_sums(const Warp& warp, Float (&x)[8]) {
  FWHT_UNROLL
  for (int e = 0; e < 8; e += 4) {  // b0, b1
    const Float straight = x[e] - x[e | 3], across = x[e | 1] - x[e | 2];
    const Float ends = x[e] + x[e | 3], inner = x[e | 1] + x[e | 2];
    x[e] = inner + straight;
    x[e | 3] = inner - straight;
    x[e | 1] = ends + across;
    x[e | 2] = ends - across;
  }
  FWHT_UNROLL
  for (int e = 0; e < 4; ++e) {  // b2, b3
    const Float a = x[e], b = x[e | 4], other_a = warp.shuffle(a, 4), other_b = warp.shuffle(b, 4);
    x[e] = (a + b) + (other_a - other_b);
    x[e | 4] = (a + b) + (other_b - other_a);
  }
  FWHT_UNROLL
  for (int bit = 1; bit < (1 << tile.lane_bits()); bit *= 8) {  // b4, b5; b6, b7
    FWHT_UNROLL
    for (Float& a : x)
      a = (a + warp.shuffle(a, bit)) + (warp.shuffle(a, 2 * bit) - warp.shuffle(a, 3 * bit));
  }
}

/// One vector by itself, and of the rows that it holds only row `row`, with zeros in place of the others: bit
/// for bit what it is in the company of finite rows, because sums with zeros are exact. By butterflies, with
/// infinities and NaN as plain sums have them, where the tensor cores fail on it.
template <Tile tile, SplitMachine Warp, class Word, class Float>
FWHT_WARP_CODE void transform_alone(const Warp& warp, int row, const Word (&data)[4], Float (&x)[1][8]) {
  Word alone[1][4];
  FWHT_UNROLL
  for (int w = 0; w < 4; ++w)
    alone[0][w] = warp.keep_lanes(data[w], tile.lane_bits(), row);
  split_stages(warp, alone, x);
  if (!warp.any(split_failed<0>(warp, x))) return;
  if constexpr (tile.regular) {
    warp.widen(alone[0], x[0]);
    regular_sums<tile>(warp, x[0]);
  } else {
    rows::widened_butterflies<tile>(warp, alone, x);
  }
}

}  // namespace fwht::mma_split
