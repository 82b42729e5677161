// Linear layers as subjects: what is timed, beside which limit, and how its result is judged.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/contract/linear/variant.hpp"
#include "experiments/harness/limits.hpp"
#include "experiments/harness/measure.hpp"
#include "experiments/harness/subject.hpp"
#include "experiments/harness/tasks.hpp"
#include "reference/linear/linear.hpp"

namespace fwht::linear_layers {

/// Weights, tokens and truths that were made once and serve every variant. For large layers the truth has
/// about 256 columns.
class Data {
 public:
  explicit Data(int threads) : threads_(threads) {}

  std::shared_ptr<const GptqWeights> weights(const LinearProblem& problem);
  /// The weights as the plan reads them; one block for all plans of one packing.
  std::shared_ptr<const std::vector<std::byte>> packed(const LinearPlan& plan);
  std::shared_ptr<const std::vector<std::byte>> tokens(const LinearProblem& problem);
  std::shared_ptr<const reference::LinearTruth> truth(const LinearProblem& problem, WeightRounding rounding);

 private:
  int threads_;
  // The last of each: problems come in an order in which that is enough.
  std::map<std::string, std::shared_ptr<const GptqWeights>> weights_;
  std::string packed_weights_;  // whose blocks are kept
  std::map<std::string, std::shared_ptr<const std::vector<std::byte>>> packed_, tokens_;
  std::map<std::string, std::shared_ptr<const reference::LinearTruth>> truths_;
};

/// What tables say of a problem: m, n, k, group, zero points ..., bytes_read, bytes_written.
harness::CsvRow columns_of(const LinearVariant& variant, const LinearProblem& problem);

/// The plan on random weights. What a launch reads is one block, packed weights and then x, so that cold mode
/// rotates over weights; the fewest bytes, which the limit reads, are those of the problem.
harness::Subject linear_subject(const LinearVariant& variant, const std::shared_ptr<const LinearPlan>& plan,
                                Data& data);

/// A variant on a problem in a mode.
struct LinearCase {
  const LinearVariant* variant;
  LinearProblem problem;
  harness::Mode mode;

  std::string name() const;  ///< cpu/f16/m1/n128/k128/w4g128/host
};

/// Rows of linear.csv: check first, then time beside the read limit of the same run and mode.
std::vector<harness::Task> tasks(const std::vector<LinearCase>& cases, harness::Bench& bench,
                                 harness::Limits& limits, Data& data);

/// Named lists of problems: "smoke", "paper" (arXiv 2402.00025: m = 1 .. 16, n = k = 512 .. 16384),
/// "headline" (m = 1 .. 64, n = k = 4096 .. 16384), "rotated" (without rotation, with the full one and in
/// blocks of 128), "shapes" (of models). Throws BadRequest that lists them.
std::vector<LinearProblem> problem_list(const std::string& name);

/// What rotation does for a layer whose weights are rounded to 4 bits: y = W' (H x) with W' = round(H W)
/// against W x. Rows of linear_rotation.csv: kinds of weights and of tokens, no rotation, blocks of 128 and
/// 1024, the whole; round to nearest in groups of 128, tokens as they are (W4A16) and in int8 per token
/// (W4A8). FP64 on the host but for the roundings.
std::vector<harness::Task> rotation_tasks();

}  // namespace fwht::linear_layers
