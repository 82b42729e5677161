// The copy limit of device memory.
//
// Families, because none is the best everywhere (measured on an H200):
//
// - one_shot_v<V>_t<T>: every thread moves V vectors of 16 bytes and is done; the hardware hands out the
//   CTAs. The best at DRAM size (V = 1) and for a few KB.
// - rotated_v<V>_t<T>: one_shot whose CTAs take other places in every launch: the neighbour of alternating
//   mode.
// - persistent_v<V>_t<T>: as many CTAs as fit and a grid stride; the next vectors are loaded before the
//   present ones are stored. Replayed alone on L2-resident data it meets the addresses of its last launch
//   again, which the L2 rewards: the best there, in that mode only.
// - programmatic_{early,late}_v<V>_t<T>: one_shot by programmatic dependent launch, which lets the next
// launch
//   begin at its start or after its loads: the limit of mode replay_pdl. sm_90.
// - write<S>_v<V>_t<T>: one_shot that stores S bytes for every 16 that it loads: the limit of what writes
// less
//   than it reads; rotated_write and programmatic_write as above.
// - write0_bulk_<K>k: the same for what writes hardly anything, a bulk copy of K KiB into shared memory a
//   CTA. sm_90.
// - bulk_*_<S>x<K>k: cp.async.bulk into S stages of K KiB of shared memory and out again, the signs flipped
//   in between. One thread issues, so that registers hold no data in flight. sm_90.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "common/device/cuda_check.hpp"
#include "common/device/launcher.hpp"
#include "common/device/ptx/bulk_copy.cuh"
#include "common/device/ptx/global.cuh"
#include "common/device/ptx/griddepcontrol.cuh"
#include "common/device/ptx/mbarrier.cuh"
#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "experiments/harness/copy_kernels.hpp"

namespace fwht::harness {
namespace {

constexpr int kBulkThreads = 256;

struct Copy {
  const uint4* in;
  uint4* out;
  std::int64_t vectors;  // whole vectors of 16 bytes
  int tail;              // 16-bit numbers behind them, 0..7
  std::uint32_t mask;
};

__device__ uint4 flipped(uint4 v, std::uint32_t mask) {
  return {v.x ^ mask, v.y ^ mask, v.z ^ mask, v.w ^ mask};
}

// What is left behind the last whole vector, by one thread of the grid.
__device__ void copy_tail(const Copy& copy) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  const auto* in = reinterpret_cast<const std::uint16_t*>(copy.in + copy.vectors);
  auto* out = reinterpret_cast<std::uint16_t*>(copy.out + copy.vectors);
  for (int i = 0; i < copy.tail; ++i) {
    out[i] = static_cast<std::uint16_t>(in[i] ^ (copy.mask >> (i % 2 == 0 ? 0 : 16)));
  }
}

// V vectors of one thread, `stride` apart.
template <int V>
struct Vectors {
  uint4 v[V];

  __device__ void load(const Copy& copy, std::int64_t first, int stride) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (first + i * stride < copy.vectors) v[i] = copy.in[first + i * stride];
    }
  }
  __device__ void store_flipped(const Copy& copy, std::int64_t first, int stride) const {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (first + i * stride < copy.vectors) copy.out[first + i * stride] = flipped(v[i], copy.mask);
    }
  }
};

template <int V, int T>
__global__ void __launch_bounds__(T) one_shot(Copy copy) {
  const std::int64_t first = std::int64_t{blockIdx.x} * (V * T) + threadIdx.x;
  Vectors<V> vectors;
  vectors.load(copy, first, T);
  vectors.store_flipped(copy, first, T);
  copy_tail(copy);
}

template <int V, int T, bool early>
__global__ void __launch_bounds__(T) programmatic(Copy copy) {
  ptx::griddepcontrol_wait();
  if constexpr (early) ptx::griddepcontrol_launch_dependents();
  const std::int64_t first = std::int64_t{blockIdx.x} * (V * T) + threadIdx.x;
  Vectors<V> vectors;
  vectors.load(copy, first, T);
  if constexpr (!early) ptx::griddepcontrol_launch_dependents();
  vectors.store_flipped(copy, first, T);
  copy_tail(copy);
}

// one_shot with the CTAs' places turned by `rotation` < gridDim.x.
template <int V, int T>
__global__ void __launch_bounds__(T) rotated(Copy copy, unsigned rotation) {
  const unsigned turned = blockIdx.x + rotation;
  const unsigned place = turned < gridDim.x ? turned : turned - gridDim.x;
  const std::int64_t first = std::int64_t{place} * (V * T) + threadIdx.x;
  Vectors<V> vectors;
  vectors.load(copy, first, T);
  vectors.store_flipped(copy, first, T);
  copy_tail(copy);
}

template <int V, int T>
__global__ void __launch_bounds__(T) persistent(Copy copy) {
  const std::int64_t step = std::int64_t{gridDim.x} * (V * T);
  std::int64_t first = std::int64_t{blockIdx.x} * (V * T) + threadIdx.x;
  Vectors<V> vectors;
  vectors.load(copy, first, T);
  for (; first < copy.vectors; first += step) {
    Vectors<V> next;
    next.load(copy, first + step, T);
    vectors.store_flipped(copy, first, T);
    vectors = next;
  }
  copy_tail(copy);
}

// What fold_copy gives, V vectors of 16 bytes a thread: S bytes are stored for each by the lane that loaded
// it.
struct Fold {
  const uint4* in;
  std::byte* out;
  std::int64_t read, written, vectors;
  std::uint32_t mask;
};

__device__ uint4 vector_at(const Fold& fold, std::int64_t vector) {
  if (16 * vector + 16 <= fold.read) return fold.in[vector];
  const auto* in = reinterpret_cast<const std::uint16_t*>(fold.in + vector);
  std::uint32_t word[4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (16 * vector + 2 * i < fold.read) word[i / 2] |= std::uint32_t{in[i]} << (16 * (i % 2));
  }
  return {word[0], word[1], word[2], word[3]};
}

template <int S>
__device__ void store_folded(const Fold& fold, std::int64_t vector, uint4 v) {
  const std::uint32_t low = v.x ^ v.y ^ fold.mask, high = v.z ^ v.w ^ fold.mask;
  const std::uint32_t all = low ^ high ^ fold.mask;
  if constexpr (S == 8) reinterpret_cast<uint2*>(fold.out)[vector] = {low, high};
  if constexpr (S == 4) reinterpret_cast<std::uint32_t*>(fold.out)[vector] = all;
  for (std::int64_t at = S * fold.vectors + 4 * vector; at < fold.written; at += 4 * fold.vectors) {
    if (at + 4 <= fold.written) {
      *reinterpret_cast<std::uint32_t*>(fold.out + at) = all;
    } else {
      for (int i = 0; i < fold.written - at; ++i)
        fold.out[at + i] = static_cast<std::byte>(all >> (8 * i));
    }
  }
}

template <int V, int T, int S, bool is_programmatic>
__global__ void __launch_bounds__(T) folded(Fold fold, unsigned rotation, std::uint64_t) {
  if constexpr (is_programmatic) ptx::griddepcontrol_wait();
  const unsigned turned = blockIdx.x + rotation;
  const unsigned place = turned < gridDim.x ? turned : turned - gridDim.x;
  const std::int64_t first = std::int64_t{place} * (V * T) + threadIdx.x;
  uint4 v[V];
#pragma unroll
  for (int i = 0; i < V; ++i) {
    if (first + i * T < fold.vectors) v[i] = vector_at(fold, first + i * T);
  }
  if constexpr (is_programmatic) ptx::griddepcontrol_launch_dependents();
#pragma unroll
  for (int i = 0; i < V; ++i) {
    if (first + i * T >= fold.vectors) continue;
    store_folded<S>(fold, first + i * T, v[i]);
  }
}

// folded for S = 0, a reader: hardly anything is stored, so every instruction between launch and loads
// counts. Places are 32-bit numbers. `unread` is no fold of any data, as the compiler cannot know: it keeps
// loads alive that nothing is stored of.
template <int V, int T, bool is_programmatic>
__global__ void __launch_bounds__(T) reader(Fold fold, unsigned rotation, std::uint64_t unread) {
  if constexpr (is_programmatic) ptx::griddepcontrol_wait();
  const unsigned turned = blockIdx.x + rotation;
  const unsigned place = turned < gridDim.x ? turned : turned - gridDim.x;
  const unsigned first = place * (V * T) + threadIdx.x;
  const auto whole = static_cast<unsigned>(fold.read / 16), vectors = static_cast<unsigned>(fold.vectors);
  uint4 v[V];
#pragma unroll
  for (int i = 0; i < V; ++i)
    if (first + i * T < whole) v[i] = ptx::ld_global_stream(fold.in + (first + i * T));
  if constexpr (is_programmatic) ptx::griddepcontrol_launch_dependents();
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const unsigned vector = first + i * T;
    if (vector >= vectors) continue;
    if (vector >= whole) v[i] = vector_at(fold, vector);  // the last one, cut off
    if ((v[i].x ^ v[i].y ^ v[i].z ^ v[i].w) == unread) __trap();
    if (4 * std::int64_t{vector} < fold.written) store_folded<0>(fold, vector, v[i]);
  }
}

// The same through shared memory: a chunk a CTA, by one bulk copy, as a kernel reads that works on tiles.
__global__ void __launch_bounds__(kBulkThreads) bulk_folded(Fold fold, int chunk_vectors) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint4 chunk[];
  __shared__ std::uint64_t landed;
  const std::uint32_t barrier = ptx::shared_address(&landed);
  const std::int64_t first = std::int64_t{blockIdx.x} * chunk_vectors;
  const auto whole = static_cast<int>(min(std::int64_t{chunk_vectors}, fold.read / 16 - first));
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(barrier, 16U * static_cast<std::uint32_t>(max(whole, 0)));
    if (whole > 0)
      ptx::bulk_copy_global_to_shared(ptx::shared_address(chunk), fold.in + first,
                                      16U * static_cast<std::uint32_t>(whole), barrier);
  }
  __syncthreads();
  ptx::mbarrier_wait_parity(barrier, 0);
  const auto end = static_cast<int>(min(std::int64_t{chunk_vectors}, fold.vectors - first));
  for (int i = threadIdx.x; i < end; i += kBulkThreads) {
    const std::int64_t vector = first + i;
    if (4 * vector >= fold.written) break;
    store_folded<0>(fold, vector, i < whole ? chunk[i] : vector_at(fold, vector));
  }
#else
  __trap();  // refused on the host: see bulk_refusal
#endif
}

// Chunks of chunk_vectors vectors, the last one shorter; CTA b takes chunks b, b + gridDim.x, ... With one
// stage the grid must have a CTA for every chunk.
template <int kStages>
__global__ void __launch_bounds__(kBulkThreads) bulk(Copy copy, int chunk_vectors) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint4 stages[];
  __shared__ std::uint64_t landed[kStages];
  const bool issuer = threadIdx.x == 0;
  const std::int64_t chunks = ceil_div(copy.vectors, chunk_vectors), step = gridDim.x;
  const auto vectors_of = [&](std::int64_t chunk) {
    return static_cast<int>(min(std::int64_t{chunk_vectors}, copy.vectors - chunk * chunk_vectors));
  };
  const auto load = [&](std::int64_t chunk, int stage) {
    const std::uint32_t barrier = ptx::shared_address(&landed[stage]);
    const std::uint32_t bytes = 16U * static_cast<std::uint32_t>(vectors_of(chunk));
    ptx::mbarrier_arrive_expect_tx(barrier, bytes);
    ptx::bulk_copy_global_to_shared(ptx::shared_address(stages + stage * chunk_vectors),
                                    copy.in + chunk * chunk_vectors, bytes, barrier);
  };
  if (issuer) {
    for (int stage = 0; stage < kStages; ++stage)
      ptx::mbarrier_init(ptx::shared_address(&landed[stage]), 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (issuer) {
    for (int stage = 0; stage < kStages; ++stage) {
      const std::int64_t chunk = blockIdx.x + stage * step;
      if (chunk < chunks) load(chunk, stage);
    }
  }
  int stage = 0;
  std::uint32_t parity = 0;
  for (std::int64_t chunk = blockIdx.x; chunk < chunks; chunk += step) {
    ptx::mbarrier_wait_parity(ptx::shared_address(&landed[stage]), parity);
    uint4* data = stages + stage * chunk_vectors;
    for (int i = threadIdx.x; i < vectors_of(chunk); i += kBulkThreads)
      data[i] = flipped(data[i], copy.mask);
    ptx::fence_proxy_async_shared();
    __syncthreads();
    if (issuer) {
      ptx::bulk_copy_shared_to_global(copy.out + chunk * chunk_vectors, ptx::shared_address(data),
                                      16U * static_cast<std::uint32_t>(vectors_of(chunk)));
      ptx::bulk_copy_commit_group();
      // Refill the stage stored one iteration ago: its store has had that long to read it.
      const std::int64_t refill = chunk + (kStages - 1) * step;
      if (kStages > 1 && chunk != blockIdx.x && refill < chunks) {
        ptx::bulk_copy_wait_group_read<1>();
        load(refill, (stage + kStages - 1) % kStages);
      }
    }
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1U;
    }
  }
  if (issuer) ptx::bulk_copy_wait_group<0>();  // shared memory must outlive the stores
  copy_tail(copy);
#else
  __trap();  // refused on the host: see bulk_refusal
#endif
}

void require_aligned(const void* in, const void* out, Traffic traffic) {
  if ((reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out)) % 16 != 0 ||
      traffic.read % 2 != 0) {
    throw BadRequest("a copy kernel needs 16-byte addresses and an even number of bytes");
  }
}

Copy request(const void* in, void* out, Traffic traffic, std::uint32_t mask) {
  require_aligned(in, out, traffic);
  const std::int64_t bytes = traffic.read;
  return {static_cast<const uint4*>(in), static_cast<uint4*>(out), bytes / 16,
          static_cast<int>(bytes % 16 / 2), mask};
}

unsigned grid_of(std::int64_t ctas) {
  return static_cast<unsigned>(std::max<std::int64_t>(ctas, 1));
}

template <int V, int T>
CopyKernel one_shot_copy() {
  return {"one_shot_v" + std::to_string(V) + "_t" + std::to_string(T), "",
          [](const void* in, void* out, Traffic traffic, std::uint32_t mask, Stream stream) {
            const Copy copy = request(in, out, traffic, mask);
            one_shot<V, T><<<grid_of(ceil_div(copy.vectors, V * T)), T, 0, stream>>>(copy);
            FWHT_CUDA(cudaGetLastError());
          }};
}

template <int V, int T>
CopyKernel rotated_copy() {
  // Another rotation for every launch, also of those captured in one graph; golden-ratio steps never settle.
  const auto launches = std::make_shared<std::atomic<std::uint32_t>>(0);
  return {"rotated_v" + std::to_string(V) + "_t" + std::to_string(T),
          "",
          [launches](const void* in, void* out, Traffic traffic, std::uint32_t mask, Stream stream) {
            const Copy copy = request(in, out, traffic, mask);
            const unsigned ctas = grid_of(ceil_div(copy.vectors, V * T));
            const std::uint32_t turn = launches->fetch_add(1) * 2654435769U;
            rotated<V, T>
                <<<ctas, T, 0, stream>>>(copy, static_cast<unsigned>((std::uint64_t{turn} * ctas) >> 32));
            FWHT_CUDA(cudaGetLastError());
          },
          false,
          16,
          true};
}

template <class Kernel>
int resident_ctas(Kernel kernel, int threads, std::size_t shared_bytes, const DeviceInfo& device) {
  int per_sm = 0;
  FWHT_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, threads, shared_bytes));
  return per_sm * device.sm_count;
}

template <int V, int T>
CopyKernel persistent_copy(const DeviceInfo& device) {
  const int resident = resident_ctas(persistent<V, T>, T, 0, device);
  return {"persistent_v" + std::to_string(V) + "_t" + std::to_string(T), "",
          [resident](const void* in, void* out, Traffic traffic, std::uint32_t mask, Stream stream) {
            const Copy copy = request(in, out, traffic, mask);
            const std::int64_t ctas = std::min<std::int64_t>(resident, ceil_div(copy.vectors, V * T));
            persistent<V, T><<<grid_of(ctas), T, 0, stream>>>(copy);
            FWHT_CUDA(cudaGetLastError());
          }};
}

// The device alone does not decide: a newer one may run code that was compiled for sm_80, which lacks `what`.
template <class Kernel>
std::string hopper_refusal(const std::string& what, Kernel kernel, const DeviceInfo& device) {
  if (device.compute_capability() < 90) {
    return what + " compute capability 9.0, " + device.name + " has " + std::to_string(device.compute_major) +
           "." + std::to_string(device.compute_minor);
  }
  cudaFuncAttributes attributes{};
  FWHT_CUDA(cudaFuncGetAttributes(&attributes, kernel));
  if (attributes.ptxVersion < 90) {
    return what + " code for compute capability 9.0, this build has " +
           std::to_string(attributes.ptxVersion / 10) + "." + std::to_string(attributes.ptxVersion % 10) +
           " for " + device.name;
  }
  return "";
}

template <int V, int T, bool early>
CopyKernel programmatic_copy(const DeviceInfo& device) {
  const std::string name = std::string("programmatic_") + (early ? "early" : "late") + "_v" +
                           std::to_string(V) + "_t" + std::to_string(T);
  const std::string why_not =
      hopper_refusal("programmatic dependent launch needs", programmatic<V, T, early>, device);
  if (!why_not.empty()) return {name, why_not, [why_not](auto&&...) { throw BadRequest(why_not); }, true};
  return {name, "",
          [](const void* in, void* out, Traffic traffic, std::uint32_t mask, Stream stream) {
            const Copy copy = request(in, out, traffic, mask);
            launch(programmatic<V, T, early>,
                   {.blocks = grid_of(ceil_div(copy.vectors, V * T)), .threads = T, .programmatic = true},
                   stream, copy);
          },
          true};
}

Fold fold_request(const void* in, void* out, Traffic traffic, std::uint32_t mask) {
  require_aligned(in, out, traffic);
  if (traffic.read >> 4 >= std::int64_t{1} << 32)
    throw BadRequest("a copy kernel that folds reads less than 64 GiB, not " + std::to_string(traffic.read) +
                     " bytes");
  return {static_cast<const uint4*>(in),
          static_cast<std::byte*>(out),
          traffic.read,
          traffic.written,
          ceil_div(traffic.read, 16),
          mask};
}

constexpr std::uint64_t kNoFold = std::uint64_t{1} << 32;  // a fold has 32 bits

template <int V, int T, int S, bool is_programmatic>
constexpr auto fold_kernel() {
  if constexpr (S == 0)
    return &reader<V, T, is_programmatic>;
  else
    return &folded<V, T, S, is_programmatic>;
}

template <int V, int T, int S>
CopyKernel folded_copy() {
  return {"write" + std::to_string(S) + "_v" + std::to_string(V) + "_t" + std::to_string(T), "",
          [](const void* in, void* out, Traffic traffic, std::uint32_t mask, Stream stream) {
            const Fold fold = fold_request(in, out, traffic, mask);
            const auto kernel = fold_kernel<V, T, S, false>();
            kernel<<<grid_of(ceil_div(fold.vectors, V * T)), T, 0, stream>>>(fold, 0, kNoFold);
            FWHT_CUDA(cudaGetLastError());
          },
          false, S};
}

// The neighbour of alternating mode: its CTAs take other places in every launch, as those of rotated_copy.
template <int V, int T, int S>
CopyKernel rotated_folded_copy() {
  const auto launches = std::make_shared<std::atomic<std::uint32_t>>(0);
  return {"rotated_write" + std::to_string(S) + "_v" + std::to_string(V) + "_t" + std::to_string(T),
          "",
          [launches](const void* in, void* out, Traffic traffic, std::uint32_t mask, Stream stream) {
            const Fold fold = fold_request(in, out, traffic, mask);
            const unsigned ctas = grid_of(ceil_div(fold.vectors, V * T));
            const std::uint32_t turn = launches->fetch_add(1) * 2654435769U;
            const auto kernel = fold_kernel<V, T, S, false>();
            kernel<<<ctas, T, 0, stream>>>(fold, static_cast<unsigned>((std::uint64_t{turn} * ctas) >> 32),
                                           kNoFold);
            FWHT_CUDA(cudaGetLastError());
          },
          false,
          S,
          true};
}

template <int V, int T, int S>
CopyKernel programmatic_folded_copy(const DeviceInfo& device) {
  const std::string name =
      "programmatic_write" + std::to_string(S) + "_v" + std::to_string(V) + "_t" + std::to_string(T);
  const std::string why_not =
      hopper_refusal("programmatic dependent launch needs", fold_kernel<V, T, S, true>(), device);
  if (!why_not.empty()) return {name, why_not, [why_not](auto&&...) { throw BadRequest(why_not); }, true, S};
  return {name, "",
          [](const void* in, void* out, Traffic traffic, std::uint32_t mask, Stream stream) {
            const Fold fold = fold_request(in, out, traffic, mask);
            launch(fold_kernel<V, T, S, true>(),
                   {.blocks = grid_of(ceil_div(fold.vectors, V * T)), .threads = T, .programmatic = true},
                   stream, fold, 0U, kNoFold);
          },
          true, S};
}

/// For traffic that stores S bytes for every 16 that are loaded.
template <int S>
void add_folded_copies(std::vector<CopyKernel>& kernels, const DeviceInfo& device) {
  for (CopyKernel& kernel :
       std::array{rotated_folded_copy<2, 256, S>(), folded_copy<1, 64, S>(), folded_copy<1, 128, S>(),
                  folded_copy<1, 256, S>(), folded_copy<1, 512, S>(), folded_copy<2, 64, S>(),
                  folded_copy<2, 128, S>(), folded_copy<2, 256, S>(), folded_copy<2, 512, S>(),
                  folded_copy<4, 64, S>(), folded_copy<4, 128, S>(), folded_copy<4, 256, S>(),
                  folded_copy<4, 512, S>(), programmatic_folded_copy<1, 128, S>(device),
                  programmatic_folded_copy<1, 256, S>(device), programmatic_folded_copy<2, 256, S>(device)}) {
    kernels.push_back(std::move(kernel));
  }
}

template <class Kernel>
std::string bulk_refusal(Kernel kernel, std::size_t shared_bytes, const DeviceInfo& device) {
  if (std::string why_not = hopper_refusal("bulk copies need", kernel, device); !why_not.empty())
    return why_not;
  cudaFuncAttributes attributes{};
  FWHT_CUDA(cudaFuncGetAttributes(&attributes, kernel));
  if (static_cast<std::int64_t>(shared_bytes + attributes.sharedSizeBytes) > device.shared_bytes_per_block) {
    return "needs " + std::to_string(shared_bytes + attributes.sharedSizeBytes) +
           " bytes of shared memory per block, this device allows " +
           std::to_string(device.shared_bytes_per_block);
  }
  return "";
}

template <int kStages>
CopyKernel bulk_copy(int chunk_kib, bool is_persistent, const DeviceInfo& device) {
  const std::string name = std::string(is_persistent ? "bulk_persistent_" : "bulk_one_shot_") +
                           std::to_string(kStages) + "x" + std::to_string(chunk_kib) + "k";
  const std::size_t shared_bytes =
      static_cast<std::size_t>(kStages) * static_cast<std::size_t>(chunk_kib) * 1024;
  if (std::string why_not = bulk_refusal(bulk<kStages>, shared_bytes, device); !why_not.empty()) {
    return {name, why_not, [why_not](auto&&...) { throw BadRequest(why_not); }};
  }
  FWHT_CUDA(cudaFuncSetAttribute(bulk<kStages>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(device.shared_bytes_per_block) - 1024));
  const std::int64_t most_ctas = is_persistent
                                     ? resident_ctas(bulk<kStages>, kBulkThreads, shared_bytes, device)
                                     : std::int64_t{1} << 30;
  const int chunk_vectors = chunk_kib * 64;
  return {name, "", [=](const void* in, void* out, Traffic traffic, std::uint32_t mask, Stream stream) {
            const Copy copy = request(in, out, traffic, mask);
            const std::int64_t ctas = std::min(most_ctas, ceil_div(copy.vectors, chunk_vectors));
            bulk<kStages><<<grid_of(ctas), kBulkThreads, shared_bytes, stream>>>(copy, chunk_vectors);
            FWHT_CUDA(cudaGetLastError());
          }};
}

CopyKernel bulk_folded_copy(int chunk_kib, const DeviceInfo& device) {
  const std::string name = "write0_bulk_" + std::to_string(chunk_kib) + "k";
  const std::size_t shared_bytes = static_cast<std::size_t>(chunk_kib) * 1024;
  if (std::string why_not = bulk_refusal(bulk_folded, shared_bytes, device); !why_not.empty())
    return {name, why_not, [why_not](auto&&...) { throw BadRequest(why_not); }, false, 0};
  FWHT_CUDA(cudaFuncSetAttribute(bulk_folded, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(device.shared_bytes_per_block) - 1024));
  const int chunk_vectors = chunk_kib * 64;
  return {
      name, "",
      [=](const void* in, void* out, Traffic traffic, std::uint32_t mask, Stream stream) {
        const Fold fold = fold_request(in, out, traffic, mask);
        bulk_folded<<<grid_of(ceil_div(fold.vectors, chunk_vectors)), kBulkThreads, shared_bytes, stream>>>(
            fold, chunk_vectors);
        FWHT_CUDA(cudaGetLastError());
      },
      false, 0};
}

}  // namespace

std::vector<CopyKernel> device_copies(const DeviceInfo& device) {
  std::vector<CopyKernel> kernels = {rotated_copy<2, 256>(),
                                     one_shot_copy<1, 64>(),
                                     one_shot_copy<1, 128>(),
                                     one_shot_copy<1, 256>(),
                                     one_shot_copy<1, 512>(),
                                     one_shot_copy<2, 128>(),
                                     one_shot_copy<2, 256>(),
                                     one_shot_copy<2, 512>(),
                                     one_shot_copy<4, 128>(),
                                     one_shot_copy<4, 256>(),
                                     one_shot_copy<4, 512>(),
                                     one_shot_copy<8, 128>(),
                                     persistent_copy<1, 256>(device),
                                     persistent_copy<2, 128>(device),
                                     bulk_copy<4>(16, true, device),
                                     bulk_copy<4>(32, true, device),
                                     bulk_copy<3>(64, true, device),
                                     bulk_copy<1>(16, false, device),
                                     bulk_copy<1>(32, false, device),
                                     programmatic_copy<1, 128, true>(device),
                                     programmatic_copy<1, 256, true>(device),
                                     programmatic_copy<1, 512, true>(device),
                                     programmatic_copy<2, 256, true>(device),
                                     programmatic_copy<1, 128, false>(device),
                                     programmatic_copy<1, 256, false>(device),
                                     programmatic_copy<1, 512, false>(device),
                                     programmatic_copy<2, 256, false>(device),
                                     programmatic_copy<4, 256, false>(device)};
  add_folded_copies<8>(kernels, device);
  add_folded_copies<4>(kernels, device);
  add_folded_copies<0>(kernels, device);
  for (const int chunk_kib : {8, 16, 32})
    kernels.push_back(bulk_folded_copy(chunk_kib, device));
  return kernels;
}

}  // namespace fwht::harness
