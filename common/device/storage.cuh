// Storage types on the device: single elements and 16-byte vectors, and their way to fp32 and back.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "common/contract/dtype.hpp"

namespace fwht {

template <Dtype dtype>
struct Storage;

template <>
struct Storage<Dtype::f16> {
  using Element = __half;
  using Pair = __half2;
  static constexpr int kPerVector = 8;
  __device__ static float to_float(Element x) { return __half2float(x); }
  __device__ static Element from_float(float x) { return __float2half_rn(x); }
  __device__ static float2 to_float2(Pair x) { return __half22float2(x); }
  __device__ static Pair from_float2(float x, float y) { return __floats2half2_rn(x, y); }
};

template <>
struct Storage<Dtype::bf16> {
  using Element = __nv_bfloat16;
  using Pair = __nv_bfloat162;
  static constexpr int kPerVector = 8;
  __device__ static float to_float(Element x) { return __bfloat162float(x); }
  __device__ static Element from_float(float x) { return __float2bfloat16_rn(x); }
  __device__ static float2 to_float2(Pair x) { return __bfloat1622float2(x); }
  __device__ static Pair from_float2(float x, float y) { return __floats2bfloat162_rn(x, y); }
};

template <>
struct Storage<Dtype::f32> {
  using Element = float;
  static constexpr int kPerVector = 4;
  __device__ static float to_float(Element x) { return x; }
  __device__ static Element from_float(float x) { return x; }
};

/// Widens one 16-byte vector to fp32.
template <Dtype dtype>
__device__ void unpack(const uint4& vector, float (&x)[Storage<dtype>::kPerVector]) {
  const std::uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (dtype == Dtype::f32) {
      x[i] = __uint_as_float(words[i]);
    } else {
      const float2 pair =
          Storage<dtype>::to_float2(reinterpret_cast<const typename Storage<dtype>::Pair&>(words[i]));
      x[2 * i] = pair.x;
      x[2 * i + 1] = pair.y;
    }
  }
}

/// Rounds fp32 values to one 16-byte vector.
template <Dtype dtype>
__device__ uint4 pack(const float (&x)[Storage<dtype>::kPerVector]) {
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (dtype == Dtype::f32) {
      words[i] = __float_as_uint(x[i]);
    } else {
      const auto pair = Storage<dtype>::from_float2(x[2 * i], x[2 * i + 1]);
      words[i] = reinterpret_cast<const std::uint32_t&>(pair);
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

}  // namespace fwht
