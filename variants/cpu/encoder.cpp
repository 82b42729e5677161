#include "variants/cpu/encoder.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace fwht::cpu {
namespace {

using Kind = ScaleGranularity::Kind;

constexpr float kLargest = std::numeric_limits<float>::max();

std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

/// limit / divisor, at most the largest number; 0 for no divisor.
float ratio(float limit, float divisor) {
  return divisor == 0.0F ? 0.0F : std::min(limit / divisor, kLargest);
}

/// Exponent field of the smallest power of two that is not below; 2^-127 has the field 0.
std::uint32_t exponent_above(float value) {
  const std::uint32_t bits = bits_of(value);
  if (bits <= 0x400000U) return 0;
  return (bits + 0x7FFFFFU) >> 23;
}

std::uint32_t e4m3(float value) {
  if (std::isnan(value)) return 0x7F;
  const std::uint32_t sign = bits_of(value) >> 24 & 0x80U;
  const float size = std::min(std::fabs(value), 448.0F);
  if (size < 0x1p-6F) return sign | static_cast<std::uint32_t>(std::nearbyint(size * 512.0F));
  const std::uint32_t bits = bits_of(size);
  return sign | (((bits + 0x7FFFFU + (bits >> 20 & 1U)) >> 20) - 960U);  // exponents biased by 7, not by 127
}

float number_of_e4m3(std::uint32_t code) {
  return std::bit_cast<float>(code << 20) * 0x1p120F;
}

std::uint32_t e2m1(float value) {
  if (std::isnan(value)) return 7;
  const float size = std::fabs(value);
  const int code = (size > 0.25F) + (size >= 0.75F) + (size > 1.25F) + (size >= 1.75F) + (size > 2.5F) +
                   (size >= 3.5F) + (size > 5.0F);  // a tie goes to the even code
  return static_cast<std::uint32_t>(code) | (std::signbit(value) ? 8U : 0U);
}

std::uint32_t integer(float value, float low, float high) {
  if (std::isnan(value)) return 0;
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(std::nearbyint(std::clamp(value, low, high))));
}

/// With the number of the tensor itself.
Operands with_tensor_scale(Operands operands) {
  if (operands.tensor_scale_at != nullptr) operands.tensor_scale = *operands.tensor_scale_at;
  return operands;
}

}  // namespace

Encoder::Encoder(const Problem& problem, const Operands& operands)
    : problem_(problem),
      operands_(with_tensor_scale(operands)),
      token_(token_length(problem.encoding, problem.n())),
      group_(problem.encoding.scales.kind == Kind::group ? problem.encoding.scales.group : token_),
      shape_(scale_shape(problem.encoding, problem.rows, problem.n())) {
  if (problem.encoding.recipe == Recipe::vllm_static) tensor_ = scale_of(0.0F);
  if (operands.scales != nullptr && padding_is_zero(problem.encoding.layout))
    std::memset(operands.scales, 0, static_cast<std::size_t>(problem.scale_bytes_out()));
}

bool Encoder::needs_tensor() const {
  return problem_.encoding.scales.kind == Kind::tensor && writes_scales(problem_.encoding);
}

void Encoder::take_tensor(float largest) {
  tensor_ = scale_of(largest);
  std::memcpy(operands_.scales, &tensor_.stored, static_cast<std::size_t>(scale_bytes(problem_.encoding)));
}

float Encoder::largest_of(const float* values, std::int64_t count) {
  float largest = 0.0F;
  for (std::int64_t i = 0; i < count; ++i) {
    const float size = std::fabs(values[i]);
    if (size > largest) largest = size;
  }
  return largest;
}

Encoder::AppliedScale Encoder::scale_in_fp32(float a) const {
  constexpr float kPerLimit = 1.0F / 448.0F;
  switch (problem_.encoding.recipe) {
    case Recipe::vllm_token: {
      const float s = std::max(a / 448.0F, 1.0F / (448.0F * 512.0F));
      return {s, true, bits_of(s)};
    }
    case Recipe::vllm_group: {
      const float s = std::max(a, 1e-10F) / 448.0F;
      return {s, true, bits_of(s)};
    }
    case Recipe::vllm_static:
      return {ratio(1.0F, operands_.tensor_scale), false, bits_of(operands_.tensor_scale)};
    case Recipe::sglang_group: {
      const float floored = std::max(a, 1e-10F);
      return {ratio(448.0F, floored), false, bits_of(floored * kPerLimit)};
    }
    case Recipe::deepgemm: {
      const float s = std::max(a, 1e-4F) * kPerLimit;
      return {ratio(1.0F, s), false, bits_of(s)};
    }
    case Recipe::deepseek_v32: {
      const float s = std::max(a, 1e-4F) * kPerLimit;
      return {s, true, bits_of(s)};
    }
    case Recipe::symmetric: {
      const float limit = problem_.encoding.format == CodeFormat::int8 ? 127.0F : 7.0F;
      return {ratio(limit, a), false, bits_of(a / limit)};
    }
    default:  // vllm_tensor, sglang_token
      return {ratio(1.0F, a / 448.0F), false, bits_of(a / 448.0F)};
  }
}

Encoder::AppliedScale Encoder::scale_as_exponent(float a) const {
  if (std::isinf(a)) return {0.0F, false, 255U};
  const bool e2m1_codes = problem_.encoding.format == CodeFormat::mxfp4;
  std::uint32_t field = 0;
  if (problem_.encoding.recipe == Recipe::rceil) {
    field = exponent_above(a * (e2m1_codes ? 1.0F / 6.0F : 1.0F / 448.0F));
  } else {
    const std::uint32_t rounding = problem_.encoding.recipe == Recipe::even ? 0x200000U : 0U;
    const std::uint32_t exponent = (bits_of(a) + rounding) >> 23, of_limit = e2m1_codes ? 2 : 8;
    field = exponent > of_limit ? exponent - of_limit : 0;
  }
  return {std::bit_cast<float>((254U - field) << 23), false, field};
}

Encoder::AppliedScale Encoder::scale_of(float a) const {
  const Encoding& encoding = problem_.encoding;
  if (encoding.scale_type == ScaleType::e8m0) return scale_as_exponent(a);
  if (encoding.recipe == Recipe::te) {
    const float g = operands_.tensor_scale;
    const std::uint32_t code = e4m3(a * (g * (1.0F / 6.0F)));
    return {code == 0 ? 0.0F : std::fmin(1.0F / (number_of_e4m3(code) * (1.0F / g)), kLargest), false, code};
  }
  if (encoding.recipe == Recipe::quarot) {
    const std::uint16_t bits = float_to_f16(a / 7.0F);
    return {f16_to_float(bits), true, bits};
  }
  AppliedScale scale = scale_in_fp32(a);
  if (encoding.scale_type == ScaleType::ue8m0) {
    const std::uint32_t field =
        scale.stored == bits_of(INFINITY) ? 255U : exponent_above(std::bit_cast<float>(scale.stored));
    scale = {field == 255 ? 0.0F : std::bit_cast<float>((254U - field) << 23), false,
             encoding.layout == ScaleLayout::packed ? field : field << 23};
  }
  return scale;
}

std::uint32_t Encoder::code_of(const AppliedScale& scale, float value) const {
  float scaled = scale.divides ? value / scale.factor : value * scale.factor;
  switch (element_of(problem_.encoding.format)) {
    case Element::none:
      break;
    case Element::e4m3:
      return e4m3(scaled);
    case Element::e2m1:
      return e2m1(scaled);
    case Element::int8:
      return integer(scaled, -128.0F, 127.0F) & 0xFFU;
    case Element::int4:
      if (scale.divides) scaled = f16_to_float(float_to_f16(scaled));  // quarot
      return integer(scaled, -8.0F, 7.0F) & 0xFU;
  }
  return 0;
}

void Encoder::write(std::int64_t token, const float* values) const {
  const Encoding& encoding = problem_.encoding;
  const std::int64_t n = problem_.n();
  const bool halves = code_bits(encoding.format) == 4;
  auto* codes = static_cast<std::uint8_t*>(operands_.out);
  auto* scales = static_cast<std::byte*>(operands_.scales);
  if (problem_.paging) {  // a token is a row: as if it were row 0
    const PageLayout pages = problem_.page_layout();
    const std::int64_t slot = operands_.prepared.slots[token];
    if (!pages.has(slot)) return;
    scales = reinterpret_cast<std::byte*>(codes) + pages.scales_at(slot);
    codes += pages.codes_at(slot);
    token = 0;
  }
  for (std::int64_t first = 0; first < token_; first += group_) {
    AppliedScale scale = tensor_;
    if (encoding.scales.kind != Kind::tensor) {
      scale = scale_of(largest_of(values + first, group_));
      const std::int64_t position =
          scale_position(encoding.layout, token, first / group_, shape_.rows, shape_.columns);
      const int bytes = scale_bytes(encoding);
      std::memcpy(scales + position * bytes, &scale.stored, static_cast<std::size_t>(bytes));
    }
    for (std::int64_t i = first; i < first + group_; ++i) {
      const std::int64_t row = token * token_rows() + i / n, element = row * problem_.out.row_stride + i % n;
      const std::uint32_t code = code_of(scale, values[i]);
      std::uint8_t& byte = codes[halves ? element / 2 : element];
      if (!halves || element % 2 == 0) {
        byte = static_cast<std::uint8_t>(code);
      } else {
        byte = static_cast<std::uint8_t>(byte | code << 4);
      }
    }
  }
}

}  // namespace fwht::cpu
