// mma_split: tensor cores without the price that HadaCore pays for them in accuracy, for rows that live in
// registers.
//
// What this rung changes. (a) The first tensor-core stage reads the 16-bit data as they came from memory:
// products with +-1 are exact, sums are fp32. (b) Between the stages fp32 is carried as a bf16 pair hi + lo,
// two mma for one; the residual lo = x - hi is computed by the tensor core too (a third, half-size mma with
// -I). One rounding to storage is left, the last. (c) Data are operand B in both stages. An accumulator
// fragment, read as operand B, is transposed, so the second stage reaches the lane bits that the first did
// not, and the result is back where it was loaded: 16-byte loads and stores in natural order, no shuffle, no
// shared memory up to n = 512. (d) Longer rows take several warps and one exchange that keeps the lane, so
// that it has no bank conflicts. (e) Short rows (n <= 32) stay on CUDA cores: inside one vector of one lane
// up to n = 8, where no other row's data are near. What limits it: memory, as long as several blocks fit on
// an SM. From n = 4096 a lane holds 32 to 64 sums, and the exchange adds two words of shared memory an
// element to the one of load and store.
//
// Bit card, 16-bit data (e: register inside the 16-byte vector, l: lane, v: vector of the lane, w: warp):
//   n =    2..8   b0..b2 e                                                                FADD
//   n =   16, 32  b0-b2 e | b3.. l                                                        FADD | SHFL + FFMA
//   n =   64      b0-b2 e | b3-b5 l | 8 rows in l, v      b0,b1,b3,b4: mma 1 | b2,b5: mma 2
//   n =  128      b0-b2 e | b3-b6 l | 4 rows in l, v      b0,b1,b3,b4: mma 1 | b2,b5,b6: mma 2
//   n =  256      b0-b2 e | b3-b7 l | 2 rows in v         b0,b1,b3,b4: mma 1 | b2,b5-b7: mma 2
//   n =  512      ... | b8 v                              then FADD
//   n = 1024      ... | b8 v | b9 w                       then FADD | exchange (w <-> v) + FADD
//   n = 2048      ... | b8-b9 v | b10 w
//   n = 4096      ... | b8-b9 v | b10-b11 w
//   n = 8192      ... | b8-b10 v | b11-b12 w
// fp32 data:
//   n =    2, 4   b0.. e                                                                  FADD
//   n =  8..128   b0-b1 e | b2.. l                                                        FADD | SHFL + FFMA
//   n =  256      b0-b1 e | b2-b6 l | b7 v                                                then FADD
//   n =  512      ... | b7 v | b8 w                       then FADD | exchange (w <-> v) + FADD
//   n = 1024      ... | b7-b8 v | b9 w
//   n = 2048      ... | b7-b8 v | b9-b10 w
//   n = 4096      ... | b7-b9 v | b10-b11 w
//   n = 8192      ... | b7-b9 v | b10-b12 w
// in ascending order of the index bits: bit for bit the plain host loop, as for 16-bit data up to n = 32.
//
// Infinities and NaN. hi + lo turns an infinity into NaN (Inf - Inf), and zeros of block-diagonal matrices
// (n = 64, 128) carry it into neighbouring rows. But then every output of the vector is NaN, so a look at one
// register a lane tells (four for bf16, where a sum may overflow; see split_failed), before anything is
// stored: the warp reads its data again and does them by butterflies or, where it holds several rows, does
// one row after the other with zeros in place of its neighbours. The normal path pays one comparison a vector
// (two for bf16) and one vote; nothing is looked at between the loads and the tensor cores.
#include <cstdint>
#include <string>

#include "common/bits.hpp"
#include "common/cuda_check.hpp"
#include "common/ptx/griddepcontrol.cuh"
#include "common/ptx/mma.cuh"
#include "common/static_dispatch.hpp"
#include "common/storage.cuh"
#include "variants/mma_split/mma_split.hpp"
#include "variants/mma_split/warp_program.hpp"

namespace fwht::mma_split {
namespace {

struct Batch {
  const void* in;
  void* out;
  std::int64_t row_stride, block_stride;  // elements between rows, between the first rows of blocks
  unsigned last_block;
  int rows_of_last_block;
  float factor;  // scale 2^k
  float shrink;  // 2^-k, a bf16 number; see shrink_exponent
};

/// One lane of a warp; see warp_program.hpp.
template <Dtype dtype, int log_n>
class Lane {
  static constexpr Geometry g{dtype, log_n};
  static constexpr int kElements = g.vector_elements();

 public:
  using Float = float;
  using Word = std::uint32_t;
  static constexpr bool first_stage_may_overflow() { return dtype == Dtype::bf16; }

  __device__ Lane(float shrink, float4* shared) : shrink_(shrink), shared_(shared) {
    if constexpr (g.kind() == Kind::split_mma) {
      constexpr unsigned kFirst = transformed_bits(kFirstStageBits, log_n);
      constexpr unsigned kSecond = transformed_bits(kSecondStageBits, log_n);
      constexpr std::uint32_t kOne = dtype == Dtype::f16 ? 0x3C00U : 0x3F80U;
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        first_[r] = matrix_fragment(lane(), r, kFirst, kOne);
        second_[r] = matrix_fragment(lane(), r, kSecond, __float_as_uint(shrink) >> 16);
      }
      minus_identity_ = minus_identity_fragment(lane());
    }
  }

  __device__ static int lane() {
    return static_cast<int>(threadIdx.x & 31U);
  }

  __device__ void first_stage(float (&d)[4], Word b0, Word b1) const {
    if constexpr (dtype == Dtype::f16) {
      ptx::mma_sync_m16n8k16_f32_f16(d, first_, {b0, b1});
    } else {
      ptx::mma_sync_m16n8k16_f32_bf16(d, first_, {b0, b1});
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

  __device__ static float shuffle(float x, int lane_mask) {
    return __shfl_xor_sync(0xFFFFFFFFU, x, lane_mask);
  }
  __device__ static float lane_sign(int bit) {
    return (lane() >> bit) & 1 ? -1.0F : 1.0F;
  }
  __device__ static float fma(float a, float b, float c) {
    return fmaf(a, b, c);
  }
  __device__ static bool is_nan(float x) {
    return x != x;
  }
  __device__ static bool any(bool flag) {
    return __any_sync(0xFFFFFFFFU, flag);
  }

  __device__ void widen(const Word (&words)[4], float (&x)[kElements]) const {
    unpack<dtype>(uint4{words[0], words[1], words[2], words[3]}, x);
    if constexpr (dtype == Dtype::bf16 || g.kind() == Kind::split_mma) {  // elsewhere k = 0
#pragma unroll
      for (int e = 0; e < kElements; ++e)
        x[e] *= shrink_;
    }
  }
  __device__ static Word keep_lanes(Word word, int shift, int row) {
    return lane() >> shift == row ? word : 0U;
  }

  __device__ void put(int slot, const float (&x)[4]) {
    shared_[32 * slot + lane()] = {x[0], x[1], x[2], x[3]};
  }
  __device__ void get(int slot, float (&x)[4]) const {
    const float4 v = shared_[32 * slot + lane()];
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
  }

 private:
  Word first_[4], second_[4], minus_identity_;
  float shrink_;
  float4* shared_;
};

/// How a kernel reaches memory: 16-byte vectors, or element by element where pointers or the row stride do
/// not allow them. Two instantiations, because a run-time branch between the loads and the tensor cores lets
/// the compiler schedule one vector after the other.
enum class Access { vectors, elements };

/// Where the vectors of a lane lie: vector v follows vector 0 at fixed distances. Offsets are in elements.
template <Dtype dtype, int log_n, Access access>
class Place {
 public:
  static constexpr Geometry g{dtype, log_n};
  using Bits = std::conditional_t<dtype == Dtype::f32, std::uint32_t, std::uint16_t>;

  __device__ Place(const Batch& batch, int warp, int lane) : batch_(batch) {
    constexpr Geometry here = g;  // an object that device code can call
    const int number = here.first_vector(warp, lane);
    row_ = here.row_of_vector(number);
    rows_ = blockIdx.x == batch.last_block ? batch.rows_of_last_block : g.rows_per_block();
    offset_ = block_offset() + here.column_of_vector(number);
    if constexpr (!kRowPerBlock) {
      offset_ += rows_apart(row_);
      asm("" : "+l"(offset_));  // computed once and here, not under the predicate of every load
    }
  }

  __device__ bool exists(int v) const { return kRowPerBlock || row(v) < rows_; }

  /// Zeros where rows do not exist.
  __device__ void load(int v, std::uint32_t (&words)[4]) const {
    if constexpr (access == Access::elements) {
      load_elements(v, words);
    } else if constexpr (g.log_rows_per_vector() > 0) {
      if (whole(v)) {
        load_vector(v, words);
      } else {
        load_elements(v, words);
      }
    } else {
#pragma unroll
      for (int w = 0; w < 4; ++w)
        words[w] = 0;
      if (exists(v)) load_vector(v, words);
    }
  }

  /// All vectors of the lane. Their addresses come first, so that the loads are issued back to back: the
  /// compiler orders the tensor-core chains as it sees their data arrive.
  __device__ void load(std::uint32_t (&words)[g.vectors()][4]) const {
    if constexpr (access == Access::vectors && g.log_rows_per_vector() == 0) {
      std::int64_t from[g.vectors()];
#pragma unroll
      for (int v = 0; v < g.vectors(); ++v) {
        from[v] = offset(v);
        if (!kRowPerBlock && g.column_step() == 0) asm("" : "+l"(from[v]));
      }
#pragma unroll
      for (int v = 0; v < g.vectors(); ++v) {
        uint4 vector = {0, 0, 0, 0};
        if (exists(v)) vector = *reinterpret_cast<const uint4*>(in() + from[v]);
        words[v][0] = vector.x, words[v][1] = vector.y, words[v][2] = vector.z, words[v][3] = vector.w;
      }
    } else {
#pragma unroll
      for (int v = 0; v < g.vectors(); ++v)
        load(v, words[v]);
    }
  }

  __device__ void store(int v, const std::uint32_t (&words)[4]) const {
    if constexpr (access == Access::elements) {
      store_elements(v, words);
    } else {
      if (whole(v)) {
        *reinterpret_cast<uint4*>(out() + offset(v)) = make_uint4(words[0], words[1], words[2], words[3]);
      } else if constexpr (g.log_rows_per_vector() > 0) {
        store_elements(v, words);
      }
    }
  }

  /// Vector `v` of the row of this block, instead of the lane's own: where a warp stands after the exchange.
  __device__ void store_vector_of_row(int v, const std::uint32_t (&words)[4]) const {
    Place moved = *this;
    moved.offset_ = block_offset() + ((v * 32 + Lane<dtype, log_n>::lane()) << g.log_vector());
    moved.store(0, words);
  }

 private:
  static constexpr bool kRowPerBlock = g.warps_per_row() > 1;  // as many blocks as rows

  __device__ const Bits* in() const {
    return static_cast<const Bits*>(batch_.in);
  }
  __device__ Bits* out() const {
    return static_cast<Bits*>(batch_.out);
  }

  /// Where vectors are used strides fit 32 bits (see access_for): one multiplication instead of three, and at
  /// n = 8192 the register between a fifth resident block and none.
  __device__ std::int64_t rows_apart(int rows) const {
    if constexpr (access == Access::elements) return rows * batch_.row_stride;
    return std::int64_t{rows} * static_cast<std::uint32_t>(batch_.row_stride);
  }
  __device__ std::int64_t block_offset() const {
    if constexpr (access == Access::vectors && kRowPerBlock) {
      return std::int64_t{blockIdx.x} * static_cast<std::uint32_t>(batch_.row_stride);
    }
    return blockIdx.x * batch_.block_stride;
  }

  /// (First) row of vector v within the block; offset of its first element.
  __device__ int row(int v) const {
    return row_ + v * g.row_step();
  }
  __device__ std::int64_t offset(int v) const {
    if constexpr (kRowPerBlock || g.column_step() > 0) return offset_ + v * g.column_step();
    return offset_ + v * rows_apart(g.row_step());
  }
  /// All rows of the vector exist; of short rows, some of the last vector may not.
  __device__ bool whole(int v) const {
    return kRowPerBlock || row(v) + ((1 << g.log_rows_per_vector()) - 1) < rows_;
  }
  __device__ bool element_exists(int v, int e) const {
    return kRowPerBlock || row(v) + (e >> g.element_bits()) < rows_;
  }
  __device__ std::int64_t offset_of_element(int v, int e) const {
    return offset(v) + rows_apart(e >> g.element_bits()) + (e & ((1 << g.element_bits()) - 1));
  }

  __device__ void load_vector(int v, std::uint32_t (&words)[4]) const {
    const uint4 vector = *reinterpret_cast<const uint4*>(in() + offset(v));
    words[0] = vector.x, words[1] = vector.y, words[2] = vector.z, words[3] = vector.w;
  }

  __device__ void load_elements(int v, std::uint32_t (&words)[4]) const {
    constexpr int kPerWord = g.vector_elements() / 4;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      words[w] = 0;
#pragma unroll
      for (int i = 0; i < kPerWord; ++i) {
        const int e = w * kPerWord + i;
        if (element_exists(v, e)) words[w] |= std::uint32_t{in()[offset_of_element(v, e)]} << (16 * i);
      }
    }
  }

  __device__ void store_elements(int v, const std::uint32_t (&words)[4]) const {
    constexpr int kPerWord = g.vector_elements() / 4;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
#pragma unroll
      for (int i = 0; i < kPerWord; ++i) {
        const int e = w * kPerWord + i;
        if (element_exists(v, e)) out()[offset_of_element(v, e)] = static_cast<Bits>(words[w] >> (16 * i));
      }
    }
  }

  const Batch& batch_;
  std::int64_t offset_;
  int row_, rows_;
};

/// Scale and the one rounding.
template <Dtype dtype, int count>
__device__ void finish(const Batch& batch, const float (&x)[count], std::uint32_t (&words)[4]) {
  float y[count];
#pragma unroll
  for (int e = 0; e < count; ++e)
    y[e] = x[e] * batch.factor;
  const uint4 vector = pack<dtype>(y);
  words[0] = vector.x, words[1] = vector.y, words[2] = vector.z, words[3] = vector.w;
}

/// The exact path of a warp that holds several rows, one of which is not finite: every row alone.
template <Dtype dtype, int log_n, Access access>
__device__ void transform_rows_alone(const Batch& batch, const Place<dtype, log_n, access>& place,
                                     const Lane<dtype, log_n>& warp) {
  constexpr Geometry g{dtype, log_n};
#pragma unroll 1
  for (int v = 0; v < g.vectors(); ++v) {
    std::uint32_t data[4];
    asm volatile("" ::: "memory");  // read again, instead of keeping the data in registers until here
    place.load(v, data);
#pragma unroll 1
    for (int row = 0; row < (1 << g.log_rows_per_warp_vector()); ++row) {
      std::uint32_t words[4];
      float x[1][8];
      transform_row_alone<g.element_bits(), g.lane_bits()>(warp, row, data, x);
      finish<dtype>(batch, x[0], words);
      if (warp.lane() >> g.lane_bits() == row) place.store(v, words);
    }
  }
}

/// The exact path of a warp whose data belong to one row: butterflies, one vector after the other, so that it
/// needs no more registers than the normal path. Where there is an exchange buffer, results wait in the slots
/// that this warp alone writes before the barrier. The data are read again instead of being kept until it is
/// known that they are needed.
template <Dtype dtype, int log_n, Access access, int vectors>
__device__ void transform_again(const Batch& batch, Lane<dtype, log_n>& warp, int self,
                                float (&x)[vectors][8]) {
  constexpr Geometry g{dtype, log_n};
  constexpr bool kThroughShared = g.warps_per_row() > 1;
  // The lane by another name, lest the compiler sees that it knows the addresses and keeps them until here.
  unsigned lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  const Place<dtype, log_n, access> place(batch, self, static_cast<int>(lane));
#pragma unroll(kThroughShared ? 1 : vectors)
  for (int v = 0; v < vectors; ++v) {
    std::uint32_t words[4];
    float one[1][8];
    asm volatile("" ::: "memory");
    place.load(v, words);
    widened_butterflies<g.element_bits(), g.lane_bits()>(warp, words, one);
    if constexpr (kThroughShared) {
      put_vector<dtype, log_n>(warp, self, v, one[0]);
    } else {
#pragma unroll
      for (int e = 0; e < 8; ++e)
        x[v][e] = one[0][e];
    }
  }
  if constexpr (kThroughShared) {
#pragma unroll
    for (int v = 0; v < vectors; ++v)
      get_vector<dtype, log_n>(warp, v / g.kept(), self, v % g.kept(), x[v]);
  }
}

/// When the next kernel of the stream may be scheduled, if its launch allows that: at the end as ever, at the
/// start (a few blocks, which leave room beside them), or when the results are there (blocks of the next
/// kernel would wait in the places that blocks of this one still need).
enum class Trigger { at_end, at_start, before_stores };

template <Dtype dtype, int log_n, Access access, Trigger trigger>
__global__ void __launch_bounds__(Geometry{dtype, log_n}.threads(),
                                  Geometry{dtype, log_n}.launch().blocks_per_sm)
    transform_rows(__grid_constant__ const Batch batch) {
  constexpr Geometry g{dtype, log_n};
  constexpr int kVectors = g.vectors(), kElements = g.vector_elements(), kWarps = g.warps_per_row();
  __shared__ float4 shared[g.exchange_slots() > 0 ? 32 * g.exchange_slots() : 1];

  const int self = static_cast<int>(threadIdx.x >> 5);  // in the block; in the row, where warps share one
  const Place<dtype, log_n, access> place(batch, self, Lane<dtype, log_n>::lane());
  if constexpr (kWarps == 1) {
    if (!Lane<dtype, log_n>::any(place.exists(0))) return;  // the whole warp lies behind the last row
  }
  ptx::griddepcontrol_wait();
  // Behind the wait: before it, every later launch would come at once and wait in the places of this one.
  if constexpr (trigger == Trigger::at_start) ptx::griddepcontrol_launch_dependents();
  std::uint32_t words[kVectors][4];
  place.load(words);

  Lane<dtype, log_n> warp(batch.shrink, shared);
  float x[kVectors][kElements];
  if constexpr (g.kind() == Kind::butterflies) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      warp.widen(words[v], x[v]);
    butterflies<g.element_bits(), g.lane_bits()>(warp, x);
  } else {
    split_transform(warp, words, x);
    if (split_failed(warp, x)) [[unlikely]] {
      if constexpr (g.rows_per_warp() > 1) {
        transform_rows_alone(batch, place, warp);
        return;
      } else {
        transform_again<dtype, log_n, access>(batch, warp, self, x);
      }
    }
  }
  vector_butterflies<g.vector_bits()>(x);

  if constexpr (trigger == Trigger::before_stores) ptx::griddepcontrol_launch_dependents();
  if constexpr (kWarps == 1) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      finish<dtype>(batch, x[v], words[v]);
      place.store(v, words[v]);
    }
  } else {
    exchange_put<dtype, log_n>(warp, self, x);
    __syncthreads();
#pragma unroll
    for (int piece = 0; piece < g.kept(); ++piece) {
      float gathered[kWarps][kElements];
      exchange_get<dtype, log_n>(warp, self, piece, gathered);
#pragma unroll
      for (int from = 0; from < kWarps; ++from) {
        finish<dtype>(batch, gathered[from], words[0]);
        place.store_vector_of_row(g.vector_of_row(self, from, piece), words[0]);
      }
    }
  }
}

using Kernel = void (*)(Batch);

template <class Body>
void dispatch(const Problem& problem, Body&& body) {
  dispatch_dtype(problem.dtype, [&](auto dtype) {
    dispatch_int<1, kLargestLogN>(log2_floor(problem.n), [&](auto log_n) { body(dtype, log_n); });
  });
}

template <Dtype dtype, int log_n>
Kernel kernel_on_vectors(Trigger trigger) {
  switch (trigger) {
    case Trigger::at_start:
      return transform_rows<dtype, log_n, Access::vectors, Trigger::at_start>;
    case Trigger::before_stores:
      return transform_rows<dtype, log_n, Access::vectors, Trigger::before_stores>;
    case Trigger::at_end:
      break;
  }
  return transform_rows<dtype, log_n, Access::vectors, Trigger::at_end>;
}

Trigger choose_trigger(const Problem& problem, std::int64_t blocks, const DeviceInfo& device) {
  if (!problem.programmatic_launch || blocks > 8 * device.sm_count) return Trigger::at_end;
  return blocks <= device.sm_count ? Trigger::at_start : Trigger::before_stores;
}

class MmaSplitPlan final : public Plan {
 public:
  MmaSplitPlan(const Problem& problem, const DeviceInfo& device)
      : Plan(problem),
        geometry_{problem.dtype, log2_floor(problem.n)},
        compute_capability_(device.compute_capability()),
        blocks_(ceil_div(problem.rows, geometry_.rows_per_block())),
        trigger_(choose_trigger(problem, blocks_, device)) {
    dispatch(problem, [&](auto dtype, auto log_n) {
      on_vectors_ = kernel_on_vectors<dtype(), log_n()>(trigger_);
      on_elements_ = transform_rows<dtype(), log_n(), Access::elements, Trigger::at_end>;
    });
    cudaFuncAttributes attributes{};
    FWHT_CUDA(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(on_vectors_)));
    registers_ = attributes.numRegs;
    shared_bytes_ = static_cast<std::int64_t>(attributes.sharedSizeBytes);
  }

  NumericModel numerics() const override { return numeric_model(problem(), compute_capability_); }

  Settings settings() const override {
    return {{"kernel", std::string(geometry_.kind() == Kind::split_mma ? "split_mma" : "butterflies")},
            {"rows_per_block", std::int64_t{geometry_.rows_per_block()}},
            {"warps_per_row", std::int64_t{geometry_.warps_per_row()}},
            {"vectors_per_lane", std::int64_t{geometry_.vectors()}},
            {"blocks", blocks_},
            {"threads", std::int64_t{geometry_.threads()}},
            {"launch", std::string(problem().programmatic_launch ? "programmatic" : "ordinary")},
            {"registers", std::int64_t{registers_}},
            {"shared_bytes", shared_bytes_}};
  }

 private:
  void enqueue(const void* in, void* out, Stream stream) const override {
    const Problem& p = problem();
    const Access access = access_for(in, out);
    const int k = shrink_exponent(p);
    const std::int64_t rows_per_block = geometry_.rows_per_block();
    const Batch batch{in,
                      out,
                      p.row_stride,
                      rows_per_block * p.row_stride,
                      static_cast<unsigned>(blocks_ - 1),
                      static_cast<int>(p.rows - (blocks_ - 1) * rows_per_block),
                      std::ldexp(static_cast<float>(p.scale), k),
                      std::ldexp(1.0F, -k)};
    // A block moves 2 KB or more, so the 2^31 - 1 blocks of the x dimension are more than any memory holds.
    const Kernel kernel = access == Access::vectors ? on_vectors_ : on_elements_;
    cudaLaunchAttribute programmatic{};
    programmatic.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    programmatic.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks_));
    config.blockDim = dim3(static_cast<unsigned>(geometry_.threads()));
    config.stream = stream;
    config.attrs = &programmatic;
    config.numAttrs = p.programmatic_launch ? 1 : 0;
    FWHT_CUDA(cudaLaunchKernelEx(&config, kernel, batch));
  }

  Access access_for(const void* in, const void* out) const {
    const auto addresses = reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out);
    const auto stride = static_cast<std::uintptr_t>(problem().row_stride * bytes_of(problem().dtype));
    // Rows shorter than a vector share one, which needs them side by side.
    const bool rows_fit = geometry_.log_rows_per_vector() > 0 ? problem().contiguous() : stride % 16 == 0;
    return addresses % 16 == 0 && rows_fit && problem().row_stride >> 32 == 0 ? Access::vectors
                                                                              : Access::elements;
  }

  Geometry geometry_;
  int compute_capability_;
  std::int64_t blocks_;
  Trigger trigger_;
  Kernel on_vectors_ = nullptr, on_elements_ = nullptr;
  int registers_ = 0;
  std::int64_t shared_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  return std::make_unique<MmaSplitPlan>(problem, device);
}

}  // namespace fwht::mma_split
