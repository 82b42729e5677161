// What the sweep, the profiler, the tuners and the copy limits know of what they launch. A family of problems
// makes subjects: transforms (harness/transform.hpp), copies (harness/limits.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "experiments/harness/csv.hpp"
#include "experiments/harness/slices.hpp"
#include "experiments/harness/traffic.hpp"
#include "reference/compare.hpp"

namespace fwht::harness {

/// What is known before anything is made: enough to list a subject, to find its row and to measure its limit.
struct Description {
  std::string name;  ///< "cpu/f16/n1024/r64": variant and problem
  CsvRow columns;    ///< what tables say of it: variant, dtype, n, rows ..., bytes_read ...
  Buffers buffers;
  Traffic traffic;
  std::uint32_t sign_mask = 0;  ///< the sign bits of a 32-bit word of its data: what copies flip
};

/// One launch on one slice.
using Launch = std::function<void(const void* in, void* out, Stream)>;

struct Judgement {
  reference::Verdict verdict;
  CsvRow columns;  ///< errors, and what the numerics predict for them
};

struct Subject : Description {
  Launch launch = {};
  std::function<void(Slices&)> fill = {};  ///< every input becomes random data
  /// Empty where there is nothing to judge.
  std::function<Judgement(Slices&)> check =
      {};  ///< one launch on fresh data, judged; throws what the launch throws
  std::function<std::string()> settings = {};  ///< what the plan decided, as a JSON object
  /// Where its caller's language costs time: microseconds of one call on the host, see results.csv.
  std::function<double()> host_us = {};
  /// How often it may be launched in place on its own result before the data is typical no more; at least 1.
  std::int64_t applications = std::numeric_limits<std::int64_t>::max();
};

}  // namespace fwht::harness
