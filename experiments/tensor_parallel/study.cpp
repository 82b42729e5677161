#include "experiments/tensor_parallel/study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "common/device/gpu_timer.hpp"
#include "common/host/error.hpp"
#include "experiments/harness/interrupt.hpp"
#include "experiments/tensor_parallel/cost_model.hpp"

namespace fwht::tensor_parallel {
namespace {

using harness::csv_number;
using harness::CsvRow;

constexpr int kColumnsChecked = 256;

CsvRow key_of(const MlpProblem& problem, const StudyOptions& options) {
  return {{"shape", problem.shape.name},
          {"m", std::to_string(problem.m)},
          {"ranks", std::to_string(problem.ranks)},
          {"algorithm", std::string(name_of(problem.algorithm))},
          {"rotation", std::string(name_of(problem.rotation))},
          {"variant", std::string(options.kernels.product->name)}};
}

/// The largest of every rank's number, position by position.
std::vector<double> largest_over_ranks(Communicator& communicator, const std::vector<double>& mine,
                                       TimeLimit limit) {
  const auto bytes = static_cast<std::int64_t>(mine.size() * sizeof(double));
  const auto ranks = static_cast<std::size_t>(communicator.size());
  Buffer send(communicator.memory(), mine.size() * sizeof(double)),
      receive(communicator.memory(), ranks * mine.size() * sizeof(double));
  send.upload(mine.data(), mine.size() * sizeof(double));
  communicator.all_gather(send.data(), receive.data(), bytes, nullptr);
  communicator.finish(nullptr, limit);
  std::vector<double> all(ranks * mine.size());
  receive.download(all.data(), all.size() * sizeof(double));
  std::vector<double> most = mine;
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < mine.size(); ++i)
      most[i] = std::max(most[i], all[r * mine.size() + i]);
  }
  return most;
}

struct CheckedLayer {
  double wrong = 0.0;   ///< elements that differ from the exact result, or between executions
  double rel_l2 = 0.0;  ///< over the columns checked
  double bound = 0.0;   ///< what rel_l2 may be; 0: exact
};

/// This rank's executions against the truth.
class Checker {
 public:
  Checker(const MlpProblem& problem, const MlpWeights& weights, const std::vector<std::uint16_t>& tokens)
      : problem_(problem) {
    const std::int64_t step = std::max<std::int64_t>(1, problem.shape.n2 / kColumnsChecked);
    for (std::int64_t c = 0; c < problem.shape.n2; c += step)
      columns_.push_back(c);
    truth_ = mlp_truth(problem, weights, tokens, columns_);
    if (problem.rotation == Rotation::none) {
      for (const double y : truth_.y) {
        if (std::fabs(y) > 2048.0) throw std::logic_error("test data beyond the integers that fp16 holds");
      }
    }
  }

  CheckedLayer compare(const std::vector<std::uint16_t>& output) const {
    CheckedLayer checked;
    double error2 = 0.0, truth2 = 0.0;
    for (std::int64_t row = 0; row < problem_.m; ++row) {
      for (std::size_t c = 0; c < columns_.size(); ++c) {
        const double exact = truth_.y[static_cast<std::size_t>(row) * columns_.size() + c];
        const double y = static_cast<double>(
            f16_to_float(output[static_cast<std::size_t>(row * problem_.shape.n2 + columns_[c])]));
        checked.wrong += problem_.rotation == Rotation::none && !(y == exact) ? 1.0 : 0.0;
        error2 += (y - exact) * (y - exact);
        truth2 += exact * exact;
      }
    }
    checked.rel_l2 = std::sqrt(error2 / truth2);
    checked.bound = truth_.rel_l2_bound;
    checked.wrong += checked.rel_l2 <= checked.bound ? 0.0 : 1.0;
    return checked;
  }

 private:
  MlpProblem problem_;
  std::vector<std::int64_t> columns_;
  MlpTruth truth_;
};

void run(Communicator& communicator, const std::function<void(Stream)>& enqueue, TimeLimit limit) {
  if (communicator.memory() == Memory::device) {
    run_once(communicator, enqueue, limit);
  } else {
    enqueue(nullptr);
  }
}

/// Sums of the two bytes of every element before the all-reduce: equal bits give equal sums, and naive,
/// naive_fused and tp_aware must have equal bits.
double fingerprint(const std::vector<std::uint16_t>& values) {
  std::uint64_t hash = 1469598103934665603ULL;
  for (const std::uint16_t value : values)
    hash = (hash ^ value) * 1099511628211ULL;
  return static_cast<double>(hash >> 12);  // 52 bits: exact in a double
}

class RankStudy {
 public:
  RankStudy(const StudyOptions& options, Communicator& communicator, const DeviceInfo& device,
            WeightsCache& cache)
      : options_(options), communicator_(communicator), device_(device), cache_(cache) {}

  /// What of a point this rank was about when an error ended it: "checking", "timing gemm_up".
  const std::string& doing() const { return doing_; }

  PointResult run_point(const MlpProblem& problem) {
    PointResult result{key_of(problem, options_), {}, {}};
    doing_ = "setting up";
    validate(problem);
    const bool rotated = problem.rotation != Rotation::none;
    const auto weights = cache_.of(problem.shape, problem.group, !rotated, options_.seed);
    const Share& share = this->share(problem, *weights);
    RankLayer layer(problem, share, communicator_, options_.kernels, device_, options_.activation,
                    options_.limit);
    if (!loaded_ || !layer.fits(*loaded_)) {
      loaded_.reset();  // before the next ones take their place
      loaded_ = layer.load(share, options_.timed ? options_.layers : 1);
    }
    layer.use(loaded_);
    const std::vector<std::uint16_t> tokens = integer_tokens(problem.shape, problem.m, options_.seed);
    layer.set_tokens(tokens);

    doing_ = "checking";
    const CheckedLayer checked = check(problem, *weights, tokens, layer);
    result.layer["rel_l2"] = csv_number(checked.rel_l2);
    result.layer["rel_l2_bound"] = csv_number(checked.bound);
    result.layer["status"] = checked.wrong == 0.0 ? "ok" : "incorrect";
    if (checked.wrong != 0.0)
      result.layer["reason"] = fmt::format("{} elements or executions differ", checked.wrong);
    result.layer["model_us"] = csv_number(predict(problem, {}, share.down.k).total());
    if (published_speedup(problem.shape.name) > 0.0)
      result.layer["published_speedup"] = csv_number(published_speedup(problem.shape.name));
    result.measured.problem = problem;
    result.measured.down_rows = share.down.k;
    if (options_.timed && checked.wrong == 0.0) time(problem, layer, result);
    doing_.clear();
    return result;
  }

 private:
  const Share& share(const MlpProblem& problem, const MlpWeights& weights) {
    // m changes nothing of it.
    const std::string key =
        fmt::format("{}/{}/{}", problem.shape.name, name_of(problem.algorithm), name_of(problem.rotation));
    if (key != share_key_) {
      loaded_.reset();
      share_ = share_of(problem, weights, communicator_.rank());
    }
    share_key_ = key;
    return share_;
  }

  CheckedLayer check(const MlpProblem& problem, const MlpWeights& weights,
                     const std::vector<std::uint16_t>& tokens, RankLayer& layer) {
    CheckedLayer worst;
    // Before the all-reduce: the same bits on this rank by every algorithm that has the same rows of W_down.
    layer.poison();
    run(
        communicator_, [&](Stream stream) { layer.enqueue(0, stream, false); }, options_.limit);
    if (problem.rotation == Rotation::none && problem.algorithm != Algorithm::local_sort) {
      const std::string key = fmt::format("{}/{}", problem.shape.name, problem.m);
      const auto [known, is_new] = partials_.try_emplace(key, fingerprint(layer.output()));
      if (!is_new && known->second != fingerprint(layer.output())) worst.wrong += 1.0;
    }
    const Checker checker(problem, weights, tokens);
    double first = 0.0;
    for (int repeat = 0; repeat < options_.repeats; ++repeat) {
      layer.poison();
      run(
          communicator_, [&](Stream stream) { layer.enqueue(0, stream); }, options_.limit);
      const std::vector<std::uint16_t> output = layer.output();
      const CheckedLayer checked = checker.compare(output);
      worst.wrong += checked.wrong;
      worst.rel_l2 = std::max(worst.rel_l2, checked.rel_l2);
      worst.bound = checked.bound;
      if (repeat == 0) first = fingerprint(output);
      if (fingerprint(output) != first) worst.wrong += 1.0;
    }
    const auto most = largest_over_ranks(
        communicator_, {worst.wrong, std::isnan(worst.rel_l2) ? 1e30 : worst.rel_l2}, options_.limit);
    return {most[0], most[1], worst.bound};
  }

  /// Median over the replays of the maximum over the ranks, for each of `parts` launches of a replay.
  Timing time_parts(const std::function<void(Stream)>& enqueue, int parts) {
    const std::vector<double> mine = time_together(communicator_, enqueue, options_.replays, options_.limit);
    return summarize(largest_over_ranks(communicator_, mine, options_.limit), parts);
  }

  void time(const MlpProblem& problem, const RankLayer& layer, PointResult& result) {
    const int layers = options_.layers;
    const auto put = [&](CsvRow& row, const Timing& timing) {
      row["time_us"] = csv_number(timing.time_us);
      row["min_us"] = csv_number(timing.min_us);
      row["max_us"] = csv_number(timing.max_us);
      row["layers"] = std::to_string(layers);
      row["replays"] = std::to_string(timing.replays);
    };
    doing_ = "timing the layer";
    const Timing whole = time_parts(
        [&](Stream stream) {
          for (int i = 0; i < layers; ++i)
            layer.enqueue(i, stream);
        },
        layers);
    put(result.layer, whole);
    result.measured.time_us = whole.time_us;
    double sum = 0.0;
    const auto time_piece = [&](const std::string& name, const std::function<void(int, Stream)>& enqueue) {
      CsvRow row = key_of(problem, options_);
      row["piece"] = name;
      doing_ = "timing " + name;
      const Timing timing = time_parts(
          [&](Stream stream) {
            for (int i = 0; i < layers; ++i)
              enqueue(i, stream);
          },
          layers);
      put(row, timing);
      result.pieces.push_back(std::move(row));
      result.measured.pieces[name] = timing.time_us;
      return timing.time_us;
    };
    std::vector<const Piece*> between;
    for (const Piece& piece : layer.pieces()) {
      sum += time_piece(piece.name, piece.enqueue);
      if (!piece.name.starts_with("gemm") && piece.name != "all_reduce") between.push_back(&piece);
    }
    if (between.size() > 1) {  // what lies between the projections, as a whole
      time_piece("between", [&](int i, Stream stream) {
        for (const Piece* piece : between)
          piece->enqueue(i, stream);
      });
    }
    for (const Piece& piece : layer.references())
      time_piece(piece.name, piece.enqueue);
    result.layer["pieces_us"] = csv_number(sum);
  }

  const StudyOptions& options_;
  Communicator& communicator_;
  const DeviceInfo& device_;
  WeightsCache& cache_;
  std::string doing_, share_key_;
  Share share_;
  std::shared_ptr<const LoadedWeights> loaded_;
  std::map<std::string, double> partials_;
};

}  // namespace

std::shared_ptr<const MlpWeights> WeightsCache::of(const MlpShape& shape, std::int64_t group, bool act_order,
                                                   std::uint64_t seed) {
  const std::lock_guard lock(mutex_);
  const std::string key = fmt::format("{}/{}/{}", shape.name, group, seed);
  const std::size_t slot = act_order ? 1 : 0;
  if (key_[slot] != key) {
    weights_[slot] = std::make_shared<const MlpWeights>(integer_weights(shape, group, act_order, seed));
    key_[slot] = key;
  }
  return weights_[slot];
}

std::vector<MlpProblem> points_of(const StudyOptions& options, int ranks) {
  std::vector<MlpProblem> points;
  std::set<std::string> listed;  // what is named twice is one point
  for (const MlpShape& shape : options.shapes) {
    const auto add = [&](Algorithm algorithm, Rotation rotation) {
      for (const std::int64_t m : options.tokens) {
        const MlpProblem point{shape, m, ranks, algorithm, rotation};
        if (listed.insert(to_string(point)).second) points.push_back(point);
      }
    };
    for (const Algorithm algorithm : options.algorithms)
      add(algorithm, Rotation::none);
    for (const Rotation rotation : options.rotations) {
      if (rotation != Rotation::none) add(Algorithm::tp_aware, rotation);
    }
  }
  return points;
}

namespace {

/// Whether no rank was interrupted: the same answer on all of them, so that none waits for one that has
/// stopped.
bool all_go_on(Communicator& communicator, TimeLimit limit) {
  try {
    agree(communicator, {"", harness::interrupted_by() == 0 ? "" : "interrupted"}, limit);
    return true;
  } catch (const BadRequest&) {
    return false;
  }
}

}  // namespace

bool run_study(const StudyOptions& options, Communicator& communicator, const DeviceInfo& device,
               WeightsCache& cache, const std::function<void(const PointResult&)>& report) {
  RankStudy study(options, communicator, device, cache);
  bool all_right = true, any = false;
  for (const MlpProblem& point : points_of(options, communicator.size())) {
    PointResult result{key_of(point, options), {}, {}};
    try {
      if (!all_go_on(communicator, options.limit)) return false;
      result = study.run_point(point);
    } catch (const BadRequest& error) {  // every rank says the same
      result.layer["status"] = "unsupported";
      result.layer["reason"] = error.what();
    } catch (const std::exception& error) {
      // The others may be waiting for this rank: what is done is on disk, the run ends here.
      result.layer["status"] = "failed";
      result.layer["reason"] =
          study.doing().empty() ? error.what() : fmt::format("{} ({})", error.what(), study.doing());
      report(result);
      throw;
    }
    all_right = all_right && result.layer["status"] != "incorrect";
    any = any || result.layer["status"] != "unsupported";
    report(result);
  }
  return all_right && any;
}

namespace {

const MeasuredLayer* measured_as(std::span<const MeasuredLayer> layers, const MlpProblem& point) {
  const auto found = std::find_if(layers.begin(), layers.end(), [&](const MeasuredLayer& layer) {
    return to_string(layer.problem) == to_string(point);
  });
  return found == layers.end() ? nullptr : &*found;
}

}  // namespace

std::vector<CsvRow> model_rows(const StudyOptions& options, std::span<const MeasuredLayer> layers) {
  std::map<std::int64_t, Machine> machines;
  for (const std::int64_t m : options.tokens)
    machines[m] = fitted(layers, m);
  std::vector<CsvRow> rows;
  for (const int ranks : {1, 2, 4, 8, 16}) {
    for (const MlpProblem& point : points_of(options, ranks)) {
      CsvRow row = key_of(point, options);
      row.erase("variant");
      try {
        const MeasuredLayer* known = measured_as(layers, point);
        const CostPrediction prediction =
            predict(point, machines[point.m], known == nullptr ? 0 : known->down_rows);
        row["source"] = ranks > 8                               ? "assumed"
                        : known != nullptr                      ? "fitted"
                        : layers.empty() && prediction.measured ? "from_measured"
                                                                : "extrapolated";
        row["gemms_us"] = csv_number(prediction.gemms);
        row["between_us"] = csv_number(prediction.between);
        row["reduce_us"] = csv_number(prediction.reduce);
        row["model_us"] = csv_number(prediction.total());
        rows.push_back(std::move(row));
      } catch (const BadRequest&) {
        // A shape that does not divide among so many ranks has no row.
      }
    }
  }
  return rows;
}

}  // namespace fwht::tensor_parallel
