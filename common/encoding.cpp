#include "common/encoding.hpp"

#include <charconv>

#include "common/error.hpp"
#include "common/text.hpp"

namespace fwht {
namespace {

using Kind = ScaleGranularity::Kind;

struct FormatRow {
  CodeFormat format;
  std::string_view name;
  int code_bits, scale_bytes;
  std::int64_t fixed_group;  // 0: the caller chooses tensor, row or a group
};

constexpr FormatRow kFormats[] = {
    {CodeFormat::plain, "", 0, 0, 0},       {CodeFormat::e4m3, "e4m3", 8, 4, 0},
    {CodeFormat::int8, "int8", 8, 4, 0},    {CodeFormat::int4, "int4", 4, 4, 0},
    {CodeFormat::mxfp8, "mxfp8", 8, 1, 32}, {CodeFormat::mxfp4, "mxfp4", 4, 1, 32},
    {CodeFormat::nvfp4, "nvfp4", 4, 1, 16},
};
constexpr std::string_view kForm =
    "e4m3:row, e4m3:tensor, int8:128, int4:64, mxfp8, mxfp4 or nvfp4, with /f32 behind";

const FormatRow& row_of(CodeFormat format) {
  for (const FormatRow& row : kFormats) {
    if (row.format == format) return row;
  }
  throw BadRequest(concat("encoding format ", static_cast<int>(format), " is unknown"));
}

}  // namespace

int code_bits(CodeFormat format) {
  return row_of(format).code_bits;
}

int scale_bytes(const Encoding& encoding) {
  return row_of(encoding.format).scale_bytes;
}

std::int64_t scale_count(const Encoding& encoding, std::int64_t rows, std::int64_t n) {
  switch (encoding.scales.kind) {
    case Kind::none:
      return 0;
    case Kind::tensor:
      return 1;
    case Kind::row:
      return rows;
    case Kind::group:
      return rows * (n / encoding.scales.group);
  }
  return 0;
}

void validate(const Encoding& encoding, std::int64_t n) {
  const FormatRow& format = row_of(encoding.format);
  const ScaleGranularity& scales = encoding.scales;
  if (encoding.is_plain()) {
    if (scales.kind != Kind::none) throw BadRequest("the plain encoding has no scales");
    return;
  }
  const std::string text = to_string(encoding);
  if (scales.kind == Kind::none) throw BadRequest(concat("encoding ", text, " names no scales"));
  if (scales.kind == Kind::group && scales.group < 1) {
    throw BadRequest(concat("encoding ", text, ": group=", scales.group, " must be at least 1"));
  }
  if (scales.kind == Kind::group && n % scales.group != 0) {
    throw BadRequest(concat("encoding ", text, ": group=", scales.group, " must divide n=", n));
  }
  if (format.fixed_group != 0 && (scales.kind != Kind::group || scales.group != format.fixed_group)) {
    throw BadRequest(
        concat("encoding ", text, ": ", format.name, " has one scale for ", format.fixed_group, " elements"));
  }
  if (format.code_bits == 4 && n % 2 != 0) {
    throw BadRequest(concat("encoding ", text, ": two codes share a byte, so n=", n, " must be even"));
  }
}

std::string to_string(const Encoding& encoding) {
  if (encoding.is_plain()) return "";
  const FormatRow& format = row_of(encoding.format);
  std::string text(format.name);
  if (format.fixed_group == 0 || encoding.scales.group != format.fixed_group) {
    switch (encoding.scales.kind) {
      case Kind::none:
        break;
      case Kind::tensor:
        text += ":tensor";
        break;
      case Kind::row:
        text += ":row";
        break;
      case Kind::group:
        text += concat(":", encoding.scales.group);
        break;
    }
  }
  if (encoding.intermediate == Intermediate::f32) text += "/f32";
  return text;
}

Encoding parse_encoding(std::string_view text) {
  Encoding encoding;
  std::string_view rest = text;
  if (rest.ends_with("/f32")) {
    encoding.intermediate = Intermediate::f32;
    rest.remove_suffix(4);
  }
  const std::size_t colon = rest.find(':');
  const std::string_view name = rest.substr(0, colon);
  const FormatRow* format = nullptr;
  for (const FormatRow& row : kFormats) {
    if (!row.name.empty() && row.name == name) format = &row;
  }
  if (format == nullptr) throw BadRequest(concat("encoding '", text, "': the form is ", kForm));
  encoding.format = format->format;
  if (format->fixed_group != 0) encoding.scales = {Kind::group, format->fixed_group};
  if (colon == std::string_view::npos) {
    if (format->fixed_group == 0) {
      throw BadRequest(concat("encoding '", text, "' names no scales; the form is ", kForm));
    }
    return encoding;
  }
  const std::string_view scales = rest.substr(colon + 1);
  if (scales == "tensor") {
    encoding.scales = {Kind::tensor, 0};
  } else if (scales == "row") {
    encoding.scales = {Kind::row, 0};
  } else {
    encoding.scales = {Kind::group, 0};
    const auto [end, error] =
        std::from_chars(scales.data(), scales.data() + scales.size(), encoding.scales.group);
    if (error != std::errc{} || end != scales.data() + scales.size() || scales.empty()) {
      throw BadRequest(concat("encoding '", text, "': '", scales, "' is no group size; the form is ", kForm));
    }
  }
  return encoding;
}

}  // namespace fwht
