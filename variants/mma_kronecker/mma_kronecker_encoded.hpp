// The kernels of mma_kronecker that write codes, by storage type and format, compiled in several parts
// (*.cu.in). Included by CUDA sources only.
#pragma once

#include <iterator>

#include "variants/kit/encode/output.hpp"
#include "variants/mma_kronecker/mma_kronecker_kernel.cuh"

namespace fwht::mma_kronecker {

struct EncodedWork : Work {
  encoder::Output out;
};

/// Kernels of a storage type and format that are compiled together: a device that compiles PTX does so with
/// all of an object when it first uses one of them. One scale belongs to what lies in a vector of a warp, 256
/// elements, or to a whole row.
struct ObjectPart {
  Matrices matrices;
  int first, last;  ///< columns
  bool whole_row;

  constexpr bool has(int columns) const { return first <= columns && columns <= last; }
};
inline constexpr ObjectPart kEncodedParts[] = {
    {Matrices::one, 16, 64, false},   {Matrices::one, 128, 256, false},   //
    {Matrices::two, 144, 224, false}, {Matrices::dense, 16, 256, false},  //
    {Matrices::one, 16, 64, true},    {Matrices::one, 128, 256, true},    //
    {Matrices::two, 144, 224, true},  {Matrices::dense, 16, 256, true}};
constexpr int encoded_parts(CodeFormat format) {
  return encoder::family_of(format) == encoder::Family::f32 ? 8 : 4;
}

template <Dtype dtype, CodeFormat format, int part>
const Kernels& encoded_kernels();

}  // namespace fwht::mma_kronecker
