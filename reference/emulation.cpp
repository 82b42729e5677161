// Compiled with -ffp-contract=off (CMakeLists.txt): every fp32 operation below is rounded on its own.
#include "reference/emulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/parallel_for.hpp"
#include "reference/hadamard.hpp"
#include "reference/operators.hpp"
#include "reference/rounding.hpp"

namespace fwht::reference {
namespace {

/// Where the index bits and factors of the problem's operator lie in a row, and what they multiply by.
class EmulatedBits {
 public:
  EmulatedBits(const Problem& problem, const Operands& operands)
      : signs_come_last_(problem.op.signs_come_last()) {
    if (problem.op.is_sylvester()) {
      if (!is_power_of_two(problem.n()))
        throw BadRequest(fmt::format("the emulations need n = 2^L, not n={}", problem.n()));
      add_bits(1, problem.n());
      return;
    }
    const ExactOperator exact(problem.op, problem.dtype(), operands.signs, operands.dense);
    stages_.assign(exact.stages().begin(), exact.stages().end());
    signs_.assign(exact.signs().begin(), exact.signs().end());
    for (std::size_t f = stages_.size(); f-- > 0;) {
      if (stages_[f].entries.empty()) add_bits(stages_[f].right, stages_[f].order);
    }
  }

  int levels() const { return static_cast<int>(halves_.size()); }
  /// Distance of neighbours along an index bit.
  std::int64_t half(int bit) const { return halves_[static_cast<std::size_t>(bit)]; }
  /// Factors that a step must name: those that are not Sylvester's.
  std::vector<int> other_factors() const {
    std::vector<int> others;
    for (std::size_t f = 0; f < stages_.size(); ++f) {
      if (!stages_[f].entries.empty()) others.push_back(static_cast<int>(f));
    }
    return others;
  }
  const FactorStage& stage(int factor) const { return stages_[static_cast<std::size_t>(factor)]; }

  void multiply_by_signs(float* row, bool last) const {
    if (last != signs_come_last_) return;
    for (std::size_t i = 0; i < signs_.size(); ++i)
      row[i] = signs_[i] < 0.0 ? -row[i] : row[i];
  }

 private:
  void add_bits(std::int64_t right, std::int64_t order) {
    for (std::int64_t half = right; half < right * order; half *= 2)
      halves_.push_back(half);
  }

  std::vector<std::int64_t> halves_;
  std::vector<FactorStage> stages_;  // none where the operator is one Sylvester factor
  std::vector<double> signs_;
  bool signs_come_last_;
};

/// `value` rounded to the storage type.
float rounded_to(Dtype dtype, float value) {
  switch (dtype) {
    case Dtype::f16:
      return f16_to_float(float_to_f16(value));
    case Dtype::bf16:
      return bf16_to_float(float_to_bf16(value));
    case Dtype::f32:
    case Dtype::f64:
    case Dtype::i32:
    case Dtype::i64:
      return value;
  }
  return value;
}

void load_row(const Problem& problem, const void* data, std::int64_t row, float* to) {
  for (std::int64_t i = 0; i < problem.n(); ++i) {
    to[i] = static_cast<float>(load_element(problem.dtype(), data, row * problem.row_stride() + i));
  }
}

void store_row(const Problem& problem, const float* from, void* data, std::int64_t row) {
  for (std::int64_t i = 0; i < problem.n(); ++i)
    store_exact(problem.dtype(), data, row * problem.out.row_stride + i, from[i]);
}

void fp32_step(const Step& step, const EmulatedBits& geometry, Dtype dtype, float* row, std::int64_t n) {
  if (step.factor >= 0) {
    std::vector<float> scratch;
    multiply_by(geometry.stage(step.factor), row, n, scratch);
  }
  for (int bit : step.bits)
    butterfly(row, n, geometry.half(bit));
  const auto constant = static_cast<float>(step.constant);
  for (std::int64_t i = 0; i < n; ++i) {
    const float scaled = row[i] * constant;
    row[i] = step.rounds ? rounded_to(dtype, scaled) : scaled;
  }
}

}  // namespace

// ---- The tensor core
namespace {

/// A finite number as sign * significand * 2^(exponent - kSignificandShift); the exponent of a number is that
/// of its leading bit, but not below the operand's smallest normal exponent, so a subnormal significand is <
/// 2^23.
constexpr int kSignificandShift = 23;

struct Unpacked {
  std::int64_t significand = 0;  // signed, |significand| < 2^24
  int exponent = 0;
};

Unpacked unpack(float value, int smallest_exponent) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const int field = static_cast<int>((bits >> 23) & 0xFFU);
  std::int64_t significand = bits & 0x7FFFFFU;
  int exponent = -126;
  if (field != 0) {
    significand |= 0x800000;
    exponent = field - 127;
  }
  if (exponent < smallest_exponent) {  // a subnormal number of a narrower type: its low bits are zero
    significand >>= std::min(smallest_exponent - exponent, 31);
    exponent = smallest_exponent;
  }
  return {bits >> 31 ? -significand : significand, exponent};
}

/// |value| >> shift with the sign kept: truncation towards zero for any shift.
std::int64_t shift_truncated(std::int64_t value, int shift) {
  if (shift > 62) return 0;
  const std::int64_t magnitude = (value < 0 ? -value : value) >> shift;
  return value < 0 ? -magnitude : magnitude;
}

constexpr int kNoExponent = -100000;

/// One product, or the addend c: value = significand * 2^(exponent - bits), bits fractional bits in the
/// significand.
struct Term {
  std::int64_t significand = 0;
  int exponent = kNoExponent;
  int bits = 2 * kSignificandShift;
};

Term product(const Unpacked& a, const Unpacked& b) {
  const std::int64_t significand = a.significand * b.significand;
  return {significand, significand == 0 ? kNoExponent : a.exponent + b.exponent};
}

Term addend(float c) {
  const Unpacked unpacked = unpack(c, -126);
  return {unpacked.significand, c == 0.0F ? kNoExponent : unpacked.exponent, kSignificandShift};
}

/// The term in units of 2^(largest - fraction_bits), truncated. fraction_bits never exceeds 46, c's own bits
/// with fraction_bits > 23 are shifted up.
std::int64_t aligned(const Term& term, int largest, int fraction_bits) {
  if (term.exponent == kNoExponent) return 0;
  const int shift = term.bits - fraction_bits + largest - term.exponent;
  return shift >= 0 ? shift_truncated(term.significand, shift)
                    : term.significand * (std::int64_t{1} << -shift);
}

/// x towards zero to 24 bits, subnormal numbers kept; beyond the range an infinity.
float truncate_to_f32(double x) {
  const double magnitude = std::fabs(x);
  if (magnitude >= 0x1p128) return static_cast<float>(std::copysign(INFINITY, x));
  if (magnitude < 0x1p-126) return static_cast<float>(std::trunc(x * 0x1p149) * 0x1p-149);
  return static_cast<float>(
      std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & ~std::uint64_t{0x1FFFFFFF}));
}

/// sum * 2^exponent in the accumulator's type.
float accumulated(std::int64_t sum, int exponent, Accumulator accumulator) {
  static const Format f16 = format_of(Dtype::f16);
  const double exact =
      static_cast<double>(sum) * power_of_two(exponent);  // |sum| < 2^53, no subnormal double
  return accumulator == Accumulator::f16 ? static_cast<float>(round_fast(f16, exact))
                                         : truncate_to_f32(exact);
}

/// One block: c plus the products, all finite.
float block_sum(std::span<const Term> products, float c, TensorCore core, Accumulator accumulator) {
  const Term last = addend(c);
  int largest = last.exponent;
  for (const Term& term : products)
    largest = std::max(largest, term.exponent);
  if (largest == kNoExponent) return 0.0F;
  std::int64_t sum = aligned(last, largest, core.fraction_bits);
  for (const Term& term : products)
    sum += aligned(term, largest, core.fraction_bits);
  return accumulated(sum, largest - core.fraction_bits, accumulator);
}

/// The sum of addends among which some are NaN or infinite.
float nonfinite_sum(std::span<const double> addends) {
  double sum = 0.0;
  for (double x : addends) {
    if (!std::isfinite(x)) sum += x;  // infinities of both signs give NaN here as well
  }
  return static_cast<float>(sum);
}

void require_core(TensorCore core) {
  if (core.fused_terms < 1 || core.fraction_bits < 1 || core.fraction_bits > 30) {
    throw BadRequest(fmt::format("a tensor core with {} fraction bits and {} fused terms", core.fraction_bits,
                                 core.fused_terms));
  }
}

}  // namespace

double mma_sum(std::span<const double> a, std::span<const double> b, double c, Dtype operand,
               Accumulator accumulator, TensorCore core) {
  require_core(core);
  if (a.size() != b.size()) throw BadRequest(fmt::format("{} factors for {} factors", a.size(), b.size()));
  std::vector<double> addends{c};
  for (std::size_t i = 0; i < a.size(); ++i)
    addends.push_back(a[i] * b[i]);
  if (!std::all_of(addends.begin(), addends.end(), [](double x) { return std::isfinite(x); })) {
    return nonfinite_sum(addends);
  }
  const int smallest = format_of(operand).min_exponent;
  std::vector<Term> products;
  for (std::size_t i = 0; i < a.size(); ++i) {
    products.push_back(
        product(unpack(static_cast<float>(a[i]), smallest), unpack(static_cast<float>(b[i]), smallest)));
  }
  auto d = static_cast<float>(c);
  for (std::size_t first = 0; first < products.size(); first += static_cast<std::size_t>(core.fused_terms)) {
    const std::size_t count = std::min(products.size() - first, static_cast<std::size_t>(core.fused_terms));
    d = block_sum(std::span(products).subspan(first, count), d, core, accumulator);
    if (!std::isfinite(d)) return d;
  }
  return d;
}

// ---- Steps
namespace {

constexpr int kPoints = 16;

/// The index bits that the K index of a block's MMA runs over, low bits first.
std::vector<int> k_bits_of(const Step& step) {
  std::vector<int> bits = step.bits;
  bits.insert(bits.end(), step.block_bits.begin(), step.block_bits.end());
  return bits;
}

/// A tensor-core block made ready: the offsets of its 16 elements in the flattened (row, column) index and
/// the matrix entry.
class BlockRunner {
 public:
  BlockRunner(const Step& step, Dtype dtype, TensorCore core)
      : dtype_(dtype),
        smallest_(format_of(dtype).min_exponent),
        block_(1 << step.levels()),
        other_blocks_zeroed_(step.other_blocks_zeroed),
        entry_(static_cast<float>(step.constant)),
        constant_(unpack(entry_, smallest_)),
        accumulator_(step.sums == Sums::tensor_f16 ? Accumulator::f16 : Accumulator::f32),
        core_(core),
        sorted_bits_(k_bits_of(step)) {
    for (int k = 0; k < kPoints; ++k) {
      std::int64_t offset = 0;
      for (int b = 0; b < 4; ++b) {
        if (k >> b & 1) offset += std::int64_t{1} << sorted_bits_[static_cast<std::size_t>(b)];
      }
      offsets_[static_cast<std::size_t>(k)] = offset;
    }
    std::sort(sorted_bits_.begin(), sorted_bits_.end());
  }

  /// values: `count` elements, rows one after the other; those past the end count as zero.
  void run(float* values, std::int64_t count, int threads) const {
    const std::int64_t span = std::int64_t{2} << sorted_bits_.back();
    const std::int64_t groups = ceil_div(count, span) * span / kPoints;
    parallel_for(groups, threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t g = begin; g < end; ++g)
        group(values, count, base_of(g));
    });
  }

 private:
  /// The g-th index with zeros at the K bits.
  std::int64_t base_of(std::int64_t g) const {
    for (int bit : sorted_bits_) {
      const std::int64_t low = g & ((std::int64_t{1} << bit) - 1);
      g = ((g - low) << 1) | low;
    }
    return g;
  }

  void group(float* values, std::int64_t count, std::int64_t base) const {
    std::array<float, kPoints> x{};
    bool finite = true;
    for (std::size_t k = 0; k < kPoints; ++k) {
      const std::int64_t index = base + offsets_[k];
      if (index < count) x[k] = values[index];
      finite = finite && std::isfinite(x[k]);
    }
    std::array<float, kPoints> y;
    if (finite) {
      finite_group(x, y);
    } else if (other_blocks_zeroed_) {
      separated_group(x, y);
    } else {
      nonfinite_group(x, y);
    }
    for (std::size_t k = 0; k < kPoints; ++k) {
      const std::int64_t index = base + offsets_[k];
      if (index < count) values[index] = rounded_to(dtype_, y[k]);
    }
  }

  void finite_group(const std::array<float, kPoints>& x, std::array<float, kPoints>& y) const {
    core_.fused_terms >= kPoints ? fused_group(x, y) : chained_group(x, y);
  }

  /// Each block as if the data of the others were zero.
  void separated_group(const std::array<float, kPoints>& x, std::array<float, kPoints>& y) const {
    for (int first = 0; first < kPoints; first += block_) {
      std::array<float, kPoints> own{}, result;
      std::copy_n(x.begin() + first, block_, own.begin() + first);
      const bool finite = std::all_of(own.begin(), own.end(), [](float v) { return std::isfinite(v); });
      finite ? finite_group(own, result) : nonfinite_group(own, result);
      std::copy_n(result.begin() + first, block_, y.begin() + first);
    }
  }

  Term term(float x) const { return product(unpack(x, smallest_), constant_); }

  /// All products of a block in one sum: they have one constant, so their alignment is the same in every
  /// output and the exact sums are a butterfly over integers.
  void fused_group(const std::array<float, kPoints>& x, std::array<float, kPoints>& y) const {
    for (int first = 0; first < kPoints; first += block_) {
      std::array<Term, kPoints> terms;
      std::array<std::int64_t, kPoints> sums;
      int largest = kNoExponent;
      for (int k = 0; k < block_; ++k) {
        terms[static_cast<std::size_t>(k)] = term(x[static_cast<std::size_t>(first + k)]);
        largest = std::max(largest, terms[static_cast<std::size_t>(k)].exponent);
      }
      for (int k = 0; k < block_; ++k) {
        sums[static_cast<std::size_t>(k)] =
            aligned(terms[static_cast<std::size_t>(k)], largest, core_.fraction_bits);
      }
      for (int half = 1; half < block_; half *= 2)
        butterfly(sums.data(), block_, half);
      for (int k = 0; k < block_; ++k) {
        y[static_cast<std::size_t>(first + k)] =
            largest == kNoExponent
                ? 0.0F
                : accumulated(sums[static_cast<std::size_t>(k)], largest - core_.fraction_bits, accumulator_);
      }
    }
  }

  /// Blocks of fused_terms products chained through the accumulator, as on Ampere.
  void chained_group(const std::array<float, kPoints>& x, std::array<float, kPoints>& y) const {
    std::array<Term, kPoints> plain;
    for (std::size_t k = 0; k < kPoints; ++k)
      plain[k] = term(x[k]);
    for (int out = 0; out < kPoints; ++out) {
      std::array<Term, kPoints> products;
      for (int k = 0; k < kPoints; ++k) {
        const auto i = static_cast<std::size_t>(k);
        if (k / block_ != out / block_) continue;  // the product with zero
        products[i] = plain[i];
        if (parity(static_cast<std::uint64_t>(k & out & (block_ - 1)))) products[i].significand *= -1;
      }
      float d = 0.0F;
      for (int first = 0; first < kPoints && std::isfinite(d); first += core_.fused_terms) {
        const int length = std::min(core_.fused_terms, kPoints - first);
        d = block_sum(
            std::span(products).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(length)), d,
            core_, accumulator_);
      }
      y[static_cast<std::size_t>(out)] = d;
    }
  }

  void nonfinite_group(const std::array<float, kPoints>& x, std::array<float, kPoints>& y) const {
    for (int out = 0; out < kPoints; ++out) {
      std::array<double, kPoints> addends;
      for (int k = 0; k < kPoints; ++k) {
        const int sign =
            hadamard_sign(static_cast<std::uint64_t>(k & (block_ - 1)), static_cast<std::uint64_t>(out));
        const double entry = k / block_ == out / block_ ? sign * static_cast<double>(entry_) : 0.0;
        const auto i = static_cast<std::size_t>(k);
        addends[i] = static_cast<double>(x[i]) * entry;
      }
      // A group is here because one x is not finite; times a constant or times zero it stays so.
      y[static_cast<std::size_t>(out)] = nonfinite_sum(addends);
    }
  }

  Dtype dtype_;
  int smallest_, block_;
  bool other_blocks_zeroed_;
  float entry_;
  Unpacked constant_;
  Accumulator accumulator_;
  TensorCore core_;
  std::vector<int> sorted_bits_;
  std::array<std::int64_t, kPoints> offsets_{};
};

bool is_emulated(const Step& step, Dtype stored) {
  if (step.sums == Sums::fp64) return stored == Dtype::f64 && step.factor < 0;
  if (step.sums == Sums::integer) return is_integer(stored) && step.factor < 0;
  return step.sums == Sums::fp32 || (step.is_tensor_block() && step.rounds);
}

void require_block(const Problem& problem, const Step& step) {
  if (problem.dtype() != Dtype::f16 && problem.dtype() != Dtype::bf16)
    throw BadRequest(
        fmt::format("tensor-core blocks are emulated for f16 and bf16, not {}", name_of(problem.dtype())));
  const std::vector<int> bits = k_bits_of(step);
  if (bits.size() != 4 || step.bits.empty()) {
    throw BadRequest(
        fmt::format("a tensor-core block needs four K bits, of which 1 to 4 are transformed; it "
                    "has {} and {}",
                    bits.size(), step.bits.size()));
  }
  for (int bit : bits) {
    if (bit < 0 || bit > 62 || std::count(bits.begin(), bits.end(), bit) != 1)
      throw BadRequest(fmt::format("K bit {} of a tensor-core block is repeated or no index bit", bit));
  }
  if (round_to(problem.dtype(), step.constant) != step.constant || step.constant == 0.0) {
    throw BadRequest(fmt::format("{} cannot hold the constant {} of a tensor-core block",
                                 name_of(problem.dtype()), step.constant));
  }
}

void require_steps(const Problem& problem, const EmulatedBits& geometry, const Numerics& numerics) {
  const int levels = geometry.levels();
  std::vector<int> times(static_cast<std::size_t>(levels), 0), factors;
  for (const Step& step : numerics.steps) {
    if (!is_emulated(step, problem.dtype()))
      throw BadRequest("no host emulation reproduces a step of these sums bit for bit");
    if (step.is_tensor_block()) {
      require_block(problem, step);
    } else if (step.sums == Sums::fp32 &&
               static_cast<double>(static_cast<float>(step.constant)) != step.constant) {
      throw BadRequest(fmt::format("fp32 cannot hold the constant {} of a step", step.constant));
    }
    if (step.is_tensor_block() && !problem.op.is_sylvester())
      throw BadRequest("tensor-core blocks are emulated for operators of one Sylvester factor");
    if (step.factor >= 0) factors.push_back(step.factor);
    for (int bit : step.bits) {
      if (bit < 0 || bit >= levels)
        throw BadRequest(fmt::format("a step transforms index bit {} of rows that have {}", bit, levels));
      ++times[static_cast<std::size_t>(bit)];
    }
  }
  for (int bit = 0; bit < levels; ++bit) {
    if (times[static_cast<std::size_t>(bit)] != 1) {
      throw BadRequest(
          fmt::format("index bit {} is transformed {} times", bit, times[static_cast<std::size_t>(bit)]));
    }
  }
  std::sort(factors.begin(), factors.end());
  if (factors != geometry.other_factors())
    throw BadRequest(
        fmt::format("the steps do not multiply by every factor of {} once", to_string(problem.op)));
  if (numerics.steps.empty() || !numerics.steps.back().rounds)
    throw BadRequest("the last step does not round to the storage type");
}

/// Rows that no step mixes, one after the other: memory for one row per thread.
void emulate_rows(const Problem& problem, const EmulatedBits& geometry, const Numerics& numerics,
                  const void* in, void* out, int threads) {
  parallel_for(problem.rows, threads, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(problem.n()));
    for (std::int64_t r = begin; r < end; ++r) {
      load_row(problem, in, r, row.data());
      geometry.multiply_by_signs(row.data(), false);
      for (const Step& step : numerics.steps)
        fp32_step(step, geometry, problem.dtype(), row.data(), problem.n());
      geometry.multiply_by_signs(row.data(), true);
      store_row(problem, row.data(), out, r);
    }
  });
}

/// All rows at once, step by step.
void emulate_together(const Problem& problem, const EmulatedBits& geometry, const Numerics& numerics,
                      const void* in, void* out, int threads, TensorCore core) {
  const std::int64_t count = problem.elements();
  std::vector<float> values(static_cast<std::size_t>(count));
  const auto for_each_row = [&](const auto& body) {
    parallel_for(problem.rows, threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r)
        body(r, values.data() + r * problem.n());
    });
  };
  for_each_row([&](std::int64_t r, float* row) { load_row(problem, in, r, row); });
  for (const Step& step : numerics.steps) {
    if (step.is_tensor_block()) {
      BlockRunner(step, problem.dtype(), core).run(values.data(), count, threads);
    } else {
      for_each_row(
          [&](std::int64_t, float* row) { fp32_step(step, geometry, problem.dtype(), row, problem.n()); });
    }
  }
  for_each_row([&](std::int64_t r, float* row) { store_row(problem, row, out, r); });
}

/// Steps in the arithmetic of the storage type: double, or unsigned integers, which wrap.
template <class Number>
void emulate_in_storage(const Problem& problem, const EmulatedBits& geometry, const Numerics& numerics,
                        const void* in, void* out, int threads) {
  parallel_for(problem.rows, threads, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Number> row(static_cast<std::size_t>(problem.n()));
    for (std::int64_t r = begin; r < end; ++r) {
      std::memcpy(row.data(), static_cast<const Number*>(in) + r * problem.in.row_stride,
                  row.size() * sizeof(Number));
      for (const Step& step : numerics.steps) {
        for (const int bit : step.bits)
          butterfly(row.data(), problem.n(), geometry.half(bit));
        if constexpr (std::is_same_v<Number, double>) {
          for (double& value : row)
            value *= step.constant;
        }
      }
      std::memcpy(static_cast<Number*>(out) + r * problem.out.row_stride, row.data(),
                  row.size() * sizeof(Number));
    }
  });
}

}  // namespace

bool has_emulation(const Numerics& numerics, Dtype stored) {
  return !numerics.steps.empty() &&
         std::all_of(numerics.steps.begin(), numerics.steps.end(),
                     [stored](const Step& step) { return is_emulated(step, stored); });
}

void emulate(const Problem& problem, const Numerics& numerics, const Operands& operands, int threads,
             TensorCore core) {
  require_core(core);
  const EmulatedBits geometry(problem, operands);
  require_steps(problem, geometry, numerics);
  const auto in_storage = [&](auto emulated) {
    emulated(problem, geometry, numerics, operands.in, operands.out, threads_or_default(threads));
  };
  if (problem.dtype() == Dtype::f64) return in_storage(emulate_in_storage<double>);
  if (problem.dtype() == Dtype::i32) return in_storage(emulate_in_storage<std::uint32_t>);
  if (problem.dtype() == Dtype::i64) return in_storage(emulate_in_storage<std::uint64_t>);
  const bool mixes_rows = std::any_of(numerics.steps.begin(), numerics.steps.end(),
                                      [](const Step& step) { return step.is_tensor_block(); });
  if (mixes_rows) {
    emulate_together(problem, geometry, numerics, operands.in, operands.out, threads_or_default(threads),
                     core);
  } else {
    emulate_rows(problem, geometry, numerics, operands.in, operands.out, threads_or_default(threads));
  }
}

void emulate(const Problem& problem, const Numerics& numerics, const void* in, void* out, int threads,
             TensorCore core) {
  emulate(problem, numerics, Operands{in, out}, threads, core);
}

}  // namespace fwht::reference
