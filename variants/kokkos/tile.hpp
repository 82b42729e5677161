// The transform of one tile by a team of GPU threads: index maps and per-thread steps, free of Kokkos so that
// the host tests can run the very same steps in lock-step and prove the maps.
//
// A tile is 2^kChunkBits elements in fp32 scratch at a time (several short rows, one row, or one of kChunks
// pieces of a long row). Each thread owns 2^kRegBits of them per pass and does the butterflies of the index
// bits that are its register bits; between passes the elements change hands through scratch, so a radix-32
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

#include "common/bits.hpp"
#include "common/dtype.hpp"
#include "variants/kokkos/unroll.hpp"

namespace fwht::kokkos {

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

  constexpr int register_offset(int reg) const {
    int element = 0;
    for (int i = 0; i < kRegBits; ++i)
      element |= ((reg >> i) & 1) << register_bit[i];
    return element;
  }
  constexpr int thread_offset(int thread) const {
    int element = 0;
    for (int i = 0; i < kThreadBits; ++i)
      element |= ((thread >> i) & 1) << thread_bit[i];
    return element;
  }
  constexpr int element_of(int thread, int reg) const { return thread_offset(thread) | register_offset(reg); }
  /// Thread bits whose element bit lies `distance` above them, as a mask of the thread index.
  constexpr int bits_moved_by(int distance) const {
    int mask = 0;
    for (int i = 0; i < kThreadBits; ++i)
      mask |= thread_bit[i] - i == distance ? 1 << i : 0;
    return mask;
  }
};

/// Shape of a tile. kFirst levels in the first pass (at least one 16-byte vector), kLast in the last, the
/// others in passes of up to kRegBits levels between them.
template <int kStorageBytes_, int kChunkBits_, int kRegBits_, int kFirst_, int kLast_, int kChunks_,
          int kBlocksPerSm_>
struct TileShape {
  static constexpr int kStorageBytes = kStorageBytes_;
  static constexpr int kChunkBits = kChunkBits_, kRegBits = kRegBits_;
  static constexpr int kFirst = kFirst_, kLast = kLast_;
  static constexpr int kChunks = kChunks_;
  static constexpr int kBlocksPerSm = kBlocksPerSm_;  // asked of the compiler as launch bounds
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

  static constexpr Map pass(int index) {
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
  static constexpr void low_and_high(Map& map, int low) {
    for (int i = 0; i < low; ++i)
      map.register_bit[i] = i;
    for (int i = low; i < kRegBits; ++i)
      map.register_bit[i] = kChunkBits - kRegBits + i;
    for (int i = 0; i < Map::kThreadBits; ++i)
      map.thread_bit[i] = low + i;
  }
  /// Lane bit i stands for element bit i or, where that is a register, i + 5: distinct banks (see `padded`).
  static constexpr void spread_lanes(Map& map, int start) {
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
  std::int64_t row_stride = 0;  ///< in elements
  std::int64_t gap = 0;         ///< row_stride - n
  int log2_n = 0;
  int log2_rows_per_tile = 0;
  bool vectors = false;  ///< every row starts on 16 bytes in both arrays
  float scale = 1.0F;
};

/// One thread of one team. `Codec` turns storage words into floats and back:
///   float decode(std::uint32_t bits); std::uint32_t encode(float value)   (the low 16 bits for 16-bit
///   storage) void decode2(std::uint32_t word, float& low, float& high); std::uint32_t encode2(float low,
///   float high)
/// The caller runs, with a team barrier where it says "|":
///   load;  per chunk: unpack, transform<0>, write<0> | read<1>, transform<1>, write<1> | ...
///   transform<last>, keep | finish, store.
template <class Codec, class Shape>
class TileThread {
 public:
  FWHT_HOST_DEVICE TileThread(const TileJob& job, const void* in, void* out, std::int64_t tile, int thread)
      : job_(job), thread_(thread) {
    const std::int64_t first_row = tile << job.log2_rows_per_tile;
    const std::int64_t rows_left = job.rows - first_row;
    const std::int64_t rows_here = std::int64_t{1} << job.log2_rows_per_tile;
    const std::int64_t rows = rows_left < rows_here ? rows_left : rows_here;
    elements_ = static_cast<int>(rows > 0 ? rows << job.log2_n : 0);
    in_ = static_cast<const char*>(in) + first_row * job.row_stride * Shape::kStorageBytes;
    out_ = static_cast<char*>(out) + first_row * job.row_stride * Shape::kStorageBytes;
    vectors_ = job.vectors && (elements_ & ((1 << Shape::kVectorBits) - 1)) == 0;
    levels_ = job.log2_n < Shape::kChunkBits ? job.log2_n : Shape::kChunkBits;
  }

  /// True when no level needs an exchange: the rows fit into the first pass's registers.
  FWHT_HOST_DEVICE bool register_only() const { return Shape::kChunks == 1 && levels_ <= Shape::kFirst; }

  /// Fetches this thread's share of every chunk, so that all loads are in flight before the first barrier.
  FWHT_HOST_DEVICE void load() {
    unrolled<Shape::kChunks * kBlocks>([&]<int i>() {
      constexpr int kChunk = i / kBlocks, kBlock = i % kBlocks;
      const int element = first_element(kChunk, kBlock);
      raw_[kChunk][kBlock] = vectors_ ? load_vector(element) : load_elements(element);
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
    butterflies<Shape::kRegBits, kMap.first_active, kMap.levels>(x_, kMap.first_level, levels_);
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
  FWHT_HOST_DEVICE void store() const {
    constexpr int kRun = kPass == 0 ? (1 << Shape::kVectorBits) : Shape::kStoreBytes / Shape::kStorageBytes;
    unrolled<(1 << kKeptBits) / kRun>([&]<int run>() {
      constexpr int kChunk = run * kRun / Shape::kRegisters, kRegister = run * kRun % Shape::kRegisters;
      constexpr int kOffset = Shape::pass(kPass).register_offset(kRegister);
      store_run<kRun>(kChunk * Shape::kChunkElements + base<kPass>() + kOffset, &kept_[run * kRun]);
    });
  }

 private:
  static constexpr int kBlocks = Shape::kRegisters * Shape::kStorageBytes / 16;
  static constexpr int kKeptBits = Shape::kRegBits + log2_floor(Shape::kChunks);

  template <int kPass, int r>
  static constexpr int kPaddedOffset = padded(Shape::pass(kPass).register_offset(r));

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

  FWHT_HOST_DEVICE int first_element(int chunk, int block) const {
    // Registers above kVectorBits: the rest of the low run, then the high bits.
    constexpr int kLowBlocks = 1 << (Shape::kFirst - Shape::kVectorBits);
    constexpr int kHighShift = Shape::kChunkBits - (Shape::kRegBits - Shape::kFirst);
    const int low = (block % kLowBlocks) << Shape::kVectorBits;
    const int high = (block / kLowBlocks) << kHighShift;
    return chunk * Shape::kChunkElements + base<0>() + low + high;
  }

  FWHT_HOST_DEVICE std::int64_t byte_offset(int element) const {
    return (element + (element >> job_.log2_n) * job_.gap) * Shape::kStorageBytes;
  }

  FWHT_HOST_DEVICE Words4 load_vector(int element) const {
    if (element >= elements_) return Words4{};
    return *reinterpret_cast<const Words4*>(in_ + byte_offset(element));
  }

  FWHT_HOST_DEVICE Words4 load_elements(int element) const {
    Words4 words{};
    unrolled<(1 << Shape::kVectorBits)>([&]<int i>() {
      if (element + i >= elements_) return;
      if constexpr (Shape::kStorageBytes == 2) {
        const auto bits = *reinterpret_cast<const std::uint16_t*>(in_ + byte_offset(element + i));
        words.word[i / 2] |= static_cast<std::uint32_t>(bits) << (16 * (i % 2));
      } else {
        words.word[i] = *reinterpret_cast<const std::uint32_t*>(in_ + byte_offset(element + i));
      }
    });
    return words;
  }

  template <int kRun>
  FWHT_HOST_DEVICE void store_run(int element, const float* value) const {
    if (!vectors_) return store_elements<kRun>(element, value);
    if (element >= elements_) return;
    constexpr int kWords = kRun * Shape::kStorageBytes / 4;
    std::uint32_t word[kWords];
    unrolled<kWords>([&]<int w>() {
      if constexpr (Shape::kStorageBytes == 2) {
        word[w] = Codec::encode2(value[2 * w], value[2 * w + 1]);
      } else {
        word[w] = Codec::encode(value[w]);
      }
    });
    char* target = out_ + byte_offset(element);
    if constexpr (kWords == 4) {
      *reinterpret_cast<Words4*>(target) = Words4{{word[0], word[1], word[2], word[3]}};
    } else if constexpr (kWords == 2) {
      *reinterpret_cast<Words2*>(target) = Words2{{word[0], word[1]}};
    } else {
      *reinterpret_cast<std::uint32_t*>(target) = word[0];
    }
  }

  template <int kRun>
  FWHT_HOST_DEVICE void store_elements(int element, const float* value) const {
    unrolled<kRun>([&]<int i>() {
      if (element + i >= elements_) return;
      char* target = out_ + byte_offset(element + i);
      if constexpr (Shape::kStorageBytes == 2) {
        *reinterpret_cast<std::uint16_t*>(target) = static_cast<std::uint16_t>(Codec::encode(value[i]));
      } else {
        *reinterpret_cast<std::uint32_t*>(target) = Codec::encode(value[i]);
      }
    });
  }

  const TileJob& job_;
  const char* in_;
  char* out_;
  int thread_;
  int elements_;  // of this tile that exist
  int levels_;    // of the chunk that the rows have
  bool vectors_;
  Words4 raw_[Shape::kChunks][kBlocks];
  float x_[Shape::kRegisters];
  float kept_[1 << kKeptBits];
};

/// The whole program of a thread; `barrier()` joins the team.
template <class Codec, class Shape, class Barrier>
FWHT_HOST_DEVICE inline void transform_tile(TileThread<Codec, Shape>& thread, float* scratch,
                                            const Barrier& barrier) {
  thread.load();
  if (thread.register_only()) {
    thread.template unpack<0>();
    thread.template transform<0>();
    thread.template keep<0>();
    thread.finish();
    thread.template store<0>();
    return;
  }
  unrolled<Shape::kChunks>([&]<int chunk>() {
    thread.template unpack<chunk>();
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
    if constexpr (chunk + 1 < Shape::kChunks)
      barrier();  // the next chunk overwrites what others may still read
  });
  thread.finish();
  thread.template store<Shape::kPasses - 1>();
}

/// The shapes in use, by storage size and log2 of the row length. Rows of up to 2^11 share the tile of 2^11.
/// Kokkos gives a CUDA team no more than 48 KiB of scratch, so from 2^14 a row goes through it in pieces of
/// 2^13 that wait in registers.
inline constexpr int kSmallestTileBits = 11;
inline constexpr int kLargestTileBits = 15;

//                          bytes  chunk regs first last chunks blocks/SM
template <int kStorageBytes, int kLog2N>
struct ShapeFor;
template <>
struct ShapeFor<2, 11> {
  using type = TileShape<2, 11, 5, 3, 3, 1, 16>;
};
template <>
struct ShapeFor<2, 12> {
  using type = TileShape<2, 12, 5, 3, 4, 1, 8>;
};
template <>
struct ShapeFor<2, 13> {
  using type = TileShape<2, 13, 5, 4, 4, 1, 4>;
};
template <>
struct ShapeFor<2, 14> {
  using type = TileShape<2, 13, 4, 3, 2, 2, 2>;
};
template <>
struct ShapeFor<2, 15> {
  using type = TileShape<2, 13, 4, 3, 2, 4, 1>;
};
template <>
struct ShapeFor<4, 11> {
  using type = TileShape<4, 11, 5, 2, 4, 1, 16>;
};
template <>
struct ShapeFor<4, 12> {
  using type = TileShape<4, 12, 5, 2, 5, 1, 8>;
};
template <>
struct ShapeFor<4, 13> {
  using type = TileShape<4, 13, 5, 3, 5, 1, 4>;
};
template <>
struct ShapeFor<4, 14> {
  using type = TileShape<4, 13, 4, 2, 3, 2, 2>;
};
template <>
struct ShapeFor<4, 15> {
  using type = TileShape<4, 13, 4, 2, 3, 4, 1>;
};

template <Dtype dtype, int kLog2N>
using Shape = typename ShapeFor<static_cast<int>(bytes_of(dtype)), kLog2N>::type;

}  // namespace fwht::kokkos
