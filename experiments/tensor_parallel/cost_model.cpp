#include "experiments/tensor_parallel/cost_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "common/host/error.hpp"

namespace fwht::tensor_parallel {
namespace {

/// Microseconds in graphs of 50 collectives, fp16, maximum over ranks.
struct MeasuredCollective {
  int ranks;
  double kib;  // of one rank
  double all_reduce, all_gather, all_to_all;

  double of(Collective collective) const {
    return collective == Collective::all_reduce   ? all_reduce
           : collective == Collective::all_gather ? all_gather
                                                  : all_to_all;
  }
};
constexpr MeasuredCollective kMeasured[] = {
    {2, 2, 6.32, 5.81, 6.33},       {2, 16, 6.94, 6.42, 7.55},      {2, 64, 7.42, 6.76, 8.29},
    {2, 128, 7.54, 7.13, 8.0},      {2, 256, 8.6, 8.16, 8.58},      {2, 512, 10.73, 11.25, 10.1},
    {2, 1024, 14.33, 16.77, 12.78}, {2, 4096, 32.65, 35.52, 19.76}, {2, 65536, 247.25, 290.88, 137.92},
    {4, 2, 9.73, 8.04, 6.99},       {4, 16, 11.23, 9.24, 7.56},     {4, 64, 11.33, 9.68, 8.49},
    {4, 128, 11.58, 10.93, 8.86},   {4, 256, 12.0, 13.91, 8.91},    {4, 512, 14.76, 19.09, 10.67},
    {4, 1024, 18.42, 36.6, 14.86},  {4, 4096, 40.04, 64.83, 23.96}, {4, 65536, 321.57, 659.86, 181.23},
};

double measured_us(Collective collective, int ranks, double kib) {
  const auto* const first = std::find_if(std::begin(kMeasured), std::end(kMeasured),
                                         [&](const MeasuredCollective& row) { return row.ranks == ranks; });
  const auto* const last = std::find_if(first, std::end(kMeasured),
                                        [&](const MeasuredCollective& row) { return row.ranks != ranks; });
  if (kib <= first->kib) return first->of(collective);
  const MeasuredCollective* high =
      std::find_if(first, last, [&](const MeasuredCollective& row) { return row.kib >= kib; });
  if (high == last) --high;  // beyond the table: along its last line
  const MeasuredCollective& low = *(high - 1);
  const double share = (kib - low.kib) / (high->kib - low.kib);
  return low.of(collective) + share * (high->of(collective) - low.of(collective));
}

double matrix_bytes(std::int64_t k, std::int64_t n, std::int64_t group) {
  const auto weights = static_cast<double>(k) * static_cast<double>(n);
  return weights * (0.5 + 2.5 / static_cast<double>(group));  // nibble; scale and zero point of a group
}

/// Rows of W_down lie in groups of kSortedGroup.
bool has_small_groups(const MlpProblem& problem) {
  return problem.algorithm == Algorithm::local_sort && problem.rotation == Rotation::none;
}

double up_bytes(const MlpProblem& problem) {
  return matrix_bytes(problem.shape.k1, problem.shape.up_columns() / problem.ranks, problem.group);
}

double down_bytes(const MlpProblem& problem, std::int64_t rows) {
  return matrix_bytes(rows == 0 ? expected_down_rows(problem) : rows, problem.shape.n2,
                      has_small_groups(problem) ? kSortedGroup : problem.group);
}

double time_of(const ProjectionTime& projection, double bytes) {
  return projection.fixed_us + bytes / projection.bytes_per_us;
}

/// Of fp16 rows, as collective_us counts them.
double handed_in(const MlpProblem& problem, Collective collective) {
  return 2.0 * static_cast<double>(problem.m) *
         static_cast<double>(collective == Collective::all_reduce ? problem.shape.n2 : problem.shard());
}

struct Point {
  double bytes, us;
};

/// Least squares; a line through less than two places says nothing.
ProjectionTime line_through(const std::vector<Point>& points, const ProjectionTime& otherwise) {
  double n = 0.0, x = 0.0, y = 0.0, xx = 0.0, xy = 0.0;
  for (const Point& point : points) {
    n += 1.0;
    x += point.bytes;
    y += point.us;
    xx += point.bytes * point.bytes;
    xy += point.bytes * point.us;
  }
  const double spread = n * xx - x * x;
  if (n < 2.0 || !(spread > 1e-6 * n * xx)) return otherwise;
  const double slope = (n * xy - x * y) / spread;
  return {(y - slope * x) / n, 1.0 / slope};
}

double median_of(std::vector<double> values, double otherwise) {
  if (values.empty()) return otherwise;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2.0;
}

/// What a rank receives, in units of what it hands in.
double received(Collective collective, int ranks) {
  const double t = ranks;
  return collective == Collective::all_gather ? t - 1
                                              : (collective == Collective::all_reduce ? 2 : 1) * (t - 1) / t;
}

}  // namespace

std::int64_t expected_down_rows(const MlpProblem& problem) {
  if (!has_small_groups(problem) || problem.ranks == 1) return problem.shard();
  // Of a group's rows each is one of this rank's with probability 1/T.
  const double here = 1.0 / problem.ranks;
  double chance = std::pow(1.0 - here, static_cast<double>(problem.group)), filled = 0.0;  // of 0 rows
  for (std::int64_t rows = 0; rows <= problem.group; ++rows) {
    const std::int64_t full = (rows + kSortedGroup - 1) / kSortedGroup * kSortedGroup;
    filled += chance * static_cast<double>(full);
    chance *= static_cast<double>(problem.group - rows) / static_cast<double>(rows + 1) * here / (1.0 - here);
  }
  return std::llround(filled * static_cast<double>(problem.shape.n1) / static_cast<double>(problem.group));
}

double collective_us(Collective collective, int ranks, double bytes, const Machine& machine) {
  if (ranks < 1 || !std::has_single_bit(static_cast<unsigned>(ranks)))
    throw BadRequest(fmt::format("ranks={} must be a power of two", ranks));
  if (ranks == 1) return 0.0;
  const double kib = bytes / 1024.0;
  double time = 0.0;
  if (ranks <= 4) {
    time = measured_us(collective, ranks, kib);
  } else {
    const double two = measured_us(collective, 2, 0), four = measured_us(collective, 4, 0);
    const int doublings = std::bit_width(static_cast<unsigned>(ranks)) - 3;  // beyond 4
    time = four + doublings * (four - two) +
           (measured_us(collective, 4, kib) - four) * received(collective, ranks) / received(collective, 4);
  }
  time *= machine.collective_factor[static_cast<int>(collective)];
  if (ranks > machine.ranks_per_host) {
    const double outside = 1.0 - static_cast<double>(machine.ranks_per_host) / ranks;
    time +=
        machine.host_latency_us + bytes * received(collective, ranks) * outside / machine.host_bytes_per_us;
  }
  return time;
}

Machine fitted(std::span<const MeasuredLayer> layers, std::int64_t m, Machine machine) {
  std::vector<Point> projections, small_groups;
  std::vector<double> moves, transforms, blocks, factors, ratios[3];
  constexpr std::pair<const char*, Collective> kCollectives[] = {{"all_reduce", Collective::all_reduce},
                                                                 {"all_gather", Collective::all_gather},
                                                                 {"all_to_all", Collective::all_to_all}};
  for (const MeasuredLayer& layer : layers) {
    if (layer.problem.m != m) continue;
    const auto piece = [&](const char* name, const auto& use) {
      if (const auto found = layer.pieces.find(name); found != layer.pieces.end()) use(found->second);
    };
    piece("gemm_up", [&](double us) { projections.push_back({up_bytes(layer.problem), us}); });
    piece("gemm_down", [&](double us) {
      (has_small_groups(layer.problem) ? small_groups : projections)
          .push_back({down_bytes(layer.problem, layer.down_rows), us});
    });
    piece("transform", [&](double us) {
      (layer.problem.rotation == Rotation::blocks ? blocks : transforms).push_back(us);
    });
    for (const char* name : {"permute", "pick", "chunk", "pack", "add_signs", "activation"})
      piece(name, [&](double us) { moves.push_back(us); });
    for (const auto& [name, collective] : kCollectives) {
      piece(name, [&, which = collective](double us) {
        ratios[static_cast<int>(which)].push_back(
            us / collective_us(which, layer.problem.ranks, handed_in(layer.problem, which), {}));
      });
    }
  }
  machine.projection = line_through(projections, machine.projection);
  machine.small_groups = line_through(small_groups, machine.projection);
  machine.move_us = median_of(moves, machine.move_us);
  machine.transform_us = median_of(transforms, machine.transform_us);
  machine.blocks_us = median_of(blocks, machine.blocks_us);
  for (int i = 0; i < 3; ++i)
    machine.collective_factor[i] = median_of(ratios[i], machine.collective_factor[i]);
  for (const MeasuredLayer& layer : layers) {
    if (layer.problem.m == m)
      factors.push_back(layer.time_us / predict(layer.problem, machine, layer.down_rows).total());
  }
  machine.layer_factor *= median_of(factors, 1.0);
  return machine;
}

CostPrediction predict(const MlpProblem& problem, const Machine& machine, std::int64_t down_rows) {
  validate(problem);
  const MlpShape& shape = problem.shape;
  const auto exchange = [&](Collective collective) {
    return collective_us(collective, problem.ranks, handed_in(problem, collective), machine);
  };

  CostPrediction prediction;
  prediction.measured = problem.ranks <= 4 && problem.ranks <= machine.ranks_per_host;
  prediction.factor = machine.layer_factor;
  prediction.gemms = time_of(machine.projection, up_bytes(problem)) +
                     time_of(has_small_groups(problem) ? machine.small_groups : machine.projection,
                             down_bytes(problem, down_rows));
  prediction.reduce = exchange(Collective::all_reduce);
  if (shape.gated) prediction.between += machine.move_us;
  switch (problem.rotation) {
    case Rotation::none:
      break;
    case Rotation::blocks:
      prediction.between += machine.blocks_us;
      return prediction;
    case Rotation::block_diagonal:
      prediction.between += machine.transform_us;
      return prediction;
    case Rotation::all_to_all:
      prediction.between += machine.transform_us;
      if (problem.ranks > 1) {
        const bool whole_rows = rotation_of(problem).exchange == sharded::Exchange::rows;
        const bool packs = !whole_rows && problem.m > 1;
        prediction.between += exchange(whole_rows ? Collective::all_gather : Collective::all_to_all) +
                              (packs ? 2 : 1) * machine.move_us;
      }
      return prediction;
    case Rotation::gather:
      prediction.between += machine.transform_us;
      if (problem.ranks > 1) prediction.between += exchange(Collective::all_gather) + 2 * machine.move_us;
      return prediction;
  }
  switch (problem.algorithm) {
    case Algorithm::tp_aware:
      break;
    case Algorithm::naive:
      prediction.between += exchange(Collective::all_gather) + (problem.ranks > 1 ? 2 : 1) * machine.move_us;
      break;
    case Algorithm::naive_fused:
      prediction.between += exchange(Collective::all_gather) + machine.move_us;
      break;
    case Algorithm::local_sort:
      prediction.between += machine.move_us;
      break;
  }
  return prediction;
}

double published_speedup(std::string_view shape) {
  return shape == "llama-70b" ? 1.81 : shape == "granite-20b" ? 1.78 : 0.0;
}

}  // namespace fwht::tensor_parallel
