// mma_split: the kernels that write codes, each dtype and format compiled by itself, some by
// length too (*.cu.in).
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

/// Which lengths are compiled together: all, or half of them where a format has the kernels of may_join().
enum class Lengths { all, to_1024, from_2048 };
constexpr int smallest_log_n(Lengths lengths) {
  return lengths == Lengths::from_2048 ? 11 : kSmallestLogN;
}
constexpr int largest_log_n(Lengths lengths) {
  return lengths == Lengths::to_1024 ? 10 : kLargestLogN;
}

/// nullptr where it is not compiled.
template <Dtype dtype, CodeFormat format, Lengths lengths>
EncodedKernel find_encoded(const CodesId& id);
template <Dtype dtype, CodeFormat format>
PreparedKernel find_prepared(const CodesId& id);

/// The pass before them where the scale of the tensor follows from its numbers: the same rows, transformed,
/// leave the largest |y| in Output::largest, which must be zero before.
template <Dtype dtype, class Batch>
void (*find_largest(const KernelId& id))(Batch);

}  // namespace fwht::mma_split
