// The first pass of Walsh spectra.
//
// Idea: a row pass of the variant `passes` whose loads make (-1)^f themselves, so that nobody writes int32
// data of +1 and -1. Its tile is 2^row_bits neighbours, and every thread has 32 of them.
//
// Bit card:
//   round   registers                      lanes    warps       grid
//   1       b5-b9                          b0-b4    b10 ..      all others
//   2       the five highest of the row    b0-b4    b5 ..       all others
// b0-b4 are transformed between lanes first. Of packed values 32 neighbours are a word, and a register's of
// all lanes: lane k loads that of register k, which goes to all lanes by a shuffle.
#include "variants/library/function_rows.hpp"

#include "common/device/launcher.hpp"
#include "common/host/static_dispatch.hpp"
#include "variants/passes/tile_kernels.cuh"

namespace fwht::walsh {
namespace {

constexpr int threads_of(const passes::PassTile& tile) {
  return std::max(tile.threads(), 128);
}

template <FunctionForm form, int row_bits>
__global__ void __launch_bounds__(threads_of(function_tile(row_bits)),
                                  passes::blocks_per_sm(threads_of(function_tile(row_bits))))
    function_rows(const std::uint8_t* __restrict__ values, std::uint32_t* __restrict__ sums) {
  constexpr passes::PassTile tile = function_tile(row_bits);
  constexpr int kLast = tile.rounds() - 1, kTiles = threads_of(tile) / tile.threads();
  static_assert(tile.registers() == 32 && tile.width() == 1 && kLast <= 1);
  const int part = static_cast<int>(threadIdx.x) / tile.threads();
  const int thread = static_cast<int>(threadIdx.x) % tile.threads();
  auto* const shared =
      reinterpret_cast<std::uint32_t*>(passes::exchange_of_block) + part * tile.shared_words();
  const std::int64_t first = (std::int64_t{blockIdx.x} * kTiles + part) << row_bits;
  const int lane = thread & 31;
  std::uint32_t x[32][1];
  if constexpr (form == FunctionForm::packed) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(values) + (first >> 5);
    const std::uint32_t word = __ldg(words + tile.first_row(0, thread) + lane);
#pragma unroll
    for (int k = 0; k < 32; ++k)
      x[k][0] = 1 - 2 * (__shfl_sync(0xFFFFFFFFU, word, k) >> lane & 1);
  } else {
    const std::uint8_t* from = values + first + (tile.first_row(0, thread) << 5) + lane;
#pragma unroll
    for (int k = 0; k < 32; ++k) {
      const std::uint8_t value = __ldg(from + (k << (5 + tile.low_bit(0))));
      x[k][0] = form == FunctionForm::bits
                    ? 1 - 2 * std::uint32_t{value}
                    : static_cast<std::uint32_t>(static_cast<std::int32_t>(static_cast<std::int8_t>(value)));
    }
  }
  passes::lane_butterflies<5>(x);
  passes::register_butterflies<0>(x);
  if constexpr (kLast == 1) {
    passes::exchange<tile, 0>(x, shared, thread);
    passes::register_butterflies<tile.first_new_bit(1)>(x);
  }
  std::uint32_t* to = sums + first + (tile.first_row(kLast, thread) << 5) + lane;
#pragma unroll
  for (int k = 0; k < 32; ++k)
    to[k << (5 + tile.low_bit(kLast))] = x[k][0];
}

using Kernel = void (*)(const std::uint8_t*, std::uint32_t*);

template <FunctionForm form>
Kernel kernel_of(int row_bits) {
  switch (row_bits) {
    case 10:
      return function_rows<form, 10>;
    case 12:
      return function_rows<form, 12>;
    default:
      return function_rows<form, 13>;
  }
}

}  // namespace

void launch_function_rows(FunctionForm form, const void* values, int variables, std::int64_t functions,
                          std::int32_t* sums, Stream stream) {
  const int row_bits = function_row_bits(variables);
  const passes::PassTile tile = function_tile(row_bits);
  const int tiles = threads_of(tile) / tile.threads();
  const Kernel kernel = form == FunctionForm::packed ? kernel_of<FunctionForm::packed>(row_bits)
                        : form == FunctionForm::bits ? kernel_of<FunctionForm::bits>(row_bits)
                                                     : kernel_of<FunctionForm::signs>(row_bits);
  launch(kernel,
         {.blocks = (functions << (variables - row_bits)) / tiles,
          .threads = threads_of(tile),
          .shared = tiles * tile.shared_bytes()},
         stream, static_cast<const std::uint8_t*>(values), reinterpret_cast<std::uint32_t*>(sums));
}

}  // namespace fwht::walsh
