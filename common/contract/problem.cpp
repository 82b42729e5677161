#include "common/contract/problem.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "common/host/bits.hpp"
#include "common/host/each_once.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"

namespace fwht {
namespace {

constexpr std::string_view kForm =
    "f16/n4096/r8192[/out][/ld4104][/ldo4096][/to-bf16][/s1][/pdl][/sequency][/from-dyadic][/inner2][/rms][/"
    "page64x100][>e4m3:row]";

/// "28x512", "d53x256", "signs+12": not a word of the other parts.
bool is_operator(std::string_view word) {
  if (word.starts_with("signs+")) return true;
  const std::size_t digit = word.starts_with('d') ? 1 : 0;
  return word.size() > digit && word[digit] >= '0' && word[digit] <= '9';
}

template <class Number>
Number parse_number(std::string_view digits, std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size()) {
    throw BadRequest(concat("problem '", text, "': '", digits, "' is not a number"));
  }
  return value;
}

}  // namespace

namespace {

constexpr Ordering kOrderings[] = {Ordering::natural, Ordering::dyadic, Ordering::sequency};

std::optional<Ordering> ordering_named(std::string_view word) {
  for (const Ordering ordering : kOrderings)
    if (word == name_of(ordering)) return ordering;
  return {};
}

/// One word of arrangement_text, for `once`; false for another word. `text` is what it stands in.
bool parse_arrangement(std::string_view word, Problem& problem, std::string_view text, EachOnce& once) {
  if (const auto ordering = ordering_named(word)) {
    once("ordering");
    problem.out_ordering = *ordering;
  } else if (const auto from = ordering_named(word.starts_with("from-") ? word.substr(5) : "")) {
    once("ordering of the input");
    problem.in_ordering = *from;
  } else if (word.starts_with("inner")) {
    once("inner dimension");
    problem.inner = parse_number<std::int64_t>(word.substr(5), text);
  } else {
    return false;
  }
  return true;
}

}  // namespace

double orthonormal_scale(std::int64_t n) {
  return 1.0 / std::sqrt(static_cast<double>(n));
}

double default_scale(Dtype dtype, std::int64_t n) {
  return is_integer(dtype) ? 1.0 : orthonormal_scale(n);
}

std::int64_t Problem::bytes_written() const {
  if (encoding.is_plain()) return elements() * bytes_of(out.dtype);
  return ceil_div(elements() * code_bits(encoding.format), 8) +
         scale_count(encoding, rows, n()) * scale_bytes(encoding);
}

std::int64_t Problem::span_bytes_out() const {
  if (encoding.is_plain()) return span_of(out) * bytes_of(out.dtype);
  if (paging) return paging->pages * page_layout().page_bytes();
  return ceil_div(span_of(out) * code_bits(encoding.format), 8);
}

PageLayout Problem::page_layout() const {
  return {paging.value(), n() * code_bits(encoding.format) / 8,
          scale_shape(encoding, 1, n()).columns * scale_bytes(encoding)};
}

bool operator==(const Problem& a, const Problem& b) {
  return a.op == b.op && a.rows == b.rows && a.in == b.in && a.out == b.out && a.encoding == b.encoding &&
         a.prologue == b.prologue && a.paging == b.paging && a.scale == b.scale &&
         a.placement == b.placement && a.programmatic_launch == b.programmatic_launch &&
         a.in_ordering == b.in_ordering && a.out_ordering == b.out_ordering && a.inner == b.inner;
}

std::size_t hash_of(const Problem& problem) {
  Hasher mix;
  mix(hash_of(problem.op));
  mix(problem.rows);
  for (const Array& array : {problem.in, problem.out}) {
    mix(array.dtype);
    mix(array.row_stride);
  }
  if (const auto& prologue = problem.prologue) {
    mix(prologue->kind);
    mix(prologue->width);
    mix(prologue->interleaved);
    mix(prologue->heads);
  }
  if (problem.paging) {
    mix(problem.paging->tokens);
    mix(problem.paging->pages);
  }
  mix(problem.encoding.format);
  mix(problem.encoding.scales.kind);
  mix(problem.encoding.scales.group);
  mix(problem.encoding.scale_type);
  mix(problem.encoding.layout);
  mix(problem.encoding.recipe);
  mix(problem.encoding.token);
  mix(problem.encoding.intermediate);
  mix(std::bit_cast<std::uint64_t>(problem.scale + 0.0));  // + 0.0: zero and minus zero are equal
  mix(problem.placement);
  mix(problem.programmatic_launch);
  mix(problem.in_ordering);
  mix(problem.out_ordering);
  mix(problem.inner);
  return mix.hash();
}

Problem make_problem(Dtype dtype, std::int64_t n, std::int64_t rows, Placement placement) {
  return make_problem(dtype, Operator::sylvester(n), rows, placement);
}

Problem make_problem(Dtype dtype, const Operator& op, std::int64_t rows, Placement placement) {
  if (op.factors().size() > 1) validate(op);  // ahead of a product of orders that fits no 64 bits
  Problem problem;
  problem.op = op;
  problem.rows = rows;
  problem.in = problem.out = {dtype, op.n()};
  problem.scale = op.n() > 0 ? default_scale(dtype, op.n()) : 0.0;
  problem.placement = placement;
  return problem;
}

namespace {

void validate_inner(const Problem& problem) {
  const std::int64_t inner = problem.inner;
  if (inner < 1 ||
      inner > std::numeric_limits<std::int64_t>::max() / 16 / std::max<std::int64_t>(problem.n(), 1))
    throw BadRequest(
        concat("inner=", inner, " must be at least 1, and times n=", problem.n(), " below 2^59"));
  if (problem.rows % inner != 0) {
    throw BadRequest(concat("inner=", inner, " must divide rows=", problem.rows,
                            ": rows are interleaved in blocks of inner"));
  }
}

void validate_arrangement(const Problem& problem) {
  for (const auto& [name, ordering] :
       {std::pair{"input", problem.in_ordering}, std::pair{"output", problem.out_ordering}}) {
    if (std::find(std::begin(kOrderings), std::end(kOrderings), ordering) == std::end(kOrderings)) {
      throw BadRequest(concat("ordering ", static_cast<int>(ordering), " of the ", name,
                              " is unknown; known: natural, dyadic, sequency"));
    }
    if (ordering == Ordering::natural) continue;
    if (!problem.op.is_sylvester() || !is_power_of_two(problem.n())) {
      throw BadRequest(concat(name_of(ordering), " ordering of the ", name,
                              " is of H_n with n a power of two, not of ", to_string(problem.op)));
    }
    if (problem.placement == Placement::in_place) {
      throw BadRequest(concat(to_string(problem), ": ", name_of(ordering), " ordering of the ", name,
                              " permutes a row, so input and output must be different memory"));
    }
  }
  if (!problem.is_arranged_plainly() &&
      (!problem.encoding.is_plain() || problem.prologue || problem.paging)) {
    throw BadRequest(concat(to_string(problem),
                            ": encodings, prologues and pages take rows side by side, in natural order"));
  }
}

void validate_array(const Array& array, const Problem& problem, std::string_view name) {
  const std::int64_t n = problem.n(), rows = problem.rows;
  if (array.row_stride < problem.block_elements()) {
    const bool plain = problem.inner == 1;
    throw BadRequest(plain ? concat(name, "=", array.row_stride, " must be at least n=", n)
                           : concat(name, "=", array.row_stride, " must be at least n=", n,
                                    " times inner=", problem.inner));
  }
  const std::int64_t limit = std::numeric_limits<std::int64_t>::max() / 16;
  const std::int64_t blocks = rows / problem.inner;  // of rows that lie between each other
  if (blocks > 0 && array.row_stride > limit / blocks) {
    throw BadRequest(concat("rows=", rows, problem.inner == 1 ? "" : concat(" / inner=", problem.inner),
                            " times ", name, "=", array.row_stride, " exceeds the limit of ", limit,
                            " elements"));
  }
}

void validate_paging(const Problem& problem, const Paging& paging) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (paging.tokens < 1 || paging.pages < 1 || paging.tokens > kMost ||
      paging.pages > kMost / paging.tokens) {
    throw BadRequest(concat("pages=", paging.pages, " and tokens=", paging.tokens,
                            " must each be at least 1, and their product at most ", kMost));
  }
  const Encoding& encoding = problem.encoding;
  const std::int64_t n = problem.n();
  const bool own_scales = encoding.scales.kind == ScaleGranularity::Kind::row ||
                          encoding.scales.kind == ScaleGranularity::Kind::group;
  if (encoding.is_plain() || !own_scales || !writes_scales(encoding) || token_length(encoding, n) != n ||
      encoding.layout != ScaleLayout::row_major || n % 8 != 0 || problem.out.row_stride != n) {
    throw BadRequest(concat("pages hold rows of codes, n=", n,
                            " a multiple of 8, each with scales of its own, row-major; the encoding is '",
                            to_string(encoding), "', the row stride of out ", problem.out.row_stride));
  }
}

/// Of an encoding that fits n.
void validate_page_bytes(const Problem& problem) {
  const PageLayout layout = problem.page_layout();
  constexpr std::int64_t kLimit = std::numeric_limits<std::int64_t>::max();
  const std::int64_t row = layout.code_bytes + layout.scale_bytes, places = layout.paging.places();
  if (places > kLimit / row) {
    throw BadRequest(concat("pages=", layout.paging.pages, " of tokens=", layout.paging.tokens, " rows of ",
                            row, " bytes exceed the limit of ", kLimit, " bytes"));
  }
}

void validate_dtype(Dtype dtype, std::string_view name) {
  if (format_of(dtype).bytes == 0) {
    throw BadRequest(concat(name, " dtype ", static_cast<int>(dtype),
                            " is unknown; known: f16, bf16, f32, f64, i32, i64"));
  }
}

/// Integers are summed and nothing else.
void validate_integers(const Problem& problem) {
  const Dtype in = problem.in.dtype, out = problem.out.dtype;
  if (!is_integer(in) && !is_integer(out)) return;
  if (in != out || !problem.encoding.is_plain() || problem.prologue) {
    throw BadRequest(concat(to_string(problem),
                            ": integer input and output must have one dtype, without encoding or prologue"));
  }
  if (problem.scale != 1.0) {
    throw BadRequest(concat("scale=", problem.scale, " must be given as 1 for ", name_of(in),
                            " data, whose sums are not rounded"));
  }
}

}  // namespace

void validate(const Problem& problem) {
  if (problem.op.factors().empty()) {
    throw BadRequest(
        "the problem has no operator; make_problem(dtype, n, rows) makes one of contiguous rows");
  }
  validate(problem.op);
  const std::int64_t n = problem.n();
  if (problem.rows < 0) throw BadRequest(concat("rows=", problem.rows, " must not be negative"));
  validate_dtype(problem.in.dtype, "in");
  validate_dtype(problem.out.dtype, "out");
  validate_inner(problem);
  validate_array(problem.in, problem, "row_stride");
  validate_array(problem.out, problem, "row_stride of out");
  if (problem.placement != Placement::in_place && problem.placement != Placement::out_of_place) {
    throw BadRequest(concat("placement ", static_cast<int>(problem.placement),
                            " is unknown; known: in_place, out_of_place"));
  }
  if (problem.placement == Placement::in_place &&
      !(problem.in == problem.out && problem.encoding.is_plain())) {
    throw BadRequest(concat(to_string(problem),
                            ": in place, input and output have one dtype, row stride and no encoding"));
  }
  validate_arrangement(problem);
  if (problem.prologue) validate(*problem.prologue, n, problem.rows);
  if (problem.paging) validate_paging(problem, *problem.paging);
  validate(problem.encoding, n, problem.rows, problem.out.dtype);
  if (problem.paging) validate_page_bytes(problem);
  if (code_bits(problem.encoding.format) == 4 && problem.out.row_stride % 2 != 0 &&
      !(n == 1 && problem.out.row_stride == 1)) {
    throw BadRequest(concat(to_string(problem), ": two codes share a byte, so the row stride of out=",
                            problem.out.row_stride, " must be even"));
  }
  validate_integers(problem);
  // Plans multiply in fp32, but for f64 data.
  const bool finite = problem.in.dtype == Dtype::f64 ? std::isfinite(problem.scale)
                                                     : std::isfinite(static_cast<float>(problem.scale));
  if (!finite) throw BadRequest(concat("scale=", problem.scale, " must be finite in fp32"));
}

std::string arrangement_text(const Problem& problem) {
  std::string text;
  if (problem.in_ordering != Ordering::natural) text += concat("/from-", name_of(problem.in_ordering));
  if (problem.out_ordering != Ordering::natural) text += concat("/", name_of(problem.out_ordering));
  if (problem.inner != 1) text += concat("/inner", problem.inner);
  return text.empty() ? text : text.substr(1);
}

void set_arrangement(Problem& problem, std::string_view text) {
  EachOnce once("arrangement", text);
  for (std::string_view rest = text;;) {
    const std::size_t slash = rest.find('/');
    if (const std::string_view word = rest.substr(0, slash); !parse_arrangement(word, problem, text, once)) {
      throw BadRequest(concat("arrangement '", text, "': unknown part '", word,
                              "'; the form is from-dyadic/sequency/inner2"));
    }
    if (slash == std::string_view::npos) break;
    rest = rest.substr(slash + 1);
  }
  validate(problem.op);  // before orders and inner are multiplied
  validate_inner(problem);
  problem.set_row_stride(problem.block_elements());
}

std::string to_string(const Problem& problem) {
  const std::string op =
      problem.op.is_sylvester() || problem.n() == 0 ? concat("n", problem.n()) : to_string(problem.op);
  std::string text = concat(name_of(problem.in.dtype), "/", op, "/r", problem.rows);
  if (problem.placement == Placement::out_of_place) text += "/out";
  if (const std::string arranged = arrangement_text(problem); !arranged.empty()) text += "/" + arranged;
  if (problem.in.row_stride != problem.block_elements()) text += concat("/ld", problem.in.row_stride);
  if (problem.out.row_stride != problem.in.row_stride) text += concat("/ldo", problem.out.row_stride);
  if (problem.out.dtype != problem.in.dtype) text += concat("/to-", name_of(problem.out.dtype));
  if (problem.n() < 1 || problem.scale != default_scale(problem.dtype(), problem.n()))
    text += concat("/s", problem.scale);
  if (problem.programmatic_launch) text += "/pdl";
  if (problem.prologue) text += concat("/", to_string(*problem.prologue));
  if (problem.paging) text += concat("/", to_string(*problem.paging));
  if (!problem.encoding.is_plain()) text += concat(">", to_string(problem.encoding));
  return text;
}

Problem parse_problem(std::string_view text) {
  Problem problem;
  std::optional<Dtype> to;
  std::optional<std::int64_t> stride, stride_out, rows;
  std::optional<double> scale;
  std::string_view rest = text;
  if (const std::size_t encoded = text.find('>'); encoded != std::string_view::npos) {
    problem.encoding = parse_encoding(text.substr(encoded + 1));
    problem.placement = Placement::out_of_place;
    rest = text.substr(0, encoded);
  }
  const auto integer = [&](std::string_view digits) { return parse_number<std::int64_t>(digits, text); };
  EachOnce once("problem", text);
  for (int part = 0; !rest.empty() || part == 0; ++part) {
    const std::size_t slash = rest.find('/');
    const std::string_view word = rest.substr(0, slash);
    rest = slash == std::string_view::npos ? std::string_view{} : rest.substr(slash + 1);
    if (part == 0) {
      problem.set_dtype(parse_dtype(word));
    } else if (is_operator(word)) {
      once("operator");
      problem.op = parse_operator(word);
    } else if (word == "out") {
      once("placement");
      problem.placement = Placement::out_of_place;
    } else if (word == "in") {
      once("placement");
      problem.placement = Placement::in_place;
    } else if (word == "pdl") {
      problem.programmatic_launch = true;
    } else if (parse_arrangement(word, problem, text, once) ||
               parse_preparation(word, problem.prologue, problem.paging)) {
    } else if (word.starts_with("to-")) {
      once("dtype of the output");
      to = parse_dtype(word.substr(3));
    } else if (word.starts_with("ldo")) {
      once("row stride of the output");
      stride_out = integer(word.substr(3));
    } else if (word.starts_with("ld")) {
      once("row stride");
      stride = integer(word.substr(2));
    } else if (word.starts_with('n')) {
      once("operator");
      problem.op = Operator::sylvester(integer(word.substr(1)));
    } else if (word.starts_with('r')) {
      once("rows");
      rows = integer(word.substr(1));
    } else if (word.starts_with('s')) {
      once("scale");
      scale = parse_number<double>(word.substr(1), text);
    } else {
      throw BadRequest(concat("problem '", text, "': unknown part '", word, "'; the form is ", kForm));
    }
  }
  if (problem.op.factors().empty() || !rows) {
    throw BadRequest(concat("problem '", text, "' names no ", rows ? "row length (n...)" : "rows (r...)",
                            "; the form is ", kForm));
  }
  problem.rows = *rows;
  validate(problem.op);  // before orders and inner are multiplied
  validate_inner(problem);
  problem.set_row_stride(stride.value_or(problem.block_elements()));
  if (stride_out) problem.out.row_stride = *stride_out;
  if (to) problem.out.dtype = *to;
  problem.scale = scale.value_or(problem.n() > 0 ? default_scale(problem.dtype(), problem.n()) : 0.0);
  validate(problem);
  return problem;
}

}  // namespace fwht
