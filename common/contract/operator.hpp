// What a transform multiplies rows by: a Kronecker product of factors, as a value with a text form.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace fwht {

enum class Basis {
  sylvester,  ///< H_(2^k) in natural order: H[i][j] = (-1)^popcount(i & j)
  hadamard,   ///< the named +-1 matrix of that order, H H^T = m I (common/contract/hadamard_matrices.hpp)
  regular,    ///< R_4 (x) R_4 (x) ..., R_4 = J - 2 antidiag(1, 1, 1, 1): all rows have the sum 2^k
  dense       ///< a matrix that the caller gives, its rows orthogonal and of one length (Operands::dense)
};

/// One factor of a Kronecker product: an order x order matrix, or its transpose.
struct Factor {
  Basis basis = Basis::sylvester;
  std::int64_t order = 0;
  bool transposed = false;
  constexpr bool operator==(const Factor&) const = default;

  /// Its matrix of +-1 is known here by name: named_matrix(factor).
  constexpr bool is_named() const { return basis == Basis::hadamard || basis == Basis::regular; }
};

/// Op = F_1 (x) F_2 (x) ... (x) F_f, the first factor on the slowest index: element (i_1, ..., i_f) of a row
/// lies at ((i_1 order_2 + i_2) order_3 + ...) + i_f. With `signs`, rows are multiplied by a vector of +-1
/// (Operands::signs): before the factors, or after them where the operator is transposed.
///
/// Text form: orders between "x", slowest first. A power of two is Sylvester, another order the Hadamard
/// matrix of that order, "d" in front of it a dense factor, "t" behind it its transpose, "r" behind it the
/// regular matrix: "4096", "28x512", "12tx20x64", "d53x256", "256r". "+signs" and "signs+" say where the
/// signs are: "28x512+signs" multiplies by them first.
class Operator {
 public:
  static constexpr std::size_t kMostFactors = 4;

  Operator() = default;  ///< no factor, n = 0: no problem yet
  /// Throws BadRequest for more than kMostFactors factors. A Hadamard factor whose order is a power of two is
  /// the Sylvester factor of that order. Regular factors side by side are one matrix, R_4 (x) R_16 (x) ...:
  /// they are held as factors of order 16, with one of order 4 in front where one is left.
  Operator(std::initializer_list<Factor> factors);
  explicit Operator(std::span<const Factor> factors);

  /// H_n in natural order; n is not checked, so that every variant can be asked about any n.
  static Operator sylvester(std::int64_t n);

  std::span<const Factor> factors() const { return {factors_.data(), count_}; }
  /// Row length: the product of the orders; 0 without factors. validate() says whether it fits 64 bits.
  std::int64_t n() const {
    std::int64_t n = count_ == 0 ? 0 : 1;
    for (const Factor& factor : factors())
      n *= factor.order;
    return n;
  }

  bool has_dense() const;  ///< any factor is dense
  bool has_signs() const { return signs_ != Signs::none; }
  bool signs_come_last() const { return signs_ == Signs::last; }
  Operator with_signs() const;  ///< the same factors, the signs multiplied in first

  /// One Sylvester factor and no signs: what every variant of the ladder takes.
  bool is_sylvester() const;
  /// The regular matrix of order n and no signs.
  bool is_regular() const;
  /// Op = Op^T: no signs, and no factor but Sylvester, regular and symmetric Hadamard matrices.
  bool is_symmetric() const;
  /// Op^T. A symmetric operator is its own.
  Operator transposed() const;

  bool operator==(const Operator&) const = default;

 private:
  enum class Signs : std::uint8_t { none, first, last };
  void add(const Factor& factor);
  void add_regular(std::int64_t order);

  std::array<Factor, kMostFactors> factors_{};
  std::size_t count_ = 0;
  Signs signs_ = Signs::none;
};

/// Throws BadRequest, naming the factor, for an order below 1, or a product of orders above 2^40. Likewise
/// for a Sylvester factor that is no power of two beside other factors, a regular one that is no power of
/// four, and a Hadamard order without a known matrix.
void validate(const Operator& op);

/// Whether a Hadamard matrix of this order is known here by name.
bool has_hadamard_matrix(std::int64_t order);
/// Whether that matrix is symmetric. Throws BadRequest where none is known.
bool has_symmetric_hadamard_matrix(std::int64_t order);

/// The operator for rows of n elements, all of its factors known by name:
///   n = 2^k        Sylvester
///   n = m 2^k      "m x 2^k" with the smallest known order m, a symmetric one before others
///   n = m f 2^k    "m x 2^i x f x 2^j", for n that has no such m: two orders up to 256, symmetric ones
///   before
///                  others; of these the pair that is least work for 16-point tensor-core tiles; 2^j makes
///                  the fast end f 2^j a multiple of 8 where 2^k is large enough.
/// Tensor-parallel shards of a row have the same m. Throws BadRequest, naming the nearest n that has an
/// operator, where there is none.
Operator operator_for(std::int64_t n);

/// Of everything that operator== compares: equal operators have equal hashes.
std::uint64_t hash_of(const Operator& op);

std::string to_string(const Operator& op);
/// Inverse of to_string; also validates. Throws BadRequest.
Operator parse_operator(std::string_view text);

}  // namespace fwht
