// The signs and dense factors of a layer's rotation behind its packed weights, and the transform that takes
// them from there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/contract/linear/weights.hpp"
#include "common/contract/operator_data.hpp"
#include "common/contract/scale_layout.hpp"
#include "common/contract/variant.hpp"

namespace fwht {

/// Every block of the rotation's order is a row: x to a place of its own, in the same dtype.
inline Problem rotation_of(const LinearProblem& problem) {
  return make_problem(problem.dtype, problem.rotation, problem.m * problem.k / problem.rotation_order(),
                      Placement::out_of_place);
}

/// Byte offsets, each a multiple of kPartAlignment.
struct RotationLayout {
  std::int64_t signs = 0, dense = 0, bytes = 0;

  /// Behind so many bytes of weights.
  RotationLayout(const LinearProblem& problem, std::int64_t weights) {
    const auto up = [](std::int64_t at) { return round_up(at, kPartAlignment); };
    const Operator& op = problem.rotation;
    const bool has_data = op.has_signs() || op.has_dense();
    signs = has_data ? up(weights) : weights;
    dense = op.has_signs() ? up(signs + (op.n() + 31) / 32 * 4) : signs;
    bytes = op.has_dense() ? up(dense + dense_entry_count(op) * bytes_of(problem.dtype)) : dense;
  }

  void write(const GptqWeights& weights, std::byte* packed) const {
    std::ranges::copy(std::as_bytes(std::span(weights.signs)), packed + signs);
    std::ranges::copy(weights.dense, packed + dense);
  }

  Operands operands(const Operator& op, const void* in, void* out, const void* packed) const {
    const auto* at = static_cast<const std::byte*>(packed);
    Operands operands{in, out};
    if (op.has_signs()) operands.signs = at + signs;
    if (op.has_dense()) operands.dense = at + dense;
    return operands;
  }
};

}  // namespace fwht
