// Prologues on the host: one row at a time, plainly.
#pragma once

#include <cstdint>

#include "common/contract/variant.hpp"

namespace fwht::cpu {

/// Puts row `number` of the problem through its prologue. `row` has the n numbers of the storage type, as
/// fp32, and gets such numbers.
void apply_prologue(const Problem& problem, const Operands& operands, std::int64_t number, float* row);

}  // namespace fwht::cpu
