#include "experiments/studies/accuracy/accuracy.hpp"

#include <algorithm>

namespace fwht::accuracy {

using reference::InputClass;

namespace {

// Each variant takes those that it supports.
std::vector<std::int64_t> all_lengths() {
  std::vector<std::int64_t> lengths;
  for (std::int64_t n = 2; n <= 65536; n *= 2)
    lengths.push_back(n);
  return lengths;
}

// 16, 64, ..., 16384 and, for the odd log2 n with their irrational scale, 128, 2048, 32768.
const std::vector<std::int64_t> kQuickLengths = {16, 64, 128, 256, 1024, 2048, 4096, 16384, 32768};
const std::vector<InputClass> kQuickInputs = {InputClass::normal, InputClass::uniform,
                                              InputClass::outlier_channels, InputClass::massive_channel,
                                              InputClass::fa3_mixture};

// Row lengths of models: short and long, small and large base orders, two of them, one that is not symmetric.
const std::vector<std::int64_t> kWidths = {768, 2880, 7168, 11008, 13440, 13696, 14336, 28672};
const std::vector<InputClass> kWidthInputs = {InputClass::normal, InputClass::outlier_channels};

// All residues of log2 n mod 4, one to four roundings of hadacore, one and several blocks of a row.
const std::vector<std::int64_t> kClassLengths = {16, 128, 1024, 4096, 32768};
const std::vector<InputClass> kClasses = {
    InputClass::normal,          InputClass::uniform,     InputClass::laplace,
    InputClass::student3,        InputClass::fa3_mixture, InputClass::outlier_channels,
    InputClass::massive_channel, InputClass::constant,    InputClass::one_hot,
    InputClass::walsh_noise,     InputClass::subnormal,   InputClass::near_overflow};

struct CaseBlock {
  std::vector<std::int64_t> lengths;
  std::vector<InputClass> inputs;
};

std::vector<CaseBlock> blocks_of(const Selection& selection) {
  std::vector<CaseBlock> blocks = {{kQuickLengths, kQuickInputs}, {kWidths, kWidthInputs}};
  if (selection.analysis)
    blocks = {{all_lengths(), {InputClass::normal}}, {kClassLengths, kClasses}, {kWidths, kWidthInputs}};
  if (!selection.lengths.empty()) {
    blocks = {{selection.lengths, selection.analysis ? kClasses : kQuickInputs}};
  }
  if (!selection.inputs.empty()) {
    const auto& lengths = !selection.lengths.empty() ? selection.lengths
                          : selection.analysis       ? all_lengths()
                                                     : kQuickLengths;
    blocks = {{lengths, selection.inputs}};
  }
  return blocks;
}

}  // namespace

std::vector<AccuracyCase> cases_of(const Selection& selection) {
  const std::vector<Dtype> dtypes = selection.dtypes.empty()
                                        ? std::vector<Dtype>(std::begin(kAllDtypes), std::end(kAllDtypes))
                                        : selection.dtypes;
  std::vector<AccuracyCase> cases;
  for (const CaseBlock& block : blocks_of(selection)) {
    for (const std::int64_t n : block.lengths) {
      for (const Dtype dtype : dtypes) {
        for (const InputClass input : block.inputs) {
          const bool there = std::any_of(cases.begin(), cases.end(), [&](const AccuracyCase& c) {
            return c.dtype == dtype && c.n == n && c.input == input;
          });
          if (!there) cases.push_back({dtype, n, input});
        }
      }
    }
  }
  return cases;
}

std::int64_t default_elements(bool analysis, bool on_device, InputClass input) {
  if (analysis) return std::int64_t{1} << (on_device || input == InputClass::normal ? 22 : 20);
  return std::int64_t{1} << (on_device ? 20 : 18);
}

}  // namespace fwht::accuracy
