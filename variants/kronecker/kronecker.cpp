#include "variants/kronecker/kronecker.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/contract/hadamard_matrices.hpp"
#include "common/device/ptx/fragments.hpp"
#include "common/device/sm90a.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"
#include "variants/kit/encode/output.hpp"

namespace fwht::kronecker {

namespace {

/// The factors as the kernel takes them: a matrix on the slow index, 2^k, perhaps a second matrix and 2^l.
struct FactorParts {
  Factor slow{Basis::sylvester, 1}, second{Basis::sylvester, 1};
  std::int64_t sylvester = 1, behind = 1;
};

/// Sylvester's rows are those of other variants, but for the longest ones that launches fit: no other kernel
/// writes their codes.
constexpr std::int64_t kSylvester = 32768;

std::optional<FactorParts> parts_of(const Operator& op) {
  if (op.is_sylvester() && op.n() != kSylvester) return std::nullopt;
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
  if (!rest.empty() && rest.front().basis == Basis::hadamard) {
    parts.second = take();
    parts.behind = take_sylvester();
  }
  if (!rest.empty()) return std::nullopt;
  return parts;
}

/// The order of the rows as matrices in this launch; 0 where it does not take them.
int order_in(const Launch& launch, const FactorParts& parts) {
  const Shape& shape = launch.shape;
  const std::int64_t second = parts.second.order * parts.behind;
  if (parts.second.order == 1 ? shape.second != 1 : shape.second != second) return 0;
  const std::int64_t n = parts.slow.order * parts.sylvester * second, order = n / shape.columns;
  const bool fits = n % shape.columns == 0 && order % parts.slow.order == 0 &&
                    is_power_of_two(order / parts.slow.order) && order <= 16 * shape.k_steps();
  return fits && (launch.held || parts.slow.basis != Basis::dense) ? static_cast<int>(order) : 0;
}

}  // namespace

std::optional<Choice> choice_for(const Operator& op) {
  const std::optional<FactorParts> parts = parts_of(op);
  if (!parts) return std::nullopt;
  std::optional<Choice> best;
  for (const Launch& launch : kLaunches) {
    const int order = order_in(launch, *parts);
    if (order == 0) continue;
    const Choice choice{launch, order, parts->slow, parts->second};
    if (order == launch.shape.order) return choice;  // made for this row length
    if (!best || launch.shape.k_steps() < best->launch.shape.k_steps()) best = choice;
  }
  return best;
}

std::optional<Choice> few_rows_choice_for(const Operator& op, std::int64_t rows, int sm_count) {
  const std::optional<FactorParts> parts = parts_of(op);
  if (!parts) return std::nullopt;
  for (const Launch& launch : kFewRows) {
    const int order = order_in(launch, *parts);
    if (2 * order <= launch.shape.order) continue;  // too short to gain, or 0
    const Choice choice{launch, order, parts->slow, parts->second};
    if (choice.cluster() > 1 && rows * choice.cluster() <= sm_count) return choice;
  }
  return std::nullopt;
}

bool is_negative(const Factor& factor, int order, int i, int j) {
  const auto m = static_cast<int>(factor.order);
  const int inner = order / m, row = i / inner, column = j / inner;
  const int entry =
      factor.basis == Basis::sylvester
          ? hadamard_sign(static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(column))
          : (factor.transposed ? hadamard_entry(m, column, row) : hadamard_entry(m, row, column));
  return entry * hadamard_sign(static_cast<std::uint64_t>(i % inner), static_cast<std::uint64_t>(j % inner)) <
         0;
}

std::vector<std::uint32_t> sign_table(const Shape& shape, int order, const Factor& factor) {
  const int steps = shape.k_steps(), blocks = 4 * shape.warpgroups();
  std::vector<std::uint32_t> words(static_cast<std::size_t>(blocks * sign_words(steps) * 32));
  for (int block = 0; block < blocks; ++block) {
    for (int step = 0; step < steps; ++step) {
      for (int lane = 0; lane < 32; ++lane) {
        std::uint32_t& word = words[static_cast<std::size_t>(sign_word_index(steps, block, step / 4, lane))];
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

std::vector<std::uint32_t> second_table(const Launch& launch, const Factor& factor) {
  const int second = launch.shape.second;
  std::vector<std::uint32_t> words(static_cast<std::size_t>(second_words(launch)));
  if (second == 1) return words;
  for (int to = 0; to < second / 8; ++to) {
    for (int from = 0; from < second / 8; ++from) {
      for (int lane = 0; lane < 32; ++lane) {
        std::uint32_t word = 0;
        for (int half = 0; half < 2; ++half) {
          const int row = 8 * to + ptx::b_column(lane), column = 8 * from + ptx::b_row(lane, 0, half);
          word |= (is_negative(factor, second, row, column) ? 0xBF80U : 0x3F80U) << (16 * half);
        }
        const auto put = [&](int index) { words[static_cast<std::size_t>(index)] = word; };
        if (launch.places == 0) {
          put(second_word_index(second, to, from, lane));
        } else {
          for (int half = 0; half < 2; ++half)
            put(from * second_step_words(second) + second_word_of_step(second, to, half, lane));
        }
      }
    }
  }
  return words;
}

Numerics numerics_of(const Problem& problem) {
  Numerics numerics = single_rounding_by_factors(Sums::split_bf16, problem);
  // As in mma_split: what hi + lo leaves of a number, rms 2^-15 sqrt((4/7) / 12 / (1.5 / ln 2)), in units of
  // 2^-24.
  constexpr double kSplitRms = 76.0;
  Step& last = numerics.steps.back();
  last.sum_rms = std::sqrt(last.sum_rms * last.sum_rms + kSplitRms * kSplitRms);
  last.sum_bias = 2 * kTruncationBias;
  // Few rows are cut otherwise, and then hi + lo sees other numbers.
  numerics.promises.batch_invariant = !few_rows_choice_for(problem.op, 1, std::numeric_limits<int>::max());
  numerics.promises.infinity_exact = false;  // the head of an infinity less itself
  numerics.promises.xor_shift_exact =
      false;  // k steps are chained with truncation, in an order that a shift permutes
  return numerics;
}

namespace {

Support supports_encoding(const Problem& problem, const Launch& launch) {
  if (Support encoding = encoder::supports(problem); !encoding) return encoding;
  const auto refuse = [&](const auto&... why) -> Support {
    return {
        concat("the encoding ", to_string(problem.encoding), " is not offered by this variant: ", why...)};
  };
  if (!launch.writes_codes()) return refuse("rows of n=", problem.n(), " have no kernel that writes codes");
  if (problem.op.has_dense()) return refuse("the operator ", to_string(problem.op), " has a dense factor");
  if (encoder::is_rounded_first(problem.encoding)) return {};
  return refuse("rows are rounded to ", name_of(problem.out.dtype),
                " first, scales are in fp32, and the tensor's must be given");
}

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (problem.in.dtype != Dtype::f16 && problem.in.dtype != Dtype::bf16) {
    return {
        concat("dtype ", name_of(problem.in.dtype), " is not supported: the exact stage needs 16-bit data")};
  }
  if (!problem.is_arranged_plainly()) return require_plain_rows(problem);
  if (!kBuiltForHopper) {
    return {"built without sm_90a code, which wgmma needs (CMAKE_CUDA_ARCHITECTURES lacks 90a)"};
  }
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  const std::optional<Choice> choice = choice_for(problem.op);
  if (!choice) {
    return {concat("the operator ", to_string(problem.op),
                   " is not offered by this variant, which takes a matrix of order m times 2^k, 2^k at least "
                   "16, where one of its launches fits")};
  }
  if (device.compute_capability() != 90) {
    return {concat(device.name, " has compute capability ", device.compute_major, ".", device.compute_minor,
                   "; wgmma exists in 9.0 (Hopper) only")};
  }
  if (problem.programmatic_launch) {
    if (Support programmatic = require_programmatic_launch(device); !programmatic) return programmatic;
    if (problem.op.has_dense()) {
      return {concat("programmatic dependent launch is not offered for the dense factor of ",
                     to_string(problem.op), ", which a kernel of its own prepares")};
    }
  }
  if (Support preparation = require_no_preparation(problem); !preparation) return preparation;
  if (!problem.encoding.is_plain()) {
    if (Support encoding = supports_encoding(problem, choice->launch); !encoding) return encoding;
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
  if (choice->launch.shared_bytes() > device.shared_bytes_per_block) {
    return {concat("n=", problem.n(), " needs ", choice->launch.shared_bytes(),
                   " bytes of shared memory per block, this device allows ", device.shared_bytes_per_block)};
  }
  return {};
}

}  // namespace

const Variant variant{
    "kronecker",
    "Hopper: any matrix of order m times 2^k, the matrix as operand A of wgmma, rows by tensor copies, one "
    "rounding",
    Memory::device, supports, make_plan};

}  // namespace fwht::kronecker
