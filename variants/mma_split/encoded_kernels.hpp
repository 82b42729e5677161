// mma_split: the kernels that write codes, each dtype and format compiled by itself (encoded.cu.in).
#pragma once

#include "variants/kit/batch.hpp"
#include "variants/kit/encode/output.hpp"
#include "variants/mma_split/encoded_launches.hpp"
#include "variants/mma_split/prologue.hpp"

namespace fwht::mma_split {

/// The argument of the kernels.
struct EncodedBatch {
  rows::Batch rows;
  encoder::Output out;
};
using EncodedKernel = void (*)(EncodedBatch);

/// The same where rows are put through a prologue first, or go to pages.
struct PreparedBatch : EncodedBatch {
  PrologueArguments prologue;
  PlacesArguments places;
};
using PreparedKernel = void (*)(PreparedBatch);

/// What a kernel is compiled for; nullptr where it is not.
template <Dtype dtype, CodeFormat format>
EncodedKernel find_encoded(const KernelId& id, bool joins_vectors, bool rounded_first);

/// nullptr where it is not compiled.
template <Dtype dtype, CodeFormat format>
PreparedKernel find_prepared(int log_n, bool joins_vectors);

/// The pass before them where the scale of the tensor follows from its numbers: the same rows, transformed,
/// leave the largest |y| in Output::largest, which must be zero before.
template <Dtype dtype>
EncodedKernel find_largest(const KernelId& id);
template <Dtype dtype>
PreparedKernel find_prepared_largest(int log_n);

}  // namespace fwht::mma_split
