#include "variants/matmul/matmul.hpp"

#include <array>
#include <limits>

#include "common/contract/hadamard_matrices.hpp"
#include "common/device/cublaslt.hpp"
#include "common/host/text.hpp"

namespace fwht::matmul {

MatrixSigns matrix_signs(const Operator& op) {
  MatrixSigns signs;
  std::int64_t stride = op.n();
  for (const Factor& factor : op.factors()) {
    stride /= factor.order;
    FactorSigns& of = signs.factors[signs.count++];
    of.order = factor.order;
    of.stride = stride;
    of.transposed = factor.transposed;
    if (factor.is_named()) {
      const SignMatrix& matrix = named_matrix(factor);
      of.bits = matrix.words().data();
      of.words_per_row = matrix.words_per_row();
    }
  }
  return signs;
}

Numerics numerics_of(const Problem& problem) {
  Numerics numerics = single_rounding_by_factors(Sums::fp32_any_order, problem);
  for (Step& step : numerics.steps)
    step.sum_rms = 0.0;
  Step& last = numerics.steps.back();
  last.sum_rms = chain_rms(problem.n());
  // The accumulator of a tensor core truncates after every 16 terms; the k-th of K partial sums has k / K of
  // the result's mean square. That is one chain; how many the library makes of it is not known.
  const double blocks = static_cast<double>(problem.n()) / 16.0,
               one_chain = kTruncationBias * (blocks + 1.0) / 2.0;
  last.sum_bias = one_chain / 2.0;
  last.sum_bias_margin = -one_chain / 2.0;
  // The library chooses tiles, and with them the order of the sums, by the shape.
  Promises& promises = numerics.promises;
  promises.xor_shift_exact = promises.modulation_exact = false;
  promises.batch_invariant = promises.layout_invariant = false;
  return numerics;
}

namespace {

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (Support launch = require_ordinary_launch(problem); !launch) return launch;
  constexpr std::array kDtypes{Dtype::f16, Dtype::bf16};
  if (Support rows = require_plain_rows(problem, kDtypes); !rows) return rows;
  if (problem.op.has_signs() || problem.op.has_dense()) {
    return {concat("the operator ", to_string(problem.op),
                   " is not offered by this variant, which takes factors known by name, without signs")};
  }
  const std::int64_t n = problem.n();
  for (const Factor& factor : problem.op.factors()) {
    if (factor.basis == Basis::sylvester && !is_power_of_two(factor.order))
      return {concat("n=", n, " must be a power of two between ", kMultiple, " and ", kLargestN)};
  }
  if (n % kMultiple != 0 || n > kLargestN)
    return {concat("n=", n, " must be a multiple of ", kMultiple, " up to ", kLargestN)};
  for (const std::int64_t stride : {problem.in.row_stride, problem.out.row_stride}) {
    if (stride % kMultiple != 0)
      return {concat("row_stride=", stride, " must be a multiple of ", kMultiple, " elements")};
  }
  constexpr std::int64_t kMostBytes = std::numeric_limits<int>::max();  // between rows that are copied aside
  if (problem.placement == Placement::in_place && 2 * problem.in.row_stride > kMostBytes) {
    return {concat("row_stride=", problem.in.row_stride, " of ", 2 * problem.in.row_stride,
                   " bytes exceeds the limit of ", kMostBytes, " bytes in place")};
  }
  if (Support rows = require_rows_in_32_bits(problem); !rows) return rows;
  return {cublaslt::why_not_on(device)};
}

}  // namespace

const Variant variant{
    "matmul", "the dense n x n matrix by cuBLASLt: what libraries without a fast transform fall back to",
    Memory::device, supports, make_plan};

}  // namespace fwht::matmul
