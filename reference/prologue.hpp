// Every prologue of common/contract/prologue.hpp in plain C++: what the unfused kernel would store. Each
// operation is one IEEE fp32 operation. Nothing here is shared with kernels or host variants.
#pragma once

#include "common/contract/problem.hpp"
#include "common/contract/variant.hpp"

namespace fwht::reference {

/// Puts `rows` (storage of the problem's input) through problem.prologue, in place. The operands that the
/// prologue needs lie on the host.
void apply_prologue(const Problem& problem, const Operands& operands, void* rows);

}  // namespace fwht::reference
