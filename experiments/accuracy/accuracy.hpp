// The error of one variant on one kind of input, over several seeds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/variant.hpp"
#include "experiments/support/csv.hpp"
#include "experiments/support/slices.hpp"
#include "reference/inputs.hpp"
#include "reference/tolerance.hpp"

namespace fwht::accuracy {

struct Case {
  Dtype dtype = Dtype::f16;
  std::int64_t n = 0;
  reference::InputClass input = reference::InputClass::normal;
};

/// n = 16, 64, ..., 16384 and, for the odd log2 n with their irrational scale, 128, 2048, 32768.
std::vector<std::int64_t> summary_lengths();
/// Smooth data, outliers in channels, and the mixture of FlashAttention-3.
std::vector<reference::InputClass> summary_inputs();

/// One contiguous in-place problem that holds the rows of all seeds, one seed after the other: rows_per_seed
/// of each.
Problem problem_of(const Case& c, std::int64_t rows_per_seed, std::size_t seeds);

/// Elements of one seed, rounded up to whole rows.
std::int64_t rows_per_seed(std::int64_t n, std::int64_t elements);

/// The input of all seeds and its FP64 transform, in parts of one seed; shared by all variants.
class Samples {
 public:
  Samples(const Case& c, std::int64_t rows_per_seed, std::vector<std::uint64_t> seeds);

  const Case& what() const { return case_; }
  const Problem& problem() const { return problem_; }
  const std::vector<std::uint64_t>& seeds() const { return seeds_; }
  const std::vector<std::byte>& raw() const { return raw_; }

  /// Executes the plan (made for problem()) on all rows and judges every element, row and statistic.
  reference::Checked check(const Plan& plan, support::Slices& slices) const;

 private:
  Case case_;
  std::int64_t rows_per_seed_;
  std::vector<std::uint64_t> seeds_;
  Problem problem_;
  std::vector<std::byte> raw_;
  std::vector<reference::Matrix> inputs_, expected_;  // one a seed
};

/// A row of accuracy.csv for what was measured (source "measured").
support::CsvRow measured_row(const Variant& variant, const Samples& samples, const NumericModel& model,
                             const reference::Checked& checked);
/// The row of a variant that threw.
support::CsvRow failed_row(const Variant& variant, const Samples& samples, const std::string& message);

/// Identity of a row of accuracy.csv.
std::string accuracy_key(const support::CsvRow& row);
std::string accuracy_key(const Variant& variant, const Case& c);

}  // namespace fwht::accuracy
