// mma_split: the kernels that write codes, each dtype and format compiled by itself, in several parts
// (*.cu.in).
#pragma once

#include <type_traits>

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
/// The same where rows are put through a prologue first, or go to pages.
struct PreparedBatch : EncodedBatch {
  PrologueArguments prologue;
  PlacesArguments places;
};
template <bool prepares>
using CodesBatch = std::conditional_t<prepares, PreparedBatch, EncodedBatch>;
template <bool prepares>
using CodesKernel = void (*)(CodesBatch<prepares>);

/// What a kernel of a dtype and format is compiled for.
struct CodesId {
  KernelId kernel;
  bool joins_vectors = false, rounded_first = false;
  constexpr bool operator==(const CodesId&) const = default;
};

/// In part number `part` of encoded_parts(): nullptr where it has none such.
template <Dtype dtype, CodeFormat format, int part, bool prepares>
CodesKernel<prepares> find_encoded(const CodesId& id);

/// The pass before them where the scale of the tensor follows from its numbers: the same rows, transformed,
/// leave the largest |y| in Output::largest, which must be zero before.
template <Dtype dtype, bool prepares>
CodesKernel<prepares> find_largest(const KernelId& id);

}  // namespace fwht::mma_split
