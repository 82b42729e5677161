// What fwht_accuracy measures when nothing else is asked for.
#pragma once

#include <string>
#include <vector>

#include "experiments/studies/accuracy/accuracy.hpp"

namespace fwht::accuracy {

/// Empty lists mean the defaults of the chosen set.
struct Selection {
  bool analysis = false;
  std::vector<Dtype> dtypes = {};
  std::vector<std::int64_t> lengths = {};
  std::vector<reference::InputClass> inputs = {};
};

/// Each case once. The quick set: nine lengths, smooth data, outliers in channels and the mixture of
/// FlashAttention-3. The analysis: normal data at every n = 2 .. 65536 (error against n) and twelve kinds of
/// input at n = 16, 128, 1024, 4096, 32768. Both: normal data and outliers in channels at eight row lengths
/// of models, such as 14336. Lists that are given replace the lengths or inputs of either set.
std::vector<AccuracyCase> cases_of(const Selection& selection);

/// Elements of all seeds together by default: enough for 0.1 % in the quick set, 2^22 in the analysis; fewer
/// on the host, where each costs the emulation, but for the normal data of the analysis.
std::int64_t default_elements(bool analysis, bool on_device, reference::InputClass input);

}  // namespace fwht::accuracy
