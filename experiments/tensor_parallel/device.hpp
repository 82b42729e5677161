// What the study asks of CUDA: graphs of many layers, replayed by all ranks at once.
#pragma once

#include <functional>
#include <vector>

#include "common/host/communicator.hpp"

namespace fwht::tensor_parallel {

/// Captures `enqueue` into a graph (collectives included), replays it `replays` times behind one small
/// all-reduce each, so that all ranks start together, and returns the microseconds of each replay on this
/// rank. All ranks must call. Waits at most `limit`. Throws CudaError, and std::runtime_error as
/// Communicator::finish; std::runtime_error in a build without CUDA.
std::vector<double> time_together(Communicator& communicator, const std::function<void(Stream)>& enqueue,
                                  int replays, TimeLimit limit);

/// Runs `enqueue` once on a stream of its own, outside any graph, and waits for it.
void run_once(Communicator& communicator, const std::function<void(Stream)>& enqueue, TimeLimit limit);

}  // namespace fwht::tensor_parallel
