#include "variants/mma_split/mma_split.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "common/host/text.hpp"
#include "variants/kit/encode/output.hpp"
#include "variants/kit/split_error.hpp"
#include "variants/mma_split/launches.hpp"
#include "variants/mma_split/prologue.hpp"
#include "variants/mma_split/streamed_shape.hpp"

namespace fwht::mma_split {
namespace {

/// One Sylvester factor with signs; codes take them first.
bool takes_signs(const Operator& op, const Encoding& encoding) {
  const Operator first = Operator::sylvester(op.n()).with_signs();
  return op == first || (encoding.is_plain() && op == first.transposed());
}

/// Pairs of halves must lie in whole vectors of one warp, neighbours in one vector; codes are stored eight at
/// a time.
Support supports_prologue(const Problem& problem) {
  constexpr std::int64_t kLargest = 256, kAlignment = 8;
  if (has_prologue(problem) && !is_prepared(problem.encoding.format)) {
    const std::string first = problem.op.has_signs() ? concat("the operator ", to_string(problem.op))
                              : problem.prologue     ? concat("the prologue ", to_string(*problem.prologue))
                                                     : concat("pages of ", problem.paging->tokens);
    return {concat(first, " with the encoding ", to_string(problem.encoding),
                   " is not offered by this variant: formats e4m3 and mxfp4 are")};
  }
  if (problem.paging && problem.page_layout().page_bytes() % kAlignment != 0) {
    return {concat("pages of ", problem.paging->tokens, " rows have ", problem.page_layout().page_bytes(),
                   " bytes, which must be a multiple of ", kAlignment, " for this variant")};
  }
  if (!problem.prologue || problem.prologue->kind != Prologue::Kind::rope) return {};
  const Prologue& prologue = *problem.prologue;
  if (is_power_of_two(prologue.width) && prologue.width >= 16 && prologue.width <= kLargest &&
      prologue.heads >> 31 == 0)
    return {};
  return {concat("the prologue ", to_string(prologue), " is not offered by this variant: width=",
                 prologue.width, " must be a power of two from 16 to ", kLargest)};
}

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (problem.programmatic_launch) {
    if (Support launch = require_programmatic_launch(device); !launch) return launch;
  }
  if (problem.dtype() == Dtype::f32) {
    return {"dtype f32 does not fit the 16-bit operands of mma.sync.m16n8k16, f16 and bf16 do"};
  }
  Problem rows = problem;
  if (!problem.encoding.is_plain()) {
    if (Support encoding = encoder::supports(problem); !encoding) return encoding;
    if (Support prologue = supports_prologue(problem); !prologue) return prologue;
    rows.encoding = {};
    rows.prologue = {};
    rows.paging = {};
    rows.out.row_stride = rows.in.row_stride;
  }
  if (takes_signs(problem.op, problem.encoding)) rows.op = Operator::sylvester(problem.n());
  if (problem.encoding.is_plain() && problem.op.is_regular() && takes_regular(log2_floor(problem.n())))
    rows.op = Operator::sylvester(problem.n());
  if (Support strides = require_one_row_stride(rows); !strides) return strides;
  const bool may_be_streamed = problem.encoding.is_plain() && !problem.op.has_signs();
  const int largest = may_be_streamed ? StreamedShape::kLargestLogN : kLargestLogN;
  if (Support n = require_sylvester(rows, 1 << kSmallestLogN, 1 << largest); !n) return n;
  const int log_n = log2_floor(problem.n());
  if (is_streamed(log_n)) {
    if (Support grid = require_rows_on_16_byte_grid(problem); !grid) return grid;
    const StreamedShape shape = streamed_shape(log_n, device.shared_bytes_per_block);
    return require_shared_bytes(problem, shape.shared_bytes(), device);
  }
  const int words = strided_kernel(problem.dtype(), log_n).tile().exchange_words();
  return require_shared_bytes(problem, std::int64_t{4} * words, device);
}

}  // namespace

int shrink_exponent(const Problem& problem) {
  const float scale = static_cast<float>(problem.scale);
  if (problem.dtype() == Dtype::f16) {
    int exponent = 0;
    constexpr int kFarthest = 64;  // from there on neither sums nor their lower halves leave fp32
    if (std::frexp(scale, &exponent) == 0.5F && std::abs(exponent - 1) <= kFarthest) return 1 - exponent;
  }
  const int log_n = log2_floor(problem.n());
  return std::isfinite(std::ldexp(scale, log_n)) ? log_n : 0;
}

rows::Factors factors(const Problem& problem) {
  return rows::factors_of(problem, shrink_exponent(problem));
}

Numerics numerics_of(const Problem& problem, int compute_capability) {
  // The regular matrix has a step for each of its factors.
  Numerics numerics = problem.op.is_regular() ? single_rounding_by_factors(Sums::split_bf16, problem)
                                              : single_rounding(Sums::split_bf16, problem);
  // Sums of data times 1/n stay below max|x|. A first stage that overflows all the same (bf16 above 2^124) is
  // noticed, and the row is done again by butterflies of data times 1/n.
  numerics.promises.intermediate_growth = rows::growth_of_shrunken(problem, shrink_exponent(problem));

  Step& step = numerics.steps.back();
  rows::add_split_error(step);
  step.sum_bias = 2 * kTruncationBias;  // two tensor-core stages
  // Sixteen products of one mma are added in any order on Hopper; before, in two chained groups of eight,
  // which a shift of the index mixes. Newer devices were not probed.
  numerics.promises.xor_shift_exact = compute_capability == 90;
  if (const int log_n = log2_floor(problem.n()); is_streamed(log_n)) {
    // What the first stage read is gone when it turns out to have failed: an infinity makes its row NaN, an
    // overflow at least 2048 results of it. Of two halves it chains the sums, in an order that a shift
    // exchanges.
    const int halves = StreamedShape{log_n}.halves();
    numerics.promises.infinity_exact = false;
    numerics.promises.intermediate_growth = std::max(numerics.promises.intermediate_growth, 16.0 * halves);
    if (halves > 1) numerics.promises.xor_shift_exact = false;
  }
  return numerics;
}

const Variant variant{"mma_split",
                      "rows in registers, longer ones in shared memory: two mma.sync stages, hi + lo between "
                      "them, one rounding",
                      Memory::device, supports, make_plan};

}  // namespace fwht::mma_split
