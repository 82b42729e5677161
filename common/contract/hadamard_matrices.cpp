#include "common/contract/hadamard_matrices.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>

#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"

namespace fwht {
namespace {

// ------------------------------------------------------------------------------------------- finite fields

/// GF(p^k), for its quadratic residues. The element with number a = a_0 + a_1 p + ... is the polynomial
/// a_0 + a_1 x + ... modulo x^k + (the polynomial with number `modulus`).
class Field {
 public:
  explicit Field(int size) {
    const auto prime_power = std::find_if(std::begin(kPowers), std::end(kPowers),
                                          [&](const Power& one) { return one.size == size; });
    if (prime_power == std::end(kPowers)) {
      prime_ = size;
    } else {
      prime_ = prime_power->prime;
      degree_ = prime_power->degree;
      modulus_ = prime_power->modulus;
    }
    character_.assign(static_cast<std::size_t>(size), -1);
    character_[0] = 0;
    for (int a = 1; a < size; ++a)
      character_[static_cast<std::size_t>(multiply(a, a))] = 1;
  }

  /// Quadratic character: 0 for 0, +1 for the square of another element, -1 otherwise.
  int character(int a) const { return character_[static_cast<std::size_t>(a)]; }

  int subtract(int a, int b) const {
    int difference = 0, place = 1;
    for (int d = 0; d < degree_; ++d, place *= prime_, a /= prime_, b /= prime_)
      difference += place * ((a % prime_ + prime_ - b % prime_) % prime_);
    return difference;
  }
  int negate(int a) const { return subtract(0, a); }

 private:
  struct Power {
    int size, prime, degree, modulus;
  };
  static constexpr Power kPowers[] = {{9, 3, 2, 1},   {25, 5, 2, 6},   {49, 7, 2, 1},
                                      {81, 3, 4, 37}, {121, 11, 2, 1}, {125, 5, 3, 26}};

  int multiply(int a, int b) const {
    std::vector<int> product(static_cast<std::size_t>(2 * degree_ - 1));
    for (int i = 0; i < degree_; ++i, a /= prime_) {
      int rest = b;
      for (int j = 0; j < degree_; ++j, rest /= prime_)
        product[static_cast<std::size_t>(i + j)] += (a % prime_) * (rest % prime_);
    }
    for (int i = 2 * degree_ - 2; i >= degree_; --i) {  // x^i = -modulus(x) x^(i - degree)
      int rest = modulus_;
      for (int j = 0; j < degree_; ++j, rest /= prime_) {
        product[static_cast<std::size_t>(i - degree_ + j)] -=
            product[static_cast<std::size_t>(i)] % prime_ * (rest % prime_);
      }
    }
    int value = 0;
    for (int i = degree_ - 1; i >= 0; --i)
      value = value * prime_ + (product[static_cast<std::size_t>(i)] % prime_ + prime_) % prime_;
    return value;
  }

  int prime_ = 0, degree_ = 1, modulus_ = 0;
  std::vector<int> character_;
};

// ------------------------------------------------------------------------------------------- constructions
// Each makes the matrix of the given order.

/// H[i][j] = (-1)^popcount(i & j).
SignMatrix sylvester_matrix(int order) {
  SignMatrix h(order);
  for (int i = 0; i < order; ++i) {
    for (int j = 0; j < order; ++j) {
      if (parity(static_cast<std::uint64_t>(i & j)) != 0) h.set_negative(i, j);
    }
  }
  return h;
}

/// Paley I (J. Math. Phys. 12, 1933), q = order - 1 = 3 mod 4 a prime: a border of +1 around
/// character(-(i + j)), with -1 where i + j = 0. The usual form has character(j - i) and is skew; its columns
/// in the order j -> -j make it symmetric.
SignMatrix paley1_matrix(int order) {
  const Field field(order - 1);
  SignMatrix h(order);
  for (int i = 0; i < order - 1; ++i) {
    for (int j = 0; j < order - 1; ++j) {
      const int character = field.character(field.subtract(field.negate(i), j));
      if (character <= 0) h.set_negative(1 + i, 1 + j);
    }
  }
  return h;
}

/// Paley II (same paper), q = order / 2 - 1 = 1 mod 4 a prime power: the symmetric conference matrix
/// C = [0 1; 1 character(j - i)], every +-1 of it replaced by +-[+ +; + -] and every 0 by [+ -; - -].
SignMatrix paley2_matrix(int order) {
  const int points = order / 2;
  const Field field(points - 1);
  SignMatrix h(order);
  for (int i = 0; i < points; ++i) {
    for (int j = 0; j < points; ++j) {
      const int c = i == j ? 0 : i == 0 || j == 0 ? 1 : field.character(field.subtract(j - 1, i - 1));
      const std::array<int, 4> block = c == 0 ? std::array{1, -1, -1, -1} : std::array{c, c, c, -c};
      for (int k = 0; k < 4; ++k) {
        if (block[static_cast<std::size_t>(k)] < 0) h.set_negative(2 * i + k / 2, 2 * j + k % 2);
      }
    }
  }
  return h;
}

/// One of four circulant matrices, row i the sequence shifted i to the right; transposed, its columns
/// reversed, and negated, in this order.
struct Block {
  int sequence;
  bool transposed = false, reversed = false, negative = false;
};
using Sequences = std::array<std::vector<int>, 4>;

SignMatrix from_circulants(const Sequences& sequences, const std::array<std::array<Block, 4>, 4>& blocks) {
  const int size = static_cast<int>(sequences[0].size());
  SignMatrix h(4 * size);
  for (int row = 0; row < 4 * size; ++row) {
    for (int column = 0; column < 4 * size; ++column) {
      const Block& block =
          blocks[static_cast<std::size_t>(row / size)][static_cast<std::size_t>(column / size)];
      const int i = row % size, j = block.reversed ? size - 1 - column % size : column % size;
      const int shift = block.transposed ? i - j : j - i;
      const int entry = sequences[static_cast<std::size_t>(block.sequence)]
                                 [static_cast<std::size_t>((shift + size) % size)];
      if ((entry < 0) != block.negative) h.set_negative(row, column);
    }
  }
  return h;
}

std::vector<int> signs_of(std::string_view text) {
  std::vector<int> signs;
  for (const char c : text)
    signs.push_back(c == '+' ? 1 : -1);
  return signs;
}

/// First rows of circulants A (symmetric), B and D of order v with A A^T + 2 B B^T + D D^T = 4v I. For 92,
/// 116 and 172 see Di Matteo, Djokovic, Kotsireas, arXiv 1503.04226; these sequences are from a search of our
/// own.
struct Propus {
  int order;
  std::string_view a, b, d;
};
constexpr Propus kPropus[] = {
    {92, "+-+---++++++++++++---+-", "+--+++--+-+-++-++--+-++", "+---+-++-++-++---++++++"},
    {156, "+-++-+-+++-+++-----++-----+++-+++-+-++-", "++--+-+---+-+-++++++--++-++-++++---++-+",
     "++++++---++-+---+--+-++-+++++-++++--+--"},
    {172, "+---++--++++-+-+++-++--++-+++-+-++++--++---", "+--+++--+-+---++++++-++-+++++-++-+-----+++-",
     "+-+----+--+-+---++-+-+---+++++---+---+-++-+"}};

/// The propus array (Seberry and Balonin, arXiv 1512.01732) for circulants; R reverses columns:
/// rows (A, BR, BR, DR), (BR, D'R, -A, -B'R), (BR, -A, -D'R, B'R), (DR, -B'R, B'R, -A). Symmetric.
SignMatrix propus_matrix(int order) {
  const Propus& data = *std::find_if(std::begin(kPropus), std::end(kPropus),
                                     [&](const Propus& one) { return one.order == order; });
  constexpr Block kA{0}, kMinusA{0, false, false, true}, kB{1, false, true}, kBt{1, true, true},
      kMinusBt{1, true, true, true}, kD{2, false, true}, kDt{2, true, true}, kMinusDt{2, true, true, true};
  return from_circulants({signs_of(data.a), signs_of(data.b), signs_of(data.d), {}},
                         {{{kA, kB, kB, kD},
                           {kB, kDt, kMinusA, kMinusBt},
                           {kB, kMinusA, kMinusDt, kBt},
                           {kD, kMinusBt, kBt, kMinusA}}});
}

/// Turyn-type sequences x, y, z of length l and w of length l - 1, a hexadecimal digit for each position:
/// bits x y z w from the highest, set where the sequence has -1; the last digit has no w. Lengths 10, 16 and
/// 20 are from the classification of Best, Djokovic, Kharaghani and Ramp, arXiv 1206.4107; length 36 is
/// Kharaghani and Tayfeh-Rezaie, J. Combin. Des. 13 (2005).
struct TurynType {
  int order;  // 4 (3l - 1)
  std::string_view digits;
};
constexpr TurynType kTurynType[] = {{116, "0001f4a961"},
                                    {188, "0000778e52de5561"},
                                    {236, "000038e2739c7a0b6951"},
                                    {428, "060989975b685d8fc80750b21c0212eceb26"}};

/// Turyn-type sequences give T-sequences of length 3l - 1, which are (z, 0), (0, w), (0, (x + y) / 2) and
/// (0, (x - y) / 2) one behind the other. Those give four circulants A, B, C, D for the array of Goethals and
/// Seidel: rows (A, BR, CR, DR), (-BR, A, D'R, -C'R), (-CR, -D'R, A, B'R), (-DR, C'R, -B'R, A). Neither
/// symmetric nor skew.
SignMatrix turyn_matrix(int order) {
  const std::string_view digits =
      std::find_if(std::begin(kTurynType), std::end(kTurynType), [&](const TurynType& one) {
        return one.order == order;
      })->digits;
  const int length = static_cast<int>(digits.size());
  const auto sign = [&](int position, int sequence) {  // 0 .. 3: x y z w
    const char digit = digits[static_cast<std::size_t>(position)];
    const int bits = digit <= '9' ? digit - '0' : digit - 'a' + 10;
    const int places = position + 1 < length ? 3 : 2;
    return (bits >> (places - sequence) & 1) != 0 ? -1 : 1;
  };
  Sequences circulants;
  const auto append = [&](int t1, int t2, int t3, int t4) {
    circulants[0].push_back(t1 + t2 + t3 + t4);
    circulants[1].push_back(-t1 + t2 + t3 - t4);
    circulants[2].push_back(-t1 - t2 + t3 + t4);
    circulants[3].push_back(-t1 + t2 - t3 + t4);
  };
  for (int i = 0; i < length; ++i)
    append(sign(i, 2), 0, 0, 0);
  for (int i = 0; i + 1 < length; ++i)
    append(0, sign(i, 3), 0, 0);
  for (int i = 0; i < length; ++i)
    append(0, 0, (sign(i, 0) + sign(i, 1)) / 2, (sign(i, 0) - sign(i, 1)) / 2);
  constexpr Block kA{0}, kB{1, false, true}, kMinusB{1, false, true, true}, kBt{1, true, true},
      kMinusBt{1, true, true, true}, kC{2, false, true}, kMinusC{2, false, true, true}, kCt{2, true, true},
      kMinusCt{2, true, true, true}, kD{3, false, true}, kMinusD{3, false, true, true}, kDt{3, true, true},
      kMinusDt{3, true, true, true};
  return from_circulants(circulants, {{{kA, kB, kC, kD},
                                       {kMinusB, kA, kDt, kMinusCt},
                                       {kMinusC, kMinusDt, kA, kBt},
                                       {kMinusD, kCt, kMinusBt, kA}}});
}

// ------------------------------------------------------------------------------------------- the table

/// Symmetric wherever one is known here, single constructions before products.
struct Construction {
  NamedHadamard named;
  SignMatrix (*build)(int order);
  int base;  ///< what `build` makes; the rest of the order is a Sylvester factor behind it
};

// clang-format off
constexpr Construction kRecipes[] = {
    {{1, "sylvester_1", true}, sylvester_matrix, 1},
    {{2, "sylvester_2", true}, sylvester_matrix, 2},
    {{4, "sylvester_4", true}, sylvester_matrix, 4},
    {{8, "sylvester_8", true}, sylvester_matrix, 8},
    {{12, "paley2_12", true}, paley2_matrix, 12},
    {{16, "sylvester_16", true}, sylvester_matrix, 16},
    {{20, "paley2_20", true}, paley2_matrix, 20},
    {{24, "paley1_24", true}, paley1_matrix, 24},
    {{28, "paley2_28", true}, paley2_matrix, 28},
    {{32, "sylvester_32", true}, sylvester_matrix, 32},
    {{36, "paley2_36", true}, paley2_matrix, 36},
    {{40, "paley2_20 x sylvester_2", true}, paley2_matrix, 20},
    {{44, "paley1_44", true}, paley1_matrix, 44},
    {{48, "paley1_48", true}, paley1_matrix, 48},
    {{52, "paley2_52", true}, paley2_matrix, 52},
    {{56, "paley2_28 x sylvester_2", true}, paley2_matrix, 28},
    {{60, "paley2_60", true}, paley2_matrix, 60},
    {{64, "sylvester_64", true}, sylvester_matrix, 64},
    {{68, "paley1_68", true}, paley1_matrix, 68},
    {{72, "paley1_72", true}, paley1_matrix, 72},
    {{76, "paley2_76", true}, paley2_matrix, 76},
    {{80, "paley1_80", true}, paley1_matrix, 80},
    {{84, "paley2_84", true}, paley2_matrix, 84},
    {{88, "paley1_44 x sylvester_2", true}, paley1_matrix, 44},
    {{92, "propus_92", true}, propus_matrix, 92},
    {{96, "paley1_48 x sylvester_2", true}, paley1_matrix, 48},
    {{100, "paley2_100", true}, paley2_matrix, 100},
    {{104, "paley1_104", true}, paley1_matrix, 104},
    {{108, "paley2_108", true}, paley2_matrix, 108},
    {{112, "paley2_28 x sylvester_4", true}, paley2_matrix, 28},
    {{116, "turyn_116", false}, turyn_matrix, 116},
    {{120, "paley2_60 x sylvester_2", true}, paley2_matrix, 60},
    {{124, "paley2_124", true}, paley2_matrix, 124},
    {{128, "sylvester_128", true}, sylvester_matrix, 128},
    {{132, "paley1_132", true}, paley1_matrix, 132},
    {{136, "paley1_68 x sylvester_2", true}, paley1_matrix, 68},
    {{140, "paley1_140", true}, paley1_matrix, 140},
    {{144, "paley1_72 x sylvester_2", true}, paley1_matrix, 72},
    {{148, "paley2_148", true}, paley2_matrix, 148},
    {{152, "paley1_152", true}, paley1_matrix, 152},
    {{156, "propus_156", true}, propus_matrix, 156},
    {{160, "paley1_80 x sylvester_2", true}, paley1_matrix, 80},
    {{164, "paley2_164", true}, paley2_matrix, 164},
    {{168, "paley1_168", true}, paley1_matrix, 168},
    {{172, "propus_172", true}, propus_matrix, 172},
    {{176, "paley1_44 x sylvester_4", true}, paley1_matrix, 44},
    {{180, "paley2_180", true}, paley2_matrix, 180},
    {{184, "propus_92 x sylvester_2", true}, propus_matrix, 92},
    {{188, "turyn_188", false}, turyn_matrix, 188},
    {{192, "paley1_192", true}, paley1_matrix, 192},
    {{196, "paley2_196", true}, paley2_matrix, 196},
    {{200, "paley1_200", true}, paley1_matrix, 200},
    {{204, "paley2_204", true}, paley2_matrix, 204},
    {{208, "paley1_104 x sylvester_2", true}, paley1_matrix, 104},
    {{212, "paley1_212", true}, paley1_matrix, 212},
    {{216, "paley2_108 x sylvester_2", true}, paley2_matrix, 108},
    {{220, "paley2_220", true}, paley2_matrix, 220},
    {{224, "paley1_224", true}, paley1_matrix, 224},
    {{228, "paley2_228", true}, paley2_matrix, 228},
    {{232, "turyn_116 x sylvester_2", false}, turyn_matrix, 116},
    {{236, "turyn_236", false}, turyn_matrix, 236},
    {{240, "paley1_240", true}, paley1_matrix, 240},
    {{244, "paley2_244", true}, paley2_matrix, 244},
    {{248, "paley2_124 x sylvester_2", true}, paley2_matrix, 124},
    {{252, "paley2_252", true}, paley2_matrix, 252},
    {{256, "sylvester_256", true}, sylvester_matrix, 256},
    {{428, "turyn_428", false}, turyn_matrix, 428},
};
// clang-format on

constexpr std::size_t kCount = std::size(kRecipes);

/// Position in the table; kCount where the order is not in it.
std::size_t position_of(std::int64_t order) {
  const auto* found = std::lower_bound(
      std::begin(kRecipes), std::end(kRecipes), order,
      [](const Construction& recipe, std::int64_t wanted) { return recipe.named.order < wanted; });
  return found == std::end(kRecipes) || found->named.order != order
             ? kCount
             : static_cast<std::size_t>(found - std::begin(kRecipes));
}

SignMatrix build(const Construction& recipe) {
  SignMatrix base = recipe.build(recipe.base);
  if (recipe.base == recipe.named.order) return base;
  return kronecker_product(base, sylvester_matrix(recipe.named.order / recipe.base));
}

}  // namespace

SignMatrix::SignMatrix(int order)
    : order_(order), words_(static_cast<std::size_t>(order * words_per_row()), 0U) {}

SignMatrix SignMatrix::transposed() const {
  SignMatrix result(order_);
  for (int i = 0; i < order_; ++i) {
    for (int j = 0; j < order_; ++j) {
      if (is_negative(j, i)) result.set_negative(i, j);
    }
  }
  return result;
}

SignMatrix kronecker_product(const SignMatrix& slow, const SignMatrix& fast) {
  SignMatrix result(slow.order() * fast.order());
  for (int i = 0; i < result.order(); ++i) {
    for (int j = 0; j < result.order(); ++j) {
      const bool of_slow = slow.is_negative(i / fast.order(), j / fast.order());
      if (of_slow != fast.is_negative(i % fast.order(), j % fast.order())) result.set_negative(i, j);
    }
  }
  return result;
}

int row_product(const SignMatrix& matrix, int i, int j) {
  const std::span<const std::uint32_t> words = matrix.words();
  const int per_row = matrix.words_per_row();
  int different = 0;
  for (int word = 0; word < per_row; ++word) {
    different += std::popcount(words[static_cast<std::size_t>(i * per_row + word)] ^
                               words[static_cast<std::size_t>(j * per_row + word)]);
  }
  return matrix.order() - 2 * different;
}

std::span<const NamedHadamard> named_hadamard_matrices() {
  static const std::array<NamedHadamard, kCount> names = [] {
    std::array<NamedHadamard, kCount> all{};
    for (std::size_t i = 0; i < kCount; ++i)
      all[i] = kRecipes[i].named;
    return all;
  }();
  return names;
}

const NamedHadamard* find_hadamard_matrix(std::int64_t order) {
  const std::size_t position = position_of(order);
  return position == kCount ? nullptr : &kRecipes[position].named;
}

const SignMatrix& hadamard_matrix(std::int64_t order) {
  static std::array<std::once_flag, kCount> once;
  static std::array<SignMatrix, kCount> matrices;
  const std::size_t position = position_of(order);
  if (position == kCount) {
    throw BadRequest(concat("no Hadamard matrix of order ", order,
                            " is known here; known are the multiples of 4 to 256, and 428"));
  }
  std::call_once(once[position], [&] { matrices[position] = build(kRecipes[position]); });
  return matrices[position];
}

SignMatrix regular_matrix(int order) {
  if (!is_power_of_two(order) || log2_floor(order) % 2 != 0)
    throw BadRequest(concat("order ", order, " of a regular matrix must be a power of four"));
  SignMatrix base(4);
  for (int i = 0; i < 4; ++i)
    base.set_negative(i, 3 - i);
  SignMatrix result(1);
  while (result.order() < order)
    result = kronecker_product(result, base);
  return result;
}

const SignMatrix& named_matrix(const Factor& factor) {
  if (factor.basis != Basis::regular) return hadamard_matrix(factor.order);
  static const SignMatrix kFour = regular_matrix(4), kSixteen = regular_matrix(16);  // what operators hold
  if (factor.order == kFour.order()) return kFour;
  if (factor.order == kSixteen.order()) return kSixteen;
  throw BadRequest(concat("a factor holds the regular matrix of order 4 or 16, not of ", factor.order));
}

}  // namespace fwht
