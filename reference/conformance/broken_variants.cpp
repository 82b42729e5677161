#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "reference/conformance/checks.hpp"
#include "reference/operators.hpp"
#include "reference/prologue.hpp"
#include "reference/quantize.hpp"

namespace fwht::conformance {
namespace {

enum class Defect {
  none,  ///< the control: sound, and must pass every check
  wrong_sign,
  missing_scale,
  gain,             ///< results 1.0001 times too large
  constant_16bit,   ///< 1/sqrt2 stored in 16 bit, not declared
  truncation,       ///< the last rounding goes towards zero
  rounds_down,      ///< the last rounding goes towards minus infinity
  fixed_point,      ///< results are multiples of 2^-6
  extra_rounding,   ///< rounded to storage half way, not declared
  too_good,         ///< declares a rounding a stage, makes one
  stale_output,     ///< never writes the last row
  dropped_input,    ///< takes the last input of a row for zero
  sequency_order,   ///< rows of H in another order
  swapped_rows,     ///< rows 4 and 5 change places
  writes_past_end,  ///< one element behind the last row
  ignores_stride,
  writes_gaps,              ///< zeros between rows
  writes_last_gap,          ///< between the last two rows alone
  accumulates,              ///< adds to what the output held
  changes_input,            ///< works in the caller's input
  ignores_offset,           ///< rounds pointers down to 16 bytes
  not_repeatable,           ///< every third run differs in one bit
  depends_on_batch,         ///< single rows are computed in another order
  swallows_nan,             ///< takes NaN for zero
  leaks_nan,                ///< a NaN reaches the next row, not declared
  declares_leak,            ///< declares contamination that does not happen
  narrow_range,             ///< intermediates beyond the range of f16 overflow, not declared
  saturates,                ///< overflow gives the largest finite number
  flushes_subnormals,       ///< subnormal results become zero, not declared
  missing_transpose,        ///< executes transposed factors as they are
  signs_on_the_wrong_side,  ///< multiplies by the signs last where they come first, and the other way round
  wrong_matrix,             ///< another Hadamard matrix of the same order
  factors_reversed,         ///< the first factor on the fastest index
  another_recipe,           ///< multiplies by the reciprocal of the scale where it must divide
  skips_intermediate,       ///< quantizes the fp32 result where it must be rounded to storage first
  rounds_intermediate,      ///< rounds to storage where the fp32 result must be quantized
  swaps_half_bytes,         ///< the even element in the high half
  ignores_layout,           ///< scales row-major whatever the layout
  leaves_padding,           ///< padding between scales keeps what the buffer held
  scales_rows,              ///< scales of a row where tokens or groups have several
  writes_code_gaps,         ///< zeros between rows of codes
  nan_codes_are_zero,       ///< NaN gives the code of zero
  stale_scale,              ///< never writes the last scale
  forgets_sign_of_scale,    ///< codes of results that a negative scale has not turned
  skips_prologue,           ///< transforms rows as they are
  swaps_pairs,              ///< turns neighbours where halves are asked for, and the other way round
  drops_epsilon,            ///< normalizes without the number that is added
  writes_left_out_rows,     ///< rows without a place go to the first one
  no_settings,              ///< reports nothing about itself
  supports_anything         ///< also orders for which no Hadamard matrix exists
};

/// Rounds towards zero instead of to the nearest number.
double truncated(Dtype dtype, double value) {
  const double nearest = round_to(dtype, value);
  if (std::abs(nearest) <= std::abs(value) || std::isinf(value)) return nearest;
  return decode(dtype, encode(dtype, nearest) - 1);  // one step towards zero, in sign and magnitude
}

/// Rounds a positive number up.
double truncated_away(Dtype dtype, double value) {
  const double nearest = round_to(dtype, value);
  return nearest >= value || std::isnan(value) ? nearest : decode(dtype, encode(dtype, nearest) + 1);
}

class BrokenPlan final : public Plan {
 public:
  BrokenPlan(const Problem& problem, Defect defect) : Plan(problem), defect_(defect) {}

  Numerics numerics() const override {
    if (!problem().op.is_sylvester()) return single_rounding_by_factors(Sums::fp32, problem());
    Numerics numerics = single_rounding(Sums::fp32, problem());
    if (has(Defect::too_good)) {
      const Step whole = numerics.steps.front();
      numerics.steps.clear();
      for (const int bit : whole.bits) {
        Step stored;
        stored.bits = {bit};
        stored.constant = bit == whole.bits.back() ? whole.constant : 1.0;
        stored.sum_rms = butterfly_rms(1);
        numerics.steps.push_back(std::move(stored));
      }
    }
    if (has(Defect::declares_leak)) {
      numerics.promises.row_isolation = false;
      numerics.promises.isolation_span = 256;
    }
    return numerics;
  }
  Settings settings() const override {
    if (has(Defect::no_settings)) return {};
    return {{"defect", static_cast<std::int64_t>(defect_)}};
  }

 private:
  bool has(Defect which) const { return defect_ == which; }

  /// The input as the unfused kernel stores it, with what is broken about that.
  std::vector<std::byte> put_through_prologue(const Operands& given) const {
    const auto* in = static_cast<const std::byte*>(given.in);
    std::vector<std::byte> rows(in, in + problem().span_bytes());
    Problem p = problem();
    Operands operands = given;
    if (has(Defect::skips_prologue)) return rows;
    if (has(Defect::swaps_pairs) && p.prologue->kind == Prologue::Kind::rope)
      p.prologue->interleaved = !p.prologue->interleaved;
    if (has(Defect::drops_epsilon)) operands.prepared.epsilon = 0.0F;
    reference::apply_prologue(p, operands.prepared, rows.data());
    return rows;
  }

  /// Sound rows in fp32, quantized by the reference, with what is broken about that.
  void enqueue_encoded(const Operands& operands) const {
    Problem p = problem();
    std::vector<float> values;
    for (std::int64_t row = 0; row < p.rows; ++row) {
      std::vector<float> x = load(operands.in, row * p.in.row_stride);
      transform(x, operands);
      values.insert(values.end(), x.begin(), x.end());
    }
    const bool asked = p.encoding.intermediate == Intermediate::storage;
    if (asked ? !has(Defect::skips_intermediate) : has(Defect::rounds_intermediate)) {
      for (float& value : values)
        value = static_cast<float>(round_to(p.out.dtype, static_cast<double>(value)));
    }
    if (has(Defect::another_recipe) && p.encoding.recipe == Recipe::vllm_token)
      p.encoding.recipe = Recipe::sglang_token;
    if (has(Defect::forgets_sign_of_scale) && p.scale < 0) {
      for (float& value : values)
        value = -value;
    }
    if (has(Defect::ignores_layout)) p.encoding.layout = ScaleLayout::row_major;
    if (has(Defect::scales_rows) && p.encoding.scales.kind == ScaleGranularity::Kind::row)
      p.encoding.token = 0;
    if (has(Defect::nan_codes_are_zero)) {
      for (float& value : values)
        value = std::isnan(value) ? 0.0F : value;
    }
    Problem apart = p;
    apart.paging = {};
    const float of_tensor =
        operands.tensor_scale_at != nullptr ? *operands.tensor_scale_at : operands.tensor_scale;
    reference::Encoded encoded = reference::quantize(apart, {Dtype::f32, p.n()}, values.data(), of_tensor);
    if (has(Defect::swaps_half_bytes) && code_bits(p.encoding.format) == 4) {
      for (std::byte& byte : encoded.codes)
        byte = byte >> 4 | byte << 4;
    }
    if (p.paging) return write_pages(p, encoded, operands);
    write_codes(p, encoded, operands);
    write_scales(p, encoded, operands);
  }

  void write_pages(const Problem& p, const reference::Encoded& encoded, const Operands& operands) const {
    const PageLayout pages = p.page_layout();
    auto* const cache = static_cast<std::byte*>(operands.out);
    for (std::int64_t row = 0; row < p.rows; ++row) {
      std::int64_t slot = operands.prepared.slots[row];
      if (!pages.has(slot)) {
        if (!has(Defect::writes_left_out_rows)) continue;
        slot = 0;
      }
      std::memcpy(cache + pages.codes_at(slot), encoded.codes.data() + row * pages.code_bytes,
                  static_cast<std::size_t>(pages.code_bytes));
      std::memcpy(cache + pages.scales_at(slot), encoded.scales.data() + row * pages.scale_bytes,
                  static_cast<std::size_t>(pages.scale_bytes));
    }
  }

  void write_codes(const Problem& p, const reference::Encoded& encoded, const Operands& operands) const {
    if (has(Defect::writes_code_gaps)) {
      std::memcpy(operands.out, encoded.codes.data(), encoded.codes.size());
      return;
    }
    const std::int64_t bits = code_bits(p.encoding.format);
    if (p.out.row_stride == p.n()) {
      std::memcpy(operands.out, encoded.codes.data(), encoded.codes.size());
      return;
    }
    for (std::int64_t row = 0; row < p.rows; ++row) {
      const std::int64_t at = row * p.out.row_stride * bits / 8;
      std::memcpy(static_cast<std::byte*>(operands.out) + at, encoded.codes.data() + at,
                  static_cast<std::size_t>(p.n() * bits / 8));
    }
  }

  /// Padding is written only where it must be zero.
  void write_scales(const Problem& p, const reference::Encoded& encoded, const Operands& operands) const {
    const ScaleShape shape = scale_shape(p.encoding, p.rows, p.n());
    const auto bytes = static_cast<std::size_t>(scale_bytes(p.encoding));
    if (padding_is_zero(p.encoding.layout) && !has(Defect::leaves_padding))
      std::memset(operands.scales, 0, encoded.scales.size());
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      for (std::int64_t column = 0; column < shape.columns; ++column) {
        if (has(Defect::stale_scale) && row == shape.rows - 1 && column == shape.columns - 1) continue;
        const auto at = static_cast<std::size_t>(
                            scale_position(p.encoding.layout, row, column, shape.rows, shape.columns)) *
                        bytes;
        if (at + bytes > static_cast<std::size_t>(problem().scale_bytes_out()))
          continue;  // scales_rows has more
        std::memcpy(static_cast<std::byte*>(operands.scales) + at, encoded.scales.data() + at, bytes);
      }
    }
  }

  void enqueue(const Operands& given, Stream) const override {
    const Problem& p = problem();
    Operands operands = given;
    std::vector<std::byte> prepared;
    if (p.prologue) {
      prepared = put_through_prologue(given);
      operands.in = prepared.data();
    }
    if (!p.encoding.is_plain()) return enqueue_encoded(operands);
    ++runs_;
    if (has(Defect::ignores_offset)) {
      operands.in = reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(operands.in) / 16 * 16);
      operands.out = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(operands.out) / 16 * 16);
    }
    const std::int64_t stride = has(Defect::ignores_stride) ? p.n() : p.row_stride();
    bool previous_row_had_nan = false;
    for (std::int64_t row = 0; row < p.rows; ++row) {
      if (has(Defect::stale_output) && row == p.rows - 1) break;
      const std::int64_t from = from_row(row) * stride, to = row * stride;
      std::vector<float> x = load(operands.in, from);
      const bool has_nan = std::any_of(x.begin(), x.end(), [](float v) { return std::isnan(v); });
      if (has(Defect::changes_input)) store_element(p.dtype(), const_cast<void*>(operands.in), from, 0.0);
      transform(x, operands);
      if (has(Defect::leaks_nan) && previous_row_had_nan) x[0] = NAN;
      previous_row_had_nan = has_nan;
      if (has(Defect::wrong_sign) && row % 5 == 4) x.back() = -x.back();
      if (has(Defect::not_repeatable) && runs_ % 3 == 0) x[0] = std::nextafter(x[0] * 1.001F, 0.0F);
      store(operands.out, to, x);
      if (has(Defect::writes_gaps) || (has(Defect::writes_last_gap) && row == p.rows - 2)) {
        const std::int64_t end = row + 1 < p.rows ? stride : p.n();
        for (std::int64_t i = p.n(); i < end; ++i)
          store_element(p.dtype(), operands.out, to + i, 0.0);
      }
    }
    if (has(Defect::writes_past_end))
      store_element(p.dtype(), operands.out, (p.rows - 1) * stride + p.n(), 0.0);
  }

  std::int64_t from_row(std::int64_t row) const {
    // In place the swapped row would be overwritten before it is read: swap only what is still there.
    if (!has(Defect::swapped_rows) || problem().placement == Placement::in_place || problem().rows < 6)
      return row;
    return row == 4 ? 5 : row == 5 ? 4 : row;
  }

  std::vector<float> load(const void* in, std::int64_t from) const {
    const Problem& p = problem();
    std::vector<float> x(static_cast<std::size_t>(p.n()));
    for (std::int64_t i = 0; i < p.n(); ++i) {
      float value = static_cast<float>(load_element(p.dtype(), in, from + i));
      if (has(Defect::swallows_nan) && std::isnan(value)) value = 0.0F;
      if (has(Defect::dropped_input) && i == p.n() - 1) value = 0.0F;
      x[static_cast<std::size_t>(i)] = value;
    }
    return x;
  }

  void stage(std::vector<float>& x, std::size_t half) const {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if ((i & half) != 0) continue;
      const float a = x[i], b = x[i | half];
      x[i] = a + b;
      x[i | half] = a - b;
    }
  }

  /// The operator that is executed in place of the one asked for.
  Operator operator_of(const Operator& op) const {
    std::vector<Factor> factors(op.factors().begin(), op.factors().end());
    if (has(Defect::missing_transpose)) {
      for (Factor& factor : factors)
        factor.transposed = false;
    }
    if (has(Defect::factors_reversed)) std::reverse(factors.begin(), factors.end());
    const Operator done{std::span<const Factor>(factors)};
    const bool last = op.signs_come_last() != has(Defect::signs_on_the_wrong_side);
    if (!op.has_signs()) return done;
    return last ? done.transposed().with_signs().transposed() : done.with_signs();
  }

  /// Factor by factor, as the steps say.
  void multiply_by_factors(std::vector<float>& x, const Operands& operands) const {
    const Problem& p = problem();
    const reference::ExactOperator exact(operator_of(p.op), p.dtype(), operands.signs, operands.dense);
    const bool signs_last = p.op.signs_come_last() != has(Defect::signs_on_the_wrong_side);
    const auto multiply_by_signs = [&] {
      for (std::size_t i = 0; i < exact.signs().size(); ++i)
        x[i] *= static_cast<float>(exact.signs()[i]);
    };
    if (!signs_last) multiply_by_signs();
    std::vector<float> scratch;
    for (reference::FactorStage factor : exact.stages()) {
      if (factor.entries.empty()) {
        for (std::int64_t half = factor.right; half < factor.right * factor.order; half *= 2)
          add_and_subtract(x, half);
        continue;
      }
      if (has(Defect::wrong_matrix)) {  // another Hadamard matrix of that order: two columns change places
        for (std::int64_t i = 0; i < factor.order; ++i) {
          double* row = factor.entries.data() + i * factor.order;
          std::swap(row[1], row[2]);
        }
      }
      reference::multiply_by(factor, x.data(), p.n(), scratch);
    }
    if (signs_last) multiply_by_signs();
    const auto scale = static_cast<float>(has(Defect::gain) ? 1.0001 * p.scale : p.scale);
    for (float& v : x)
      v *= scale;
  }

  /// Butterflies over a stride that need not be a power of two.
  static void add_and_subtract(std::vector<float>& x, std::int64_t half) {
    const auto n = static_cast<std::int64_t>(x.size());
    for (std::int64_t block = 0; block < n; block += 2 * half) {
      for (std::int64_t i = block; i < block + half; ++i) {
        float &low = x[static_cast<std::size_t>(i)], &high = x[static_cast<std::size_t>(i + half)];
        const float a = low, b = high;
        low = a + b;
        high = a - b;
      }
    }
  }

  void transform(std::vector<float>& x, const Operands& operands) const {
    if (!problem().op.is_sylvester()) return multiply_by_factors(x, operands);
    const std::size_t n = x.size();
    const Dtype dtype = problem().dtype();
    if (has(Defect::depends_on_batch) && problem().rows == 1) {
      for (std::size_t half = n / 2; half >= 1; half /= 2)
        stage(x, half);
    } else {
      for (std::size_t half = 1; half < n; half *= 2) {
        stage(x, half);
        if (has(Defect::narrow_range)) {
          for (float& v : x)
            v = std::abs(v) > 65504.0F ? std::copysign(INFINITY, v) : v;
        }
        if (has(Defect::extra_rounding) && half == 2) {
          // Scaled, so that 16-bit storage does not overflow where fp32 does not.
          for (float& v : x)
            v = 4 * static_cast<float>(round_to(dtype, static_cast<double>(v) / 4));
        }
      }
    }
    if (has(Defect::sequency_order) && n >= 4) std::swap(x[1], x[n / 2]);
    float scale = static_cast<float>(problem().scale);
    if (has(Defect::missing_scale)) scale = 1.0F;
    if (has(Defect::gain)) scale *= 1.0001F;
    if (has(Defect::constant_16bit)) scale = static_cast<float>(round_to(Dtype::bf16, problem().scale));
    for (float& v : x)
      v *= scale;
  }

  void store(void* out, std::int64_t to, const std::vector<float>& x) const {
    const Dtype dtype = problem().dtype();
    const Format format = format_of(dtype);
    for (std::size_t i = 0; i < x.size(); ++i) {
      double value = static_cast<double>(x[i]);
      const std::int64_t at = to + static_cast<std::int64_t>(i);
      if (has(Defect::rounds_down))
        value = value < 0.0 ? -truncated_away(dtype, -value) : truncated(dtype, value);
      if (has(Defect::fixed_point)) value = std::nearbyint(value * 64.0) / 64.0;
      if (has(Defect::truncation)) value = truncated(dtype, value);
      if (has(Defect::saturates)) value = std::clamp(value, -format.max_finite, format.max_finite);
      if (has(Defect::flushes_subnormals) && std::abs(value) < std::ldexp(1.0, format.min_exponent))
        value = 0.0;
      if (has(Defect::accumulates) && problem().placement == Placement::out_of_place) {
        value += load_element(dtype, out, at);
      }
      store_element(dtype, out, at, value);
    }
  }

  Defect defect_;
  mutable int runs_ = 0;
};

Support supports(const Problem& asked, const DeviceInfo&) {
  Problem problem = asked;  // every encoding and prologue of the storage types
  problem.encoding = {};
  if (asked.dtype() != Dtype::f64) problem.prologue = {};
  problem.paging = {};
  if (!asked.encoding.is_plain()) problem.out.row_stride = problem.in.row_stride;
  if (Support strides = require_one_row_stride(problem); !strides) return strides;
  if (!problem.op.is_sylvester()) return require_plain_rows(problem);
  return require_sylvester(problem, 2, std::int64_t{1} << 20);
}

Support supports_anything(const Problem&, const DeviceInfo&) {
  return {};
}

template <Defect defect>
constexpr BrokenOf<Transforms> broken(std::string_view name, std::string_view caught_by) {
  return {{name, "broken on purpose", Memory::host,
           defect == Defect::supports_anything ? supports_anything : supports,
           [](const Problem& problem, const DeviceInfo&) -> std::unique_ptr<Plan> {
             return std::make_unique<BrokenPlan>(problem, defect);
           }},
          caught_by};
}

}  // namespace

std::span<const BrokenOf<Transforms>> broken_variants() {
  using enum Defect;
  static constexpr BrokenOf<Transforms> kBroken[] = {
      broken<none>("sound", ""),
      broken<wrong_sign>("wrong_sign",
                         "Impulses IntegerRows Emulation SmoothInputs StructuredInputs BitMatch"),
      broken<missing_scale>("missing_scale",
                            "Impulses WalshRows IntegerRows Emulation SmoothInputs StructuredInputs "
                            "ScaleSweep BitMatch Overflow"),
      broken<gain>("gain", "OperatorIntegers OperatorInputs IntegerRows Emulation SmoothInputs BitMatch"),
      broken<constant_16bit>("constant_16bit", "IntegerRows Emulation SmoothInputs BitMatch"),
      broken<truncation>("truncation", "IntegerRows Emulation SmoothInputs StructuredInputs BitMatch"),
      broken<rounds_down>("rounds_down", "Negation XorShift IntegerRows SmoothInputs"),
      broken<fixed_point>("fixed_point", "PowerOfTwoScaling ScaleSweep Subnormals SmoothInputs"),
      broken<extra_rounding>("extra_rounding", "Emulation SmoothInputs ScaleSweep BitMatch"),
      broken<too_good>("too_good", "SmoothInputs ScaleSweep"),
      broken<stale_output>("stale_output",
                           "Impulses WalshRows IntegerRows ZeroRows SmoothInputs RowCounts TailRows "
                           "Placements"),
      broken<dropped_input>("dropped_input",
                            "Impulses WalshRows IntegerRows Emulation SmoothInputs StructuredInputs"),
      broken<sequency_order>("sequency_order",
                             "Impulses WalshRows IntegerRows Emulation SmoothInputs XorShift Modulation"),
      broken<swapped_rows>(
          "swapped_rows",
          "OperatorShapes Impulses IntegerRows SmoothInputs RowCounts TailRows Strides Placements"),
      broken<writes_past_end>("writes_past_end", "Impulses SmoothInputs BehindTheLastRow RowCounts Strides"),
      broken<ignores_stride>("ignores_stride", "Strides OperatorShapes"),
      broken<writes_gaps>("writes_gaps", "Strides"),
      broken<writes_last_gap>("writes_last_gap", "Strides"),
      broken<accumulates>("accumulates", "SmoothInputs RowCounts TailRows Placements"),
      broken<changes_input>("changes_input", "SmoothInputs Placements RowCounts"),
      broken<ignores_offset>("ignores_offset", "MisalignedPointers"),
      broken<not_repeatable>("not_repeatable", "RepeatedRuns"),
      broken<depends_on_batch>("depends_on_batch", "BatchInvariance"),
      broken<swallows_nan>("swallows_nan", "OperatorNonfinite NanInARow InfinitiesInARow"),
      broken<leaks_nan>("leaks_nan", "NanInARow OperatorNonfinite"),
      broken<declares_leak>("declares_leak", "NanInARow InfinitiesInARow"),
      broken<narrow_range>("narrow_range", "NearTheRangeLimit Overflow"),
      broken<saturates>("saturates", "Overflow InfinitiesInARow"),
      broken<flushes_subnormals>("flushes_subnormals", "Subnormals Emulation"),
      broken<missing_transpose>("missing_transpose",
                                "OperatorEntries OperatorIntegers OperatorAdjoint OperatorInverse "
                                "OperatorInputs"),
      broken<signs_on_the_wrong_side>("signs_on_the_wrong_side",
                                      "OperatorEntries OperatorIntegers OperatorInputs OperatorNonfinite"),
      broken<wrong_matrix>("wrong_matrix", "OperatorEntries OperatorIntegers OperatorInputs"),
      broken<factors_reversed>("factors_reversed", "OperatorEntries OperatorIntegers OperatorInputs"),
      broken<another_recipe>("another_recipe", "EncodedCodes EncodedIntermediate EncodedShapes"),
      broken<skips_intermediate>("skips_intermediate", "EncodedCodes EncodedShapes"),
      broken<rounds_intermediate>("rounds_intermediate", "EncodedIntermediate"),
      broken<swaps_half_bytes>("swaps_half_bytes", "EncodedCodes EncodedIntermediate EncodedShapes"),
      broken<ignores_layout>("ignores_layout", "EncodedCodes EncodedShapes"),
      broken<leaves_padding>("leaves_padding", "EncodedCodes EncodedShapes"),
      broken<scales_rows>("scales_rows", "EncodedCodes EncodedShapes"),
      broken<writes_code_gaps>("writes_code_gaps", "EncodedShapes"),
      broken<nan_codes_are_zero>("nan_codes_are_zero", "EncodedCodes EncodedShapes"),
      broken<stale_scale>("stale_scale", "EncodedCodes EncodedIntermediate EncodedShapes"),
      broken<forgets_sign_of_scale>("forgets_sign_of_scale", "NegativeScales"),
      broken<skips_prologue>("skips_prologue", "Prologues HeadsOfTokens"),
      broken<swaps_pairs>("swaps_pairs", "Prologues HeadsOfTokens"),
      broken<drops_epsilon>("drops_epsilon", "Prologues"),
      broken<writes_left_out_rows>("writes_left_out_rows", "Pages"),
      broken<no_settings>("no_settings", "Declarations"),
      broken<supports_anything>("supports_anything", "UnsupportedProblems"),
  };
  return kBroken;
}

}  // namespace fwht::conformance
