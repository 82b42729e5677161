// The transform of one tile by a team of GPU threads: index maps and per-thread steps, free of Kokkos so that
// the host tests can run the very same steps in lock-step and prove the maps.
//
// A tile is 2^kChunkBits elements in fp32 scratch at a time (several short rows, one row, or one of kChunks
// pieces of a long row). Each thread owns 2^kRegBits of them per pass and does the butterflies of the index
// bits that are its register bits. Between passes the elements change hands through scratch, so a radix-32
// pass costs one exchange where radix 2 would cost five. Passes take the index bits in ascending order and
// the bits above the chunk (kChunks pieces kept in registers) come last: the result is bit for bit that of
// the plain ascending loop nest.
//
// Bit card (16-bit storage, n = 2048; every shape is printed by kokkos_tile_test):
//   pass 0  register b0-b2 b9-b10 | lane b3-b7           | warp b8    load 16-byte vectors, butterflies b0-b2
//   pass 1  register b3-b7        | lane b0-b2 b8-b9     | warp b10   butterflies b3-b7
//   pass 2  register b0-b1 b8-b10 | lane b2-b6           | warp b7    butterflies b8-b10, scale, store 8
//   bytes
#pragma once

#include <cstdint>
#include <utility>

#include "common/contract/dtype.hpp"
#include "common/host/bits.hpp"
#include "variants/kit/simd/unroll.hpp"

namespace fwht::kokkos {

using simd::butterflies;
using simd::unrolled;

/// Scratch address of element e: one word of padding per 32, so that a warp whose five lane bits are distinct
/// modulo 5 (and below 10) touches 32 different banks. Additive over disjoint bits: padded(a | b) = padded(a)
/// + padded(b).
FWHT_HOST_DEVICE constexpr int padded(int element) {
  return element + (element >> 5);
}

/// Which element bit each register bit and each thread bit of a pass stands for, and which levels the pass
/// does.
template <int kChunkBits, int kRegBits>
struct PassMap {
  static constexpr int kThreadBits = kChunkBits - kRegBits;
  int register_bit[kRegBits] = {};
  int thread_bit[kThreadBits > 0 ? kThreadBits : 1] = {};
  int first_active = 0;  ///< register bits [first_active, first_active + levels) are transformed
  int levels = 0;
  int first_level = 0;  ///< the element bit that register bit first_active stands for

  FWHT_HOST_DEVICE constexpr int register_offset(int reg) const {
    int element = 0;
    for (int i = 0; i < kRegBits; ++i)
      element |= ((reg >> i) & 1) << register_bit[i];
    return element;
  }
  FWHT_HOST_DEVICE constexpr int thread_offset(int thread) const {
    int element = 0;
    for (int i = 0; i < kThreadBits; ++i)
      element |= ((thread >> i) & 1) << thread_bit[i];
    return element;
  }
  FWHT_HOST_DEVICE constexpr int element_of(int thread, int reg) const {
    return thread_offset(thread) | register_offset(reg);
  }
  /// Thread bits whose element bit lies `distance` above them, as a mask of the thread index.
  FWHT_HOST_DEVICE constexpr int bits_moved_by(int distance) const {
    int mask = 0;
    for (int i = 0; i < kThreadBits; ++i)
      mask |= thread_bit[i] - i == distance ? 1 << i : 0;
    return mask;
  }
};

/// Shape of a tile. kFirst levels in the first pass (at least one 16-byte vector), kLast in the last, the
/// others in passes of up to kRegBits levels between them.
template <int kStorageBytes_, int kChunkBits_, int kRegBits_, int kFirst_, int kLast_, int kChunks_,
          int kBlocksPerSm_, int kLog2N_ = 0>
struct TileShape {
  static constexpr int kStorageBytes = kStorageBytes_;
  static constexpr int kChunkBits = kChunkBits_, kRegBits = kRegBits_;
  static constexpr int kFirst = kFirst_, kLast = kLast_;
  static constexpr int kChunks = kChunks_;
  static constexpr int kBlocksPerSm = kBlocksPerSm_;  // asked of the compiler as launch bounds
  static constexpr int kLog2N = kLog2N_;              // of the rows; 0: told at run time, at most kChunkBits
  // The tile is one row.
  static constexpr bool kWholeRow = kLog2N_ >= kChunkBits;
  // A team that has an SM to itself walks over rows and loads the next one ahead, where registers are left
  // for it.
  static constexpr bool kPersistent = kBlocksPerSm == 1 && kStorageBytes == 2;
  static constexpr int kChunkElements = 1 << kChunkBits;
  static constexpr int kRegisters = 1 << kRegBits;
  static constexpr int kThreads = 1 << (kChunkBits - kRegBits);
  static constexpr int kVectorBits = kStorageBytes == 2 ? 3 : 2;  // elements in 16 bytes
  static constexpr int kMiddle = kChunkBits - kFirst - kLast;
  static constexpr int kMiddlePasses = (kMiddle + kRegBits - 1) / kRegBits;
  static constexpr int kPasses = kMiddlePasses + 2;
  static constexpr int kScratchFloats = padded(kChunkElements - 1) + 1;
  static constexpr int kStoreElements = 1 << (kRegBits - kLast);
  static constexpr int kStoreBytes =
      kStoreElements * kStorageBytes < 16 ? kStoreElements * kStorageBytes : 16;

  static_assert(kFirst >= kVectorBits && kFirst <= kRegBits, "the first pass owns whole 16-byte vectors");
  static_assert(kLast >= 1 && kLast <= kRegBits && kMiddle >= 1);
  static_assert(kStoreBytes >= 4, "no 2-byte stores");
  static_assert((kChunks & (kChunks - 1)) == 0 && kChunks >= 1);

  using Map = PassMap<kChunkBits, kRegBits>;

  FWHT_HOST_DEVICE static constexpr Map pass(int index) {
    Map map;
    if (index == 0) {
      map.first_active = 0, map.levels = kFirst, map.first_level = 0;
      low_and_high(map, kFirst);
    } else if (index == kPasses - 1) {
      map.first_active = kRegBits - kLast, map.levels = kLast, map.first_level = kChunkBits - kLast;
      low_and_high(map, kRegBits - kLast);
    } else {
      const int begin = kFirst + (index - 1) * kRegBits;
      const int rest = kFirst + kMiddle - begin;
      map.levels = rest < kRegBits ? rest : kRegBits;
      map.first_level = begin;
      const int start = begin + kRegBits <= kChunkBits ? begin : kChunkBits - kRegBits;
      map.first_active = begin - start;
      for (int i = 0; i < kRegBits; ++i)
        map.register_bit[i] = start + i;
      spread_lanes(map, start);
    }
    return map;
  }

 private:
  /// Registers: the lowest `low` bits and as many of the highest as are left; threads: the bits between, in
  /// order, so that neighbouring lanes touch neighbouring vectors in global memory.
  FWHT_HOST_DEVICE static constexpr void low_and_high(Map& map, int low) {
    for (int i = 0; i < low; ++i)
      map.register_bit[i] = i;
    for (int i = low; i < kRegBits; ++i)
      map.register_bit[i] = kChunkBits - kRegBits + i;
    for (int i = 0; i < Map::kThreadBits; ++i)
      map.thread_bit[i] = low + i;
  }
  /// Lane bit i stands for element bit i or, where that is a register, i + 5: distinct banks (see `padded`).
  FWHT_HOST_DEVICE static constexpr void spread_lanes(Map& map, int start) {
    bool taken[kChunkBits] = {};
    for (int i = 0; i < kRegBits; ++i)
      taken[start + i] = true;
    int count = 0;
    for (int lane = 0; lane < 5 && count < Map::kThreadBits; ++lane) {
      const int bit = !taken[lane] ? lane : lane + 5;
      if (bit < kChunkBits && !taken[bit]) map.thread_bit[count++] = bit, taken[bit] = true;
    }
    for (int bit = 0; bit < kChunkBits && count < Map::kThreadBits; ++bit) {
      if (!taken[bit]) map.thread_bit[count++] = bit, taken[bit] = true;
    }
  }
};

struct alignas(16) Words4 {
  std::uint32_t word[4];
};
struct alignas(8) Words2 {
  std::uint32_t word[2];
};

/// What a tile kernel is told; the same for every team.
struct TileJob {
  std::int64_t rows = 0;
  std::int64_t tiles = 0;
  std::int64_t row_stride = 0;  ///< in elements
  int gap = 0;                  ///< row_stride - n; unused where a tile holds one row
  int log2_n = 0;
  int log2_rows_per_tile = 0;
  float scale = 1.0F;
};

/// The job of a shape. Rows too far apart for 32-bit offsets within a tile get a tile each.
template <class Shape>
TileJob make_tile_job(std::int64_t n, std::int64_t rows, std::int64_t row_stride, float scale) {
  TileJob job;
  const std::int64_t gap = row_stride - n;
  const bool near = gap < (std::int64_t{1} << 31);
  job.rows = rows;
  job.row_stride = row_stride;
  job.gap = near ? static_cast<int>(gap) : 0;
  job.log2_n = log2_floor(n);
  job.log2_rows_per_tile = near && job.log2_n < Shape::kChunkBits ? Shape::kChunkBits - job.log2_n : 0;
  job.tiles = ceil_div(rows, std::int64_t{1} << job.log2_rows_per_tile);
  job.scale = scale;
  return job;
}

/// Whether every 16-byte vector of both arrays is aligned and lies within one row, or rows follow each other.
template <class Shape>
bool whole_vectors(const TileJob& job, const void* in, const void* out) {
  const auto address = reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out);
  const std::int64_t n = std::int64_t{1} << job.log2_n;
  const std::int64_t row_bytes = n * Shape::kStorageBytes,
                     stride_bytes = job.row_stride * Shape::kStorageBytes;
  if (address % 16 != 0) return false;
  if (row_bytes >= 16) return stride_bytes % 16 == 0;
  return job.row_stride == n && job.rows * row_bytes % 16 == 0;
}

/// One thread of one team. kVectors: whole_vectors() holds; otherwise elements move one by one.
/// `Codec` turns storage words into floats and back:
///   float decode(std::uint32_t bits); std::uint32_t encode(float value)   (low 16 bits for 16-bit storage)
///   void decode2(std::uint32_t word, float& low, float& high); std::uint32_t encode2(float low, float high)
template <class Codec, class Shape, bool kVectors>
class TileThread {
 public:
  FWHT_HOST_DEVICE TileThread(const TileJob& job, const void* in, void* out, int thread)
      : job_(job), in_(static_cast<const char*>(in)), out_(static_cast<char*>(out)), thread_(thread) {}

  /// True when no level needs an exchange: the rows fit into the first pass's registers.
  FWHT_HOST_DEVICE bool register_only() const { return log2_n() <= Shape::kFirst; }

  /// Fetches this thread's share of a chunk of a tile.
  template <int kChunk>
  FWHT_HOST_DEVICE void load(std::int64_t tile) {
    const char* from = in_ + tile_offset(tile);
    const int elements = elements_of(tile), first = base<0>();
    unrolled<kBlocks>([&]<int block>() {
      constexpr int kOffset = Shape::pass(0).register_offset(block << Shape::kVectorBits);
      const int element = kChunk * Shape::kChunkElements + kOffset + first;
      raw_[kChunk][block] = load_block(from, element, elements);
    });
  }

  template <int kChunk>
  FWHT_HOST_DEVICE void unpack() {
    unrolled<kBlocks * 4>([&]<int w>() {
      const std::uint32_t word = raw_[kChunk][w / 4].word[w % 4];
      if constexpr (Shape::kStorageBytes == 2) {
        Codec::decode2(word, x_[2 * w], x_[2 * w + 1]);
      } else {
        x_[w] = Codec::decode(word);
      }
    });
  }

  template <int kPass>
  FWHT_HOST_DEVICE void transform() {
    constexpr typename Shape::Map kMap = Shape::pass(kPass);
    butterflies<Shape::kRegBits, kMap.first_active, kMap.levels>(x_, kMap.first_level, log2_n());
  }

  template <int kPass>
  FWHT_HOST_DEVICE void write(float* scratch) const {
    float* mine = scratch + padded(base<kPass>());
    unrolled<Shape::kRegisters>([&]<int r>() { mine[kPaddedOffset<kPass, r>] = x_[r]; });
  }

  template <int kPass>
  FWHT_HOST_DEVICE void read(const float* scratch) {
    const float* mine = scratch + padded(base<kPass>());
    unrolled<Shape::kRegisters>([&]<int r>() { x_[r] = mine[kPaddedOffset<kPass, r>]; });
  }

  template <int kChunk>
  FWHT_HOST_DEVICE void keep() {
    unrolled<Shape::kRegisters>([&]<int r>() { kept_[kChunk * Shape::kRegisters + r] = x_[r]; });
  }

  /// The levels above the chunk (ascending, so last), then the scale.
  FWHT_HOST_DEVICE void finish() {
    butterflies<kKeptBits, Shape::kRegBits, kKeptBits - Shape::kRegBits>(kept_, 0, kKeptBits);
    unrolled<1 << kKeptBits>([&]<int i>() { kept_[i] *= job_.scale; });
  }

  /// Stores what `finish` left, in the layout of pass kPass (the first for register_only tiles, else the
  /// last).
  template <int kPass>
  FWHT_HOST_DEVICE void store(std::int64_t tile) const {
    constexpr int kRun = kPass == 0 ? (1 << Shape::kVectorBits) : Shape::kStoreBytes / Shape::kStorageBytes;
    char* to = out_ + tile_offset(tile);
    const int elements = elements_of(tile), first = base<kPass>();
    unrolled<(1 << kKeptBits) / kRun>([&]<int run>() {
      constexpr int kChunk = run * kRun / Shape::kRegisters, kRegister = run * kRun % Shape::kRegisters;
      constexpr int kOffset = Shape::pass(kPass).register_offset(kRegister);
      const int element = kChunk * Shape::kChunkElements + kOffset + first;
      if constexpr (kVectors) {
        store_vector<kRun>(to, element, elements, &kept_[run * kRun]);
      } else {
        store_elements<kRun>(to, element, elements, &kept_[run * kRun]);
      }
    });
  }

 private:
  static constexpr int kBlocks = Shape::kRegisters * Shape::kStorageBytes / 16;
  static constexpr int kKeptBits = Shape::kRegBits + log2_floor(Shape::kChunks);

  template <int kPass, int r>
  static constexpr int kPaddedOffset = padded(Shape::pass(kPass).register_offset(r));

  FWHT_HOST_DEVICE int log2_n() const { return Shape::kLog2N > 0 ? Shape::kLog2N : job_.log2_n; }

  /// Element bits of this thread in a pass: bits that move by the same distance move together.
  template <int kPass>
  FWHT_HOST_DEVICE int base() const {
    int element = 0;
    unrolled<2 * Shape::kChunkBits>([&]<int i>() {
      constexpr int kDistance = i - Shape::kChunkBits;
      constexpr int kMask = Shape::pass(kPass).bits_moved_by(kDistance);
      if constexpr (kMask != 0 && kDistance >= 0) element |= (thread_ & kMask) << kDistance;
      if constexpr (kMask != 0 && kDistance < 0) element |= (thread_ & kMask) >> -kDistance;
    });
    return element;
  }

  FWHT_HOST_DEVICE std::int64_t tile_offset(std::int64_t tile) const {
    return (tile << job_.log2_rows_per_tile) * job_.row_stride * Shape::kStorageBytes;
  }
  /// Elements of the tile that exist: all but in the last tile.
  FWHT_HOST_DEVICE int elements_of(std::int64_t tile) const {
    const std::int64_t rows_left = job_.rows - (tile << job_.log2_rows_per_tile);
    const int rows_here = 1 << job_.log2_rows_per_tile;
    return (rows_left < rows_here ? static_cast<int>(rows_left) : rows_here) << log2_n();
  }
  FWHT_HOST_DEVICE static bool exists(int element, int elements) {
    return Shape::kWholeRow || element < elements;
  }

  FWHT_HOST_DEVICE std::int64_t byte_offset(int element) const {
    if constexpr (Shape::kWholeRow) {
      return element * Shape::kStorageBytes;
    } else {
      const std::int64_t in_gaps = static_cast<std::int64_t>(element >> log2_n()) * job_.gap;
      return (element + in_gaps) * Shape::kStorageBytes;
    }
  }

  FWHT_HOST_DEVICE Words4 load_block(const char* from, int element, int elements) const {
    Words4 words{};
    if constexpr (kVectors) {
      if (exists(element, elements)) words = *reinterpret_cast<const Words4*>(from + byte_offset(element));
    } else {
      unrolled<(1 << Shape::kVectorBits)>([&]<int i>() {
        if (!exists(element + i, elements)) return;
        const char* at = from + byte_offset(element + i);
        if constexpr (Shape::kStorageBytes == 2) {
          const std::uint32_t bits = *reinterpret_cast<const std::uint16_t*>(at);
          words.word[i / 2] |= bits << (16 * (i % 2));
        } else {
          words.word[i] = *reinterpret_cast<const std::uint32_t*>(at);
        }
      });
    }
    return words;
  }

  template <int kRun>
  FWHT_HOST_DEVICE void store_vector(char* to, int element, int elements, const float* value) const {
    if (!exists(element, elements)) return;
    constexpr int kWords = kRun * Shape::kStorageBytes / 4;
    std::uint32_t word[kWords];
    unrolled<kWords>([&]<int w>() {
      if constexpr (Shape::kStorageBytes == 2) {
        word[w] = Codec::encode2(value[2 * w], value[2 * w + 1]);
      } else {
        word[w] = Codec::encode(value[w]);
      }
    });
    char* at = to + byte_offset(element);
    if constexpr (kWords == 4) {
      *reinterpret_cast<Words4*>(at) = Words4{{word[0], word[1], word[2], word[3]}};
    } else if constexpr (kWords == 2) {
      *reinterpret_cast<Words2*>(at) = Words2{{word[0], word[1]}};
    } else {
      *reinterpret_cast<std::uint32_t*>(at) = word[0];
    }
  }

  template <int kRun>
  FWHT_HOST_DEVICE void store_elements(char* to, int element, int elements, const float* value) const {
    unrolled<kRun>([&]<int i>() {
      if (!exists(element + i, elements)) return;
      char* at = to + byte_offset(element + i);
      if constexpr (Shape::kStorageBytes == 2) {
        *reinterpret_cast<std::uint16_t*>(at) = static_cast<std::uint16_t>(Codec::encode(value[i]));
      } else {
        *reinterpret_cast<std::uint32_t*>(at) = Codec::encode(value[i]);
      }
    });
  }

  const TileJob& job_;
  const char* in_;
  char* out_;
  int thread_;
  Words4 raw_[Shape::kChunks][kBlocks];
  float x_[Shape::kRegisters];
  float kept_[1 << kKeptBits];
};

/// The whole program of a thread of the team that does tile `first` and, where the shape is persistent, every
/// `step`th after it; `barrier()` joins the team.
template <class Codec, class Shape, bool kVectors, class Barrier>
FWHT_HOST_DEVICE inline void transform_tiles(TileThread<Codec, Shape, kVectors>& thread, std::int64_t first,
                                             std::int64_t step, std::int64_t tiles, float* scratch,
                                             const Barrier& barrier) {
  if (first >= tiles) return;
  unrolled<Shape::kChunks>([&]<int chunk>() { thread.template load<chunk>(first); });
  if (thread.register_only()) {
    thread.template unpack<0>();
    thread.template transform<0>();
    thread.template keep<0>();
    thread.finish();
    thread.template store<0>(first);
    return;
  }
  for (std::int64_t tile = first;;) {
    const std::int64_t next = tile + step;
    const bool more = Shape::kPersistent && next < tiles;
    unrolled<Shape::kChunks>([&]<int chunk>() {
      thread.template unpack<chunk>();
      if (more) thread.template load<chunk>(next);  // into the registers just freed, a whole row ahead
      thread.template transform<0>();
      thread.template write<0>(scratch);
      unrolled<Shape::kPasses - 1>([&]<int i>() {
        constexpr int kPass = i + 1;
        barrier();
        thread.template read<kPass>(scratch);
        thread.template transform<kPass>();
        if constexpr (kPass + 1 < Shape::kPasses) thread.template write<kPass>(scratch);
      });
      thread.template keep<chunk>();
      if (chunk + 1 < Shape::kChunks || more)
        barrier();  // others may still read what comes to be overwritten
    });
    thread.finish();
    thread.template store<Shape::kPasses - 1>(tile);
    if (!more) return;
    tile = next;
  }
}

/// The shapes in use, by storage size and log2 of the row length. Rows of up to 2^11 are packed into tiles of
/// 2^11. Kokkos gives a CUDA team no more than 48 KiB of scratch, so from 2^14 a row goes through it in
/// pieces of 2^13 that wait in registers; with a row of 2^15 a team has an SM to itself.
// clang-format off
//                    bytes chunk regs first last chunks blocks
template <int kStorageBytes, int kLog2N>
struct ShapeFor;
template <int kLog2N> requires(kLog2N <= 11) struct ShapeFor<2, kLog2N> { using type = TileShape<2, 11, 5, 3, 3, 1, kLog2N == 0 ? 8 : 16, kLog2N>; };
template <int kLog2N> requires(kLog2N <= 11) struct ShapeFor<4, kLog2N> { using type = TileShape<4, 11, 5, 2, 4, 1, kLog2N == 0 ? 8 : 16, kLog2N>; };
template <> struct ShapeFor<2, 12> { using type = TileShape<2, 12, 5, 3, 4, 1, 8, 12>; };
template <> struct ShapeFor<2, 13> { using type = TileShape<2, 13, 5, 4, 4, 1, 4, 13>; };
template <> struct ShapeFor<2, 14> { using type = TileShape<2, 13, 4, 3, 2, 2, 2, 14>; };
template <> struct ShapeFor<2, 15> { using type = TileShape<2, 13, 4, 3, 2, 4, 1, 15>; };
template <> struct ShapeFor<4, 12> { using type = TileShape<4, 12, 5, 2, 5, 1, 8, 12>; };
template <> struct ShapeFor<4, 13> { using type = TileShape<4, 13, 5, 3, 5, 1, 4, 13>; };
template <> struct ShapeFor<4, 14> { using type = TileShape<4, 13, 4, 2, 3, 2, 2, 14>; };
template <> struct ShapeFor<4, 15> { using type = TileShape<4, 13, 4, 2, 3, 4, 1, 15>; };
// clang-format on
inline constexpr int kSmallestTileBits = 11, kLargestTileBits = 15;

template <Dtype dtype, int kLog2N>
using Shape = typename ShapeFor<static_cast<int>(bytes_of(dtype)), kLog2N>::type;

/// The shape for elements that move one by one: one for all rows that are packed into tiles.
template <Dtype dtype, int kLog2N>
using PatientShape = Shape<dtype, (kLog2N > kSmallestTileBits ? kLog2N : 0)>;

}  // namespace fwht::kokkos
