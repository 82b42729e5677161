// Walsh spectra of Boolean functions from their values, and summaries without the spectra.
//
// Idea: loads make (-1)^f themselves, so that nobody writes int32 data of +1 and -1; and where only max |W|
// and the sum of squares are asked for, the last pass reduces its sums in place of storing them. Functions of
// up to 14 variables are rows that a block holds (the rounds of whole rows, whose first has 32 neighbours a
// thread: a word of packed values). Longer ones begin with a row pass of the variant `passes`, whose tile is
// 2^row_bits neighbours, 32 a thread, and end with a pass over columns.
//
// Bit card of the row pass:
//   round   registers                      lanes    warps       grid
//   1       b5-b9                          b0-b4    b10 ..      all others
//   2       the five highest of the row    b0-b4    b5 ..       all others
// b0-b4 are transformed between lanes first. Of packed values 32 neighbours are a word, and a register's of
// all lanes: lane k loads that of register k, which goes to all lanes by a shuffle.
#include "variants/library/function_rows.hpp"

#include "common/device/launcher.hpp"
#include "common/host/bits.hpp"
#include "common/host/static_dispatch.hpp"
#include "variants/library/ready_kernel.cuh"

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

/// +1 or -1 for 32 neighbours, or for as many as are `left`.
__device__ void load_signs(FunctionForm form, const std::uint8_t* values, std::int64_t first,
                           std::int64_t left, std::uint32_t (&x)[32][1]) {
  const bool whole = left >= 32;
  if (form == FunctionForm::packed) {
    const std::uint8_t* const from = values + (first >> 3);
    std::uint32_t word = 0;
    if (whole) {
      word = __ldg(reinterpret_cast<const std::uint32_t*>(from));
    } else {
      for (int byte = 0; 8 * byte < left; ++byte)
        word |= std::uint32_t{__ldg(from + byte)} << 8 * byte;
    }
#pragma unroll
    for (int k = 0; k < 32; ++k)
      x[k][0] = 1 - 2 * (word >> k & 1);
    return;
  }
  const std::uint8_t* const from = values + first;
  const bool in_words = whole && reinterpret_cast<std::uintptr_t>(from) % 4 == 0;
#pragma unroll
  for (int k = 0; k < 32; k += 4) {
    std::uint32_t word = 0;
    if (in_words) {
      word = __ldg(reinterpret_cast<const std::uint32_t*>(from + k));
    } else {
#pragma unroll
      for (int byte = 0; byte < 4; ++byte)
        if (k + byte < left) word |= std::uint32_t{__ldg(from + k + byte)} << 8 * byte;
    }
#pragma unroll
    for (int byte = 0; byte < 4; ++byte) {
      const std::uint32_t value = word >> 8 * byte & 0xFF;
      x[k + byte][0] = form == FunctionForm::bits ? 1 - 2 * value : (value ^ 0x80) - 0x80;  // with its sign
    }
  }
}

/// Of some coefficients of one function; the largest one and its place in one number, so that of equal ones
/// the first place is the largest number.
struct Summed {
  unsigned long long key = 0, squares = 0;
};
__device__ unsigned long long key_of(std::uint32_t size, std::uint32_t place) {
  return static_cast<unsigned long long>(size) << 32 | (0xFFFFFFFFU - place);
}

/// What a thread has of one function, in ascending places.
class Summing {
 public:
  __device__ void add(int k, std::uint32_t sum) {
    const auto size = static_cast<std::uint32_t>(abs(static_cast<std::int32_t>(sum)));
    squares_ += static_cast<unsigned long long>(size) * size;
    if (size <= largest_) return;
    largest_ = size;
    at_ = k;
  }
  /// place_of(k) is the place of the k-th one.
  template <class PlaceOf>
  __device__ Summed done(const PlaceOf& place_of) const {
    return {key_of(largest_, static_cast<std::uint32_t>(place_of(at_))), squares_};
  }

 private:
  std::uint32_t largest_ = 0;
  int at_ = 0;
  unsigned long long squares_ = 0;
};

__device__ Summed over_warp(Summed all) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    all.key = max(all.key, __shfl_xor_sync(0xFFFFFFFFU, all.key, lanes));
    all.squares += __shfl_xor_sync(0xFFFFFFFFU, all.squares, lanes);
  }
  return all;
}

/// Known to thread 0. Once in a kernel.
template <int threads>
__device__ Summed over_block(Summed all) {
  all = over_warp(all);
  if constexpr (threads > 32) {
    __shared__ unsigned long long of_warp[threads / 32][2];
    if (threadIdx.x % 32 == 0)
      of_warp[threadIdx.x / 32][0] = all.key, of_warp[threadIdx.x / 32][1] = all.squares;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int warp = 1; warp < threads / 32; ++warp) {
        all.key = max(all.key, of_warp[warp][0]);
        all.squares += of_warp[warp][1];
      }
    }
  }
  return all;
}

__device__ SpectrumSummary summary_of(const Summed& all, int variables) {
  const auto largest = static_cast<std::int64_t>(all.key >> 32);
  return {largest, static_cast<std::int64_t>(0xFFFFFFFFU - static_cast<std::uint32_t>(all.key)),
          (std::int64_t{1} << (variables - 1)) - largest / 2, all.squares};
}

/// Functions that a block holds: one, or as many short ones as 2^10 values are. Spectra or summaries.
struct ShortFunctions {
  FunctionForm form;
  const std::uint8_t* values;
  std::int64_t functions;
  int variables;
  std::uint32_t* spectra;
  SpectrumSummary* summaries;
};

/// Three quarters of those of whole rows, with whose registers the values would spill.
constexpr int blocks_of_functions(int threads) {
  return std::max(passes::blocks_of_rows<std::uint32_t>(threads) * 3 / 4, 1);
}

template <int log_elements, bool summarizes>
__global__ void __launch_bounds__(1 << (log_elements - 5), blocks_of_functions(1 << (log_elements - 5)))
    short_functions(__grid_constant__ const ShortFunctions work) {
  constexpr passes::RowTile tile{log_elements, 4};
  constexpr int kLast = tile.rounds() - 1;
  const int log_n = log_elements == passes::kSmallestRowTile ? work.variables : log_elements;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t block = std::int64_t{blockIdx.x} << log_elements;
  const std::int64_t left = (work.functions << log_n) - block;  // of all values, from those of the block on
  auto* const shared = reinterpret_cast<std::uint32_t*>(passes::exchange_of_block);
  std::uint32_t x[32][1];
  load_signs(work.form, work.values, block + (thread << 5), left - (thread << 5), x);
  passes::register_butterflies<0>(x, log_n);
  // Of up to 5 variables a thread has whole functions already.
  if (!summarizes || log_n > 5) passes::later_rounds<tile>(x, shared, thread, log_n);
  if constexpr (!summarizes) {
    const int first = tile.element(kLast, thread, 0);
#pragma unroll
    for (int k = 0; k < 32; ++k) {
      const int element = first + tile.element(kLast, 0, k);
      if (element < left) work.spectra[block + element] = x[k][0];
    }
  } else if constexpr (kLast == 1) {
    const bool alone = log_n <= 5;  // a thread; else a warp, whose lanes are the lowest bits
    const int registers = 1 << (alone ? log_n : log_n - 5), log_step = alone ? 0 : 5;
    const int first = alone ? thread << 5 : thread;
    Summing part;
#pragma unroll
    for (int k = 0; k < 32; ++k) {
      part.add(k, x[k][0]);
      if (((k + 1) & (registers - 1)) != 0) continue;
      const int base = first + (k << log_step);
      Summed all = part.done([&](int at) { return (first + (at << log_step)) & ((1 << log_n) - 1); });
      if (!alone) all = over_warp(all);
      if (base < left && (alone || thread == 0))
        work.summaries[(block + base) >> log_n] = summary_of(all, log_n);
      part = {};
    }
  } else {
    const int first = tile.element(kLast, thread, 0);
    Summing part;
#pragma unroll
    for (int k = 0; k < 32; ++k)
      part.add(k, x[k][0]);
    const Summed all =
        over_block<tile.threads()>(part.done([&](int at) { return first + tile.element(kLast, 0, at); }));
    if (thread == 0) work.summaries[blockIdx.x] = summary_of(all, log_n);
  }
}

/// Tile `index` of the last pass of a function, whose sums nobody stores: in registers, as the last round has
/// them.
template <passes::PassTile tile>
class SummedTile {
 public:
  static constexpr int kLast = tile.rounds() - 1;
  static_assert(tile.registers() == 32 && tile.width() == 1 && kLast <= 1);

  /// Places in a function have at most 30 bits: as 64 they spill.
  __device__ SummedTile(const std::uint32_t* sums, std::int64_t index, int shift)
      : first_(static_cast<std::uint32_t>(tile.first_element(index, shift) + tile.column_of(thread()))),
        shift_(shift) {
    const std::uint32_t loaded = first_ + (static_cast<std::uint32_t>(tile.first_row(0, thread())) << shift);
#pragma unroll
    for (int k = 0; k < 32; ++k)
      passes::load(sums + (loaded + (static_cast<std::uint32_t>(k) << (shift + tile.low_bit(0)))), x[k]);
    passes::register_butterflies<0>(x);
    if constexpr (kLast == 1) {
      passes::exchange<tile, 0>(x, reinterpret_cast<std::uint32_t*>(passes::exchange_of_block), thread());
      passes::register_butterflies<tile.first_new_bit(1)>(x);
    }
  }

  /// Of register k: ascending.
  __device__ std::uint32_t place(int k) const {
    return first_ + (static_cast<std::uint32_t>(tile.first_row(kLast, thread()) + (k << tile.low_bit(kLast)))
                     << shift_);
  }

  std::uint32_t x[32][1];

 private:
  __device__ static int thread() {
    return static_cast<int>(threadIdx.x);
  }
  std::uint32_t first_;
  int shift_;
};

template <int bits>
constexpr int blocks_of_summed_tiles() {
  constexpr passes::PassTile kTile = summed_tile(bits);
  return kTile.log_columns == 5 ? passes::blocks_per_sm(kTile.threads()) : 1;
}

/// The last pass of longer ones: a block is a tile. It adds to the summary of its function, whose `largest`
/// is a key until finish_summaries.
template <int bits>
__global__ void __launch_bounds__(summed_tile(bits).threads(), blocks_of_summed_tiles<bits>())
    summed_pass(const std::uint32_t* sums, int variables, SpectrumSummary* summaries) {
  constexpr passes::PassTile tile = summed_tile(bits);
  const int log_tiles = variables - tile.log_elements();
  const std::int64_t function = std::int64_t{blockIdx.x} >> log_tiles;
  const SummedTile<summed_tile(bits)> summed(sums + (function << variables),
                                             blockIdx.x - (function << log_tiles), variables - bits);
  Summing part;
#pragma unroll
  for (int k = 0; k < 32; ++k)
    part.add(k, summed.x[k][0]);
  const Summed all = over_block<tile.threads()>(part.done([&](int at) { return summed.place(at); }));
  if (threadIdx.x != 0) return;
  SpectrumSummary& summary = summaries[function];
  auto* const key = reinterpret_cast<unsigned long long*>(&summary.largest);
  // Most blocks find a larger one, and need not queue at one address.
  if (all.key > *const_cast<volatile unsigned long long*>(key)) atomicMax(key, all.key);
  atomicAdd(reinterpret_cast<unsigned long long*>(&summary.sum_of_squares), all.squares);
}

/// Of some coefficients of one function, what orders them: the larger one first, of equal ones the first
/// place. No two are alike, and none is 0.
__device__ unsigned long long order_of(std::uint32_t sum, std::uint32_t place) {
  const auto value = static_cast<std::int32_t>(sum);
  const std::uint32_t low = (0x40000000U - place) << 1 | (value < 0 ? 1 : 0);
  // Unsigned, for values that are none of the form may have sums of -2^31.
  const std::uint32_t size = value < 0 ? 0U - sum : sum;
  return static_cast<unsigned long long>(size) << 32 | low;
}

__device__ std::uint32_t place_of(unsigned long long order) {
  return 0x40000000U - (static_cast<std::uint32_t>(order) >> 1);
}

/// The largest t that at least `count` of the block's numbers reach, of which number_of(t) says how many a
/// thread has.
template <class NumberOf>
__device__ unsigned long long reached_by(int count, const NumberOf& number_of) {
  __shared__ int totals[3];  // in turns: one is cleared while another is read
  if (threadIdx.x < 3) totals[threadIdx.x] = 0;
  __syncthreads();
  unsigned long long reached = 0;
  for (int bit = 63, turn = 0; bit >= 0; --bit, turn = turn == 2 ? 0 : turn + 1) {
    const unsigned long long asked = reached | 1ULL << bit;
    const int own = __reduce_add_sync(0xFFFFFFFFU, number_of(asked));
    if (threadIdx.x % 32 == 0 && own > 0) atomicAdd(totals + turn, own);
    __syncthreads();
    if (totals[turn] >= count) reached = asked;
    if (threadIdx.x == 0) totals[turn == 0 ? 2 : turn - 1] = 0;
  }
  return reached;
}

/// The `count` largest of `numbers` (of all, where there are fewer; 0 stands for none), the largest first, by
/// one block.
__global__ void __launch_bounds__(1024) select_largest(const unsigned long long* numbers, std::int64_t total,
                                                       int count, unsigned long long* kept) {
  __shared__ unsigned long long found[kMostLargest];
  __shared__ int slots;
  if (threadIdx.x == 0) slots = 0;
  const unsigned long long least = reached_by(count, [&](unsigned long long asked) {
    int own = 0;
    for (std::int64_t i = threadIdx.x; i < total; i += blockDim.x)
      own += numbers[i] >= asked ? 1 : 0;
    return own;
  });
  for (std::int64_t i = threadIdx.x; i < total; i += blockDim.x) {
    const unsigned long long number = numbers[i];
    if (number >= least && number != 0) found[atomicAdd(&slots, 1)] = number;
  }
  __syncthreads();
  const int i = static_cast<int>(threadIdx.x);
  if (i >= count) return;
  if (i >= slots) {
    kept[i] = 0;
    return;
  }
  int larger = 0;
  for (int k = 0; k < slots; ++k)
    larger += found[k] > found[i] ? 1 : 0;
  kept[larger] = found[i];
}

/// The first of its tile, in the same order, by each block of the last pass of one function.
template <int bits>
__global__ void __launch_bounds__(summed_tile(bits).threads(), blocks_of_summed_tiles<bits>())
    firsts_of_tiles(const std::uint32_t* sums, int variables, unsigned long long* firsts) {
  const SummedTile<summed_tile(bits)> summed(sums, blockIdx.x, variables - bits);
  std::uint32_t largest = 0, sum = 0;
  int at = 0;
#pragma unroll
  for (int k = 0; k < 32; ++k) {
    const auto size = static_cast<std::uint32_t>(abs(static_cast<std::int32_t>(summed.x[k][0])));
    if (size <= largest) continue;
    largest = size, sum = summed.x[k][0], at = k;
  }
  const Summed all = over_block<summed_tile(bits).threads()>({order_of(sum, summed.place(at)), 0});
  if (threadIdx.x == 0) firsts[blockIdx.x] = all.key;
}

/// The `count` largest of a tile that are not behind the last of `kept`: of the tile that has
/// kept[blockIdx.x]. The largest of a function lie in the tiles whose own largest come first. 0 for none.
template <int bits>
__global__ void __launch_bounds__(summed_tile(bits).threads(), 1)
    largest_of_tiles(const std::uint32_t* sums, int variables, const unsigned long long* kept, int count,
                     unsigned long long* candidates) {
  constexpr passes::PassTile tile = summed_tile(bits);
  const int shift = variables - bits;
  const unsigned long long first = kept[blockIdx.x], last = kept[gridDim.x - 1];
  const SummedTile<summed_tile(bits)> summed(
      sums, (place_of(first) & ((1U << shift) - 1)) >> tile.log_columns, shift);
  unsigned long long least = reached_by(count, [&](unsigned long long asked) {
    int own = 0;
#pragma unroll
    for (int k = 0; k < 32; ++k)
      own += order_of(summed.x[k][0], summed.place(k)) >= asked ? 1 : 0;
    return own;
  });
  if (gridDim.x == static_cast<unsigned>(count)) least = max(least, last);
  __shared__ int slots;
  if (threadIdx.x == 0) slots = 0;
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 32; ++k) {
    const unsigned long long number = order_of(summed.x[k][0], summed.place(k));
    if (number >= least) candidates[std::int64_t{blockIdx.x} * count + atomicAdd(&slots, 1)] = number;
  }
  __syncthreads();
  for (int i = slots + static_cast<int>(threadIdx.x); i < count; i += tile.threads())
    candidates[std::int64_t{blockIdx.x} * count + i] = 0;
}

__global__ void order_spectrum(const std::uint32_t* spectrum, std::uint32_t n, unsigned long long* numbers) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) numbers[i] = order_of(spectrum[i], i);
}

__global__ void finish_largest(const unsigned long long* kept, std::int64_t count, std::int64_t* places,
                               std::int32_t* sums) {
  const auto i = static_cast<std::int64_t>(threadIdx.x);
  if (i >= count) return;
  const auto size = static_cast<std::int32_t>(kept[i] >> 32);
  places[i] = place_of(kept[i]);
  sums[i] = (kept[i] & 1) != 0 ? -size : size;
}

__global__ void finish_summaries(SpectrumSummary* summaries, std::int64_t functions, int variables) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= functions) return;
  const SpectrumSummary summary = summaries[i];
  summaries[i] =
      summary_of({static_cast<unsigned long long>(summary.largest), summary.sum_of_squares}, variables);
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

void launch_short_functions(FunctionForm form, const void* values, int variables, std::int64_t functions,
                            std::int32_t* spectra, SpectrumSummary* summaries, const DeviceInfo& device,
                            Stream stream) {
  const passes::RowTile tile = passes::row_tile(passes::Word::int32, variables, false);
  using Short = void (*)(ShortFunctions);
  const auto kernel = dispatch_int<passes::kSmallestRowTile, kFewestVariablesInPasses - 1>(
      tile.log_elements, [&](auto log_elements) -> Short {
        return spectra != nullptr ? short_functions<log_elements(), false>
                                  : short_functions<log_elements(), true>;
      });
  make_ready(kernel, tile.threads(), tile.shared_bytes(), device);
  launch(kernel,
         {.blocks = ceil_div(functions, std::int64_t{1} << (tile.log_elements - variables)),
          .threads = tile.threads(),
          .shared = tile.shared_bytes()},
         stream,
         {form, static_cast<const std::uint8_t*>(values), functions, variables,
          reinterpret_cast<std::uint32_t*>(spectra), summaries});
}

template <class Launch>
void with_summed_tile(int bits, const Launch& launch_kernels) {
  dispatch_int<passes::kFewestAxisBits, passes::kMostAxisBits>(bits, launch_kernels);
}

void launch_summed_pass(const std::int32_t* sums, int variables, int bits, std::int64_t functions,
                        SpectrumSummary* summaries, const DeviceInfo& device, Stream stream) {
  const passes::PassTile tile = summed_tile(bits);
  with_summed_tile(bits, [&](auto of_pass) {
    const auto kernel = summed_pass<of_pass()>;
    make_ready(kernel, tile.threads(), tile.shared_bytes(), device);
    launch(kernel,
           {.blocks = functions << (variables - tile.log_elements()),
            .threads = tile.threads(),
            .shared = tile.shared_bytes()},
           stream, reinterpret_cast<const std::uint32_t*>(sums), variables, summaries);
  });
}

void launch_largest(const std::int32_t* sums, int variables, int bits, const LargestRoom& room, int count,
                    std::int64_t* places, std::int32_t* values, const DeviceInfo& device, Stream stream) {
  const auto* const from = reinterpret_cast<const std::uint32_t*>(sums);
  std::int64_t total = std::int64_t{1} << variables;
  if (bits == 0) {
    launch(order_spectrum, {.blocks = ceil_div(total, 256), .threads = 256}, stream, from,
           static_cast<std::uint32_t>(total), room.numbers);
  } else {
    const passes::PassTile tile = summed_tile(bits);
    const std::int64_t tiles = std::int64_t{1} << (variables - tile.log_elements());
    const int kept = static_cast<int>(std::min<std::int64_t>(tiles, count));
    with_summed_tile(bits, [&](auto of_pass) {
      const auto first = firsts_of_tiles<of_pass()>;
      const auto largest = largest_of_tiles<of_pass()>;
      make_ready(first, tile.threads(), tile.shared_bytes(), device);
      make_ready(largest, tile.threads(), tile.shared_bytes(), device);
      launch(first, {.blocks = tiles, .threads = tile.threads(), .shared = tile.shared_bytes()}, stream, from,
             variables, room.numbers);
      launch(select_largest, {.blocks = 1, .threads = 1024}, stream, room.numbers, tiles, kept, room.kept);
      launch(largest, {.blocks = kept, .threads = tile.threads(), .shared = tile.shared_bytes()}, stream,
             from, variables, room.kept, count, room.candidates);
    });
    total = std::int64_t{kept} * count;
  }
  launch(select_largest, {.blocks = 1, .threads = 1024}, stream, bits == 0 ? room.numbers : room.candidates,
         total, count, room.kept);
  launch(finish_largest, {.blocks = 1, .threads = kMostLargest}, stream, room.kept, count, places, values);
}

void clear_summaries(SpectrumSummary* summaries, std::int64_t functions, Stream stream) {
  FWHT_CUDA(
      cudaMemsetAsync(summaries, 0, sizeof(SpectrumSummary) * static_cast<std::size_t>(functions), stream));
}

void launch_finish_summaries(SpectrumSummary* summaries, int variables, std::int64_t functions,
                             Stream stream) {
  launch(finish_summaries, {.blocks = ceil_div(functions, 128), .threads = 128}, stream, summaries, functions,
         variables);
}

}  // namespace fwht::walsh
