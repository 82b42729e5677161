// mma_split: rotary embedding, rotation and codes of rows that share a position with all rows of their warp,
// as the heads of a token do.
//
// What this changes: the general prologue (prologue.cuh) looks up the position and loads cosines and sines
// for each vector, one behind the other. Here a lane has the same columns in all of its vectors, so it loads
// them once, while the data are on their way; sines have the sign of the half. And codes take the short ways
// of storage_encoder.cuh.
//
// Bit card: b0-b2 register, b3-b7 lane (of n = 64 and 128 rows too), rows in the vectors of the lane.
#pragma once

#include "variants/mma_split/encoded_instances.cuh"
#include "variants/mma_split/roped_kernels.hpp"

namespace fwht::mma_split {

template <Tile tile, Access access>
class RopeOfToken {
 public:
  __device__ RopeOfToken(const PreparedBatch& arguments, const RowAccess<tile, access>&, int self)
      : asked_(arguments.prologue), self_(self) {}

  __device__ void apply(const RowAccess<tile, access>& io, std::uint32_t (&words)[tile.vectors][4]) const {
    Angles angles;
    load_angles(io.column(0), angles);
    if (asked_.width == 1 << tile.log_n) {
#pragma unroll
      for (int v = 0; v < tile.vectors; ++v)
        turn<true>(angles, words[v]);
    } else {
#pragma unroll
      for (int v = 0; v < tile.vectors; ++v)
        turn<false>(angles, words[v]);
    }
  }

  /// One vector again. All lanes of a warp come here together.
  __device__ void load(const RowAccess<tile, access>& io, int v, std::uint32_t (&words)[4]) const {
    Angles angles;
    load_angles(io.column(0), angles);
    io.load(v, words);
    turn<false>(angles, words);
  }

 private:
  /// Of a lane's eight columns.
  struct Angles {
    float cosine[8], sine[8];
    bool turns;  // or the columns lie behind the embedding
  };

  __device__ void load_angles(int column, Angles& angles) const {
    constexpr Tile here = tile;
    const int half = asked_.width / 2;
    const std::uint32_t row = blockIdx.x * static_cast<std::uint32_t>(here.rows_per_block()) +
                              static_cast<std::uint32_t>(self_ * here.rows_per_warp());
    const float* const from = asked_.cos_sin + asked_.positions[row / asked_.heads] * asked_.width +
                              (column & (half - 1));  // in the table for any column
    load_eight(from, angles.cosine);
    load_eight(from + half, angles.sine);
    const std::uint32_t lower = (column & half) == 0 ? 0x80000000U : 0U;
#pragma unroll
    for (float& sine : angles.sine)
      sine = __uint_as_float(__float_as_uint(sine) ^ lower);
    angles.turns = column < asked_.width;
  }

  template <bool all_columns>
  __device__ void turn(const Angles& angles, std::uint32_t (&words)[4]) const {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const std::uint32_t partner = __shfl_xor_sync(0xFFFFFFFFU, words[w], asked_.width / 16);
      float x[2], y[2], turned[2];
      encoder::unpack_pair<tile.dtype>(words[w], x[0], x[1]);
      encoder::unpack_pair<tile.dtype>(partner, y[0], y[1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int e = 2 * w + i;
        turned[i] = __fadd_rn(__fmul_rn(x[i], angles.cosine[e]), __fmul_rn(y[i], angles.sine[e]));
      }
      const std::uint32_t pair = tile.dtype == Dtype::f16 ? ptx::cvt_rn_f16x2_f32(turned[0], turned[1])
                                                          : ptx::cvt_rn_bf16x2_f32(turned[0], turned[1]);
      words[w] = all_columns || angles.turns ? pair : words[w];
    }
  }

  const PrologueArguments& asked_;  // in the kernel's argument
  int self_;
};

/// The end of the kernel: codes as EncodedRows has them where numbers are rounded first.
template <class Form>
struct RopedRows {
  using Arguments = PreparedBatch;
  template <Tile tile, Access access>
  using Prologue = RopeOfToken<tile, access>;
  __device__ static const Batch& batch(const Arguments& arguments) { return arguments.rows; }
  template <Tile tile, Access access>
  __device__ static std::uint32_t fetch_arguments(const Arguments&) {
    return 0;
  }
  template <Tile tile>
  static constexpr std::integral_constant<int, log_of_first_stage(tile.dtype, tile.log_n, true)>
      kLogOfFirstStage{};

  template <Tile tile, Access access, Scaling scaling, class Repair>
  __device__ __forceinline__ static void store_rows(const Arguments& arguments, const DeviceWarp<tile>&,
                                                    const RowAccess<tile, access>& io,
                                                    const Prologue<tile, access>&, int self,
                                                    float (&x)[tile.vectors][8], bool failed) {
    const auto none_to_meet = [](float maximum) { return maximum; };
    encoder::encode_rounded<Form, tile.dtype, tile.vectors_of_row(), true>(
        arguments.out, x, PlacesOfHeads<tile, access>{io}, !failed, none_to_meet,
        [&] { store_rows_alone<tile, access>(arguments, self); });
  }

 private:
  template <Tile tile, Access access>
  struct PlacesOfHeads {
    const RowAccess<tile, access>& io;

    __device__ std::uint32_t row(int v) const { return io.row_of_batch(v); }
    __device__ int column(int v) const { return io.column(v); }
    __device__ static std::uint32_t row_step(int v) { return RowAccess<tile, access>::row_step(v); }
    __device__ static int column_step(int v) { return RowAccess<tile, access>::column_step(v); }
    __device__ bool exists(int v) const { return io.exists(v); }
    __device__ static constexpr bool has_places() { return false; }
    __device__ static int lane() { return rows::lane_of_warp(); }
    __device__ static bool leads_rows() { return true; }
    __device__ static bool asks_for_nan() { return false; }  // store_rows_alone's affair
  };

  /// All of a warp's rows again, from memory, each alone, to exact codes.
  template <Tile tile, Access access>
  __device__ __noinline__ static void store_rows_alone(const Arguments& arguments, int self) {
    const RowAccess<tile, access> io(arguments.rows, self);
    float x[tile.vectors][8];
    take_rows_alone<tile, access>(arguments.rows, Prologue<tile, access>(arguments, io, self), self, x);
    encoder::encode_exactly<Form, tile.dtype, tile.vectors_of_row()>(
        arguments.out, x, PlacesOfHeads<tile, access>{io}, [](float maximum) { return maximum; });
  }
};

template <Dtype dtype, CodeFormat format>
CodesKernel<true> find_roped(const KernelId& id) {
  using Kernels = Table<KernelId, CodesKernel<true>>;
  static const auto kTable = table_of<Kernels, kSmallestLogN, kLargestRopedLogN, 2>([](Kernels& kernels,
                                                                                       auto log_n,
                                                                                       auto many) {
    constexpr KernelId here = roped_kernel(dtype, log_n(), many() == 1);
    using Form =
        encoder::Form<element_of(format), encoder::family_of(format), false, true, fewest_of_group(log_n())>;
    kernels.add(here, kernel_of<RopedRows<Form>, dtype, log_n(), rows::code_of(here.launch), here.access,
                                here.trigger, here.scaling>());
  });
  return kTable.find(id);
}

}  // namespace fwht::mma_split
