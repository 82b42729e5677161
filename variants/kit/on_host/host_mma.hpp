// For tests: warp-level tensor-core instructions on the host, all 32 lanes at once, by the fragment maps and
// the model of the sums.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/emulation.hpp"
#include "variants/kit/on_host/host_lanes.hpp"

namespace fwht::rows {

/// d += a b of mma.sync m16n8k<depth>: 16 x depth times depth x 8, operands of the type `operand`.
void mma_on_host(int depth, Floats (&d)[4], const Words (&a)[4], const Words (&b)[2], Dtype operand,
                 const reference::TensorCore& core);

/// What ldmatrix.x4.trans gives the lanes of matrix q: row i of it lies at the byte address of lane 8q + i.
Words ldmatrix_trans_on_host(const std::vector<std::uint16_t>& shared, const Words& addresses, int q);

}  // namespace fwht::rows
