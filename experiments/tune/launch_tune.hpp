// What the programs have in common that measure the launch configurations of a variant: every candidate must
// give the bits of the variant's own plan, then it is timed beside the copy limit as the sweep does. A
// program prints one CSV line a candidate, size and mode.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/contract/variant.hpp"

namespace fwht {

struct LaunchCandidate {
  std::string values;  ///< of LaunchTuning::columns, separated by commas
  int registers, spilled_bytes;
  /// Contiguous rows, 16-byte aligned, orthonormal.
  std::function<void(const void* in, void* out, std::int64_t rows, Stream)> enqueue;
};

struct LaunchTuning {
  const Variant& variant;
  std::string columns;  ///< what tells the candidates apart
  int smallest_log_n, largest_log_n;
  /// None where the variant does not support the problem.
  std::function<std::vector<LaunchCandidate>(Dtype, int log_n)> candidates;
  std::int64_t compared_elements = 1 << 16;  ///< in about as many elements candidates must agree
  /// Where they sum in different orders: on integers, whose sums are exact.
  bool compared_on_integers = false;
};

/// What this program measures: <variant>_tune.cu has it.
LaunchTuning launch_tuning();

}  // namespace fwht
