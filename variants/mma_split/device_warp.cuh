// mma_split: the machine of split_program.hpp on the device.
#pragma once

#include <type_traits>

#include "common/device/ptx/mma.cuh"
#include "common/device/ptx/mma_accumulate.cuh"
#include "common/device/storage.cuh"
#include "variants/kit/device_lanes.cuh"
#include "variants/mma_split/launches.hpp"
#include "variants/mma_split/split_program.hpp"

namespace fwht::mma_split {

using rows::Batch;
using rows::RowAccess;

/// One lane of a warp; see SplitMachine.
template <Tile tile>
class DeviceWarp : public rows::DeviceLanes<tile> {
  using Lanes = rows::DeviceLanes<tile>;

 public:
  using Lanes::lane;
  using typename Lanes::Word;
  static constexpr bool first_stage_may_overflow() { return tile.dtype == Dtype::bf16; }

  /// `exchange`: the buffer of the row.
  /// The matrices are XORed with a zero that the compiler cannot see; otherwise it merges equal registers of
  /// a matrix and copies them before almost every mma.
  ///
  /// @tparam log_of_first_stage  the first matrix is multiplied by 2^this, for bf16
  template <int log_of_first_stage = 0>
  __device__ DeviceWarp(const Batch& batch, float* exchange,
                        std::integral_constant<int, log_of_first_stage> = {})
      : Lanes(exchange), shrink_(batch.factors.shrink) {
    constexpr Tile here = tile;  // an object that device code can call
    constexpr unsigned kFirst = transformed_bits(kFirstStageBits, tile.log_n);
    constexpr unsigned kSecond = transformed_bits(kSecondStageBits, tile.log_n);
    constexpr bool kHide = hides_equal_registers(tile);
    constexpr std::uint32_t kOne = tile.dtype == Dtype::f16 ? 0x3C00U : 0x3F80U + (log_of_first_stage << 7);
    static_assert(log_of_first_stage == 0 || tile.dtype == Dtype::bf16);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const bool equal = tile.regular ? r >= 2 : r == 1 || r == 2;
      const Word hidden = kHide && equal ? batch.zero << r : 0U;
      first_[r] = fragment_of(here, lane(), r, kFirst, kOne) ^ hidden;
      second_[r] = fragment_of(here, lane(), r, kSecond, __float_as_uint(shrink_) >> 16) ^ hidden;
    }
    minus_identity_ = ptx::minus_identity_fragment(lane());
  }

  __device__ void first_stage(float (&d)[4], Word b0, Word b1) const {
    if constexpr (tile.dtype == Dtype::f16) {
      ptx::mma_sync_m16n8k16_f32_f16(d, first_, {b0, b1});
    } else {
      ptx::mma_sync_m16n8k16_f32_bf16(d, first_, {b0, b1});
    }
  }
  __device__ void first_stage_add(float (&d)[4], Word b0, Word b1) const {
    if constexpr (tile.dtype == Dtype::f16) {
      ptx::mma_sync_m16n8k16_f32_f16_accumulate(d, first_, {b0, b1});
    } else {
      ptx::mma_sync_m16n8k16_f32_bf16_accumulate(d, first_, {b0, b1});
    }
  }
  __device__ void remove_high(float (&d)[4], Word h0, Word h1) const {
    ptx::mma_sync_m16n8k8_f32_bf16_accumulate(d, h0, h1, minus_identity_);
  }
  __device__ void second_stage(float (&d)[4], Word b0, Word b1) const {
    ptx::mma_sync_m16n8k16_f32_bf16(d, second_, {b0, b1});
  }
  __device__ void second_stage_add(float (&d)[4], Word b0, Word b1) const {
    ptx::mma_sync_m16n8k16_f32_bf16_accumulate(d, second_, {b0, b1});
  }
  __device__ static Word high_pair(float a, float b) {
    return ptx::prmt<0x7632>(__float_as_uint(a), __float_as_uint(b));  // the upper halves of both
  }
  __device__ static Word low_pair(float a, float b) {
    return ptx::cvt_rn_bf16x2_f32(a, b);
  }

  __device__ static bool is_nan(float x) {
    return x != x;
  }
  __device__ static bool any(bool flag) {
    return __any_sync(0xFFFFFFFFU, flag);
  }

  __device__ void widen(const Word (&words)[4], float (&x)[8]) const {
    unpack<tile.dtype>(uint4{words[0], words[1], words[2], words[3]}, x);
#pragma unroll
    for (int e = 0; e < 8; ++e)
      x[e] *= shrink_;
  }
  __device__ static Word keep_lanes(Word word, int shift, int row) {
    return lane() >> shift == row ? word : 0U;
  }

  /// Depends on both matrices; the launch trigger waits for it.
  __device__ Word word_of_matrices() const {
    return second_[3] ^ minus_identity_;
  }

 private:
  Word first_[4], second_[4], minus_identity_;
  float shrink_;
};

}  // namespace fwht::mma_split
