// Seeded inputs. Every element is a pure function of (class, seed, row, column) and of the problem's shape,
// made by a counter-based generator: any row of any size can be made again alone, in any order, by any number
// of threads.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "common/contract/problem.hpp"
#include "reference/hadamard.hpp"

namespace fwht::reference {

/// Philox-4x32 with ten rounds: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
/// SC'11.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

enum class InputClass {
  // Random with a smooth density: the statistical tolerances (T1, T3, T4) hold.
  normal,       ///< N(0, 1)
  uniform,      ///< U(-1, 1)
  laplace,      ///< density exp(-|x|) / 2
  student3,     ///< Student's t with 3 degrees of freedom
  fa3_mixture,  ///< N(0, 1) + Bernoulli(0.001) N(0, 100): FlashAttention-3, arXiv 2407.08608, section 4.3
  outlier_channels,  ///< N(0, 1); min(8, max(1, n/16)) columns, the same in all rows, times 50
  subnormal,         ///< N(0, 1) 2^(min_exponent - 2): inputs and outputs in the subnormal range
  near_overflow,  ///< N(0, 1) times the largest factor that keeps 12 sigma of inputs, sums and results finite
  // Structured: elementwise and hard bounds only.
  massive_channel,  ///< N(0, 1) with one column, the same in all rows, at +-1000
  constant,         ///< one random value a row
  ramp,             ///< (column + 1) / n
  walsh_noise,      ///< a random row of H, every entry off by -1, 0 or +1 unit in the last place: near
                    ///< cancellation
  block_constant,   ///< the first 16 entries equal to one random value, the others zero
  two_hot,          ///< two entries of random size and sign (equal sizes in even rows), the others zero
  alternating_max,  ///< +a, -a, +a, ... with 0.99 of the largest a that keeps every sum and the result finite
  ties,             ///< sums of neighbours lie half way between two numbers of the storage type
  // Integers for which every partial sum is exact in the storage type (sum |x| <= 2^precision): zero
  // tolerance.
  one_hot,      ///< v in {1 .. 8} at one column; see one_hot_at
  sign_sparse,  ///< +-1 in min(max(1, n/2), 2^precision) columns, the others zero
  integers,     ///< |x| <= min(2^precision / n, 128); for n > 2^precision |x| <= 4 in 2^precision / 4 columns
  zero,         ///< +0 and -0
  // Integers whose partial sums are exact in fp32, and whose results almost surely are in f16 (not in bf16).
  sign_dense  ///< +-1 everywhere
};

inline constexpr int kInputClassCount = static_cast<int>(InputClass::sign_dense) + 1;

/// All classes in the order above.
std::span<const InputClass> all_input_classes();
std::string_view name_of(InputClass input);
/// Throws BadRequest that lists the known names.
InputClass parse_input_class(std::string_view text);

/// The error is a sum of many independent smooth roundings: T1, T3 and T4 apply.
bool is_smooth(InputClass input);
/// Every entry is an integer and sum |x| over a row is at most 2^precision of the storage type.
bool is_exact_integer(InputClass input);

/// Where one_hot puts its value in a row, and the value.
struct OneHot {
  std::int64_t column;
  double value;
};
OneHot one_hot_at(std::uint64_t seed, std::int64_t row, std::int64_t n);

/// `count` rows of the input from `first_row` on, count x n, every value already rounded to problem.dtype().
/// Of integer types, the classes that are not exact integers are spread over the type's range.
/// count < 0 means up to the last row. Uses n, dtype and scale of the problem (scale: near_overflow and
/// alternating_max); first_row and count need not lie inside problem.rows.
Matrix generate(const Problem& problem, InputClass input, std::uint64_t seed, std::int64_t first_row = 0,
                std::int64_t count = -1, int threads = 0);

/// The same values as raw storage: fills rows 0 .. rows-1 of `data`, which lie row_stride elements apart.
/// Elements between n and row_stride are left untouched.
void write_input(const Problem& problem, InputClass input, std::uint64_t seed, void* data, int threads = 0);

}  // namespace fwht::reference
