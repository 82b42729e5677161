// Encoded results. The plain result of the same variant, quantized by reference/quantize, says what codes and
// scales must be, bit for bit: what a plan adds to its own arithmetic has no tolerance.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "reference/conformance/checks.hpp"
#include "reference/prologue.hpp"
#include "reference/quantize.hpp"

namespace fwht::conformance {
namespace {

using reference::InputClass;
using Kind = ScaleGranularity::Kind;

constexpr std::uint64_t kSeed = 20;

/// Rows of one kind after another, so that short batches have all of them: ordinary ones, and those at which
/// a quantizer has a special case, before or after the transform.
enum class Row {
  normal,
  outliers,     ///< normal with few elements 100 times larger
  zero,         ///< of both signs
  impulse,      ///< every result has one magnitude
  integers,     ///< ties
  constant,     ///< one large result, the others zero
  small,        ///< 1e-6: below the floors of some recipes
  tiny,         ///< below the floors of all: 2^-40, or the smallest normal numbers where that is more
  subnormal,    ///< of the storage type
  faintest,     ///< its smallest numbers
  large,        ///< results near its range limit
  overflowing,  ///< results beyond it, where it is f16
  nan,          ///< one NaN
  infinite,     ///< one infinity
  count
};

double element_of_row(Row kind, const Format& format, std::int64_t n, std::int64_t column, double normal) {
  const double largest = format.max_finite, length = std::sqrt(static_cast<double>(n));
  switch (kind) {
    case Row::normal:
    case Row::count:
      break;
    case Row::outliers:
      return column % 37 == 5 ? 100 * normal : normal;
    case Row::zero:
      return std::copysign(0.0, normal);
    case Row::impulse:
      return column == n / 3 ? 2.5 : 0.0;
    case Row::integers:
      return std::nearbyint(2 * normal);
    case Row::constant:
      return -3.0;
    case Row::small:
      return 1e-6 * normal;
    case Row::tiny:
      return std::max(0x1p-40, std::ldexp(1.0, format.min_exponent)) * normal;
    case Row::subnormal:
      return std::ldexp(normal, format.min_exponent - 3);
    case Row::faintest:
      return std::ldexp(normal, format.min_exponent - format.precision + 1);
    case Row::large:
      return largest / (8 * length) * std::clamp(normal, -1.0, 1.0);
    case Row::overflowing:  // the sums of a row in f16; in the others sums of fp32 stay finite
      return (format.max_finite < 1e6 ? largest / 4 : largest / (64 * length)) *
             std::clamp(normal, -1.0, 1.0);
    case Row::nan:
      return column == n / 2 ? std::numeric_limits<double>::quiet_NaN() : normal;
    case Row::infinite:
      return column == n / 5 ? std::numeric_limits<double>::infinity() : normal;
  }
  return normal;
}

/// The first numbers of one normal sequence, the same for every problem.
std::span<const double> normal_numbers(std::int64_t count) {
  static std::mt19937_64 random(kSeed);
  static std::normal_distribution<double> normal;
  static std::vector<double> numbers;
  while (static_cast<std::int64_t>(numbers.size()) < count)
    numbers.push_back(normal(random));
  return numbers;
}

/// Kinds change from row to row, or, where a token has several rows, now within tokens and now between them.
Bytes edge_rows(const Problem& problem) {
  constexpr auto kKinds = static_cast<std::int64_t>(Row::count);
  Bytes bytes = blank(problem);
  const Format format = format_of(problem.dtype());
  const std::int64_t token_rows = token_length(problem.encoding, problem.n()) / problem.n();
  const double* normal = normal_numbers(problem.elements()).data();
  for (std::int64_t row = 0; row < problem.rows; ++row) {
    const std::int64_t token = row / token_rows;
    const auto kind = static_cast<Row>((token % 3 == 2 ? row : token) % kKinds);
    for (std::int64_t column = 0; column < problem.n(); ++column) {
      const double value = element_of_row(kind, format, problem.n(), column, *normal++);
      store_element(problem.dtype(), row_of(problem, bytes, row).data(), column, value);
    }
  }
  return bytes;
}

/// Numbers of the tensor to try: ordinary ones, and such that factors leave the range of short arithmetic;
/// for NVFP4 also such that scales of blocks saturate or vanish.
std::vector<float> tensor_scales(const Encoding& encoding) {
  if (!needs_tensor_scale(encoding)) return {1.0F};
  if (encoding.recipe == Recipe::vllm_static) return {0.01F, 3.0F, 1e-25F, 1e25F};
  return {448.0F * 6.0F / 4.0F, 1e5F, 1e-3F, 1e-25F, 1e25F};
}

/// Where `got` and `want` differ first in the rows of codes; empty when nowhere.
std::string difference_of_codes(const Problem& problem, const Bytes& want, const Bytes& got,
                                const Array& array, const Bytes& values) {
  if (problem.out.row_stride == problem.n() && std::equal(want.begin(), want.end(), got.begin())) return {};
  const int bits = code_bits(problem.encoding.format);
  for (std::int64_t row = 0; row < problem.rows; ++row) {
    const std::int64_t first = row * problem.out.row_stride;
    for (std::int64_t column = 0; column < problem.n(); ++column) {
      const std::int64_t bit = (first + column) * bits;
      const auto code = [&](const Bytes& from) {
        return static_cast<int>(from[static_cast<std::size_t>(bit / 8)] >> (bit % 8)) & ((1 << bits) - 1);
      };
      if (code(want) == code(got)) continue;
      return fmt::format("row {} column {}: code {:#04x}, not {:#04x} of {}", row, column, code(got),
                         code(want),
                         load_element(array.dtype, values.data(), row * array.row_stride + column));
    }
  }
  return {};
}

/// The same for scales. Padding is zero, or left alone.
std::string difference_of_scales(const Problem& problem, const Bytes& want, const Bytes& got,
                                 unsigned char poison) {
  const Encoding& encoding = problem.encoding;
  const ScaleShape shape = scale_shape(encoding, problem.rows, problem.n());
  const std::int64_t bytes = scale_bytes(encoding);
  Bytes all = padding_is_zero(encoding.layout) ? Bytes(want.size()) : Bytes(want.size(), std::byte{poison});
  std::vector<bool> holds_scale(want.size());
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t column = 0; column < shape.columns; ++column) {
      const std::int64_t at = scale_position(encoding.layout, row, column, shape.rows, shape.columns) * bytes;
      for (std::int64_t byte = at; byte < at + bytes; ++byte) {
        all[static_cast<std::size_t>(byte)] = want[static_cast<std::size_t>(byte)];
        holds_scale[static_cast<std::size_t>(byte)] = true;
      }
    }
  }
  if (all == got) return {};
  const auto at =
      static_cast<std::size_t>(std::mismatch(all.begin(), all.end(), got.begin()).first - all.begin());
  return fmt::format("byte {} of the scales ({}): {:#04x}, not {:#04x}", at,
                     holds_scale[at] ? "a scale" : "padding", static_cast<int>(got[at]),
                     static_cast<int>(all[at]));
}

void expect_encoded(ConformanceRun& session, const Problem& problem, const reference::Encoded& want,
                    const EncodedBytes& got, const Array& array, const Bytes& values, unsigned char poison,
                    const std::string& what) {
  std::string difference = difference_of_scales(problem, want.scales, got.scales, poison);
  if (difference.empty()) difference = difference_of_codes(problem, want.codes, got.codes, array, values);
  if (!difference.empty()) session.fail(fmt::format("{}: {}: {}", to_string(problem), what, difference));
}

/// The same rows without encoding, as far apart in the output as in the input.
Problem plain_problem(const Problem& problem) {
  Problem plain = problem;
  plain.encoding = {};
  plain.out.row_stride = plain.in.row_stride;
  plain.programmatic_launch = false;
  return plain;
}

/// As the kernel in front of an unfused chain stores them.
void put_through_prologue(const Problem& problem, Bytes& rows) {
  const reference::PreparedData data(problem, Memory::host);
  reference::apply_prologue(problem, data.operands(), rows.data());
}

/// For large problems: quantize in parallel.
int threads_for(const Problem& problem) {
  return static_cast<int>(std::clamp<std::int64_t>(problem.elements() >> 16, 1, 16));
}

/// Runs the problem and its plain counterpart on the same rows, and compares.
void judge(ConformanceRun& session, const Problem& problem, const Bytes& input, const std::string& what,
           const Execution& how = {}) {
  Problem plain = plain_problem(problem);
  Bytes rows = input;
  put_through_prologue(problem, rows);
  plain.prologue = {};
  if (problem.op.has_signs() && !session.supports(plain)) {  // signs are exact: in the rows, or in the kernel
    plain.op = Operator(problem.op.factors());
    const OperatorData data(problem.op, problem.dtype());
    reference::apply_signs(problem, data.operands(nullptr, nullptr).signs, rows.data());
  }
  if (!session.supports(plain)) {  // strides that only encoded rows may have
    plain.set_row_stride(plain.n());
    rows = Bytes(static_cast<std::size_t>(plain.span_bytes()));
    for (std::int64_t row = 0; row < problem.rows; ++row) {
      const auto from = row_of(problem, input, row);
      std::copy(from.begin(), from.end(), row_of(plain, rows, row).begin());
    }
  }
  // From as odd a pointer, where the plain plan takes it: a plan may look at pointers when it chooses.
  const std::unique_ptr<Plan> plain_plan = session.plan(plain);
  const std::int64_t offset_bytes = how.in_offset * bytes_of(plain.in.dtype);
  const bool takes_offset = offset_bytes % static_cast<std::int64_t>(plain_plan->alignment()) == 0;
  const Bytes values = session.execute(*plain_plan, rows, {kPoisonByte, takes_offset ? how.in_offset : 0, 0});
  const std::unique_ptr<Plan> plan = session.plan(problem);
  for (const float tensor_scale : tensor_scales(problem.encoding)) {
    const reference::Encoded want =
        reference::quantize(problem, plain.out, values.data(), tensor_scale, threads_for(problem));
    const EncodedBytes got = session.execute_encoded(*plan, input, tensor_scale, how);
    expect_encoded(
        session, problem, want, got, plain.out, values, how.poison,
        needs_tensor_scale(problem.encoding) ? fmt::format("{}, tensor_scale {}", what, tensor_scale) : what);
  }
}

/// The encoded problem with the fewest rows that are at least `rows` and whole tokens; nothing where the
/// encoding does not fit, or the variant does not take it (counted with its reason).
std::optional<Problem> wanted(ConformanceRun& session, Problem problem, std::string_view text) {
  const std::int64_t token_rows =
      std::max<std::int64_t>(token_length(parse_encoding(text), problem.n()) / problem.n(), 1);
  problem.rows = round_up(problem.rows, token_rows);
  std::optional<Problem> asked = encoded(problem, text);
  if (!asked) return {};
  if (const Support support = session.support(*asked); !support) {
    session.skip(support.why_not);
    return {};
  }
  return asked;
}

/// Tokens of several rows: scales of tokens and of groups longer than the transform, and every layout.
std::vector<std::string> encodings_of_tokens(std::int64_t n) {
  std::vector<std::string> texts;
  for (const std::string_view text : {"e4m3:row", "int4:row", "e4m3:row,sglang_token"})
    texts.push_back(fmt::format("{},t{}", text, 4 * n));
  texts.push_back(fmt::format("e4m3:{}", 2 * n));
  texts.push_back(fmt::format("int8:{},mn,t{}", 2 * n, 6 * n));
  for (const std::string_view text : {"e4m3:128,mn", "e4m3:64,ue8m0,packed", "int4:32", "mxfp8:packed",
                                      "mxfp4:128x4", "nvfp4:128x4", "nvfp4", "mxfp4:even"}) {
    const char separator = text.find(':') == std::string_view::npos ? ':' : ',';
    texts.push_back(fmt::format("{}{}t{}", text, separator, std::max<std::int64_t>(3 * n, 384)));
  }
  return texts;
}

std::span<const std::string_view> telling_encodings() {
  static constexpr std::string_view kTelling[] = {"e4m3:row",    "e4m3:128,mn", "e4m3:128,ue8m0,packed",
                                                  "int8:row",    "int4:32",     "mxfp8",
                                                  "mxfp4:128x4", "nvfp4:128x4"};
  return kTelling;
}

/// All encodings where kernels differ by n. On the host one loop serves every n: all of them at one length,
/// the telling ones at others.
std::span<const std::string_view> encodings_at(const ConformanceRun& session, std::int64_t n) {
  if (session.on_device() || n == 128) return all_encodings();
  return n <= 4096 ? telling_encodings() : std::span<const std::string_view>();
}

/// Encodings of rows of several factors, where kernels differ by element, by what shares a scale, and by
/// layout.
std::span<const std::string_view> encodings_of_operators(const ConformanceRun& session) {
  static constexpr std::string_view kOnDevice[] = {"e4m3:row",
                                                   "e4m3:row,sglang_token",
                                                   "e4m3:tensor,vllm_static",
                                                   "e4m3:128,mn",
                                                   "e4m3:32",
                                                   "e4m3:128,ue8m0,packed",
                                                   "int8:row",
                                                   "int8:128",
                                                   "int4:row",
                                                   "int4:32",
                                                   "mxfp8:rceil",
                                                   "mxfp4:128x4",
                                                   "nvfp4:128x4"};
  static constexpr std::string_view kOnHost[] = {"e4m3:row", "int4:row", "mxfp8"};
  if (session.on_device()) return kOnDevice;
  return kOnHost;
}

/// The variant's row lengths as Sylvester factors, then the operators of long rows.
std::vector<Operator> operators_of_lengths(const ConformanceRun& session) {
  constexpr std::int64_t kLong = 2048;
  std::vector<Operator> operators;
  for (const std::int64_t n : session.sizes())
    operators.push_back(Operator::sylvester(n));
  for (const Operator& op : session.asked_operators()) {
    if (op.n() > kLong) operators.push_back(op);
  }
  return operators;
}

/// Where rows go, codes and scales lie as the problem `apart` without pages has them; all else is left alone.
void judge_pages(ConformanceRun& session, const Problem& apart, const Paging& paging) {
  Problem paged = apart;
  paged.paging = paging;
  if (const Support support = session.support(paged); !support) {
    session.skip(support.why_not);
    return;
  }
  const Bytes input = edge_rows(paged);
  const EncodedBytes from = session.execute_encoded(*session.plan(apart), input);
  const EncodedBytes got = session.execute_encoded(*session.plan(paged), input);
  Bytes want(got.codes.size(), std::byte{kPoisonByte});
  const reference::PreparedData data(paged, Memory::host);
  const PageLayout layout = paged.page_layout();
  for (std::int64_t row = 0; row < paged.rows; ++row) {
    const std::int64_t slot = data.operands().slots[row];
    if (!layout.has(slot)) continue;
    std::copy_n(from.codes.begin() + row * layout.code_bytes, layout.code_bytes,
                want.begin() + layout.codes_at(slot));
    std::copy_n(from.scales.begin() + row * layout.scale_bytes, layout.scale_bytes,
                want.begin() + layout.scales_at(slot));
  }
  if (want == got.codes) return;
  const auto at = std::mismatch(want.begin(), want.end(), got.codes.begin()).first - want.begin();
  session.fail(fmt::format("{}: byte {} of the pages: {:#04x}, not {:#04x}", to_string(paged), at,
                           static_cast<int>(got.codes[static_cast<std::size_t>(at)]),
                           static_cast<int>(want[static_cast<std::size_t>(at)])));
}

/// So many that kernels may have another launch for them.
constexpr std::int64_t kLongestOfMany = 8192;
std::int64_t many_rows(std::int64_t n) {
  return (std::int64_t{1} << 22) / n + 3;
}

}  // namespace

// F1. Codes and scales of every encoding: the reference's, applied to the variant's own plain result. All
// kinds of rows.
void encoded_codes(ConformanceRun& session) {
  const std::int64_t kinds = static_cast<std::int64_t>(Row::count);
  for (const std::int64_t n : session.sizes()) {
    for (const std::string_view text : encodings_at(session, n)) {
      // Long rows have every kind once, short ones in several positions of a tile.
      const std::optional<Problem> problem =
          wanted(session, make_problem(session.dtype(), n, n <= 256 ? 5 * kinds : kinds), text);
      if (problem) judge(session, *problem, edge_rows(*problem), "rows of all kinds");
    }
    if (!session.on_device() && n != 32 && n != 128) continue;
    for (const std::string& text : encodings_of_tokens(n)) {
      const std::optional<Problem> problem =
          wanted(session, make_problem(session.dtype(), n, 3 * kinds), text);
      if (problem) judge(session, *problem, edge_rows(*problem), "tokens of several rows");
    }
  }
  for (const Operator& op : session.asked_operators()) {
    for (const std::string_view text : encodings_of_operators(session)) {
      // Few rows and more of them: kernels may cut long rows otherwise where there are few.
      for (const std::int64_t rows : {kinds, 2 * kinds, 5 * kinds}) {
        if (rows > kinds && (op.n() < 1024 || !session.on_device())) continue;
        const std::optional<Problem> problem = wanted(session, make_problem(session.dtype(), op, rows), text);
        if (problem) judge(session, *problem, edge_rows(*problem), "rows of all kinds");
      }
    }
  }
}

// F4. 2^24 normally distributed numbers for every encoding: roundings that are rare. Operators take turns.
void encoded_in_bulk(ConformanceRun& session) {
  constexpr std::int64_t kElements = std::int64_t{1} << 24;
  const Bytes input =
      make_input(make_problem(session.dtype(), 64, kElements / 64), InputClass::normal, kSeed);
  const std::vector<Operator> operators = operators_of_lengths(session);
  std::size_t turn = 0;
  for (const std::string_view text : all_encodings()) {
    std::optional<Problem> problem;
    for (std::size_t i = 0; i < operators.size() && !problem; ++i) {
      const Operator& op = operators[(turn++) % operators.size()];
      problem = encoded(make_problem(session.dtype(), op, kElements / op.n()), text);
      if (problem && !session.supports(*problem)) problem.reset();
    }
    if (problem) {
      const auto end = input.begin() + static_cast<std::ptrdiff_t>(problem->span_bytes());
      judge(session, *problem, Bytes(input.begin(), end), "2^24 numbers");
    } else {
      session.skip(fmt::format("the encoding {} has no row length here", text));
    }
  }
}

// F5. Prologues: the bits of the chain of a kernel that stores its rows, the variant's own transform, and the
// reference's quantizer. Plain results too, where they are offered.
void prologues(ConformanceRun& session) {
  constexpr auto kKinds = static_cast<std::int64_t>(Row::count);
  constexpr std::int64_t kWidth = 64;
  for (const std::int64_t n : session.sizes()) {
    if (!session.on_device() && n != 4 && n != 32 && n != 128) continue;
    std::vector<Prologue> all{{Prologue::Kind::rms_norm}};
    for (const std::int64_t width : {n / 2, std::min(n, kWidth)}) {
      for (const bool interleaved : {false, true}) {
        for (const std::int64_t heads : {1, 4})
          all.push_back({Prologue::Kind::rope, width, interleaved, heads});
      }
    }
    for (const bool signs : {false, true}) {
      if (!session.on_device() || n > kLongestOfMany) continue;
      for (const Prologue& prologue : {all.front(), Prologue{Prologue::Kind::rope, std::min(n, kWidth)}}) {
        Problem problem = make_problem(session.dtype(), n, many_rows(n));
        if (signs) problem.op = problem.op.with_signs();
        problem.prologue = prologue;
        for (const std::string_view text : {"e4m3:row", "e4m3:128,ue8m0,deepseek_v32", "mxfp4:rceil"}) {
          if (const std::optional<Problem> asked = wanted(session, problem, text))
            judge(session, *asked, edge_rows(*asked), "prologue of many rows");
        }
      }
    }
    for (const Prologue& prologue : all) {
      for (const bool signs : {false, true}) {
        Problem problem = make_problem(session.dtype(), n, n <= 256 ? 4 * kKinds + 4 : 2 * kKinds + 2);
        if (signs) problem.op = problem.op.with_signs();
        problem.prologue = prologue;
        problem.set_row_stride(signs ? n + 8 : n);
        for (const std::string_view text : {"e4m3:row", "e4m3:128,ue8m0,deepseek_v32", "e4m3:32",
                                            "e4m3:tensor", "int8:tensor", "mxfp4:rceil", "nvfp4:128x4"}) {
          if (const std::optional<Problem> asked = wanted(session, problem, text))
            judge(session, *asked, edge_rows(*asked), "prologue");
        }
        problem.placement = Placement::out_of_place;
        if (const Support support = session.support(problem); !support) {
          session.skip(support.why_not);
          continue;
        }
        const Bytes input = edge_rows(problem);
        Bytes rows = input;
        put_through_prologue(problem, rows);
        Problem bare = problem;
        bare.prologue = {};
        session.expect_same_rows(bare, session.execute(bare, rows), problem, session.execute(problem, input),
                                 "prologue");
      }
    }
  }
}

// Results multiplied by a negative number: the largest |y| of a group is that of the positive one, wherever a
// kernel multiplies.
void negative_scales(ConformanceRun& session) {
  constexpr auto kKinds = static_cast<std::int64_t>(Row::count);
  const auto judge_encoded = [&](Problem problem, std::string_view text) {
    problem.scale = -problem.scale;
    if (const std::optional<Problem> asked = wanted(session, problem, text))
      judge(session, *asked, edge_rows(*asked), "a negative scale");
  };
  for (const std::int64_t n : session.sizes()) {
    if (!session.on_device() && n != 128) continue;
    const Problem problem = make_problem(session.dtype(), n, 2 * kKinds);
    for (const std::string_view text : {"e4m3:row", "e4m3:32", "e4m3:tensor", "int8:128", "int8:32",
                                        "int4:row,quarot", "mxfp4", "nvfp4:128x4"})
      judge_encoded(problem, text);
    Problem prepared = problem;
    prepared.op = prepared.op.with_signs();
    prepared.prologue = Prologue{Prologue::Kind::rms_norm};
    for (const std::string_view text : {"e4m3:row", "mxfp4"})
      judge_encoded(prepared, text);
  }
  for (const Operator& op : session.asked_operators()) {
    for (const std::string_view text : {"e4m3:row", "e4m3:32", "int8:128", "mxfp4"})
      judge_encoded(make_problem(session.dtype(), op, kKinds), text);
  }
}

// The same where rows are the heads of tokens, few of them and many.
void heads_of_tokens(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    if (n < 64 || n > 256 || (!session.on_device() && n != 128)) continue;
    for (const std::int64_t width : {n, n / 2}) {
      for (const std::int64_t rows : {std::int64_t{32} * 3, (std::int64_t{1} << 22) / n + 32}) {
        if (!session.on_device() && rows * n > 1 << 20) continue;
        for (const std::int64_t heads : {8, 32}) {
          Problem problem = make_problem(session.dtype(), n, rows);
          problem.prologue = Prologue{Prologue::Kind::rope, width, false, heads};
          for (const std::string_view text :
               {"e4m3:tensor,vllm_static", "e4m3:row", "e4m3:64,ue8m0,deepseek_v32", "mxfp4:rceil"}) {
            if (const std::optional<Problem> asked = wanted(session, problem, text))
              judge(session, *asked, edge_rows(*asked), "heads of tokens");
          }
        }
      }
    }
  }
}

// F6. Pages: where rows go, codes and scales lie as the unpaged problem has them; all else is left alone.
void pages(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    if (n % 8 != 0 || (!session.on_device() && n != 32 && n != 128)) continue;
    for (const std::string_view text :
         {"e4m3:row", "e4m3:128,ue8m0,deepseek_v32", "int4:row", "mxfp4:rceil"}) {
      if (token_length(parse_encoding(text), n) != n) continue;  // a scale of several rows has no page
      for (const std::optional<Prologue>& prologue :
           {std::optional<Prologue>{}, {Prologue{Prologue::Kind::rope, n / 2}}}) {
        std::vector<std::pair<Paging, std::int64_t>> cases{{{64, 3}, 131}, {{1, 150}, 131}, {{200, 1}, 131}};
        if (session.on_device() && n <= kLongestOfMany)
          cases.push_back({{64, many_rows(n) / 64 + 1}, many_rows(n)});
        for (const auto& [paging, rows] : cases) {
          Problem problem = make_problem(session.dtype(), n, rows);
          problem.prologue = prologue;
          const std::optional<Problem> apart = wanted(session, problem, text);
          if (!apart) continue;
          judge_pages(session, *apart, paging);
        }
      }
    }
  }
}

// For compute-sanitizer: one length of every kind of kernel, few ragged rows, every encoding; some operators.
void small_encodings(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    if (n != 64 && n != 1024 && n != 8192 && n != 32768) continue;
    for (const std::string_view text : all_encodings()) {
      const std::optional<Problem> problem = wanted(session, make_problem(session.dtype(), n, 3), text);
      if (problem) judge(session, *problem, edge_rows(*problem), "few rows");
    }
    for (const Prologue& prologue :
         {Prologue{Prologue::Kind::rms_norm}, Prologue{Prologue::Kind::rope, 64}}) {
      for (const std::string_view text : {"e4m3:row", "e4m3:tensor", "mxfp4"}) {
        Problem problem = make_problem(session.dtype(), n, 3);
        problem.prologue = prologue;
        if (const std::optional<Problem> paged = wanted(session, problem, text)) {
          if (text != "e4m3:tensor") judge_pages(session, *paged, {2, 2});
        }
        problem.op = problem.op.with_signs();
        if (const std::optional<Problem> asked = wanted(session, problem, text))
          judge(session, *asked, edge_rows(*asked), "few rows behind a prologue");
      }
    }
  }
  for (const std::string_view op : {"12x256", "28x512", "76x2x36x2", "signs+60x4x28x2", "d28tx64"}) {
    for (const std::string_view text : {"e4m3:row", "int8:128,mn", "nvfp4:128x4"}) {
      for (const std::int64_t rows : {3, 45}) {  // few long rows may be cut otherwise
        const Problem plain = make_problem(session.dtype(), parse_operator(op), rows);
        if (const std::optional<Problem> problem = wanted(session, plain, text))
          judge(session, *problem, edge_rows(*problem), "rows of an operator");
      }
    }
  }
}

// F2. Quantized from fp32. On integer rows the fp32 result is known bit for bit; where the variant takes f32
// data with the same steps, their result is the fp32 result of the same rows in 16 bit.
void encoded_intermediate(ConformanceRun& session) {
  const auto in_f32 = [](Problem problem) {
    problem.encoding = {};
    problem.set_dtype(Dtype::f32);
    problem.set_row_stride(problem.n());
    return problem;
  };
  const auto widened = [](const Problem& from, const Bytes& rows, const Problem& to) {
    Bytes wide(static_cast<std::size_t>(to.span_bytes()));
    for (std::int64_t i = 0; i < from.elements(); ++i)
      store_element(Dtype::f32, wide.data(), i, load_element(from.dtype(), rows.data(), i));
    return wide;
  };
  for (const std::int64_t n : session.sizes()) {
    for (const std::string_view storage_text : encodings_at(session, n)) {
      const std::string text = std::string(storage_text) + "/f32";
      const std::optional<Problem> problem = wanted(session, make_problem(session.dtype(), n, 13), text);
      if (!problem) continue;
      const std::unique_ptr<Plan> plan = session.plan(*problem);
      const Numerics numerics = plan->numerics();
      const Problem wide = in_f32(*problem);
      const auto compare = [&](const Bytes& input, const Bytes& values, const std::string& what) {
        for (const float tensor_scale : tensor_scales(problem->encoding)) {
          const reference::Encoded want =
              reference::quantize(*problem, wide.out, values.data(), tensor_scale);
          expect_encoded(session, *problem, want, session.execute_encoded(*plan, input, tensor_scale),
                         wide.out, values, kPoisonByte, what);
        }
      };
      for (const InputClass input_class : {InputClass::integers, InputClass::sign_sparse}) {
        const Bytes input = make_input(*problem, input_class, kSeed);
        Bytes values(static_cast<std::size_t>(wide.span_bytes()));
        if (reference::exact_result(numerics, wide, widened(*problem, input, wide).data(), values.data()))
          compare(input, values, fmt::format("{} rows", reference::name_of(input_class)));
      }
      if (!session.supports(wide) || session.plan(wide)->numerics().steps != numerics.steps) {
        session.skip("f32 rows by the same steps are not offered, so only integer rows show the fp32 result");
        continue;
      }
      const Bytes input = make_input(*problem, InputClass::student3, kSeed);
      compare(input, session.execute(wide, widened(*problem, input, wide)), "student3 rows");
    }
  }
}

// F3. Ragged rows, strides of input and output, pointers off the 16-byte grid where the plan allows them,
// another poison, programmatic launch: the same bits.
void encoded_shapes(ConformanceRun& session) {
  for (const Operator& op : operators_of_lengths(session)) {
    const std::int64_t n = op.n();
    if (!session.on_device() && n != 4 && n != 32 && n != 128 && n != 1024) continue;
    const std::size_t encodings = op.is_sylvester() ? telling_encodings().size() : 2;
    for (const std::string_view text : telling_encodings().first(encodings)) {
      for (const std::int64_t rows : {1, 2, 3, 7, 33, 129, 1025}) {
        if (rows > 33 && rows * n > std::int64_t{1} << 18) continue;
        const std::optional<Problem> problem = wanted(session, make_problem(session.dtype(), op, rows), text);
        if (!problem) continue;
        judge(session, *problem, edge_rows(*problem), "ragged row count", {0x5A, 0, 0});
        Problem early = *problem;
        early.programmatic_launch = true;
        if (session.supports(early)) judge(session, early, edge_rows(early), "programmatic launch");
      }
      for (const auto& [in_gap, out_gap] :
           {std::pair{8, 8}, {n, n}, {8, 0}, {0, 8}, {2, 2}, {1, 1}, {0, 2}, {64, 24}}) {
        Problem strided = make_problem(session.dtype(), op, 23);
        strided.in.row_stride += in_gap;
        strided.out.row_stride += out_gap;
        if (const std::optional<Problem> problem = wanted(session, strided, text))
          judge(session, *problem, edge_rows(*problem), "row strides", {0x5A, 0, 0});
      }
      if (const std::optional<Problem> problem =
              wanted(session, make_problem(session.dtype(), op, 9), text)) {
        const std::size_t alignment = session.plan(*problem)->alignment();
        for (const std::int64_t offset : {1, 2, 4, 8}) {
          if (static_cast<std::size_t>(offset * bytes_of(session.dtype())) % alignment == 0)
            judge(session, *problem, edge_rows(*problem), "offset pointers", {kPoisonByte, offset, offset});
        }
      }
    }
    if (session.on_device() ? n > 1024 : n != 32) continue;
    for (const std::string& text : encodings_of_tokens(n)) {
      for (const std::int64_t tokens : {1, 2, 5, 131}) {
        const std::int64_t token_rows = token_length(parse_encoding(text), n) / n;
        if (tokens * token_rows * n > std::int64_t{1} << 18) continue;
        Problem strided = make_problem(session.dtype(), n, tokens * token_rows);
        if (const std::optional<Problem> problem = wanted(session, strided, text))
          judge(session, *problem, edge_rows(*problem), "tokens of several rows");
        strided.out.row_stride += 16;
        if (const std::optional<Problem> problem = wanted(session, strided, text))
          judge(session, *problem, edge_rows(*problem), "tokens of several rows, strides");
      }
    }
  }
}

}  // namespace fwht::conformance
