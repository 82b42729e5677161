// For tests: the warp-level products of mma_kronecker and warp_kronecker on the host, all lanes at once, and
// their results judged as conformance judges a device's.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/device/ptx/fragments.hpp"
#include "reference/test_support.hpp"
#include "reference/tolerance.hpp"
#include "variants/kit/matrix_rows.hpp"
#include "variants/kit/on_host/host_mma.hpp"
#include "variants/kit/signs.hpp"

namespace fwht::rows {

/// Accumulators of 16 rows of the product and eight columns.
using ProductTile = std::array<Floats, 4>;
/// split() of one: hi of the lower and the upper eight rows, then lo.
using HiLo = std::array<Words, 4>;

class HostProducts {
 public:
  HostProducts(Dtype dtype, const reference::TensorCore& core) : dtype_(dtype), core_(core) {}

  /// The exact stage's: raw data times signs.
  void multiply_add(ProductTile& d, const Words (&a)[4], const Words (&b)[2]) const {
    multiply_add(16, d, a, b, dtype_);
  }
  /// rows::split, of one tile.
  HiLo split(ProductTile& x) const {
    HiLo halves;
    for (std::size_t i = 0; i < 2; ++i) {
      halves[i] = Words::from([&](std::size_t lane) {
        return std::bit_cast<std::uint32_t>(x[2 * i].at[lane]) >> 16 |
               (std::bit_cast<std::uint32_t>(x[2 * i + 1].at[lane]) & 0xFFFF0000U);
      });
    }
    const Words minus_identity =
        Words::from([](std::size_t lane) { return ptx::minus_identity_fragment(static_cast<int>(lane)); });
    multiply_add(8, x, as_operand(halves), {minus_identity, {}}, Dtype::bf16);
    for (std::size_t i = 0; i < 2; ++i) {
      halves[2 + i] = Words::from([&](std::size_t lane) {
        return std::uint32_t{float_to_bf16(x[2 * i].at[lane])} |
               std::uint32_t{float_to_bf16(x[2 * i + 1].at[lane])} << 16;
      });
    }
    return halves;
  }
  /// rows::eight_point_stage; `of_lane(lane)` is the lane whose fragment of H_8 a lane takes.
  template <class OfLane>
  void eight_point_stage(ProductTile& x, const OfLane& of_lane) const {
    const HiLo halves = split(x);
    const Words h8 = Words::from([&](std::size_t lane) {
      return ptx::sylvester_fragment(ptx::kBf16One, of_lane(static_cast<int>(lane)));
    });
    x = {};
    multiply_halves(x, halves, h8);
  }
  /// x += (hi + lo) b.
  void multiply_halves(ProductTile& x, const HiLo& halves, const Words& b) const {
    multiply_add(16, x, as_operand(halves), {b, b}, Dtype::bf16);
  }

 private:
  static const Words (&as_operand(const HiLo& halves))[4] {
    return reinterpret_cast<const Words(&)[4]>(*halves.data());
  }
  void multiply_add(int depth, ProductTile& d, const Words (&a)[4], const Words (&b)[2],
                    Dtype operand) const {
    mma_on_host(depth, reinterpret_cast<Floats(&)[4]>(*d.data()), a, b, operand, core_);
  }

  Dtype dtype_;
  reference::TensorCore core_;
};

/// The butterfly between two tiles.
inline void butterfly(ProductTile& lower, ProductTile& upper) {
  for (std::size_t i = 0; i < 4; ++i) {
    const Floats low = lower[i], high = upper[i];
    lower[i] = low + high;
    upper[i] = low - high;
  }
}

/// Operand A of the exact stage, out of a table of signs.
inline void signs_on_host(Words (&a)[4], const std::vector<std::uint32_t>& table, Dtype dtype, int k_steps,
                          int block, int step) {
  const std::uint32_t ones = dtype == Dtype::f16 ? 0x3C003C00U : 0x3F803F80U;
  for (int r = 0; r < 4; ++r) {
    a[r] = Words::from([&](std::size_t lane) {
      const int index = sign_word_index(k_steps, block, step / 4, static_cast<int>(lane));
      return signed_ones(ones, table.at(static_cast<std::size_t>(index)), step, r);
    });
  }
}

/// A number of a row, and whether its sign is flipped: element `element` of the row, by bits `flips` unless
/// they are null.
inline std::uint16_t flipped(std::uint16_t value, const std::uint8_t* flips, int element) {
  if (flips == nullptr) return value;
  const std::uint32_t pair = pair_signs(flips[element / 8], element % 8 / 2);
  return static_cast<std::uint16_t>(value ^ (pair >> (16 * (element % 2))));
}

/// (m I - 2 J) P, of integers, for a dense factor in front of the others.
inline std::vector<std::uint16_t> dense_integers(const Problem& problem) {
  std::vector<std::uint16_t> entries;
  if (!problem.op.has_dense()) return entries;
  const std::int64_t m = problem.op.factors().front().order;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < m; ++j) {
      const auto entry = static_cast<float>(j == (3 * i + 1) % m ? m - 2 : -2);
      entries.push_back(static_cast<std::uint16_t>(encode(problem.dtype(), entry)));
    }
  }
  return entries;
}

/// The result of a problem as run(operands) makes it, judged as conformance judges a device's. `has_hi_lo`:
/// see matrix_rows_numerics.
template <class Run>
void expect_right(const Problem& problem, reference::InputClass input_class, const Run& run,
                  bool has_hi_lo = true) {
  const reference::Storage in(problem, input_class, 5);
  Problem result = problem;
  result.in = problem.out;
  reference::Storage out(result);
  reference::poison(out);
  std::vector<std::uint8_t> signs;
  if (problem.op.has_signs()) {
    for (std::int64_t i = 0; i < problem.n() / 8; ++i)
      signs.push_back(static_cast<std::uint8_t>(i * 151 + 7));
  }
  const std::vector<std::uint16_t> dense = dense_integers(problem);
  const Operands operands{.in = in.data(),
                          .out = out.data(),
                          .signs = signs.empty() ? nullptr : signs.data(),
                          .dense = dense.empty() ? nullptr : dense.data()};
  run(operands);
  const reference::Checked checked =
      reference::check(problem, matrix_rows_numerics(problem, has_hi_lo), input_class, operands);
  EXPECT_TRUE(static_cast<bool>(checked.verdict)) << to_string(problem) << ": " << checked.verdict.message;
}

/// Names a test over operators after its text.
inline std::string name_of_operator(const ::testing::TestParamInfo<std::string>& test) {
  std::string name = test.param;
  for (char& c : name)
    c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

inline Problem matrix_problem(Dtype dtype, const std::string& op, std::int64_t rows) {
  const bool is_length = op.find_first_not_of("0123456789") == std::string::npos;
  return parse_problem(std::string(name_of(dtype)) + (is_length ? "/n" : "/") + op + "/r" +
                       std::to_string(rows));
}

}  // namespace fwht::rows
