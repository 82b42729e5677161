#include "reference/quantize.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/host/parallel_for.hpp"
#include "reference/rounding.hpp"

namespace fwht::reference {
namespace {

using Kind = ScaleGranularity::Kind;

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr Format kE4m3{"e4m3", 1, 4, -6, 448.0};
constexpr Format kE2m1{"e2m1", 1, 2, 0, 6.0};

/// Position of |value|, a number of the format, among the format's numbers from 0 on.
std::uint8_t position_of(const Format& format, double value) {
  const double magnitude = std::fabs(value);
  const int exponent = exponent_at_least(magnitude, format.min_exponent);
  const double steps = magnitude / ulp_of(format, magnitude);  // of this binade's spacing: exact
  const int per_binade = 1 << (format.precision - 1);
  return static_cast<std::uint8_t>((exponent - format.min_exponent) * per_binade + static_cast<int>(steps));
}

std::uint8_t to_small_float(const Format& format, float value, std::uint8_t nan, int sign_bit) {
  if (std::isnan(value)) return nan;
  const double nearest = round_fast(format, static_cast<double>(value));
  const double finite = std::clamp(nearest, -format.max_finite, format.max_finite);
  const int sign = std::signbit(value) ? 1 << sign_bit : 0;
  return static_cast<std::uint8_t>(position_of(format, finite) | sign);
}

double from_small_float(const Format& format, int position) {
  const int per_binade = 1 << (format.precision - 1);
  const int binade = position / per_binade, step = position % per_binade;
  if (binade == 0) return step * quantum_of(format);
  return (per_binade + step) * quantum_of(format) * power_of_two(binade - 1);
}

// ------------------------------------------------------------ scales

constexpr float largest_code(CodeFormat format) {
  switch (element_of(format)) {
    case Element::none:
      return 0.0F;
    case Element::e4m3:
      return 448.0F;
    case Element::e2m1:
      return 6.0F;
    case Element::int8:
      return 127.0F;
    case Element::int4:
      return 7.0F;
  }
  return 0.0F;
}

float bounded(float factor) {
  return std::min(factor, kLargest);
}

float reciprocal(float scale) {
  return scale == 0.0F ? 0.0F : bounded(1.0F / scale);
}

/// The e4m3 recipes before their scale is rounded to a power of two. The stored bits are of fp32.
GroupScale e4m3_scale(Recipe recipe, float a, float tensor_scale) {
  const auto divide_by = [](float s) { return GroupScale{std::bit_cast<std::uint32_t>(s), s, true}; };
  const auto multiply = [](float s, float r) {
    return GroupScale{std::bit_cast<std::uint32_t>(s), r, false};
  };
  if (recipe == Recipe::vllm_token) return divide_by(std::max(a / 448.0F, 1.0F / (448.0F * 512.0F)));
  if (recipe == Recipe::vllm_group) return divide_by(std::max(a, 1e-10F) / 448.0F);
  if (recipe == Recipe::vllm_static) return multiply(tensor_scale, reciprocal(tensor_scale));
  if (recipe == Recipe::sglang_group) {
    const float floored = std::max(a, 1e-10F);
    return multiply(floored * (1.0F / 448.0F), 448.0F / floored);
  }
  if (recipe == Recipe::deepgemm) {
    const float s = std::max(a, 1e-4F) * (1.0F / 448.0F);
    return multiply(s, reciprocal(s));
  }
  if (recipe == Recipe::deepseek_v32) return divide_by(std::max(a, 1e-4F) * (1.0F / 448.0F));
  const float s = a / 448.0F;  // sglang_token, vllm_tensor
  return multiply(s, reciprocal(s));
}

/// The smallest power of two that is not below the scale; the factor is its inverse.
GroupScale rounded_up(const Encoding& encoding, float scale) {
  const bool as_byte = encoding.layout == ScaleLayout::packed;
  if (std::isinf(scale)) return {as_byte ? 0xFFU : 0x7F800000U, 0.0F, false};
  int k = std::ilogb(scale);
  if (std::ldexp(1.0F, k) < scale) ++k;
  return {as_byte ? static_cast<std::uint32_t>(k + 127) : std::bit_cast<std::uint32_t>(std::ldexp(1.0F, k)),
          std::ldexp(1.0F, -k), false};
}

/// OCP MX: the byte of 2^(byte - 127), at least 0.
GroupScale mx_scale(const Encoding& encoding, float a) {
  if (std::isinf(a)) return {0xFFU, 0.0F, false};
  const float largest = largest_code(encoding.format);
  int k = -127;
  if (encoding.recipe == Recipe::rceil) {
    if (const float quotient = a * (1.0F / largest); quotient > 0.0F) {
      k = std::ilogb(quotient);
      if (std::ldexp(1.0, k) < static_cast<double>(quotient)) ++k;
    }
  } else if (a > 0.0F) {
    double rounded = static_cast<double>(a);
    if (encoding.recipe == Recipe::even) {
      const double half = std::ldexp(1.0, std::ilogb(a) - 1);  // spacing of numbers of two significant bits
      rounded = std::floor(rounded / half + 0.5) * half;
    }
    k = std::ilogb(rounded) - std::ilogb(largest);
  }
  k = std::max(k, -127);
  return {static_cast<std::uint32_t>(k + 127), std::ldexp(1.0F, -k), false};
}

GroupScale nvfp4_scale(float a, float g) {
  const std::uint8_t block = to_e4m3(a * (g * (1.0F / 6.0F)));
  if (block == 0) return {0, 0.0F, false};
  return {block, std::fmin(1.0F / (static_cast<float>(from_e4m3(block)) * (1.0F / g)), kLargest), false};
}

/// Elements that share one scale, and how many such groups there are.
struct Groups {
  std::int64_t size, count;
};
Groups groups_of(const Problem& problem) {
  const Encoding& encoding = problem.encoding;
  std::int64_t size = token_length(encoding, problem.n());
  if (encoding.scales.kind == Kind::tensor) size = problem.elements();
  if (encoding.scales.kind == Kind::group) size = encoding.scales.group;
  return {size, problem.elements() / size};
}

/// Position of a group's scale in its buffer.
std::int64_t position_of_group(const Problem& problem, std::int64_t group) {
  const ScaleShape shape = scale_shape(problem.encoding, problem.rows, problem.n());
  return scale_position(problem.encoding.layout, group / shape.columns, group % shape.columns, shape.rows,
                        shape.columns);
}

}  // namespace

std::uint8_t to_e4m3(float value) {
  return to_small_float(kE4m3, value, 0x7F, 7);
}

std::uint8_t to_e2m1(float value) {
  return to_small_float(kE2m1, value, 0x7, 3);
}

int to_integer(double value, int low, int high) {
  if (std::isnan(value)) return 0;
  return static_cast<int>(
      std::clamp(std::nearbyint(value), static_cast<double>(low), static_cast<double>(high)));
}

double from_e4m3(std::uint8_t code) {
  const int position = code & 0x7F;
  if (position == 0x7F) return std::numeric_limits<double>::quiet_NaN();
  const double magnitude = from_small_float(kE4m3, position);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

double from_e2m1(std::uint8_t code) {
  const double magnitude = from_small_float(kE2m1, code & 0x7);
  return (code & 0x8) != 0 ? -magnitude : magnitude;
}

double from_e8m0(std::uint8_t code) {
  return code == 0xFF ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, code - 127);
}

GroupScale scale_of(const Encoding& encoding, float largest, float tensor_scale) {
  switch (encoding.recipe) {
    case Recipe::none:
      return {};
    case Recipe::vllm_token:
    case Recipe::vllm_group:
    case Recipe::vllm_tensor:
    case Recipe::vllm_static:
    case Recipe::sglang_token:
    case Recipe::sglang_group:
    case Recipe::deepgemm:
    case Recipe::deepseek_v32: {
      const GroupScale scale = e4m3_scale(encoding.recipe, largest, tensor_scale);
      if (encoding.scale_type != ScaleType::ue8m0) return scale;
      return rounded_up(encoding, std::bit_cast<float>(scale.stored));
    }
    case Recipe::symmetric: {
      const float most = largest_code(encoding.format);
      return {std::bit_cast<std::uint32_t>(largest / most), largest == 0.0F ? 0.0F : bounded(most / largest),
              false};
    }
    case Recipe::quarot: {
      const std::uint16_t bits = float_to_f16(largest / 7.0F);
      return {bits, f16_to_float(bits), true};
    }
    case Recipe::floor:
    case Recipe::rceil:
    case Recipe::even:
      return mx_scale(encoding, largest);
    case Recipe::te:
      return nvfp4_scale(largest, tensor_scale);
  }
  return {};
}

std::uint8_t code_of(const Encoding& encoding, const GroupScale& scale, float value) {
  const float scaled = scale.divides ? value / scale.factor : value * scale.factor;
  switch (element_of(encoding.format)) {
    case Element::none:
      return 0;
    case Element::e4m3:
      return to_e4m3(scaled);
    case Element::e2m1:
      return to_e2m1(scaled);
    case Element::int8:
      return static_cast<std::uint8_t>(to_integer(static_cast<double>(scaled), -128, 127));
    case Element::int4: {
      // quarot divides in fp16; of two fp16 numbers the quotient by way of fp32 is correctly rounded.
      const double quotient = encoding.recipe == Recipe::quarot
                                  ? round_to(Dtype::f16, static_cast<double>(scaled))
                                  : static_cast<double>(scaled);
      return static_cast<std::uint8_t>(to_integer(quotient, -8, 7) & 0xF);
    }
  }
  return 0;
}

double value_of(const Encoding& encoding, std::uint8_t code, std::uint32_t stored, float tensor_scale) {
  double number = 0.0, scale = 0.0;
  switch (element_of(encoding.format)) {
    case Element::none:
      break;
    case Element::e4m3:
      number = from_e4m3(code);
      break;
    case Element::e2m1:
      number = from_e2m1(code);
      break;
    case Element::int8:
      number = static_cast<std::int8_t>(code);
      break;
    case Element::int4:
      number = (code & 0x8) != 0 ? (code & 0xF) - 16 : code & 0xF;
      break;
  }
  if (!writes_scales(encoding)) return number * static_cast<double>(tensor_scale);
  switch (encoding.scale_type) {
    case ScaleType::none:
      break;
    case ScaleType::f32:
      scale = static_cast<double>(std::bit_cast<float>(stored));
      break;
    case ScaleType::f16:
      scale = static_cast<double>(f16_to_float(static_cast<std::uint16_t>(stored)));
      break;
    case ScaleType::ue8m0:
      scale = encoding.layout == ScaleLayout::packed ? from_e8m0(static_cast<std::uint8_t>(stored))
                                                     : static_cast<double>(std::bit_cast<float>(stored));
      break;
    case ScaleType::e8m0:
      scale = from_e8m0(static_cast<std::uint8_t>(stored));
      break;
    case ScaleType::e4m3:
      scale = from_e4m3(static_cast<std::uint8_t>(stored)) / static_cast<double>(tensor_scale);
      break;
  }
  return number * scale;
}

Encoded quantize(const Problem& problem, const Array& array, const void* values, float tensor_scale,
                 int threads) {
  const Encoding& encoding = problem.encoding;
  const std::int64_t n = problem.n();
  const Groups groups = groups_of(problem);
  const auto value_at = [&](std::int64_t row, std::int64_t column) {
    return static_cast<float>(load_element(array.dtype, values, row * array.row_stride + column));
  };

  // Largest magnitudes first, then scales, then codes: three loops that need no order among their parts.
  std::vector<GroupScale> scales(static_cast<std::size_t>(groups.count));
  parallel_for(groups.count, threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t group = begin; group < end; ++group) {
      float largest = 0.0F;
      for (std::int64_t e = group * groups.size; e < (group + 1) * groups.size; ++e)
        largest = std::fmax(largest, std::fabs(value_at(e / n, e % n)));
      scales[static_cast<std::size_t>(group)] = scale_of(encoding, largest, tensor_scale);
    }
  });

  Encoded encoded;
  encoded.scales.resize(static_cast<std::size_t>(problem.scale_bytes_out()));
  if (writes_scales(encoding)) {
    const auto bytes = static_cast<std::size_t>(scale_bytes(encoding));
    for (std::int64_t group = 0; group < groups.count; ++group) {  // little endian
      std::memcpy(encoded.scales.data() + static_cast<std::size_t>(position_of_group(problem, group)) * bytes,
                  &scales[static_cast<std::size_t>(group)].stored, bytes);
    }
  }

  encoded.codes.resize(static_cast<std::size_t>(problem.span_bytes_out()));
  const int per_byte = 8 / code_bits(encoding.format);
  const std::int64_t token_rows = token_length(encoding, n) / n;  // whole bytes, whatever n
  parallel_for(problem.rows / token_rows, threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin * token_rows; row < end * token_rows; ++row) {
      for (std::int64_t column = 0; column < n; ++column) {
        const GroupScale& scale = scales[static_cast<std::size_t>((row * n + column) / groups.size)];
        const int code = code_of(encoding, scale, value_at(row, column));
        const std::int64_t element = row * problem.out.row_stride + column;
        std::byte& byte = encoded.codes[static_cast<std::size_t>(element / per_byte)];
        byte |= static_cast<std::byte>(code << (per_byte == 2 && element % 2 == 1 ? 4 : 0));
      }
    }
  });
  return encoded;
}

Matrix dequantize(const Problem& problem, const void* codes, const void* scales, float tensor_scale,
                  int threads) {
  const Encoding& encoding = problem.encoding;
  const std::int64_t n = problem.n();
  const Groups groups = groups_of(problem);
  const int per_byte = 8 / code_bits(encoding.format);
  const auto bytes = static_cast<std::size_t>(scale_bytes(encoding));
  Matrix result(problem.rows, n);
  parallel_for(problem.rows, threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t column = 0; column < n; ++column) {
        std::uint32_t stored = 0;
        if (writes_scales(encoding)) {
          const std::int64_t position = position_of_group(problem, (row * n + column) / groups.size);
          std::memcpy(&stored,
                      static_cast<const std::byte*>(scales) + static_cast<std::size_t>(position) * bytes,
                      bytes);
        }
        const std::int64_t element = row * problem.out.row_stride + column;
        const int byte = static_cast<const std::uint8_t*>(codes)[element / per_byte];
        const int code = per_byte == 1 ? byte : element % 2 == 1 ? byte >> 4 : byte & 0xF;
        result(row, column) = value_of(encoding, static_cast<std::uint8_t>(code), stored, tensor_scale);
      }
    }
  });
  return result;
}

}  // namespace fwht::reference
