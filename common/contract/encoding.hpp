// What a transform writes: numbers of a storage type, or codes of a quantized format with their scales.
//
// An encoding is a format (codes, what shares a scale, how scales are stored and where) and a recipe (the
// exact arithmetic from values to scale and codes). docs/quantize.md says which consumer takes which.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/contract/dtype.hpp"
#include "common/contract/scale_layout.hpp"

namespace fwht {

/// The codes. `plain` is none: the result in the storage type of Problem::out.
enum class CodeFormat : std::uint8_t {
  plain,
  e4m3,   ///< fp8, 1 byte (OCP 8-bit floating point: 448 is the largest number, no infinity)
  int8,   ///< 1 byte, two's complement
  int4,   ///< two's complement, two codes per byte, the even element in the low half
  mxfp8,  ///< e4m3 codes, one e8m0 scale for every 32 elements (OCP MX)
  mxfp4,  ///< e2m1 codes, two per byte, one e8m0 scale for every 32 elements (OCP MX)
  nvfp4   ///< e2m1 codes, two per byte, one e4m3 scale for every 16 elements, one fp32 scale per tensor
};

/// What one code is.
enum class Element : std::uint8_t { none, e4m3, e2m1, int8, int4 };

/// How many elements share one scale.
struct ScaleGranularity {
  enum class Kind : std::uint8_t {
    none,
    tensor,
    row,   ///< of a token, see Encoding::token
    group  ///< consecutive elements; a group longer than n spans consecutive rows
  };
  Kind kind = Kind::none;
  std::int64_t group = 0;  ///< elements of a group; 0 for the other kinds
  constexpr bool operator==(const ScaleGranularity&) const = default;
};

/// How one scale is stored.
enum class ScaleType : std::uint8_t {
  none,
  f32,
  f16,
  ue8m0,  ///< a power of two, stored as fp32; as its exponent byte in the layout `packed`
  e8m0,   ///< a power of two: its exponent byte, value 2^(byte - 127)
  e4m3    ///< 1 byte
};

/// The arithmetic from values to scale and codes, named after the chain whose bits it gives. All in fp32,
/// each operation rounded to nearest even; a = largest |y| of the group, NaN ignored; M = largest code value.
enum class Recipe : std::uint8_t {
  none,
  vllm_token,    ///< e4m3. s = max(a / 448, 1 / (448 * 512)), y / s
  vllm_group,    ///< e4m3. s = max(a, 1e-10) / 448, y / s
  vllm_tensor,   ///< e4m3. s = a / 448, y * (1 / s): the dynamic scale of a whole tensor
  vllm_static,   ///< e4m3, the scale s of the tensor is given. y * (1 / s)
  sglang_token,  ///< e4m3. s = a / 448, y * (1 / s)
  sglang_group,  ///< e4m3. s = max(a, 1e-10) * (1 / 448), y * (448 / max(a, 1e-10))
  deepgemm,      ///< e4m3. s = max(a, 1e-4) * (1 / 448), y * (1 / s)
  deepseek_v32,  ///< e4m3. s = max(a, 1e-4) * (1 / 448), y / s
  symmetric,     ///< int8 (vLLM per token), int4. s = a / M, y * (M / a)
  quarot,        ///< int4 of fp16 values, in fp16. s = a / 7, y / s
  floor,         ///< MX, OCP 6.3. s = 2^(floor(log2 a) - e), e the exponent of M
  rceil,         ///< MX. s = 2^ceil(log2(a * (1 / M)))
  even,          ///< MXFP4. floor of a rounded to two significant bits (half up)
  te             ///< NVFP4, g given. b = e4m3(a * (g * (1 / 6))), y * min(1 / (b * (1 / g)), FLT_MAX)
};

/// What is rounded before it is quantized: the fp32 result itself, or the result rounded to the storage type
/// first, which is what a transform followed by a quantizer does.
enum class Intermediate : std::uint8_t { storage, f32 };

struct Encoding {
  CodeFormat format = CodeFormat::plain;
  ScaleGranularity scales;
  ScaleType scale_type = ScaleType::none;
  ScaleLayout layout = ScaleLayout::row_major;
  Recipe recipe = Recipe::none;
  /// Elements of one token: one row of the matrix of scales. A multiple of n and of the group; a token longer
  /// than n consists of consecutive rows (a block-diagonal transform). 0: the longer of n and the group.
  std::int64_t token = 0;
  Intermediate intermediate = Intermediate::storage;

  constexpr bool is_plain() const { return format == CodeFormat::plain; }
  constexpr bool operator==(const Encoding&) const = default;
};

/// The format with its default scale type, layout and recipe. `scales` is read where the format leaves a
/// choice.
Encoding make_encoding(CodeFormat format, ScaleGranularity scales = {});

constexpr Element element_of(CodeFormat format) {
  switch (format) {
    case CodeFormat::plain:
      return Element::none;
    case CodeFormat::e4m3:
    case CodeFormat::mxfp8:
      return Element::e4m3;
    case CodeFormat::int8:
      return Element::int8;
    case CodeFormat::int4:
      return Element::int4;
    case CodeFormat::mxfp4:
    case CodeFormat::nvfp4:
      return Element::e2m1;
  }
  return Element::none;
}

/// Bits of one code; 0 for the plain encoding, whose elements have the storage type's size.
constexpr int code_bits(CodeFormat format) {
  const Element element = element_of(format);
  if (element == Element::none) return 0;
  return element == Element::e4m3 || element == Element::int8 ? 8 : 4;
}

/// Bytes of one scale as it is stored; 0 where there is none.
constexpr int scale_bytes(const Encoding& encoding) {
  switch (encoding.scale_type) {
    case ScaleType::none:
      return 0;
    case ScaleType::f32:
      return 4;
    case ScaleType::f16:
      return 2;
    case ScaleType::ue8m0:
      return encoding.layout == ScaleLayout::packed ? 1 : 4;
    case ScaleType::e8m0:
    case ScaleType::e4m3:
      return 1;
  }
  return 0;
}

/// Whether one fp32 number of the tensor must be given: Operands::tensor_scale.
constexpr bool needs_tensor_scale(const Encoding& encoding) {
  return encoding.recipe == Recipe::vllm_static || encoding.recipe == Recipe::te;
}
/// Whether scales are written. Not where the only one is given.
constexpr bool writes_scales(const Encoding& encoding) {
  return !encoding.is_plain() && encoding.recipe != Recipe::vllm_static;
}

/// Elements of one token of a transform with rows of n elements.
constexpr std::int64_t token_length(const Encoding& encoding, std::int64_t n) {
  if (encoding.token != 0) return encoding.token;
  return encoding.scales.group > n ? encoding.scales.group : n;
}

/// The matrix of scales. Tensor: 1 x 1; 0 x 0 where none is written.
struct ScaleShape {
  std::int64_t rows = 0, columns = 0;
  constexpr bool operator==(const ScaleShape&) const = default;
};
constexpr ScaleShape scale_shape(const Encoding& encoding, std::int64_t rows, std::int64_t n) {
  if (!writes_scales(encoding)) return {0, 0};
  if (encoding.scales.kind == ScaleGranularity::Kind::tensor) return {1, 1};
  const std::int64_t token = token_length(encoding, n);
  return {rows * n / token,
          encoding.scales.kind == ScaleGranularity::Kind::row ? 1 : token / encoding.scales.group};
}

/// Scales of rows x n elements, without padding.
constexpr std::int64_t scale_count(const Encoding& encoding, std::int64_t rows, std::int64_t n) {
  const ScaleShape shape = scale_shape(encoding, rows, n);
  return shape.rows * shape.columns;
}
/// Bytes that Operands::scales must have room for, padding included.
constexpr std::int64_t scale_buffer_bytes(const Encoding& encoding, std::int64_t rows, std::int64_t n) {
  const ScaleShape shape = scale_shape(encoding, rows, n);
  return scale_positions(encoding.layout, shape.rows, shape.columns) * scale_bytes(encoding);
}
/// Required alignment of Operands::scales.
inline constexpr std::int64_t kScaleAlignment = 16;

/// Throws BadRequest, naming value and limit, for n < 1, a group or token that does not fit n, a granularity,
/// scale type, layout or recipe that the format does not have, and half bytes where n is odd. Sizes whose
/// products do not fit 64 bits are refused first.
void validate(const Encoding& encoding, std::int64_t n);
/// The same, and: whole tokens in `rows`.
void validate(const Encoding& encoding, std::int64_t n, std::int64_t rows);
/// The same, and: the storage type that the recipe asks for.
void validate(const Encoding& encoding, std::int64_t n, std::int64_t rows, Dtype storage);

/// "format", or "format:words" with commas between: "e4m3:row", "e4m3:tensor", "int8:128", "mxfp4", "nvfp4";
/// then, where they differ from the default: "ue8m0" (scale type), "mn", "packed" or "128x4" (layout),
/// "t8192" (token), and the recipe: "e4m3:128,ue8m0,mn,deepgemm", "mxfp4:rceil". "/f32" behind it where the
/// intermediate is fp32. The plain encoding is "".
std::string to_string(const Encoding& encoding);
/// Inverse of to_string for all but the plain encoding; words in any order, of each kind one. Throws
/// BadRequest; validate() is still to be asked about n.
Encoding parse_encoding(std::string_view text);

std::string_view name_of(CodeFormat format);
std::string_view name_of(Recipe recipe);
std::string_view name_of(Element element);
std::string_view name_of(ScaleType type);
/// The word of the text form; "row_major" for the default, which the text leaves out.
std::string_view name_of(ScaleLayout layout);

}  // namespace fwht
