// The error of one performer on one kind of input, over several seeds; and what fwht_accuracy measures when
// nothing else is asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/harness/csv.hpp"
#include "experiments/harness/performer.hpp"
#include "reference/inputs.hpp"
#include "reference/tolerance.hpp"

namespace fwht::accuracy {

struct AccuracyCase {
  Dtype dtype = Dtype::f16;
  std::int64_t n = 0;  ///< rows are multiplied by operator_for(n)
  reference::InputClass input = reference::InputClass::normal;
};

/// One contiguous in-place problem that holds the rows of all seeds, one seed after the other: rows_per_seed
/// of each.
Problem problem_of(const AccuracyCase& c, std::int64_t rows_per_seed, std::size_t seeds);

/// Rows of one seed when all seeds together shall have `elements`, rounded up.
std::int64_t rows_per_seed(std::int64_t n, std::int64_t elements, std::size_t seeds);

/// The input of all seeds and its FP64 transform; shared by all performers.
class Samples {
 public:
  /// Elements of the first seed that are judged one by one and by their own prediction; rows of the others
  /// have the hard bound.
  static constexpr std::int64_t kJudged = std::int64_t{1} << 18;

  Samples(const AccuracyCase& c, std::int64_t rows_per_seed, std::vector<std::uint64_t> seeds);

  const AccuracyCase& what() const { return case_; }
  const Problem& problem() const { return problem_; }
  const std::vector<std::uint64_t>& seeds() const { return seeds_; }
  const std::vector<std::byte>& raw() const { return raw_; }

  struct Measured {
    reference::Verdict verdict;
    reference::ErrorStats stats;  ///< over all elements
    Numerics numerics;
    /// What the model predicts for the judged part of this very data, the gain included; none for inputs
    /// whose roundings are not independent.
    std::optional<double> predicted_for_data;
    std::optional<double> gain_spread;  ///< standard deviation of the gain over all elements
  };
  Measured judge(const harness::Performer::Result& result) const;

 private:
  AccuracyCase case_;
  std::int64_t rows_per_seed_;
  std::vector<std::uint64_t> seeds_;
  Problem problem_, judged_;
  std::vector<std::byte> raw_;
  reference::Matrix expected_;
};

/// |measured / predicted - 1| allowed on continuous data: 0.02 for the model, 6 * 1.153 / sqrt(N) for the
/// sample.
double ratio_window(std::int64_t elements);

/// The columns of accuracy.csv that say what was done and by whom.
harness::CsvRow identity_of(const harness::Performer& performer, const AccuracyCase& c);
/// All other columns.
harness::CsvRow measured_row(const Samples& samples, const Samples::Measured& measured);

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
