// passes: vectors that no multiprocessor holds, in two or three passes over tiles. tile.hpp says who holds
// what, schedule.hpp which passes serve which length, tile_kernels.cuh what the kernels do.
#pragma once

#include <memory>

#include "common/contract/variant.hpp"

namespace fwht::passes {

extern const Variant variant;

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device);

/// Whether clusters are to share the rows of the problem. A part of a device may have none that large.
bool shares_rows(const Problem& problem, const DeviceInfo& device);
/// Whether one block holds each row of the problem, whose type is none of 16 bits.
bool holds_rows(const Problem& problem, const DeviceInfo& device);

std::unique_ptr<Plan> make_f16_plan(const Problem& problem, const DeviceInfo& device);
std::unique_ptr<Plan> make_bf16_plan(const Problem& problem, const DeviceInfo& device);
std::unique_ptr<Plan> make_fp64_plan(const Problem& problem, const DeviceInfo& device);
std::unique_ptr<Plan> make_integer_plan(const Problem& problem, const DeviceInfo& device);

}  // namespace fwht::passes
