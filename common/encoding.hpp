// What a transform writes: numbers of a storage type, or codes of a quantized format with their scales.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/dtype.hpp"

namespace fwht {

/// The codes. `plain` is none: the result in the storage type of Problem::out.
enum class CodeFormat : std::uint8_t {
  plain,
  e4m3,   ///< fp8, 1 byte (OCP 8-bit floating point: 448 is the largest number, no infinity)
  int8,   ///< 1 byte, two's complement
  int4,   ///< two codes a byte, the even element in the low half
  mxfp8,  ///< e4m3 codes, one e8m0 scale for every 32 elements (OCP MX)
  mxfp4,  ///< e2m1 codes, two a byte, one e8m0 scale for every 32 elements (OCP MX)
  nvfp4   ///< e2m1 codes, two a byte, one e4m3 scale for every 16 elements, one fp32 scale per tensor
};

/// How many elements share one scale.
struct ScaleGranularity {
  enum class Kind : std::uint8_t { none, tensor, row, group };
  Kind kind = Kind::none;
  std::int64_t group = 0;  ///< elements of a group; 0 for the other kinds
  constexpr bool operator==(const ScaleGranularity&) const = default;
};

/// What is rounded before it is quantized: the fp32 result itself, or the result rounded to the storage type
/// first, which is what a transform followed by a quantizer does.
enum class Intermediate : std::uint8_t { storage, f32 };

struct Encoding {
  CodeFormat format = CodeFormat::plain;
  ScaleGranularity scales;
  Intermediate intermediate = Intermediate::storage;

  constexpr bool is_plain() const { return format == CodeFormat::plain; }
  constexpr bool operator==(const Encoding&) const = default;
};

/// Bits of one code; 0 for the plain encoding, whose elements have the storage type's size.
int code_bits(CodeFormat format);
/// Bytes of one scale as the format stores it; 0 where there is none.
int scale_bytes(const Encoding& encoding);
/// Scales of rows x n elements.
std::int64_t scale_count(const Encoding& encoding, std::int64_t rows, std::int64_t n);

/// Throws BadRequest, naming value and limit, for a group that does not divide n, a granularity that the
/// format does not have, and codes of half a byte where n is odd.
void validate(const Encoding& encoding, std::int64_t n);

/// "e4m3:row", "e4m3:tensor", "int8:128", "mxfp4", "nvfp4"; "/f32" behind it where the intermediate is fp32.
/// The plain encoding is "".
std::string to_string(const Encoding& encoding);
/// Inverse of to_string. Throws BadRequest; validate() is still to be asked about n.
Encoding parse_encoding(std::string_view text);

}  // namespace fwht
