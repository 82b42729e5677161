// mma_split: what a kernel is told of a prologue.
#pragma once

#include <cstdint>

#include "common/problem.hpp"
#include "common/variant.hpp"

namespace fwht::mma_split {

struct PrologueArguments {
  Prologue::Kind kind;
  bool interleaved;
  int width;
  std::uint32_t heads;
  float epsilon;
  const std::uint8_t* signs;  // one bit per element; nullptr: none
  const void* weight;
  const float* cos_sin;
  const std::int64_t* positions;
};

inline PrologueArguments prologue_of(const Problem& problem, const Operands& operands) {
  const Prologue& prologue = problem.prologue;
  return {prologue.kind,
          prologue.interleaved,
          static_cast<int>(prologue.width),
          static_cast<std::uint32_t>(prologue.heads),
          operands.epsilon,
          static_cast<const std::uint8_t*>(operands.signs),
          operands.weight,
          operands.cos_sin,
          operands.positions};
}

/// Signs count as a prologue here: whatever comes between the loads and the first stage.
inline bool has_prologue(const Problem& problem) {
  return !problem.prologue.is_none() || problem.op.has_signs();
}

}  // namespace fwht::mma_split
