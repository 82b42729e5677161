#include "common/contract/dtype.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/host/error.hpp"

namespace fwht {

Dtype parse_dtype(std::string_view text) {
  if (text == "f16" || text == "fp16") return Dtype::f16;
  if (text == "bf16") return Dtype::bf16;
  if (text == "f32" || text == "fp32") return Dtype::f32;
  if (text == "f64" || text == "fp64") return Dtype::f64;
  if (text == "i32") return Dtype::i32;
  if (text == "i64") return Dtype::i64;
  throw BadRequest("unknown dtype '" + std::string(text) + "'; known: f16, bf16, f32, f64, i32, i64");
}

std::uint32_t encode(Dtype dtype, double value) {
  const Format format = format_of(dtype);
  const int total_bits = 8 * format.bytes;
  const int fraction_bits = format.precision - 1;
  const std::uint32_t sign = std::signbit(value) ? 1U << (total_bits - 1) : 0U;
  const std::uint32_t infinity = ((1U << (total_bits - 1 - fraction_bits)) - 1U) << fraction_bits;
  if (std::isnan(value)) return sign | infinity | (1U << (fraction_bits - 1));
  if (std::isinf(value)) return sign | infinity;
  if (value == 0.0) return sign;

  const double magnitude = std::fabs(value);
  const int exponent = std::max(std::ilogb(magnitude), format.min_exponent);
  // One unit in the last place becomes 1.0; nearbyint rounds ties to even in the default mode.
  const double units = std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent));
  // With the exponent field at its value for a normal number, a carry out of the significand moves to the
  // next binade by itself, and a significand without the hidden bit is a subnormal number.
  const auto integer = static_cast<std::uint64_t>(units);
  const auto field = static_cast<std::uint64_t>(exponent - format.min_exponent) << fraction_bits;
  const std::uint64_t bits = field + integer;
  return sign | (bits >= infinity ? infinity : static_cast<std::uint32_t>(bits));
}

double decode(Dtype dtype, std::uint32_t bits) {
  const Format format = format_of(dtype);
  const int total_bits = 8 * format.bytes;
  const int fraction_bits = format.precision - 1;
  const std::uint32_t exponent_mask = (1U << (total_bits - 1 - fraction_bits)) - 1U;
  const bool negative = (bits >> (total_bits - 1)) & 1U;
  const std::uint32_t exponent = (bits >> fraction_bits) & exponent_mask;
  const std::uint32_t fraction = bits & ((1U << fraction_bits) - 1U);
  double magnitude;
  if (exponent == exponent_mask) {
    magnitude = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<double>(fraction), format.min_exponent - fraction_bits);
  } else {
    magnitude = std::ldexp(static_cast<double>(fraction | (1U << fraction_bits)),
                           format.min_exponent - fraction_bits + static_cast<int>(exponent) - 1);
  }
  return negative ? -magnitude : magnitude;
}

double round_to(Dtype dtype, double value) {
  if (dtype == Dtype::f64) return value;
  return is_integer(dtype) ? std::nearbyint(value) : decode(dtype, encode(dtype, value));
}

double load_element(Dtype dtype, const void* data, std::int64_t index) {
  if (dtype == Dtype::i32) return static_cast<const std::int32_t*>(data)[index];
  if (dtype == Dtype::i64) return static_cast<double>(static_cast<const std::int64_t*>(data)[index]);
  if (dtype == Dtype::f64) return static_cast<const double*>(data)[index];
  if (dtype == Dtype::f32) return static_cast<const float*>(data)[index];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[index];
  return dtype == Dtype::f16 ? f16_to_float(bits) : bf16_to_float(bits);
}

void store_element(Dtype dtype, void* data, std::int64_t index, double value) {
  if (dtype == Dtype::i32) {
    static_cast<std::int32_t*>(data)[index] = static_cast<std::int32_t>(std::nearbyint(value));
  } else if (dtype == Dtype::i64) {
    static_cast<std::int64_t*>(data)[index] = static_cast<std::int64_t>(std::nearbyint(value));
  } else if (dtype == Dtype::f64) {
    static_cast<double*>(data)[index] = value;
  } else if (dtype == Dtype::f32) {
    static_cast<float*>(data)[index] = static_cast<float>(value);
  } else {
    static_cast<std::uint16_t*>(data)[index] = static_cast<std::uint16_t>(encode(dtype, value));
  }
}

std::uint16_t float_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t(bits & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFU;
  if (magnitude >= 0x7C00U) {  // infinity or NaN (made quiet)
    const std::uint32_t fraction = (magnitude & 0x3FFU) << 13;
    return std::bit_cast<float>(sign | 0x7F800000U | fraction | (fraction ? 0x400000U : 0U));
  }
  // The exponent field moves by 127 - 15 = 112; scaling by 2^112 does that for subnormals as well.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
}

std::uint16_t float_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7E00U);
  if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // 65520 and above
  if (magnitude < 0x38800000U) {  // below 2^-14: adding 0.5 aligns the last place to 2^-24 and rounds
    const float aligned = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3F000000U));
  }
  magnitude += 0xFFFU + ((magnitude >> 13) & 1U);  // round to nearest even at bit 13
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000U) >> 13));
}

}  // namespace fwht
