// What a plan says of its arithmetic: the steps from input to output, and what it promises of its results.
// Tolerances are computed from the steps and emulations run them; nothing is tuned.
// Notation: u = unit roundoff of the storage type, u32 = 2^-24, L = log2 n. See docs/numerics.md.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/contract/dtype.hpp"

namespace fwht {

/// How the sums of a step are formed. "Emulated": reference/emulation reproduces such a step bit for bit, and
/// the conformance suite compares with it on random data.
enum class Sums : std::uint8_t {
  fp32,            ///< fp32 butterflies over the bits in the order listed, the constant in fp32. Emulated.
  fp32_any_order,  ///< fp32 sums in another order, or with exact tensor-core stages among them
  fp64,            ///< double precision, the constant too. Emulated where f64 is stored.
  integer,         ///< two's complement of the storage type, which wraps. Emulated.
  tensor_f16,      ///< one block of a tensor core with fp16 accumulator. Emulated where it is rounded.
  tensor_f32,      ///< the same with fp32 accumulator. Emulated where it is rounded.
  split_bf16,      ///< tensor-core stages that carry fp32 as bf16 hi + lo pairs, the constant in fp32
  atomic_f16       ///< `parts` sums in fp32, each rounded to fp16, added in fp16 in any order
};

/// How a step makes the weights of a linear layer, s (q - z), that it multiplies by.
enum class WeightRounding : std::uint8_t {
  none,       ///< s and q - z meet in fp32
  published,  ///< fp16(fma(q, s, -fp16(z s))), as the published kernels do
  once        ///< rounded to the storage type
};

/// Root mean square of one rounding to nearest in units of u, smooth density: sqrt(1 / (8 ln 2)).
inline constexpr double kRoundingRms = 0.42466;
/// The same for a + b of two numbers on one grid, whose residues are 0 or 1/2 of the coarser one.
inline constexpr double kLatticeRms = 0.46;
/// Relative error of a tensor-core pass whose fp32 accumulator truncates: 0.64 u32 on average.
inline constexpr double kTruncationBias = -3.8e-8;

/// One step: sums over some index bits, times a constant, then rounded or not.
struct Step {
  /// Index bits 0 .. L-1 of the row that the step transforms, in order of execution. For a tensor-core block
  /// at most four: the low bits of the K index of its MMA. Where the operator has other factors too: the bits
  /// of its Sylvester factors, numbered from the fastest factor on.
  std::vector<int> bits{};
  /// Position in Operator::factors of a factor that is not Sylvester's and that the step multiplies by,
  /// before its bits; -1 for none. Sums::fp32: its terms are added one by one, in ascending order. 0 for the
  /// weights of a linear layer.
  int factor = -1;
  Sums sums = Sums::fp32;
  /// What sums are multiplied by, as the kernel holds it: a number of fp32 (fp64 for Sums::fp64), or of the
  /// storage type where it is the entry of a tensor-core matrix (181/256 for 1/sqrt2).
  double constant = 1.0;
  /// Whether the result is rounded to the storage type.
  bool rounds = true;

  /// Root mean square of that rounding in u on a smooth density; larger where sums inside the step are
  /// rounded to 16 bits as well. Steps that add two numbers of one grid are recognised by the tolerances.
  double rounding_rms = kRoundingRms;
  /// Root mean square of the error of the sums and of the constant, in u32 of the result: 0.46 sqrt(b) for b
  /// levels of fp32 butterflies (butterfly_rms), 0 where such errors are far below the rounding.
  double sum_rms = 0.0;
  /// Systematic relative error of the sums: kTruncationBias for each pass with a truncating accumulator.
  double sum_bias = 0.0;
  /// How far that error may lie to either side, where the order of the sums is a library's own.
  double sum_bias_margin = 0.0;

  /// Tensor-core blocks: the index bits that the rest of the four K bits run over. They select blocks of a
  /// block-diagonal matrix. Bit L + b is bit b of the row number.
  std::vector<int> block_bits{};
  /// Data of the other blocks are replaced by zeros: no NaN crosses over.
  bool other_blocks_zeroed = false;

  /// Linear layers: the rounding of weights; how many sums Sums::atomic_f16 adds; and how many tensor-core
  /// multiplies add into one accumulator, each of which cuts off below fp32's last place. `unit_changes`: how
  /// often that accumulator is multiplied by a quotient of two scales; both are rounded to fp32.
  WeightRounding weights = WeightRounding::none;
  int parts = 1, chained = 0, unit_changes = 0;

  bool operator==(const Step&) const = default;

  bool is_tensor_block() const { return sums == Sums::tensor_f16 || sums == Sums::tensor_f32; }
  /// How many index bits it transforms.
  int levels() const { return static_cast<int>(bits.size()); }
};

struct Promises {
  /// A NaN or Inf in one row leaves every other row bit-identical. Where false, contamination stays inside
  /// aligned blocks of `isolation_span` consecutive elements.
  bool row_isolation = true;
  std::int64_t isolation_span = 0;
  /// A row with one infinity gives +-Inf everywhere with the signs of H; where false, NaN may stand instead.
  bool infinity_exact = true;

  /// Bitwise symmetries over the 2^k bits of the Sylvester factor: x(j xor a) gives (-1)^<i,a> y(i);
  /// (-1)^<j,a> x(j) gives y(i xor a).
  bool xor_shift_exact = true;
  bool modulation_exact = true;
  /// Exact results on integer grids where every partial sum is representable, for every operator.
  bool integer_exact = true;
  /// A row gives the same bits whatever the number of rows. False where another kernel, with sums in another
  /// order, serves few rows.
  bool batch_invariant = true;
  /// A row gives the same bits in place and out of place, whatever row stride and pointers, by ordinary and
  /// by programmatic launch. False where another kernel serves some of them.
  bool layout_invariant = true;
  bool flushes_subnormals = false;
  /// The same operands give the same bits in every run.
  bool deterministic = true;

  /// Largest intermediate, as a multiple of max|x| over the row: an upper bound. Intermediates above the
  /// range of the type they live in overflow although the result may be finite.
  double intermediate_growth = 1.0;
  /// Largest finite value an intermediate may take.
  double intermediate_limit = format_of(Dtype::f32).max_finite;
};

struct Numerics {
  /// In order of execution; together they transform every index bit, and every other factor, once. None where
  /// nothing is known of the arithmetic: kernels of others, which experiments time. Signs come
  /// before or after all of them; they change no digit.
  std::vector<Step> steps;
  Promises promises;

  /// Roundings to the storage type between input and output, the final one included. For f32 storage the
  /// fp32 arithmetic itself is the rounding, and this is 1: the final constant.
  int roundings() const {
    int count = 0;
    for (const Step& step : steps)
      count += step.rounds;
    return count;
  }
  /// Product of all constants: the scale that the plan really applies.
  double constant() const {
    double product = 1.0;
    for (const Step& step : steps)
      product *= step.constant;
    return product;
  }
  /// Relative error of that scale: -1.0682e-4 for 181/256 in place of 1/sqrt2, at most 6e-8 for a constant in
  /// fp32.
  double gain_error(double scale) const { return scale == 0.0 ? 0.0 : constant() / scale - 1.0; }
  /// Root mean square of the error of all sums in u32.
  double sum_rms() const {
    double squares = 0.0;
    for (const Step& step : steps)
      squares += step.sum_rms * step.sum_rms;
    return std::sqrt(squares);
  }
  /// Systematic relative error of all sums, to first order.
  double sum_bias() const {
    double bias = 0.0;
    for (const Step& step : steps)
      bias += step.sum_bias;
    return bias;
  }
  /// How far it may lie to either side.
  double sum_bias_margin() const {
    double margin = 0.0;
    for (const Step& step : steps)
      margin += step.sum_bias_margin;
    return margin;
  }
};

/// first, first + 1, ..., `count` of them.
inline std::vector<int> index_bits(int first, int count) {
  std::vector<int> bits(static_cast<std::size_t>(count));
  std::iota(bits.begin(), bits.end(), first);
  return bits;
}

/// Root mean square of the error of `levels` levels of fp32 additions, in u32.
inline double butterfly_rms(int levels) {
  return kLatticeRms * std::sqrt(static_cast<double>(levels));
}

/// The same for sums of `terms` equally large numbers that are added one by one: the partial sum of j terms
/// has the mean square j / terms of the result's.
inline double chain_rms(std::int64_t terms) {
  const auto m = static_cast<double>(terms);
  return terms < 2 ? 0.0 : kRoundingRms * std::sqrt((0.5 * m * (m + 1.0) - 1.0) / m);
}

}  // namespace fwht
