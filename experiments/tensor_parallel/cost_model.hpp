// What a layer should take, from the bytes of its weights and the measured times of its collectives. For
// T = 2 and 4 every number was measured on one host; T = 8 and two hosts are extrapolated and say so. The
// machine's numbers are published or measured once (the lower bound: what the hardware allows), or fitted to
// the pieces of a run (what these kernels take).
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "experiments/tensor_parallel/mlp.hpp"

namespace fwht::tensor_parallel {

enum class Collective { all_reduce, all_gather, all_to_all };

/// Of one projection: fixed_us + bytes of weights / bytes_per_us.
struct ProjectionTime {
  double fixed_us = 0.0;
  double bytes_per_us = 4.46e6;  ///< what streaming reads of DRAM reach
};

/// H200s of one host, linked by NVLink (18 links each); NCCL 2.28.9, NVLink multicast off.
struct Machine {
  ProjectionTime projection;    ///< groups of 128 rows
  ProjectionTime small_groups;  ///< of 32, as local_sort has them
  double move_us = 1.5;         ///< one small kernel in a graph: permute, chunk, signs, activation
  double transform_us = 3.0;    ///< a few rows of a shard
  double blocks_us = 3.0;       ///< of blocks of 128
  double collective_factor[3] = {1.0, 1.0, 1.0};  ///< on the measured table, by Collective
  double layer_factor = 1.0;                      ///< a layer over the sum of its pieces
  int ranks_per_host = 8;
  /// Per collective that leaves the host; assumed, not measured.
  double host_latency_us = 15.0;
  double host_bytes_per_us = 50e3;  ///< of one GPU's network card (400 Gbit/s)
};

/// Microseconds of one collective in a graph. `bytes`: what one rank hands in, the whole buffer for
/// all_reduce and all_to_all. Linear between the sizes measured. T = 1 takes nothing; T above 4: the latency
/// grows by as much again for every doubling, the rest as the bytes that a rank receives. Throws BadRequest
/// for T that is no power of two.
double collective_us(Collective collective, int ranks, double bytes, const Machine& machine = {});

struct CostPrediction {
  double gemms = 0.0;    ///< both projections
  double between = 0.0;  ///< from one projection to the other
  double reduce = 0.0;   ///< the all-reduce
  bool measured = true;  ///< false: parts of it are extrapolated or assumed
  double factor = 1.0;   ///< the machine's layer_factor
  double total() const { return factor * (gemms + between + reduce); }
};

/// Rows of W_down on one rank. With local_sort each part of a group is filled up to kSortedGroup rows: their
/// number on average over random act-orders.
std::int64_t expected_down_rows(const MlpProblem& problem);

/// `down_rows`: rows of W_down on one rank, filled up ones included; 0: those expected.
CostPrediction predict(const MlpProblem& problem, const Machine& machine = {}, std::int64_t down_rows = 0);

/// A layer of a run and its pieces by name, microseconds.
struct MeasuredLayer {
  MlpProblem problem;
  std::int64_t down_rows = 0;  ///< as in predict
  double time_us = 0.0;
  std::map<std::string, double> pieces;
};

/// The machine that those layers of m tokens were measured on: projections by least squares over all shapes
/// and numbers of ranks, the rest by medians. What no layer shows stays as in `machine`.
Machine fitted(std::span<const MeasuredLayer> layers, std::int64_t m, Machine machine = {});

/// The best speed-up over naive that arXiv 2402.04925 reports for a shape (A100 and H100, fp16 collectives
/// of that time); 0 for other shapes.
double published_speedup(std::string_view shape);

}  // namespace fwht::tensor_parallel
