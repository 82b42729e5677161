#include "common/contract/operator.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <vector>

#include "common/contract/hadamard_matrices.hpp"
#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"

namespace fwht {
namespace {

constexpr std::int64_t kLargestOrder = std::int64_t{1} << 40;
constexpr std::int64_t kLargestDense = std::int64_t{1} << 20;  // its square counts entries
constexpr std::string_view kSignsFirst = "+signs", kSignsLast = "signs+";

bool is_symmetric_factor(const Factor& factor) {
  switch (factor.basis) {
    case Basis::sylvester:
      return true;
    case Basis::regular:
      return true;
    case Basis::hadamard:
      return has_hadamard_matrix(factor.order) && has_symmetric_hadamard_matrix(factor.order);
    case Basis::dense:
      return false;
  }
  return false;
}

std::string text_of(const Factor& factor) {
  return concat(factor.basis == Basis::dense ? "d" : "", factor.order,
                factor.basis == Basis::regular ? "r" : "", factor.transposed ? "t" : "");
}

bool is_power_of_four(std::int64_t order) {
  return order >= 4 && is_power_of_two(order) && log2_floor(order) % 2 == 0;
}

/// Not every regular factor is: validate() refuses other orders, which are held as they were given.
bool is_regular_matrix(const Factor& factor) {
  return factor.basis == Basis::regular && is_power_of_four(factor.order);
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
  if (digits.ends_with('r') && factor.basis != Basis::dense) {
    factor.basis = Basis::regular;
    digits.remove_suffix(1);
  }
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), factor.order);
  if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size()) {
    throw BadRequest(concat("operator '", text, "': '", word,
                            "' is no factor; the form is 28x512, 12tx20x64, d53x256 or 256r"));
  }
  if (factor.basis == Basis::sylvester && !is_power_of_two(factor.order)) factor.basis = Basis::hadamard;
  return factor;
}

/// Orders of the table that are no power of two; those up to kLargestOfTwo can stand beside a second one.
constexpr std::int64_t kLargestOfTwo = 256;

std::vector<std::int64_t> base_orders() {
  std::vector<std::int64_t> orders;
  for (const NamedHadamard& named : named_hadamard_matrices()) {
    if (!is_power_of_two(named.order)) orders.push_back(named.order);
  }
  return orders;
}

/// n = order 2^k.
bool completes(std::int64_t order, std::int64_t n) {
  return n % order == 0 && is_power_of_two(n / order);
}

/// The smallest order with n = order 2^k, a symmetric one before others; 0 where there is none.
std::int64_t single_base(std::int64_t n) {
  std::int64_t not_symmetric = 0;
  for (const std::int64_t order : base_orders()) {
    if (!completes(order, n)) continue;
    if (has_symmetric_hadamard_matrix(order)) return order;
    if (not_symmetric == 0) not_symmetric = order;
  }
  return not_symmetric;
}

/// Multiplications for each element when a matrix of this order is done in tiles of 16 x 16.
double tile_work(std::int64_t order) {
  const auto padded = static_cast<double>(ceil_div(order, 16) * 16);
  return padded * padded / static_cast<double>(order);
}

struct TwoBases {
  std::int64_t slow = 0, fast = 0, tail = 1;  ///< tail: the Sylvester factor behind the fast base
};

/// The pair with the least work, symmetric ones before others; {0, 0} where there is none. The fast base
/// costs twice as much, because what it multiplies is carried as two 16-bit numbers.
TwoBases two_bases(std::int64_t n) {
  TwoBases best;
  double least_work = 0.0;
  bool best_is_symmetric = false;
  for (const std::int64_t slow : base_orders()) {
    for (const std::int64_t fast : base_orders()) {
      if (slow > kLargestOfTwo || fast > kLargestOfTwo || !completes(slow * fast, n)) continue;
      TwoBases pair{slow, fast};
      while (fast * pair.tail % 8 != 0 && slow * fast * pair.tail < n)
        pair.tail *= 2;
      const bool symmetric = has_symmetric_hadamard_matrix(slow) && has_symmetric_hadamard_matrix(fast);
      const double work = tile_work(slow) + 2.0 * tile_work(fast * pair.tail);
      const bool better = best.slow == 0 || (symmetric != best_is_symmetric ? symmetric : work < least_work);
      if (!better) continue;
      best = pair;
      least_work = work;
      best_is_symmetric = symmetric;
    }
  }
  return best;
}

/// The row length nearest to n that has an operator; of two the smaller. Every such length is 2^k times a
/// power of two, an order, or a product of two orders.
std::int64_t nearest_with_operator(std::int64_t n) {
  std::int64_t nearest = 1;
  const auto consider = [&](std::int64_t smallest) {
    for (std::int64_t candidate = smallest;; candidate *= 2) {
      const std::int64_t distance = std::abs(candidate - n), so_far = std::abs(nearest - n);
      if (distance < so_far || (distance == so_far && candidate < nearest)) nearest = candidate;
      if (candidate >= n || candidate > kLargestOrder / 2) return;
    }
  };
  consider(1);
  for (const std::int64_t slow : base_orders()) {
    consider(slow);
    if (slow > kLargestOfTwo) continue;
    for (const std::int64_t fast : base_orders()) {
      if (fast <= kLargestOfTwo) consider(slow * fast);
    }
  }
  return nearest;
}

}  // namespace

Operator::Operator(std::initializer_list<Factor> factors)
    : Operator(std::span<const Factor>(factors.begin(), factors.size())) {}

Operator::Operator(std::span<const Factor> factors) {
  for (const Factor& factor : factors)
    add(factor);
}

void Operator::add(const Factor& factor) {
  if (is_regular_matrix(factor)) return add_regular(factor.order);
  if (count_ == kMostFactors) {
    throw BadRequest(concat("an operator has at most ", kMostFactors, " factors"));
  }
  Factor& held = factors_[count_++];
  held = factor;
  if (held.basis == Basis::hadamard && is_power_of_two(held.order)) held.basis = Basis::sylvester;
  if (held.basis == Basis::sylvester) held.transposed = false;  // it is its own
}

void Operator::add_regular(std::int64_t order) {
  constexpr std::int64_t kHeld = 16;
  while (count_ > 0 && is_regular_matrix(factors_[count_ - 1]) && order < kLargestOrder)
    order *= factors_[--count_].order;
  const std::size_t first = count_;
  for (; order > 1; order /= std::min(order, kHeld)) {
    if (count_ == kMostFactors) {
      throw BadRequest(concat("an operator has at most ", kMostFactors, " factors, and a regular matrix one ",
                              "for each ", kHeld, " of its order"));
    }
    factors_[count_++] = {Basis::regular, std::min(order, kHeld), false};
  }
  std::rotate(factors_.begin() + first, factors_.begin() + count_ - 1, factors_.begin() + count_);
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

bool Operator::is_regular() const {
  return count_ > 0 && signs_ == Signs::none &&
         std::all_of(factors().begin(), factors().end(),
                     [](const Factor& factor) { return factor.basis == Basis::regular; });
}

bool Operator::is_symmetric() const {
  return signs_ == Signs::none && std::all_of(factors().begin(), factors().end(), is_symmetric_factor);
}

Operator Operator::transposed() const {
  Operator op = *this;
  for (std::size_t f = 0; f < count_; ++f) {
    Factor& factor = op.factors_[f];
    if (!is_symmetric_factor(factor)) factor.transposed = !factor.transposed;
  }
  if (signs_ != Signs::none) op.signs_ = signs_ == Signs::first ? Signs::last : Signs::first;
  return op;
}

bool Operator::has_dense() const {
  return std::any_of(factors().begin(), factors().end(),
                     [](const Factor& factor) { return factor.basis == Basis::dense; });
}

bool has_hadamard_matrix(std::int64_t order) {
  return find_hadamard_matrix(order) != nullptr;
}

bool has_symmetric_hadamard_matrix(std::int64_t order) {
  const NamedHadamard* named = find_hadamard_matrix(order);
  if (named == nullptr) throw BadRequest(concat("no Hadamard matrix of order ", order, " is known here"));
  return named->symmetric;
}

void validate(const Operator& op) {
  std::int64_t n = 1;
  for (const Factor& factor : op.factors()) {
    if (factor.basis < Basis::sylvester || factor.basis > Basis::dense)
      throw BadRequest(concat("unknown basis ", static_cast<int>(factor.basis), " of a factor"));
    if (factor.order < 1 && op.is_sylvester())
      throw BadRequest(concat("n=", factor.order, " must be at least 1"));
    if (factor.order < 1) {
      throw BadRequest(concat("operator ", to_string(op), ": order ", factor.order, " must be at least 1"));
    }
    if (factor.order > kLargestOrder / n) {
      throw BadRequest(concat("operator ", to_string(op), ": n exceeds the limit of ", kLargestOrder));
    }
    n *= factor.order;
    if (factor.basis == Basis::dense && factor.order > kLargestDense) {
      throw BadRequest(concat("operator ", to_string(op), ": a dense factor of order ", factor.order,
                              " exceeds the limit of ", kLargestDense));
    }
    const bool alone = op.factors().size() == 1;
    if (factor.basis == Basis::sylvester && !alone && !is_power_of_two(factor.order)) {
      throw BadRequest(concat("operator ", to_string(op), ": order ", factor.order,
                              " of a Sylvester factor must be a power of two"));
    }
    if (factor.basis == Basis::regular && !is_power_of_four(factor.order)) {
      throw BadRequest(concat("operator ", to_string(op), ": order ", factor.order,
                              " of a regular matrix must be a power of four, 4 at least"));
    }
    if (factor.basis == Basis::hadamard && !has_hadamard_matrix(factor.order)) {
      throw BadRequest(concat("operator ", to_string(op), ": no Hadamard matrix of order ", factor.order,
                              " is known here; known are the multiples of 4 to 256, and 428"));
    }
  }
}

Operator operator_for(std::int64_t n) {
  if (n < 1 || n > kLargestOrder) {
    throw BadRequest(concat("n=", n, " must be between 1 and ", kLargestOrder));
  }
  if (is_power_of_two(n)) return Operator::sylvester(n);
  std::array<Factor, Operator::kMostFactors> factors{};
  std::size_t count = 0;
  const auto add = [&](Basis basis, std::int64_t order) {
    if (order > 1) factors[count++] = {basis, order, false};
  };
  if (const std::int64_t base = single_base(n); base != 0) {
    add(Basis::hadamard, base);
    add(Basis::sylvester, n / base);
  } else if (const TwoBases bases = two_bases(n); bases.slow != 0) {
    add(Basis::hadamard, bases.slow);
    add(Basis::sylvester, n / (bases.slow * bases.fast * bases.tail));
    add(Basis::hadamard, bases.fast);
    add(Basis::sylvester, bases.tail);
  } else {
    throw BadRequest(
        concat("n=", n, " is no power of two times one or two known Hadamard orders; the nearest n that is: ",
               nearest_with_operator(n)));
  }
  return Operator(std::span<const Factor>(factors.data(), count));
}

std::uint64_t hash_of(const Operator& op) {
  Hasher mix;
  for (const Factor& factor : op.factors()) {
    mix(factor.basis);
    mix(factor.order);
    mix(factor.transposed);
  }
  mix(op.has_signs());
  mix(op.signs_come_last());
  return mix.hash();
}

std::string to_string(const Operator& op) {
  std::string text;
  if (op.has_signs() && op.signs_come_last()) text += kSignsLast;
  std::string_view between;
  const std::span<const Factor> factors = op.factors();
  for (std::size_t f = 0; f < factors.size(); ++f) {
    Factor factor = factors[f];
    while (is_regular_matrix(factor) && f + 1 < factors.size() && is_regular_matrix(factors[f + 1]))
      factor.order *= factors[++f].order;
    text += concat(between, text_of(factor));
    between = "x";
  }
  if (op.has_signs() && !op.signs_come_last()) text += kSignsFirst;
  return text;
}

Operator parse_operator(std::string_view text) {
  std::string_view rest = text;
  const bool last = rest.starts_with(kSignsLast), first = rest.ends_with(kSignsFirst);
  if (first && last) throw BadRequest(concat("operator '", text, "' names its signs twice"));
  if (last) rest.remove_prefix(kSignsLast.size());
  if (first) rest.remove_suffix(kSignsFirst.size());
  std::array<Factor, Operator::kMostFactors> factors{};
  std::size_t count = 0;
  for (bool more = true; more; ++count) {
    if (count == factors.size()) {
      throw BadRequest(concat("operator '", text, "' has more than ", factors.size(), " factors"));
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
