// Dyadic convolutions of rows that a block holds, and the last pass of integers.
//
// Idea: the kernel of whole rows of the variant `passes`, for two rows of equal length. The spectrum of a
// waits in shared memory for that of b; a thread multiplies what it has of both, and the rounds go backwards.
// So neither spectrum reaches memory. The rounds of a tile, bit card in tile_kernels.cuh, in this order:
//   a: 0 1 2   b: 0 1 2   product   2 0 1   store
// Between 2 and 0 the block exchanges, between 0 and 1 a warp with itself, and after 1 a warp stores 32
// neighbours. Butterflies over different bits commute.
#include "variants/library/convolved_rows.hpp"

#include "variants/library/ready_kernel.cuh"

namespace fwht::walsh {
namespace {

using passes::PassTile;
using passes::RowTile;

/// Without a remainder.
template <class Number>
__device__ Number divided(Number sum, int bits) {
  return static_cast<Number>(static_cast<std::make_signed_t<Number>>(sum) >> bits);
}

/// Half of those of whole rows: with three quarters two transforms spill.
template <class Number>
constexpr int blocks_of_two_rows(int threads) {
  return std::max(passes::blocks_of_rows<Number>(threads) / 2, 1);
}

/// `rows` is of a, with the scale of products; b, where it is not null, has the same shape.
template <class Number, int log_elements>
__global__ void __launch_bounds__(1 << (log_elements - 5),
                                  blocks_of_two_rows<Number>(1 << (log_elements - 5)))
    convolved_rows(__grid_constant__ const passes::WholeRows<Number> rows, const Number* b) {
  constexpr RowTile tile{log_elements, sizeof(Number)};
  constexpr int kLast = tile.rounds() - 1;
  const int log_n = log_elements == passes::kSmallestRowTile ? rows.log_n : log_elements;
  const int thread = static_cast<int>(threadIdx.x);
  Number* const shared = reinterpret_cast<Number*>(passes::exchange_of_block);
  Number* const other = b == nullptr ? shared : shared + (1 << log_elements);
  ptx::griddepcontrol_wait();
  passes::load_rows<tile>(rows, log_n, shared, thread);
  if (b != nullptr) {
    passes::WholeRows<Number> second = rows;
    second.in = b;
    passes::load_rows<tile>(second, log_n, other, thread);
  }
  ptx::cp_async_wait_all();
  __syncwarp();
  Number x[32][1];
  passes::transform_rows<tile>(x, shared, thread, log_n);
  if (b == nullptr) {
#pragma unroll
    for (int k = 0; k < 32; ++k)
      x[k][0] = product_of_spectra(x[k][0], x[k][0], rows.scale);
  } else {
    passes::move_round<tile, kLast, true>(x, shared, thread);
    passes::transform_rows<tile>(x, other, thread, log_n);
    const int first = tile.word(tile.element(kLast, thread, 0));
#pragma unroll
    for (int k = 0; k < 32; ++k)
      x[k][0] = product_of_spectra(shared[first ^ tile.word(tile.element(kLast, 0, k))], x[k][0], rows.scale);
  }
  if constexpr (kLast == 2) {
    passes::register_butterflies<tile.upper().first_new_bit(1)>(x);
    passes::move_round<tile, 2, true>(x, other, thread);
    __syncthreads();
  } else {
    passes::move_round<tile, 1, true>(x, other, thread);
    __syncwarp();  // which is the block
  }
  passes::move_round<tile, 0, false>(x, other, thread);
  passes::register_butterflies<0>(x, log_n);
  passes::move_round<tile, 0, true>(x, other, thread);
  __syncwarp();
  passes::move_round<tile, 1, false>(x, other, thread);
  passes::register_butterflies<0>(x, log_n - 5);
  const passes::TileInRows<tile> places(rows.row_stride, rows.rows, log_n);
  places.template each<32>(
      tile.element(1, thread, 0), [](int k) { return tile.element(1, 0, k); },
      [&](int k, std::int64_t offset) {
        if constexpr (std::is_floating_point_v<Number>) {
          rows.out[offset] = x[k][0];
        } else {
          rows.out[offset] = divided(x[k][0], log_n);
        }
      });
}

/// What the last pass of integers stores in place of its sums.
template <class Number, int bits>
struct Divided {
  Number value;
  __device__ Divided(Number sum) : value(divided(sum, bits)) {}
};

/// A pass over columns that divides. Places of sums and of results are found apart, for which 64 registers
/// are too few for numbers of 8 bytes.
template <class Number, int bits>
constexpr PassTile divided_tile() {
  return passes::axis_passes(passes::word_of_number<Number>(), bits).tiles[0];
}
template <class Number, int bits>
__global__ void __launch_bounds__(
    divided_tile<Number, bits>().threads(),
    std::max((sizeof(Number) == 8 ? 896 : 1024) / divided_tile<Number, bits>().threads(), 1))
    divided_pass(__grid_constant__ const passes::LongVectors<Number, Number, Divided<Number, bits>> vectors) {
  ptx::griddepcontrol_wait();
  passes::transform_tile<divided_tile<Number, bits>(), false>(
      vectors, vectors.shift, blockIdx.x, vectors.scale, reinterpret_cast<Number*>(passes::exchange_of_block),
      static_cast<int>(threadIdx.x), [](Number) {});
}

template <class Number>
void launch_rows_of(const ConvolvedRows& work, const DeviceInfo& device, Stream stream) {
  constexpr passes::Word kWord = passes::word_of_number<Number>();
  constexpr int kLargest = largest_convolved_log_n(kWord, 128 * 1024);
  const RowTile tile = passes::row_tile(kWord, work.log_n, false);
  using Kernel = void (*)(passes::WholeRows<Number>, const Number*);
  const auto kernel = dispatch_int<passes::kSmallestRowTile, kLargest>(
      tile.log_elements, [](auto log_elements) -> Kernel { return convolved_rows<Number, log_elements()>; });
  const int shared = tile.shared_bytes() * (work.b == nullptr ? 1 : 2);
  make_ready(kernel, tile.threads(), shared, device);
  passes::WholeRows<Number> rows{};
  rows.in = static_cast<const Number*>(work.a);
  rows.out = static_cast<Number*>(work.out);
  rows.rows = work.rows;
  rows.row_stride = std::int64_t{1} << work.log_n;
  rows.log_n = work.log_n;
  rows.scale = static_cast<Number>(std::ldexp(1.0, -(work.log_n + work.above)));
  const auto is_aligned = [](const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
  };
  rows.in_units = is_aligned(work.a) && is_aligned(work.b) && work.log_n >= tile.log_unit();
  launch(kernel,
         {.blocks = ceil_div(work.rows, std::int64_t{1} << (tile.log_elements - work.log_n)),
          .threads = tile.threads(),
          .shared = shared,
          .programmatic = work.programmatic},
         stream, rows, static_cast<const Number*>(work.b));
}

template <class Number>
void launch_divided_of(const DividedPasses& work, const DeviceInfo& device, Stream stream) {
  constexpr passes::Word kWord = passes::word_of_number<Number>();
  const int most_bits = passes::most_axis_bits(kWord, device.shared_bytes_per_block);
  const passes::AxisPasses all = passes::axis_passes(kWord, work.log_n - work.shift, most_bits);
  int shift = work.shift;
  for (int i = 0; i < all.count; ++i) {
    const PassTile& tile = all.tiles[static_cast<std::size_t>(i)];
    dispatch_int<passes::kFewestAxisBits, passes::kMostAxisBits>(tile.bits, [&](auto bits) {
      constexpr PassTile kTile = divided_tile<Number, bits()>();
      using Out = Divided<Number, bits()>;
      const auto kernel = divided_pass<Number, bits()>;
      make_ready(kernel, kTile.threads(), kTile.shared_bytes(), device);
      launch(kernel,
             {.blocks = (work.vectors << work.log_n) >> kTile.log_elements(),
              .threads = kTile.threads(),
              .shared = kTile.shared_bytes(),
              .programmatic = work.programmatic},
             stream,
             {static_cast<const Number*>(work.data), static_cast<Out*>(work.data),
              std::int64_t{1} << work.log_n, work.log_n, shift, Number(1)});
    });
    shift += tile.bits;
  }
}

}  // namespace

void launch_convolved_rows(const ConvolvedRows& work, const DeviceInfo& device, Stream stream) {
  switch (work.dtype) {
    case Dtype::f64:
      return launch_rows_of<double>(work, device, stream);
    case Dtype::i32:
      return launch_rows_of<std::uint32_t>(work, device, stream);
    case Dtype::i64:
      return launch_rows_of<passes::Integer64>(work, device, stream);
    default:
      return launch_rows_of<float>(work, device, stream);
  }
}

void launch_divided_passes(const DividedPasses& work, const DeviceInfo& device, Stream stream) {
  if (work.dtype == Dtype::i32) return launch_divided_of<std::uint32_t>(work, device, stream);
  launch_divided_of<passes::Integer64>(work, device, stream);
}

}  // namespace fwht::walsh
