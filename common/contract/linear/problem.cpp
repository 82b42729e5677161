#include "common/contract/linear/problem.hpp"

#include <charconv>
#include <vector>

#include "common/contract/operator_data.hpp"
#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"

namespace fwht {
namespace {

constexpr std::int64_t kMostSize = std::int64_t{1} << 30;  // of n and k: n k / 2 bytes stay far below 2^63
constexpr std::int64_t kMostElements = std::int64_t{1}
                                       << 55;  // elements of x and y: workspaces hold some of each

void require(bool fine, const std::string& sentence) {
  if (!fine) throw BadRequest(sentence);
}

}  // namespace

std::int64_t LinearProblem::weight_bytes() const {
  const std::int64_t zeros = symmetric() ? 0 : groups() * n / 2;
  const std::int64_t signs = rotation.has_signs() ? ceil_div(rotation.n(), 32) * 4 : 0;
  const std::int64_t dense = dense_entry_count(rotation) * bytes_of(dtype);
  return n * k / 2 + groups() * n * 2 + zeros + (act_order ? k * 4 : 0) + signs + dense;
}

std::size_t hash_of(const LinearProblem& problem) {
  Hasher mix;
  for (const std::int64_t part : {problem.m, problem.n, problem.k, problem.group})
    mix(part);
  mix(hash_of(problem.rotation));
  mix(problem.dtype);
  mix(problem.zero_points);
  mix(problem.act_order);
  mix(problem.programmatic_launch);
  return mix.hash();
}

void validate(const LinearProblem& problem) {
  const LinearProblem& p = problem;
  require(p.dtype == Dtype::f16 || p.dtype == Dtype::bf16,
          concat("x and y are f16 or bf16, not ",
                 bytes_of(p.dtype) == 0 ? "an unknown dtype" : name_of(p.dtype)));
  require(p.m >= 0 && p.m <= kMostSize,
          concat("m = ", p.m, " tokens: 0 to ", kMostSize, " can be asked for"));
  require(p.n >= 8 && p.n % 8 == 0 && p.n <= kMostSize,
          concat("n = ", p.n, " outputs: a positive multiple of 8 up to ", kMostSize, " is needed"));
  require(p.k >= 8 && p.k % 8 == 0 && p.k <= kMostSize,
          concat("k = ", p.k, " inputs: a positive multiple of 8 up to ", kMostSize, " is needed"));
  require(p.m * (p.n + p.k) < kMostElements,
          concat("m (n + k) = ", p.m * (p.n + p.k), " elements of x and y: fewer than ", kMostElements,
                 " can be asked for"));
  require(p.group == LinearProblem::kWhole || (p.group >= 32 && p.group % 32 == 0),
          concat("group ", p.group, ": a multiple of 32, or -1 for all rows, is needed"));
  require(p.zero_points == ZeroPoints::v1 || p.zero_points == ZeroPoints::v2 || p.symmetric(),
          concat("zero points ", static_cast<int>(p.zero_points), " are unknown"));
  require(p.k % p.group_rows() == 0, concat("k = ", p.k, " is no multiple of the group of ", p.group_rows()));
  if (!p.rotates()) return;
  if (p.rotation.is_sylvester()) {
    require(is_power_of_two(p.rotation_order()) && p.rotation_order() >= 2,
            concat("a rotation of order ", p.rotation_order(), ": a power of two from 2 on is needed"));
  } else {
    validate(p.rotation);
    require(p.rotation_order() >= 2,
            concat("the rotation ", to_string(p.rotation), " of order 1: an order from 2 on is needed"));
  }
  require(p.k % p.rotation_order() == 0,
          concat("k = ", p.k, " is no multiple of the rotation's order ", p.rotation_order()));
}

std::string to_string(const LinearProblem& p) {
  std::string text = concat(name_of(p.dtype), "/m", p.m, "/n", p.n, "/k", p.k, "/w4g", p.group);
  if (p.zero_points == ZeroPoints::v2) text += "/v2";
  if (p.symmetric()) text += "/sym";
  if (p.act_order) text += "/act";
  if (p.rotates())
    text += p.rotation == Operator::sylvester(p.k) ? "/rot" : concat("/rot", to_string(p.rotation));
  if (p.programmatic_launch) text += "/pdl";
  return text;
}

LinearProblem parse_linear_problem(std::string_view text) {
  const auto bad = [&](std::string_view part) {
    return BadRequest(concat("'", part, "' in '", text,
                             "' is not understood; the form is f16/m16/n8192/k8192/w4g128, then /v2 or /sym, "
                             "/act, /rot or /rot128 or /rot28x512+signs, /pdl"));
  };
  const auto number = [&](std::string_view part, std::string_view prefix) {
    std::int64_t value = 0;
    if (!part.starts_with(prefix)) throw bad(part);
    const std::string_view digits = part.substr(prefix.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size()) throw bad(part);
    return value;
  };
  std::vector<std::string_view> parts;
  for (std::string_view rest = text;;) {
    const std::size_t slash = rest.find('/');
    parts.push_back(rest.substr(0, slash));
    if (slash == std::string_view::npos) break;
    rest.remove_prefix(slash + 1);
  }
  if (parts.size() < 5) throw bad(text);
  LinearProblem problem;
  problem.dtype = parse_dtype(parts[0]);
  problem.m = number(parts[1], "m");
  problem.n = number(parts[2], "n");
  problem.k = number(parts[3], "k");
  problem.group = number(parts[4], "w4g");
  std::size_t next = 5;
  const auto take = [&](std::string_view word) {
    const bool there = next < parts.size() && parts[next] == word;
    next += there ? 1 : 0;
    return there;
  };
  if (take("v2"))
    problem.zero_points = ZeroPoints::v2;
  else if (take("sym"))
    problem.zero_points = ZeroPoints::symmetric;
  problem.act_order = take("act");
  if (take("rot")) {
    problem.rotation = Operator::sylvester(problem.k);
  } else if (next < parts.size() && parts[next].starts_with("rot")) {
    problem.rotation = parse_operator(parts[next++].substr(3));
    if (problem.rotation.n() < 2) throw bad(parts[next - 1]);
  }
  problem.programmatic_launch = take("pdl");
  if (next != parts.size()) throw bad(parts[next]);
  validate(problem);
  return problem;
}

}  // namespace fwht
