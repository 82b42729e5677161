// Every prologue of common/contract/preparation.hpp in plain C++: what the unfused kernel would store. Each
// operation is one IEEE fp32 operation. Nothing here is shared with kernels or host variants.
#pragma once

#include <cstdint>

#include "common/contract/problem.hpp"
#include "common/contract/variant.hpp"
#include "common/device/memory.hpp"

namespace fwht::reference {

/// Puts `rows` (storage of the problem's input) through problem.prologue, in place; without one they stay as
/// they are. The operands that the prologue needs lie on the host.
void apply_prologue(const Problem& problem, const PreparedOperands& operands, void* rows);
/// Multiplies them by `signs` (Operands::signs, on the host), in place.
void apply_signs(const Problem& problem, const void* signs, void* rows);

/// What a prologue and pages read, in any memory: weights near 1, angles of all quadrants, positions
/// in no order.
class PreparedData {
 public:
  enum class Slots {
    scattered,  ///< places in no order, and some rows left out
    by_page     ///< as a cache fills: pages in no order, the rows of each in theirs
  };
  PreparedData(const Problem& problem, Memory memory, Slots slots = Slots::scattered);
  /// Pointers into this object.
  PreparedOperands operands() const;

 private:
  float epsilon_ = 0.0F;
  Buffer weight_, cos_sin_, positions_, slots_;
};

}  // namespace fwht::reference
