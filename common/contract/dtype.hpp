// Storage types of the transform and their exact host conversions.
//
// The 16-bit formats travel on the host as their bit patterns (std::uint16_t), because g++ 12 and nvcc
// agree on no host type for bf16. All conversions round to nearest even, keep subnormals and signed zeros,
// and turn every NaN into a quiet NaN.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

namespace fwht {

/// i32 and i64: two's complement. Sums wrap modulo 2^32 or 2^64 and have no scale but 1, so that a result is
/// exact wherever it fits, whatever its partial sums do; n max|x| below 2^31 or 2^63 is enough.
enum class Dtype { f16, bf16, f32, f64, i32, i64 };

/// What the ladder is built, proven and timed for. Some variants take the others too.
inline constexpr Dtype kAllDtypes[] = {Dtype::f16, Dtype::bf16, Dtype::f32};
inline constexpr Dtype kEveryDtype[] = {Dtype::f16, Dtype::bf16, Dtype::f32,
                                        Dtype::f64, Dtype::i32,  Dtype::i64};

constexpr bool is_integer(Dtype dtype) {
  return dtype == Dtype::i32 || dtype == Dtype::i64;
}

/// What a format is: `precision` significand bits (the hidden one included; of integers, those of a
/// magnitude), smallest normal exponent.
struct Format {
  std::string_view name;
  int bytes;
  int precision;
  int min_exponent;  // 2^min_exponent is the smallest normal number
  double max_finite;

  constexpr double unit_roundoff() const {
    return std::bit_cast<double>(std::uint64_t(1023 - precision) << 52);
  }
};

/// bytes = 0 for a value that is no Dtype.
constexpr Format format_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f16:
      return {"f16", 2, 11, -14, 65504.0};
    case Dtype::bf16:
      return {"bf16", 2, 8, -126, 3.3895313892515355e38};
    case Dtype::f32:
      return {"f32", 4, 24, -126, 3.4028234663852886e38};
    case Dtype::f64:
      return {"f64", 8, 53, -1022, std::numeric_limits<double>::max()};
    case Dtype::i32:
      return {"i32", 4, 31, 30, 2147483647.0};
    case Dtype::i64:
      return {"i64", 8, 63, 62, 0x1p63};
  }
  return {};
}

constexpr std::string_view name_of(Dtype dtype) {
  return format_of(dtype).name;
}
constexpr std::int64_t bytes_of(Dtype dtype) {
  return format_of(dtype).bytes;
}

/// "f16", "bf16", "f32", "f64", "i32" or "i64"; also the long spellings "fp16", "fp32", "fp64". Throws
/// BadRequest otherwise.
Dtype parse_dtype(std::string_view text);

/// Bit pattern of the 16- or 32-bit number nearest to `value` (ties to even), without a detour through fp32:
/// rounding twice would not be the correctly rounded result. Overflow gives an infinity. Not for wider types
/// and integers.
std::uint32_t encode(Dtype dtype, double value);

/// The number that a bit pattern stands for; exact.
double decode(Dtype dtype, std::uint32_t bits);

/// `value` rounded once to the format: encode then decode. f64 holds it; integers round ties to even.
double round_to(Dtype dtype, double value);

/// Element access in an array of the given storage type. An i64 beyond 2^53 is rounded. `value` must fit an
/// integer type.
double load_element(Dtype dtype, const void* data, std::int64_t index);
void store_element(Dtype dtype, void* data, std::int64_t index, double value);

/// Fast single conversions for host kernels; the same results as decode / encode.
inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t(bits) << 16);
}
std::uint16_t float_to_bf16(float value);
float f16_to_float(std::uint16_t bits);
std::uint16_t float_to_f16(float value);

}  // namespace fwht
