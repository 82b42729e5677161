#include "variants/kronecker/kronecker.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/error.hpp"
#include "common/hadamard_matrices.hpp"
#include "common/ptx/fragments.hpp"
#include "common/text.hpp"

namespace fwht::kronecker {

std::optional<Launch> launch_for(const Operator& op) {
  const std::span<const Factor> factors = op.factors();
  if (op.has_signs() || factors.size() != 2) return std::nullopt;
  if (factors[0].basis != Basis::hadamard || factors[1].basis != Basis::sylvester) return std::nullopt;
  for (const Launch& launch : kLaunches) {
    if (launch.shape.n() == op.n() && launch.shape.order % factors[0].order == 0 &&
        is_power_of_two(launch.shape.order / factors[0].order)) {
      return launch;
    }
  }
  return std::nullopt;
}

std::vector<std::uint32_t> sign_table(const Shape& shape, const Factor& factor) {
  const auto m = static_cast<int>(factor.order);
  const int inner = shape.order / m;
  const auto negative = [&](int row, int column) {
    if (row >= shape.order || column >= shape.order) return false;
    const int i = row / inner, j = column / inner;
    const int entry = factor.transposed ? hadamard_entry(m, j, i) : hadamard_entry(m, i, j);
    return entry * hadamard_sign(static_cast<std::uint64_t>(row % inner),
                                 static_cast<std::uint64_t>(column % inner)) <
           0;
  };
  const int groups = sign_words(shape);
  std::vector<std::uint32_t> words(static_cast<std::size_t>(shape.warps() * groups * 32));
  for (int warp = 0; warp < shape.warps(); ++warp) {
    for (int step = 0; step < shape.k_steps(); ++step) {
      for (int lane = 0; lane < 32; ++lane) {
        std::uint32_t& word = words[static_cast<std::size_t>(sign_word_index(shape, warp, step / 4, lane))];
        for (int r = 0; r < 4; ++r) {
          for (int half = 0; half < 2; ++half) {
            const int row = 16 * warp + ptx::a_row(lane, r),
                      column = 16 * step + ptx::a_column(lane, r, half);
            if (negative(row, column)) word |= 1U << (16 * half + 4 * (step & 3) + r);
          }
        }
      }
    }
  }
  return words;
}

Numerics numerics_of(const Problem& problem) {
  Numerics numerics = single_rounding_by_factors(Sums::split_bf16, problem);
  // As in mma_split: what hi + lo leaves of a number, rms 2^-15 sqrt((4/7) / 12 / (1.5 / ln 2)), in units of 2^-24.
  constexpr double kSplitRms = 76.0;
  Step& last = numerics.steps.back();
  last.sum_rms = std::hypot(last.sum_rms, kSplitRms);
  last.sum_bias = 2 * kTruncationBias;
  numerics.promises.infinity_exact = false;  // the head of an infinity less itself
  numerics.promises.xor_shift_exact =
      false;  // k steps are chained with truncation, in an order that a shift permutes
  return numerics;
}

namespace {

#ifdef FWHT_WITHOUT_SM90A
constexpr bool kBuiltForHopper = false;
#else
constexpr bool kBuiltForHopper = true;
#endif

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (problem.in.dtype != Dtype::f16 && problem.in.dtype != Dtype::bf16) {
    return {
        concat("dtype ", name_of(problem.in.dtype), " is not supported: the exact stage needs 16-bit data")};
  }
  if (!kBuiltForHopper) {
    return {"built without sm_90a code, which wgmma needs (CMAKE_CUDA_ARCHITECTURES lacks 90a)"};
  }
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  const std::optional<Launch> launch = launch_for(problem.op);
  if (!launch) {
    return {concat("the operator ", to_string(problem.op),
                   " is not offered by this variant, which takes one named Hadamard matrix times 2^k, 2^k at "
                   "least 64, for the row lengths of its table")};
  }
  if (device.compute_capability() != 90) {
    return {concat(device.name, " has compute capability ", device.compute_major, ".", device.compute_minor,
                   "; wgmma exists in 9.0 (Hopper) only")};
  }
  if (problem.programmatic_launch) {
    if (Support programmatic = require_programmatic_launch(device); !programmatic) return programmatic;
  }
  if (!problem.encoding.is_plain()) {
    return {concat("the encoding ", to_string(problem.encoding), " is not offered by this variant")};
  }
  if (problem.in.dtype != problem.out.dtype) {
    return {concat("input in ", name_of(problem.in.dtype), " and output in ", name_of(problem.out.dtype),
                   " are not offered by this variant")};
  }
  for (const std::int64_t stride : {problem.in.row_stride, problem.out.row_stride}) {
    if (stride % 8 != 0) {
      return {concat("row_stride=", stride,
                     " must be a multiple of 8 elements: rows travel by tensor copies of 16-byte units")};
    }
    constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;  // of a stride in a tensor map
    if (stride > kMostBytes / 2 - 1) {
      return {concat("row_stride=", stride, " exceeds the limit of ", kMostBytes / 2 - 1, " elements")};
    }
  }
  constexpr std::int64_t kMostRows = std::numeric_limits<std::int32_t>::max() / 2;
  if (problem.rows > kMostRows) return {concat("rows=", problem.rows, " exceeds the limit of ", kMostRows)};
  if (launch->shared_bytes() > device.shared_bytes_per_block) {
    return {concat("n=", problem.n(), " needs ", launch->shared_bytes(),
                   " bytes of shared memory per block, this device allows ", device.shared_bytes_per_block)};
  }
  return {};
}

}  // namespace

const Variant variant{
    "kronecker",
    "Hopper: n = m 2^k, the Hadamard matrix of order m as operand A of wgmma, rows by tensor copies, one "
    "rounding",
    Memory::device, supports, make_plan};

}  // namespace fwht::kronecker
