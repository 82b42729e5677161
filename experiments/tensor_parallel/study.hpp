// The study: every layer of a list on a group of ranks; checked, then timed, whole and piece by piece.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "common/device/device_info.hpp"
#include "common/host/communicator.hpp"
#include "experiments/harness/csv.hpp"
#include "experiments/tensor_parallel/cost_model.hpp"
#include "experiments/tensor_parallel/layer.hpp"

namespace fwht::tensor_parallel {

struct StudyOptions {
  std::vector<MlpShape> shapes;
  std::vector<std::int64_t> tokens;
  std::vector<Algorithm> algorithms;
  std::vector<Rotation> rotations;  ///< besides none, which belongs to the algorithms
  LayerKernels kernels;
  int layers = 20;  ///< in one graph, each with weights of its own
  int replays = 25;
  int repeats = 1;  ///< executions that are checked
  bool timed = true;
  Activation activation = Activation::product;
  std::uint64_t seed = 1;
  TimeLimit limit = std::chrono::seconds(60);
};

/// The points of a study for one number of ranks, in order: shape, then how, then m.
std::vector<MlpProblem> points_of(const StudyOptions& options, int ranks);

/// One point; the numbers are those of all ranks together, so every rank has the same.
struct PointResult {
  harness::CsvRow layer;
  std::vector<harness::CsvRow> pieces;
  MeasuredLayer measured;  ///< time_us 0: not timed
};

/// Weights of a shape, made once and shared by the ranks of a process.
class WeightsCache {
 public:
  /// With act-order or, for rotated layers, without.
  std::shared_ptr<const MlpWeights> of(const MlpShape& shape, std::int64_t group, bool act_order,
                                       std::uint64_t seed);

 private:
  std::mutex mutex_;
  std::string key_[2];
  std::shared_ptr<const MlpWeights> weights_[2];
};

/// Runs every point on this rank. All ranks of the communicator call with the same options. A point that all
/// ranks refuse is reported with its reason, and the next one follows; an error on one rank alone ends the
/// run. `report` is called as soon as a point is done. False when a result was wrong, or when SIGINT or
/// SIGTERM has come to any rank: then all stop before the next point.
bool run_study(const StudyOptions& options, Communicator& communicator, const DeviceInfo& device,
               WeightsCache& cache, const std::function<void(const PointResult&)>& report);

/// What the model says of every point, T = 1 .. 8 and two hosts of eight: rows of tensor_parallel_model.csv.
/// By the machine that is fitted to `layers`, or by what is published where there are none.
std::vector<harness::CsvRow> model_rows(const StudyOptions& options,
                                        std::span<const MeasuredLayer> layers = {});

}  // namespace fwht::tensor_parallel
