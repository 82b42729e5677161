// butterflies: the machine of the programs on the device.
#pragma once

#include "common/device/storage.cuh"
#include "variants/butterflies/passes_program.hpp"
#include "variants/kit/device_lanes.cuh"

namespace fwht::butterflies {

using rows::Access;
using rows::Batch;
using rows::RowAccess;
using rows::Scaling;
using rows::Trigger;

/// One lane of a warp; see WarpMachine and PassesMachine.
///
/// @tparam Buffer  where shared memory keeps the row: rows::ExchangeBuffer or RunBuffer
template <Tile tile, class Buffer = rows::ExchangeBuffer>
class DeviceWarp : public rows::DeviceLanes<tile, Buffer> {
  using Lanes = rows::DeviceLanes<tile, Buffer>;

 public:
  using Lanes::lane;
  using typename Lanes::Word;

  __device__ DeviceWarp(const Batch& batch, float* exchange)
      : Lanes(exchange), shrink_(batch.factors.shrink) {}

  __device__ void widen(const Word (&words)[4], float (&x)[tile.vector_elements()]) const {
    unpack<tile.dtype>(uint4{words[0], words[1], words[2], words[3]}, x);
    if constexpr (tile.dtype == Dtype::bf16) {  // elsewhere k = 0
#pragma unroll
      for (int e = 0; e < tile.vector_elements(); ++e)
        x[e] *= shrink_;
    }
  }

  __device__ void take_run(int warp, int unit, float (&x)[4]) const {
    constexpr Buffer buffer{tile};
    this->template read<4>(buffer.run_word(warp, lane(), unit), x);
  }
  __device__ void put_run(int warp, int unit, const float (&x)[4]) {
    constexpr Buffer buffer{tile};
    *this->template at<float4>(buffer.run_word(warp, lane(), unit)) = {x[0], x[1], x[2], x[3]};
  }
  __device__ void take_number(int warp, int run, int which, float& x) const {
    constexpr Buffer buffer{tile};
    x = this->exchange_[buffer.number_word(warp, run, which, lane())];
  }
  __device__ void put_number(int warp, int run, int which, float x) {
    constexpr Buffer buffer{tile};
    this->exchange_[buffer.number_word(warp, run, which, lane())] = x;
  }
  __device__ static void sync() {
    __syncwarp();
  }

 private:
  float shrink_;
};

}  // namespace fwht::butterflies
