// mma_split: the kernels that write codes, each dtype and format compiled by itself (encoded_*.cu).
#pragma once

#include "variants/encode/output.hpp"
#include "variants/mma_split/encoded_launches.hpp"
#include "variants/rows/batch.hpp"

namespace fwht::mma_split {

/// The argument of the kernels.
struct EncodedBatch {
  rows::Batch rows;
  encoder::Output out;
};
using EncodedKernel = void (*)(EncodedBatch);

/// What a kernel is compiled for; nullptr where it is not.
template <Dtype dtype, CodeFormat format>
EncodedKernel find_encoded(const KernelId& id, bool joins_vectors, bool rounded_first);

}  // namespace fwht::mma_split
