#include "variants/kit/matrix_rows.hpp"

#include <cmath>
#include <span>

#include "common/contract/hadamard_matrices.hpp"
#include "common/device/ptx/fragments.hpp"
#include "common/host/bits.hpp"
#include "common/host/text.hpp"
#include "variants/kit/split_error.hpp"

namespace fwht::rows {

bool is_negative(const Factor& factor, int order, int i, int j) {
  const auto m = static_cast<int>(factor.order);
  const int inner = order / m, row = i / inner, column = j / inner;
  const auto entry_of = [&] {
    if (!factor.is_named())
      return hadamard_sign(static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(column));
    const SignMatrix& matrix = named_matrix(factor);
    return factor.transposed ? matrix(column, row) : matrix(row, column);
  };
  return entry_of() *
             hadamard_sign(static_cast<std::uint64_t>(i % inner), static_cast<std::uint64_t>(j % inner)) <
         0;
}

std::vector<std::uint32_t> sign_table(const Shape& shape, int order, const Factor& factor) {
  const int blocks = 4 * shape.warpgroups(), k_steps = shape.k_steps();
  std::vector<std::uint32_t> words(static_cast<std::size_t>(blocks * sign_words(k_steps) * 32));
  for (int block = 0; block < blocks; ++block) {
    for (int step = 0; step < k_steps; ++step) {
      for (int lane = 0; lane < 32; ++lane) {
        std::uint32_t& word =
            words[static_cast<std::size_t>(sign_word_index(k_steps, block, step / 4, lane))];
        for (int r = 0; r < 4; ++r) {
          for (int half = 0; half < 2; ++half) {
            const int row = 16 * block + ptx::a_row(lane, r),
                      column = 16 * step + ptx::a_column(lane, r, half);
            if (row < order && column < order && is_negative(factor, order, row, column))
              word |= 1U << (16 * half + 4 * (step & 3) + r);
          }
        }
      }
    }
  }
  return words;
}

std::uint32_t second_word(int second, const Factor& factor, int to, int from, int lane) {
  std::uint32_t word = 0;
  for (int half = 0; half < 2; ++half) {
    const int row = 8 * to + ptx::b_column(lane), column = 8 * from + ptx::b_row(lane, 0, half);
    word |= (is_negative(factor, second, row, column) ? 0xBF80U : 0x3F80U) << (16 * half);
  }
  return word;
}

std::vector<std::uint32_t> second_table(int second, const Factor& factor) {
  std::vector<std::uint32_t> words(static_cast<std::size_t>(second_words(second)));
  if (words.empty()) return words;
  for (int to = 0; to < second / 8; ++to) {
    for (int from = 0; from < second / 8; ++from) {
      for (int lane = 0; lane < 32; ++lane)
        words[static_cast<std::size_t>(second_word_index(second, to, from, lane))] =
            second_word(second, factor, to, from, lane);
    }
  }
  return words;
}

std::optional<FactorParts> factor_parts_of(const Operator& op) {
  std::span<const Factor> rest = op.factors();
  FactorParts parts;
  const auto take = [&rest] {
    const Factor first = rest.front();
    rest = rest.subspan(1);
    return first;
  };
  const auto take_sylvester = [&]() -> std::int64_t {
    return !rest.empty() && rest.front().basis == Basis::sylvester ? take().order : 1;
  };
  if (!rest.empty() && rest.front().basis != Basis::sylvester) parts.slow = take();
  parts.sylvester = take_sylvester();
  if (!rest.empty() && rest.front().is_named()) {
    parts.second = take();
    parts.behind = take_sylvester();
  }
  if (!rest.empty()) return std::nullopt;
  return parts;
}

Support supports_matrix_rows(const Problem& problem) {
  if (problem.in.dtype != Dtype::f16 && problem.in.dtype != Dtype::bf16) {
    return {
        concat("dtype ", name_of(problem.in.dtype), " is not supported: the exact stage needs 16-bit data")};
  }
  if (!problem.is_arranged_plainly()) return require_plain_rows(problem);
  if (problem.programmatic_launch && problem.op.has_dense()) {
    return {concat("programmatic dependent launch is not offered for the dense factor of ",
                   to_string(problem.op), ", which a kernel of its own prepares")};
  }
  if (Support preparation = require_no_preparation(problem); !preparation) return preparation;
  if (problem.in.dtype != problem.out.dtype) {
    return {concat("input in ", name_of(problem.in.dtype), " and output in ", name_of(problem.out.dtype),
                   " are not offered by this variant")};
  }
  return {};
}

Numerics matrix_rows_numerics(const Problem& problem, bool has_hi_lo) {
  Numerics numerics =
      single_rounding_by_factors(has_hi_lo ? Sums::split_bf16 : Sums::fp32_any_order, problem);
  Step& last = numerics.steps.back();
  last.sum_bias = (has_hi_lo ? 2 : 1) * kTruncationBias;
  numerics.promises.xor_shift_exact =
      false;  // k steps are chained with truncation, in an order that a shift permutes
  if (!has_hi_lo) return numerics;
  add_split_error(last);
  numerics.promises.infinity_exact = false;  // the head of an infinity less itself
  return numerics;
}

}  // namespace fwht::rows
