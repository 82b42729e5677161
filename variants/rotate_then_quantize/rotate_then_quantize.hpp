// rotate_then_quantize: two launches, the baseline of every kernel that does both in one. `auto` rotates into
// a workspace of the plan, a quantizer reads it. For H_1 there is nothing to rotate, and the quantizer stands
// alone.
#pragma once

#include <cstdint>
#include <memory>

#include "common/contract/variant.hpp"

namespace fwht::rotate_then_quantize {

extern const Variant variant;

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);

/// The rotation of the problem: into rows as far apart as the input's.
Problem rotation_of(const Problem& problem);

/// Whether the launch behind the rotation begins while that runs, by programmatic dependent launch: where
/// the kernel of the rotation lets it begin, and rows do not come out of memory.
bool begins_early(const Problem& problem, const DeviceInfo& device);

/// Blocks that share a token, a cluster, where each of `tokens` has a scale of its own: as many as let all of
/// them run at once, and 1 of short tokens, or where no code for clusters is compiled.
///
/// @param token  elements
int sharers_of_token(std::int64_t token, std::int64_t tokens, const DeviceInfo& device);

}  // namespace fwht::rotate_then_quantize
