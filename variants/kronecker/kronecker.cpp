#include "variants/kronecker/kronecker.hpp"

#include <limits>

#include "common/device/sm90a.hpp"
#include "common/host/text.hpp"
#include "variants/kit/encode/offers.hpp"

namespace fwht::kronecker {

namespace {

using rows::FactorParts;

/// Sylvester's rows are those of other variants, but for the longest ones that launches fit: no other kernel
/// writes their codes.
constexpr std::int64_t kSylvester = 32768;

std::optional<FactorParts> parts_of(const Operator& op) {
  if (op.is_sylvester() && op.n() != kSylvester) return std::nullopt;
  return rows::factor_parts_of(op);
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

namespace {

/// Clusters of which a multiprocessor has so many blocks at most. A cluster lies within one of Hopper's eight
/// GPCs, so that some of its multiprocessors may have fewer.
std::int64_t most_clusters(int blocks_per_sm, int cluster, std::int64_t sm_count) {
  constexpr int kGpcs = 8;
  return kGpcs * (blocks_per_sm * sm_count / (kGpcs * cluster));
}

/// Whether every block has a multiprocessor to itself. Measured on an H200: clusters of five to seven reach
/// three quarters of its multiprocessors, of three and four ten elevenths.
bool are_alone(std::int64_t rows, int cluster, std::int64_t sm_count) {
  const std::int64_t blocks = rows * cluster;
  return cluster >= 5 ? 4 * blocks <= 3 * sm_count : 11 * blocks <= 10 * sm_count;
}

}  // namespace

std::optional<Choice> few_rows_choice_for(const Operator& op, std::int64_t rows, int sm_count) {
  const std::optional<Choice> many = choice_for(op);
  if (!many) return std::nullopt;
  const FactorParts parts = *parts_of(op);
  std::optional<Choice> first, crowded;
  for (const Launch& launch : kFewRows) {
    const int order = order_in(launch, parts);
    if (2 * order <= launch.shape.order) continue;  // too short to gain, or 0
    // Codes are those of the rows that a plain plan writes.
    if (many->launch.writes_codes() && !launch.writes_codes()) continue;
    const Choice choice{launch, order, parts.slow, parts.second};
    if (!first) first = choice;
    // Of as many blocks as these, half as many pay once they would share multiprocessors.
    const bool halves = first->cluster() >= 6 && launch.shape.columns == 2 * first->launch.shape.columns;
    // Another one takes more rows, but is slower, unless it is made for this length.
    if (choice != *first && order != launch.shape.order && !halves) continue;
    if (choice.cluster() == 1 || rows > most_clusters(launch.blocks_per_sm, choice.cluster(), sm_count))
      continue;
    if (are_alone(rows, choice.cluster(), sm_count) && (choice == *first || halves)) return choice;
    if (!crowded) crowded = choice;
  }
  return crowded;
}

std::vector<std::uint32_t> second_table(const Launch& launch, const Factor& factor) {
  const int second = launch.shape.second;
  if (second == 1 || launch.places == 0) return rows::second_table(second, factor);
  std::vector<std::uint32_t> words(static_cast<std::size_t>(second_words(launch)));
  for (int to = 0; to < second / 8; ++to) {
    for (int from = 0; from < second / 8; ++from) {
      for (int lane = 0; lane < 32; ++lane) {
        for (int half = 0; half < 2; ++half)
          words[static_cast<std::size_t>(from * second_step_words(second) +
                                         second_word_of_step(second, to, half, lane))] =
              rows::second_word(second, factor, to, from, lane);
      }
    }
  }
  return words;
}

Numerics numerics_of(const Problem& problem) {
  Numerics numerics = rows::matrix_rows_numerics(problem);
  // Where few rows are cut otherwise, hi + lo sees other numbers. In a ring wgmma adds what mma.sync does
  // among few rows, perhaps in another order.
  const auto few = few_rows_choice_for(problem.op, 1, std::numeric_limits<int>::max());
  const Choice many = *choice_for(problem.op);
  numerics.promises.batch_invariant = !few || (few->order == many.order && many.launch.places == 0);
  return numerics;
}

namespace {

Support supports_encoding(const Problem& problem, const Launch& launch) {
  if (Support encoding = encoder::supports_rounded_first(problem); !encoding) return encoding;
  const auto refuse = [&](const auto&... why) { return encoder::not_offered(problem.encoding, why...); };
  if (!launch.writes_codes()) return refuse("rows of n=", problem.n(), " have no kernel that writes codes");
  if (problem.op.has_dense()) return refuse("the operator ", to_string(problem.op), " has a dense factor");
  return {};
}

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (Support matrix_rows = rows::supports_matrix_rows(problem); !matrix_rows) return matrix_rows;
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
  }
  if (!problem.encoding.is_plain()) {
    if (Support encoding = supports_encoding(problem, choice->launch); !encoding) return encoding;
  }
  if (Support grid = require_rows_on_16_byte_grid(problem); !grid) return grid;
  for (const std::int64_t stride : {problem.in.row_stride, problem.out.row_stride}) {
    constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;  // of a stride in a tensor map
    if (stride > kMostBytes / 2 - 1) {
      return {concat("row_stride=", stride, " exceeds the limit of ", kMostBytes / 2 - 1, " elements")};
    }
  }
  if (Support rows = require_rows_in_32_bits(problem); !rows) return rows;
  return require_shared_bytes(problem, choice->launch.shared_bytes(), device);
}

}  // namespace

const Variant variant{
    "kronecker",
    "Hopper: any matrix of order m times 2^k, the matrix as operand A of wgmma, rows by tensor copies, one "
    "rounding",
    Memory::device, supports, make_plan};

}  // namespace fwht::kronecker
