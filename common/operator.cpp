#include "common/operator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "common/bits.hpp"
#include "common/error.hpp"

namespace fwht {
namespace {

constexpr std::int64_t kLargestOrder = std::int64_t{1} << 40;
constexpr std::string_view kSignsFirst = "+signs", kSignsLast = "signs+";

/// The four orders to 428 whose matrices (Turyn type) are neither symmetric nor skew.
constexpr std::int64_t kNotSymmetric[] = {116, 188, 232, 236, 428};

bool is_symmetric_factor(const Factor& factor) {
  switch (factor.basis) {
    case Basis::sylvester:
      return true;
    case Basis::hadamard:
      return has_hadamard_matrix(factor.order) && has_symmetric_hadamard_matrix(factor.order);
    case Basis::dense:
      return false;
  }
  return false;
}

std::string text_of(const Factor& factor) {
  return fmt::format("{}{}{}", factor.basis == Basis::dense ? "d" : "", factor.order,
                     factor.transposed ? "t" : "");
}

Factor parse_factor(std::string_view word, std::string_view text) {
  Factor factor;
  std::string_view digits = word;
  if (digits.starts_with('d')) {
    factor.basis = Basis::dense;
    digits.remove_prefix(1);
  }
  if (digits.ends_with('t')) {
    factor.transposed = true;
    digits.remove_suffix(1);
  }
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), factor.order);
  if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size()) {
    throw BadRequest(fmt::format("operator '{}': '{}' is no factor; the form is 28x512, 12tx20x64 or d53x256",
                                 text, word));
  }
  if (factor.basis != Basis::dense && !is_power_of_two(factor.order)) factor.basis = Basis::hadamard;
  return factor;
}

}  // namespace

Operator::Operator(std::initializer_list<Factor> factors)
    : Operator(std::span<const Factor>(factors.begin(), factors.size())) {}

Operator::Operator(std::span<const Factor> factors) {
  for (const Factor& factor : factors)
    add(factor);
}

void Operator::add(const Factor& factor) {
  if (count_ == kMostFactors) {
    throw BadRequest(fmt::format("an operator has at most {} factors", kMostFactors));
  }
  factors_[count_++] = factor;
}

Operator Operator::sylvester(std::int64_t n) {
  return {Factor{Basis::sylvester, n, false}};
}

Operator Operator::with_signs() const {
  Operator op = *this;
  op.signs_ = Signs::first;
  return op;
}

bool Operator::is_sylvester() const {
  return count_ == 1 && factors_[0].basis == Basis::sylvester && signs_ == Signs::none;
}

bool Operator::is_symmetric() const {
  return signs_ == Signs::none && std::all_of(factors().begin(), factors().end(), is_symmetric_factor);
}

Operator Operator::transposed() const {
  Operator op = *this;
  for (std::size_t f = 0; f < count_; ++f) {
    Factor& factor = op.factors_[f];
    factor.transposed = !is_symmetric_factor(factor) && !factor.transposed;
  }
  if (signs_ != Signs::none) op.signs_ = signs_ == Signs::first ? Signs::last : Signs::first;
  return op;
}

bool has_hadamard_matrix(std::int64_t order) {
  return order == 1 || order == 2 || (order % 4 == 0 && order >= 4 && order <= 256) || order == 428;
}

bool has_symmetric_hadamard_matrix(std::int64_t order) {
  if (!has_hadamard_matrix(order)) {
    throw BadRequest(fmt::format("no Hadamard matrix of order {} is known here", order));
  }
  return std::find(std::begin(kNotSymmetric), std::end(kNotSymmetric), order) == std::end(kNotSymmetric);
}

void validate(const Operator& op) {
  std::int64_t n = 1;
  for (const Factor& factor : op.factors()) {
    if (factor.order < 1) {
      throw BadRequest(fmt::format("operator {}: order {} must be at least 1", to_string(op), factor.order));
    }
    if (factor.order > kLargestOrder / n) {
      throw BadRequest(fmt::format("operator {}: n exceeds the limit of {}", to_string(op), kLargestOrder));
    }
    n *= factor.order;
    const bool alone = op.factors().size() == 1;
    if (factor.basis == Basis::sylvester && !alone && !is_power_of_two(factor.order)) {
      throw BadRequest(fmt::format("operator {}: order {} of a Sylvester factor must be a power of two",
                                   to_string(op), factor.order));
    }
    if (factor.basis == Basis::hadamard && !has_hadamard_matrix(factor.order)) {
      throw BadRequest(
          fmt::format("operator {}: no Hadamard matrix of order {} is known here; known are the multiples of "
                      "4 to 256, and 428",
                      to_string(op), factor.order));
    }
  }
}

std::string to_string(const Operator& op) {
  std::string text;
  if (op.has_signs() && op.signs_come_last()) text += kSignsLast;
  std::string_view between;
  for (const Factor& factor : op.factors()) {
    text += fmt::format("{}{}", between, text_of(factor));
    between = "x";
  }
  if (op.has_signs() && !op.signs_come_last()) text += kSignsFirst;
  return text;
}

Operator parse_operator(std::string_view text) {
  std::string_view rest = text;
  const bool last = rest.starts_with(kSignsLast), first = rest.ends_with(kSignsFirst);
  if (first && last) throw BadRequest(fmt::format("operator '{}' names its signs twice", text));
  if (last) rest.remove_prefix(kSignsLast.size());
  if (first) rest.remove_suffix(kSignsFirst.size());
  std::array<Factor, Operator::kMostFactors> factors{};
  std::size_t count = 0;
  for (bool more = true; more; ++count) {
    if (count == factors.size()) {
      throw BadRequest(fmt::format("operator '{}' has more than {} factors", text, factors.size()));
    }
    const std::size_t cross = rest.find('x');
    more = cross != std::string_view::npos;
    factors[count] = parse_factor(rest.substr(0, cross), text);
    if (more) rest.remove_prefix(cross + 1);
  }
  Operator op(std::span<const Factor>(factors.data(), count));
  if (first) op = op.with_signs();
  if (last) op = op.transposed().with_signs().transposed();
  validate(op);
  return op;
}

}  // namespace fwht
