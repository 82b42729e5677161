// Prologues on the host: one row at a time, plainly.
#pragma once

#include <cstdint>

#include "common/contract/variant.hpp"

namespace fwht::cpu {

/// Throws BadRequest for a negative position: the row of cosines and sines would lie in front of them. How
/// many there are behind is the caller's to know.
void check_positions(const Problem& problem, const PreparedOperands& operands);

/// Puts row `number` of the problem through its prologue. `row` has the n numbers of the storage type, as
/// fp32, and gets such numbers.
void apply_prologue(const Problem& problem, const Operands& operands, std::int64_t number, float* row);

}  // namespace fwht::cpu
