// What rotation does for a layer whose weights are rounded to 4 bits: y = W' (H x) with W' = round(H W)
// against W x.
#pragma once

#include <vector>

#include "experiments/harness/tasks.hpp"

namespace fwht::linear_layers {

/// Rows of linear_rotation.csv: kinds of weights and of tokens, no rotation, blocks of 128 and 1024, the
/// whole; round to nearest in groups of 128, tokens as they are (W4A16) and in int8 per token (W4A8). FP64 on
/// the host but for the roundings.
std::vector<harness::Task> rotation_tasks();

}  // namespace fwht::linear_layers
