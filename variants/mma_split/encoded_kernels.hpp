// mma_split: the kernels that write codes, each dtype and format compiled by itself, in several parts
// (*.cu.in).
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

/// What a kernel of a dtype and format is compiled for.
struct CodesId {
  KernelId kernel;
  bool joins_vectors = false, rounded_first = false;
  constexpr bool operator==(const CodesId&) const = default;
};

/// In part number `part` of encoded_parts() or prepared_parts(): nullptr where it has none such.
template <Dtype dtype, CodeFormat format, int part>
EncodedKernel find_encoded(const CodesId& id);
template <Dtype dtype, CodeFormat format, int part>
PreparedKernel find_prepared(const CodesId& id);

/// The pass before them where the scale of the tensor follows from its numbers: the same rows, transformed,
/// leave the largest |y| in Output::largest, which must be zero before.
template <Dtype dtype, class Batch>
void (*find_largest(const KernelId& id))(Batch);

}  // namespace fwht::mma_split
