#include "common/contract/encoding.hpp"

#include <charconv>
#include <span>

#include "common/host/each_once.hpp"
#include "common/host/error.hpp"
#include "common/host/names.hpp"
#include "common/host/text.hpp"

namespace fwht {
namespace {

using Kind = ScaleGranularity::Kind;

struct FormatRow {
  CodeFormat format;
  std::string_view name;
  std::int64_t fixed_group;  // 0: the caller chooses tensor, row or a group
  ScaleType scale_type;
};

constexpr FormatRow kFormats[] = {
    {CodeFormat::plain, "", 0, ScaleType::none},       {CodeFormat::e4m3, "e4m3", 0, ScaleType::f32},
    {CodeFormat::int8, "int8", 0, ScaleType::f32},     {CodeFormat::int4, "int4", 0, ScaleType::f32},
    {CodeFormat::mxfp8, "mxfp8", 32, ScaleType::e8m0}, {CodeFormat::mxfp4, "mxfp4", 32, ScaleType::e8m0},
    {CodeFormat::nvfp4, "nvfp4", 16, ScaleType::e4m3},
};

constexpr Names<Recipe, 14> kRecipes{"recipe",
                                     {{Recipe::vllm_token, "vllm_token"},
                                      {Recipe::vllm_group, "vllm_group"},
                                      {Recipe::vllm_tensor, "vllm_tensor"},
                                      {Recipe::vllm_static, "vllm_static"},
                                      {Recipe::sglang_token, "sglang_token"},
                                      {Recipe::sglang_group, "sglang_group"},
                                      {Recipe::deepgemm, "deepgemm"},
                                      {Recipe::deepseek_v32, "deepseek_v32"},
                                      {Recipe::symmetric, "symmetric"},
                                      {Recipe::quarot, "quarot"},
                                      {Recipe::floor, "floor"},
                                      {Recipe::rceil, "rceil"},
                                      {Recipe::even, "even"},
                                      {Recipe::te, "te"}}};
constexpr Names<ScaleType, 6> kScaleTypes{"scale type",
                                          {{ScaleType::none, "none"},
                                           {ScaleType::f32, "f32"},
                                           {ScaleType::f16, "f16"},
                                           {ScaleType::ue8m0, "ue8m0"},
                                           {ScaleType::e8m0, "e8m0"},
                                           {ScaleType::e4m3, "e4m3"}}};
constexpr Names<Element, 5> kElements{"element",
                                      {{Element::none, "none"},
                                       {Element::e4m3, "e4m3"},
                                       {Element::e2m1, "e2m1"},
                                       {Element::int8, "int8"},
                                       {Element::int4, "int4"}}};
constexpr Names<ScaleLayout, 4> kLayouts{"layout",
                                         {{ScaleLayout::row_major, "row_major"},
                                          {ScaleLayout::mn_major, "mn"},
                                          {ScaleLayout::packed, "packed"},
                                          {ScaleLayout::swizzled_128x4, "128x4"}}};

constexpr std::string_view kForm =
    "e4m3:row, e4m3:tensor, e4m3:128,ue8m0,mn, int8:128, int4:64, mxfp8, mxfp4:rceil or nvfp4:128x4, with "
    "/f32 "
    "behind";

const FormatRow& row_of(CodeFormat format) {
  for (const FormatRow& row : kFormats) {
    if (row.format == format) return row;
  }
  throw BadRequest(concat("encoding format ", static_cast<int>(format), " is unknown"));
}

/// The recipes of a format; the first is the default where nothing else decides.
std::span<const Recipe> recipes_of(CodeFormat format) {
  static constexpr Recipe kE4m3[] = {Recipe::vllm_token,  Recipe::vllm_group,   Recipe::vllm_tensor,
                                     Recipe::vllm_static, Recipe::sglang_token, Recipe::sglang_group,
                                     Recipe::deepgemm,    Recipe::deepseek_v32};
  static constexpr Recipe kInt8[] = {Recipe::symmetric};
  static constexpr Recipe kInt4[] = {Recipe::symmetric, Recipe::quarot};
  static constexpr Recipe kMxfp8[] = {Recipe::floor, Recipe::rceil};
  static constexpr Recipe kMxfp4[] = {Recipe::floor, Recipe::rceil, Recipe::even};
  static constexpr Recipe kNvfp4[] = {Recipe::te};
  switch (format) {
    case CodeFormat::plain:
      return {};
    case CodeFormat::e4m3:
      return kE4m3;
    case CodeFormat::int8:
      return kInt8;
    case CodeFormat::int4:
      return kInt4;
    case CodeFormat::mxfp8:
      return kMxfp8;
    case CodeFormat::mxfp4:
      return kMxfp4;
    case CodeFormat::nvfp4:
      return kNvfp4;
  }
  return {};
}

Recipe default_recipe(CodeFormat format, Kind kind) {
  if (format == CodeFormat::plain) return Recipe::none;
  if (format == CodeFormat::e4m3 && kind == Kind::tensor) return Recipe::vllm_tensor;
  if (format == CodeFormat::e4m3 && kind == Kind::group) return Recipe::vllm_group;
  return recipes_of(format).front();
}

ScaleType default_scale_type(CodeFormat format, Recipe recipe) {
  return recipe == Recipe::quarot ? ScaleType::f16 : row_of(format).scale_type;
}

bool takes_ue8m0(const Encoding& encoding) {
  return encoding.recipe == Recipe::vllm_group || encoding.recipe == Recipe::deepgemm ||
         encoding.recipe == Recipe::deepseek_v32;
}

/// Scales of the tensor and only of the tensor.
bool is_of_tensors(Recipe recipe) {
  return recipe == Recipe::vllm_tensor || recipe == Recipe::vllm_static;
}

template <class Value>
bool contains(std::span<const Value> values, Value value) {
  for (const Value& each : values) {
    if (each == value) return true;
  }
  return false;
}

void validate_recipe(const Encoding& encoding, const std::string& text) {
  const FormatRow& format = row_of(encoding.format);
  if (!contains(recipes_of(encoding.format), encoding.recipe)) {
    std::string known;
    for (const Recipe recipe : recipes_of(encoding.format))
      known += (known.empty() ? "" : ", ") + std::string(name_of(recipe));
    throw BadRequest(concat("encoding ", text, ": ", format.name, " has no recipe ", name_of(encoding.recipe),
                            "; it has ", known));
  }
  if (encoding.format == CodeFormat::e4m3 &&
      is_of_tensors(encoding.recipe) != (encoding.scales.kind == Kind::tensor)) {
    throw BadRequest(concat("encoding ", text, ": the recipe ", name_of(encoding.recipe), " is ",
                            is_of_tensors(encoding.recipe) ? "only for" : "not for",
                            " one scale per tensor"));
  }
  if (encoding.scale_type == ScaleType::ue8m0 && takes_ue8m0(encoding)) return;
  if (encoding.scale_type != default_scale_type(encoding.format, encoding.recipe)) {
    throw BadRequest(concat("encoding ", text, ": the recipe ", name_of(encoding.recipe),
                            " has no scales in ", name_of(encoding.scale_type)));
  }
}

void validate_layout(const Encoding& encoding, const std::string& text) {
  const auto refuse = [&](std::string_view needed) {
    throw BadRequest(concat("encoding ", text, ": the layout ", name_of(encoding.layout), " is for ", needed,
                            ", not for scales in ", name_of(encoding.scale_type)));
  };
  switch (encoding.layout) {
    case ScaleLayout::row_major:
      return;
    case ScaleLayout::mn_major:
      if (scale_bytes(encoding) != 4) refuse("scales of 4 bytes");
      break;
    case ScaleLayout::packed:
      if (encoding.scale_type != ScaleType::ue8m0 && encoding.scale_type != ScaleType::e8m0)
        refuse("scales in ue8m0 or e8m0");
      break;
    case ScaleLayout::swizzled_128x4:
      if (encoding.scale_type != ScaleType::e8m0 && encoding.scale_type != ScaleType::e4m3)
        refuse("scales in e8m0 or e4m3");
      break;
  }
  if (encoding.scales.kind == Kind::tensor) {
    throw BadRequest(
        concat("encoding ", text, ": one scale per tensor has no layout ", name_of(encoding.layout)));
  }
}

/// Of n, a group, a token and all rows: 128 times as many scales of 4 bytes, which a layout may pad them to,
/// stay far below 2^63.
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;

void require_size(std::int64_t value, std::string_view name, const std::string& text) {
  if (value >= 1 && value <= kMostElements) return;
  throw BadRequest(
      concat("encoding ", text, ": ", name, "=", value, " must be between 1 and ", kMostElements));
}

constexpr Names<Kind, 3> kGranularities{
    "granularity", {{Kind::tensor, "tensor"}, {Kind::row, "row"}, {Kind::group, "group"}}};
constexpr Names<Intermediate, 2> kIntermediates{
    "intermediate", {{Intermediate::storage, "storage"}, {Intermediate::f32, "f32"}}};

/// Ahead of what reads them.
void validate_enumerators(const Encoding& encoding, const std::string& text) {
  const auto require_known = [&](const auto& names, auto value) {
    if (!names.of(value).empty()) return;
    throw BadRequest(
        concat("encoding ", text, ": ", names.what, " ", static_cast<int>(value), " is unknown"));
  };
  if (encoding.scales.kind == Kind::none) throw BadRequest(concat("encoding ", text, " names no scales"));
  require_known(kGranularities, encoding.scales.kind);
  require_known(kLayouts, encoding.layout);
  require_known(kIntermediates, encoding.intermediate);
  if (encoding.scales.kind != Kind::group && encoding.scales.group != 0) {
    throw BadRequest(concat("encoding ", text, ": group=", encoding.scales.group,
                            " must be 0 for one scale a ", kGranularities.of(encoding.scales.kind)));
  }
}

void validate_lengths(const Encoding& encoding, std::int64_t n, const std::string& text) {
  const std::int64_t group = encoding.scales.group;
  require_size(n, "n", text);
  if (encoding.token != 0) require_size(encoding.token, "token", text);
  if (encoding.scales.kind == Kind::group) {
    require_size(group, "group", text);
    if (n % group != 0 && group % n != 0) {
      throw BadRequest(
          concat("encoding ", text, ": group=", group, " must divide n=", n, " or be a multiple of it"));
    }
  }
  if (encoding.token != 0) {
    if (encoding.token % n != 0) {
      throw BadRequest(concat("encoding ", text, ": a token of ", encoding.token,
                              " elements must be a multiple of n=", n));
    }
    if (group != 0 && encoding.token % group != 0) {
      throw BadRequest(concat("encoding ", text, ": a token of ", encoding.token,
                              " elements must be a multiple of group=", group));
    }
  }
  // Rows of one element lie side by side (Problem sees to that), so whole tokens are whole bytes.
  if (code_bits(encoding.format) == 4 && (n == 1 ? token_length(encoding, n) : n) % 2 != 0) {
    throw BadRequest(concat("encoding ", text, ": two codes share a byte, so n=", n, " must be even"));
  }
}

std::int64_t parse_length(std::string_view digits, std::string_view text, std::string_view what) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size()) {
    throw BadRequest(concat("encoding '", text, "': '", digits, "' is no ", what, "; the form is ", kForm));
  }
  return value;
}

}  // namespace

std::string_view name_of(CodeFormat format) {
  return format == CodeFormat::plain ? "plain" : row_of(format).name;
}

std::string_view name_of(Recipe recipe) {
  return recipe == Recipe::none ? "none" : kRecipes.of(recipe);
}

std::string_view name_of(Element element) {
  return kElements.of(element);
}

std::string_view name_of(ScaleType type) {
  return kScaleTypes.of(type);
}

std::string_view name_of(ScaleLayout layout) {
  return kLayouts.of(layout);
}

Encoding make_encoding(CodeFormat format, ScaleGranularity scales) {
  const FormatRow& row = row_of(format);
  Encoding encoding;
  encoding.format = format;
  encoding.scales = row.fixed_group != 0 ? ScaleGranularity{Kind::group, row.fixed_group} : scales;
  encoding.recipe = default_recipe(format, encoding.scales.kind);
  encoding.scale_type = default_scale_type(format, encoding.recipe);
  return encoding;
}

void validate(const Encoding& encoding, std::int64_t n) {
  const FormatRow& format = row_of(encoding.format);
  const ScaleGranularity& scales = encoding.scales;
  if (encoding.is_plain()) {
    if (encoding != Encoding{})
      throw BadRequest("the plain encoding has no scales, no recipe and no intermediate");
    return;
  }
  const std::string text = to_string(encoding);
  validate_enumerators(encoding, text);
  if (format.fixed_group != 0 && (scales.kind != Kind::group || scales.group != format.fixed_group)) {
    throw BadRequest(
        concat("encoding ", text, ": ", format.name, " has one scale for ", format.fixed_group, " elements"));
  }
  validate_lengths(encoding, n, text);
  validate_recipe(encoding, text);
  validate_layout(encoding, text);
}

void validate(const Encoding& encoding, std::int64_t n, std::int64_t rows) {
  validate(encoding, n);
  if (encoding.is_plain()) return;
  if (rows < 0 || rows > kMostElements / n) {
    throw BadRequest(concat("encoding ", to_string(encoding), ": rows=", rows, " of n=", n, " must be 0 to ",
                            kMostElements, " elements together"));
  }
  const std::int64_t token = token_length(encoding, n);
  if (rows * n % token != 0) {
    throw BadRequest(concat("encoding ", to_string(encoding), ": rows=", rows, " of n=", n,
                            " are no whole tokens of ", token, " elements"));
  }
}

void validate(const Encoding& encoding, std::int64_t n, std::int64_t rows, Dtype storage) {
  validate(encoding, n, rows);
  if (encoding.recipe == Recipe::quarot &&
      (storage != Dtype::f16 || encoding.intermediate != Intermediate::storage)) {
    throw BadRequest(concat("encoding ", to_string(encoding),
                            ": the recipe quarot quantizes values in f16, not in ",
                            encoding.intermediate == Intermediate::f32 ? "f32" : name_of(storage)));
  }
}

std::string to_string(const Encoding& encoding) {
  if (encoding.is_plain()) return "";
  const FormatRow& format = row_of(encoding.format);
  std::string words;
  const auto add = [&words](std::string_view word) {
    words += words.empty() ? ":" : ",";
    words += word;
  };
  if (encoding.scales.kind == Kind::tensor) add("tensor");
  if (encoding.scales.kind == Kind::row) add("row");
  if (encoding.scales.kind == Kind::group &&
      (format.fixed_group == 0 || encoding.scales.group != format.fixed_group))
    add(concat(encoding.scales.group));
  if (encoding.scale_type != default_scale_type(encoding.format, encoding.recipe))
    add(name_of(encoding.scale_type));
  if (encoding.layout != ScaleLayout::row_major) add(name_of(encoding.layout));
  if (encoding.token != 0) add(concat("t", encoding.token));
  if (encoding.recipe != default_recipe(encoding.format, encoding.scales.kind)) add(name_of(encoding.recipe));
  return std::string(format.name) + words + (encoding.intermediate == Intermediate::f32 ? "/f32" : "");
}

Encoding parse_encoding(std::string_view text) {
  std::string_view rest = text;
  const bool in_f32 = rest.ends_with("/f32");
  if (in_f32) rest.remove_suffix(4);
  const std::size_t colon = rest.find(':');
  const FormatRow* format = nullptr;
  for (const FormatRow& row : kFormats) {
    if (!row.name.empty() && row.name == rest.substr(0, colon)) format = &row;
  }
  if (format == nullptr) throw BadRequest(concat("encoding '", text, "': the form is ", kForm));

  ScaleGranularity scales;
  if (format->fixed_group != 0) scales = {Kind::group, format->fixed_group};
  Recipe recipe = Recipe::none;
  ScaleLayout layout = ScaleLayout::row_major;
  std::int64_t token = 0;
  bool ue8m0 = false;
  EachOnce once("encoding", text);
  rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
  for (bool more = colon != std::string_view::npos; more;) {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    more = comma != std::string_view::npos;
    rest = more ? rest.substr(comma + 1) : std::string_view{};
    const auto* known_layout = kLayouts.find(word);
    const auto* known_recipe = kRecipes.find(word);
    if (word == "tensor") {
      once("scales");
      scales = {Kind::tensor, 0};
    } else if (word == "row") {
      once("scales");
      scales = {Kind::row, 0};
    } else if (word == "ue8m0") {
      once("scale type");
      ue8m0 = true;
    } else if (known_layout != kLayouts.end()) {
      once("layout");
      layout = known_layout->value;
    } else if (known_recipe != kRecipes.end()) {
      once("recipe");
      recipe = known_recipe->value;
    } else if (word.size() > 1 && word[0] == 't' && word[1] >= '0' && word[1] <= '9') {
      once("token");
      token = parse_length(word.substr(1), text, "length of a token");
      if (token == 0) throw BadRequest(concat("encoding ", text, ": t=0 must be at least 1"));
    } else {
      scales = {Kind::group, parse_length(word, text, "group size")};
      once("scales");
    }
  }
  if (scales.kind == Kind::none) {
    throw BadRequest(concat("encoding '", text, "' names no scales; the form is ", kForm));
  }
  Encoding encoding = make_encoding(format->format, scales);
  encoding.scales = scales;
  if (recipe != Recipe::none) {
    encoding.recipe = recipe;
    encoding.scale_type = default_scale_type(format->format, recipe);
  }
  if (ue8m0) encoding.scale_type = ScaleType::ue8m0;
  encoding.layout = layout;
  encoding.token = token;
  if (in_f32) encoding.intermediate = Intermediate::f32;
  return encoding;
}

}  // namespace fwht
