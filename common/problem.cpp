#include "common/problem.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "common/bits.hpp"
#include "common/error.hpp"

namespace fwht {
namespace {

constexpr std::string_view kForm = "f16/n4096/r8192[/out][/ld4104][/s1][/pdl]";

template <class Number>
Number parse_number(std::string_view digits, std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size()) {
    throw BadRequest(fmt::format("problem '{}': '{}' is not a number", text, digits));
  }
  return value;
}

}  // namespace

double orthonormal_scale(std::int64_t n) {
  return 1.0 / std::sqrt(static_cast<double>(n));
}

std::int64_t Problem::useful_flops() const {
  return is_power_of_two(n) ? elements() * log2_floor(n) : 0;
}

bool operator==(const Problem& a, const Problem& b) {
  return a.n == b.n && a.rows == b.rows && a.dtype == b.dtype && a.placement == b.placement &&
         a.row_stride == b.row_stride && a.scale == b.scale && a.programmatic_launch == b.programmatic_launch;
}

Problem make_problem(Dtype dtype, std::int64_t n, std::int64_t rows, Placement placement) {
  return {n, rows, dtype, placement, n, n > 0 ? orthonormal_scale(n) : 0.0, false};
}

void validate(const Problem& problem) {
  if (problem.n < 1) throw BadRequest(fmt::format("n={} must be at least 1", problem.n));
  if (problem.rows < 0) throw BadRequest(fmt::format("rows={} must not be negative", problem.rows));
  if (problem.row_stride < problem.n) {
    throw BadRequest(fmt::format("row_stride={} must be at least n={}", problem.row_stride, problem.n));
  }
  if (!std::isfinite(problem.scale)) {
    throw BadRequest(fmt::format("scale={} must be finite", problem.scale));
  }
  const std::int64_t limit = std::numeric_limits<std::int64_t>::max() / 16;
  if (problem.rows > 0 && problem.row_stride > limit / problem.rows) {
    throw BadRequest(fmt::format("rows={} times row_stride={} exceeds the limit of {} elements", problem.rows,
                                 problem.row_stride, limit));
  }
}

std::string to_string(const Problem& problem) {
  std::string text = fmt::format("{}/n{}/r{}", name_of(problem.dtype), problem.n, problem.rows);
  if (problem.placement == Placement::out_of_place) text += "/out";
  if (problem.row_stride != problem.n) text += fmt::format("/ld{}", problem.row_stride);
  if (problem.n < 1 || problem.scale != orthonormal_scale(problem.n))
    text += fmt::format("/s{}", problem.scale);
  if (problem.programmatic_launch) text += "/pdl";
  return text;
}

Problem parse_problem(std::string_view text) {
  Problem problem;
  bool have_n = false, have_rows = false, have_stride = false, have_scale = false;
  std::string_view rest = text;
  for (int part = 0; !rest.empty() || part == 0; ++part) {
    const std::size_t slash = rest.find('/');
    const std::string_view word = rest.substr(0, slash);
    rest = slash == std::string_view::npos ? std::string_view{} : rest.substr(slash + 1);
    if (part == 0) {
      problem.dtype = parse_dtype(word);
    } else if (word == "out") {
      problem.placement = Placement::out_of_place;
    } else if (word == "in") {
      problem.placement = Placement::in_place;
    } else if (word == "pdl") {
      problem.programmatic_launch = true;
    } else if (word.starts_with("ld")) {
      problem.row_stride = parse_number<std::int64_t>(word.substr(2), text);
      have_stride = true;
    } else if (word.starts_with('n')) {
      problem.n = parse_number<std::int64_t>(word.substr(1), text);
      have_n = true;
    } else if (word.starts_with('r')) {
      problem.rows = parse_number<std::int64_t>(word.substr(1), text);
      have_rows = true;
    } else if (word.starts_with('s')) {
      problem.scale = parse_number<double>(word.substr(1), text);
      have_scale = true;
    } else {
      throw BadRequest(fmt::format("problem '{}': unknown part '{}'; the form is {}", text, word, kForm));
    }
  }
  if (!have_n || !have_rows) {
    throw BadRequest(fmt::format("problem '{}' names no {}; the form is {}", text,
                                 have_n ? "rows (r...)" : "row length (n...)", kForm));
  }
  if (!have_stride) problem.row_stride = problem.n;
  if (!have_scale && problem.n > 0) problem.scale = orthonormal_scale(problem.n);
  validate(problem);
  return problem;
}

}  // namespace fwht
