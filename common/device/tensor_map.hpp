// Tensor maps: what a tensor copy reads or writes, as the driver encodes it. Included by CUDA sources only.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "common/contract/dtype.hpp"
#include "common/device/cuda_check.hpp"

namespace fwht {

inline CUtensorMapDataType tensor_element(Dtype dtype) {
  return dtype == Dtype::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

/// A tensor of `rank` dimensions, the fastest first, and the boxes that are copied from or to it.
template <std::size_t rank>
struct Tensor {
  std::array<cuuint64_t, rank> extents;
  std::array<cuuint64_t, rank - 1> strides;  ///< in bytes, multiples of 16; the first dimension has none
  std::array<cuuint32_t, rank> box;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
};

/// Throws std::runtime_error, with the tensor, where the driver refuses it. What a box holds beyond the
/// extents is zero.
template <std::size_t rank>
CUtensorMap tensor_map(const void* data, CUtensorMapDataType element, const Tensor<rank>& tensor) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  // The driver's function, asked for by the runtime, so that no driver library is linked.
  static const Encode encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    FWHT_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                               &result));
    if (result != cudaDriverEntryPointSuccess)
      throw std::runtime_error("the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<Encode>(found);
  }();
  std::array<cuuint32_t, rank> steps;
  steps.fill(1);
  CUtensorMap map;
  const CUresult result =
      encode(&map, element, rank, const_cast<void*>(data), tensor.extents.data(), tensor.strides.data(),
             tensor.box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, tensor.swizzle, tensor.promotion,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return map;
  std::string what = "cuTensorMapEncodeTiled failed with error " + std::to_string(static_cast<int>(result));
  what += " for a tensor of";
  for (const cuuint64_t extent : tensor.extents)
    what += " " + std::to_string(extent);
  what += ", strides";
  for (const cuuint64_t stride : tensor.strides)
    what += " " + std::to_string(stride);
  throw std::runtime_error(what);
}

}  // namespace fwht
