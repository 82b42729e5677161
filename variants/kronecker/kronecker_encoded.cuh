// kronecker: the end of rows that are written as codes and scales.
//
// A warp's box is staged in the storage type, as a plain row would leave, and read back in vectors
// (box_encoder.cuh). For the largest |y| of a whole row the warps of the team, or of the cluster, meet once.
#pragma once

#include <cstddef>

#include "variants/kit/encode/box_encoder.cuh"
#include "variants/kronecker/kronecker_encoded.hpp"
#include "variants/kronecker/kronecker_few_rows_kernel.cuh"

namespace fwht::kronecker {

/// A warp's staged box on its way to codes.
template <class Form, Dtype dtype, Launch launch>
using StagedBox =
    encoder::BoxEncoder<Form, dtype, launch.shape.columns, launch.shape.rows,
                        (launch.shape.warpgroups() > 2 ? 4 : 8), BoxWriter<launch.shape.line()>, EncodedWork>;

/// For transform_rows. The warps of a team meet.
template <class Form>
struct EncodedRows {
  using Arguments = EncodedWork;

  template <Dtype dtype, Launch launch>
  class Exit : public StagedBox<Form, dtype, launch> {
    static_assert(launch.writes_codes());
    using Encoder = StagedBox<Form, dtype, launch>;
    static constexpr int kRows = Encoder::kRows, kBoxes = launch.shape.k_steps();
    /// Where the next tile's stage 1 leaves registers, it runs meanwhile.
    static constexpr bool kDefers = launch.blocks_per_sm == 1;

   public:
    __device__ Exit(const Maps&, const EncodedWork& work, std::uint32_t staging, std::byte* maxima, int team,
                    int box, int lane)
        : Encoder(work, staging, box, lane),
          maxima_(reinterpret_cast<std::uint32_t*>(maxima) + team * 2 * kBoxes * kRows),
          barrier_(launch.teams == 1 ? 2 : 1 + launch.teams + team) {}

    __device__ void send_deferred() {
      if constexpr (kDefers) leave();
    }
    __device__ void wait() { Encoder::begin(); }
    __device__ void staged(int row, int /*box*/) {
      __syncwarp();
      if (Encoder::joins()) tell();
      row_ = row;
      if constexpr (!kDefers) leave();
    }
    __device__ void drain() { send_deferred(); }

   private:
    /// Leaves the box's maxima to the other warps.
    __device__ void tell() {
      std::uint32_t* const of_boxes = maxima_ + turn_ * kBoxes * kRows;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const std::uint32_t largest = Encoder::largest_of(r);
        if (Encoder::lane() == 0) of_boxes[r * kBoxes + Encoder::box()] = largest;
      }
    }
    __device__ void leave() {
      if (row_ < 0) return;
      typename Encoder::Pairs pairs;
      Encoder::read(pairs);
      Encoder::encode(row_, Encoder::joins() ? meet() : 0.0F, pairs);
      row_ = -1;
    }
    /// The largest of row lane % kRows.
    __device__ float meet() {
      ptx::bar_sync(barrier_, 32 * kBoxes);  // the warps that have results
      const std::uint32_t* const of_boxes = maxima_ + turn_ * kBoxes * kRows;
      std::uint32_t of_row = 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const std::uint32_t largest = Encoder::lane() < kBoxes ? of_boxes[r * kBoxes + Encoder::lane()] : 0U;
        const std::uint32_t reduced = __reduce_max_sync(0xFFFFFFFFU, largest);
        of_row = Encoder::lane() % kRows == r ? reduced : of_row;
      }
      turn_ ^= 1;
      return __uint_as_float(of_row);
    }

    std::uint32_t* maxima_;
    int barrier_, turn_ = 0, row_ = -1;
  };
};

/// For spread_rows. Under a scale of the whole row, every warp sends all blocks the largest |y| of its box.
template <class Form>
struct SpreadEncodedRows {
  using Arguments = EncodedWork;

  template <Dtype dtype, Launch launch>
  class Exit : public StagedBox<Form, dtype, launch> {
    using Encoder = StagedBox<Form, dtype, launch>;
    static constexpr int kBoxes = launch.shape.k_steps();
    static_assert(kBoxes <= 32 && Encoder::kRows == 1);

   public:
    __device__ Exit(const EncodedWork& work, std::uint32_t staging, std::byte* maxima, int row, int box,
                    int lane)
        : Encoder(work, staging, box, lane),
          maxima_(reinterpret_cast<std::uint32_t*>(maxima)),
          row_(row),
          boxes_((work.order + 15) / 16),
          all_sent_(ptx::shared_address(maxima) + 8 * ((kBoxes + 1) / 2)) {
      Encoder::begin();
      if (Encoder::joins() && threadIdx.x == 0) {
        const int own_boxes = min(4, boxes_ - 4 * rank());
        ptx::mbarrier_init(all_sent_, 1 + own_boxes);
        ptx::fence_mbarrier_init();
        ptx::mbarrier_arrive_expect_tx(all_sent_, 4 * (boxes_ - own_boxes));
      }
    }

    /// The blocks of the cluster are there: only then may a word be sent to them.
    __device__ void behind_stage_1() const {
      if (Encoder::joins()) ptx::barrier_cluster_arrive_relaxed();
    }
    __device__ void end(bool has_rows) const {
      float maximum = 0.0F;
      if (Encoder::joins()) {
        ptx::barrier_cluster_wait();
        if (has_rows) send(Encoder::largest_of(0));
        ptx::mbarrier_wait_parity_cluster(all_sent_, 0);
        const std::uint32_t largest = Encoder::lane() < boxes_ ? maxima_[Encoder::lane()] : 0U;
        maximum = __uint_as_float(__reduce_max_sync(0xFFFFFFFFU, largest));
      } else {
        __syncwarp();
      }
      if (!has_rows) return;
      typename Encoder::Pairs pairs;
      Encoder::read(pairs);
      Encoder::encode(row_, maximum, pairs);
    }

   private:
    /// This block's rank in the cluster; blocks have four boxes each.
    __device__ int rank() const { return Encoder::box() / 4; }
    /// A lane to each block of the cluster.
    __device__ void send(std::uint32_t largest) const {
      if (Encoder::lane() >= (boxes_ + 3) / 4) return;
      std::uint32_t* const own = maxima_ + Encoder::box();
      if (Encoder::lane() == rank()) {
        *own = largest;
        ptx::mbarrier_arrive(all_sent_);
      } else {
        ptx::st_async_shared_cluster(ptx::mapa(ptx::shared_address(own), Encoder::lane()), largest,
                                     ptx::mapa(all_sent_, Encoder::lane()));
      }
    }

    std::uint32_t* maxima_;
    int row_, boxes_;
    std::uint32_t all_sent_;  ///< barrier, behind the maxima
  };
};

template <class Form, Dtype dtype>
const Kernels& encoded_kernels_of() {
  static const Kernels kTable = [] {
    Kernels kernels;
    add_each<kLaunches>([&](auto launch) {
      constexpr Launch kWhole = whole_steps(codes_launch(launch()));
      if constexpr (kWhole.writes_codes())
        kernels.add(kWhole, reinterpret_cast<Kernel>(transform_rows<dtype, kWhole, EncodedRows<Form>>));
    });
    add_each<kFewRows>([&](auto launch) {
      constexpr Launch kWhole = whole_steps(launch());
      if constexpr (kWhole.writes_codes())
        kernels.add(kWhole, reinterpret_cast<Kernel>(spread_rows<dtype, kWhole, SpreadEncodedRows<Form>>));
    });
    return kernels;
  }();
  return kTable;
}

template <Dtype dtype, CodeFormat format>
const Kernels& encoded_kernels(bool whole_row) {
  constexpr Element kElement = element_of(format);
  constexpr encoder::Family kFamily = encoder::family_of(format);
  if constexpr (kFamily == encoder::Family::f32) {
    if (whole_row) return encoded_kernels_of<encoder::Form<kElement, kFamily, true, true>, dtype>();
  }
  return encoded_kernels_of<encoder::Form<kElement, kFamily, false, true>, dtype>();
}

}  // namespace fwht::kronecker
