#include "variants/passes/passes.hpp"

#include <algorithm>

#include "common/host/bits.hpp"
#include "common/host/text.hpp"
#include "variants/butterflies/butterflies.hpp"
#include "variants/passes/schedule.hpp"

namespace fwht::passes {
namespace {

constexpr std::int64_t smallest_n(Dtype dtype) {
  return std::int64_t{1} << (is_rounded(dtype) ? kSmallestLongLogN : kSmallestLogN);
}
constexpr std::int64_t kLargestN = std::int64_t{1} << kLargestLogN;

/// Rows that lie between each other, in natural order.
Support supports_axis(const Problem& problem, const DeviceInfo& device) {
  Problem alone = problem;
  alone.inner = 1;
  alone.set_row_stride(alone.n());
  if (Support rows = require_plain_rows(alone, kEveryDtype); !rows) return rows;
  const Word word = word_of(problem.dtype());
  const std::int64_t fewest = std::int64_t{1} << axis_log_columns(word), least = 1 << kFewestAxisBits,
                     most = kLargestN;
  if (!problem.op.is_sylvester() || !is_power_of_two(problem.n()) || problem.n() < least ||
      !is_power_of_two(problem.inner) || problem.inner < fewest || problem.n() > most / problem.inner) {
    return {concat("rows of n=", problem.n(), " elements that lie inner=", problem.inner, " apart: for ",
                   name_of(problem.dtype()), " data H_n takes a power of two from ", least,
                   ", inner one from ", fewest, ", together up to ", most)};
  }
  const int most_bits = most_axis_bits(word, device.shared_bytes_per_block);
  const AxisPasses passes = axis_passes(word, log2_floor(problem.n()), most_bits);
  int bytes = 0;
  for (int i = 0; i < passes.count; ++i)
    bytes = std::max(bytes, passes.tiles[static_cast<std::size_t>(i)].shared_bytes());
  return require_shared_bytes(problem, bytes, device);
}

/// Rows side by side in other orders.
Support supports_orderings(const Problem& problem, const DeviceInfo& device) {
  Problem natural = problem;
  natural.in_ordering = natural.out_ordering = Ordering::natural;
  if (Support n = require_sylvester(natural, smallest_n(problem.dtype()), kLargestN, kEveryDtype); !n)
    return n;
  const Word word = word_of(problem.dtype());
  const int log_n = log2_floor(problem.n());
  if (is_one_pass(word, log_n, device.shared_bytes_per_block)) return {};
  int bytes = row_tile(word, log_n, true).shared_bytes();
  if (log_n >= smallest_ordered_log_n(word)) {
    const OrderedPasses passes = ordered_passes(word, log_n);
    bytes = std::max({passes.first.shared_bytes(), passes.row.shared_bytes(), passes.between.shared_bytes()});
  }
  return require_shared_bytes(problem, bytes, device);
}

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (problem.programmatic_launch) {
    if (Support launch = require_programmatic_launch(device); !launch) return launch;
  }
  if (Support strides = require_one_row_stride(problem); !strides) return strides;
  if (problem.inner != 1) return supports_axis(problem, device);
  if (!problem.is_arranged_plainly()) return supports_orderings(problem, device);
  if (Support n = require_sylvester(problem, smallest_n(problem.dtype()), kLargestN, kEveryDtype); !n) {
    const bool about_n = problem.op.is_sylvester() && require_plain_rows(problem, kEveryDtype);
    return about_n ? Support{concat(name_of(problem.dtype()), " data: ", n.why_not)} : n;
  }
  const Word word = word_of(problem.dtype());
  if (is_one_pass(word, log2_floor(problem.n()), device.shared_bytes_per_block)) return {};
  const int log_n = log2_floor(problem.n());
  const std::int64_t most = device.shared_bytes_per_block;
  const std::int64_t bytes =
      is_rounded(problem.dtype()) ? rounded_passes(log_n, most).shared_bytes()
      : log_n < smallest_shared_log_n(word)
          ? row_tile(word, log_n, false).shared_bytes()
          : schedule_for(word, log_n, problem.elements() * bytes_of(problem.dtype()), most).shared_bytes();
  return require_shared_bytes(problem, bytes, device);
}

}  // namespace

bool shares_rows(const Problem& problem, const DeviceInfo& device) {
  // Code for programmatic launches, of sm_90 and later, is code for clusters.
  if (problem.inner != 1 || !problem.is_arranged_plainly() || !require_programmatic_launch(device))
    return false;
  const int log_n = log2_floor(problem.n());
  if (is_rounded(problem.dtype()) && log_n != kSmallestLongLogN) return false;
  return takes_clusters(word_of(problem.dtype()), log_n, problem.rows, device.sm_count);
}

bool holds_rows(const Problem& problem, const DeviceInfo& device) {
  if (problem.inner != 1) return false;
  const Word word = word_of(problem.dtype());
  const int log_n = log2_floor(problem.n());
  if (!is_one_pass(word, log_n, device.shared_bytes_per_block)) return false;
  return !problem.is_arranged_plainly() || !takes_two_passes(word, log_n, problem.rows, device.sm_count);
}

const Variant variant{
    "passes",
    "rows that a block holds in one pass, few long ones by clusters or in two, vectors up to 2^31 in two or "
    "three",
    Memory::device, supports, make_plan};

}  // namespace fwht::passes
