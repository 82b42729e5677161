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
//   launch begin at its start or after its loads: the limit of mode replay_pdl. sm_90.
// - write<S>_v<V>_t<T>: one_shot that stores S bytes for every 16 that it loads: the limit of what writes
//   less than it reads; rotated_write and programmatic_write as above.
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

// When the next launch may begin: behind this one, or by programmatic dependence.
enum class NextLaunch { behind, early, late };

template <int V, int T, NextLaunch next>
__global__ void __launch_bounds__(T) one_shot(Copy copy) {
  if constexpr (next != NextLaunch::behind) ptx::griddepcontrol_wait();
  if constexpr (next == NextLaunch::early) ptx::griddepcontrol_launch_dependents();
  const std::int64_t first = std::int64_t{blockIdx.x} * (V * T) + threadIdx.x;
  Vectors<V> vectors;
  vectors.load(copy, first, T);
  if constexpr (next == NextLaunch::late) ptx::griddepcontrol_launch_dependents();
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

// What fold_copy gives, V vectors of 16 bytes a thread: S bytes are stored for each by its own lane.
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
  __trap();  // refused on the host: see bulk_grid_copy
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
  __trap();  // refused on the host: see bulk_grid_copy
#endif
}

void require_aligned(const void* in, const void* out, Traffic traffic) {
  if ((reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out)) % 16 != 0 ||
      traffic.read % 2 != 0) {
    throw BadRequest("a copy kernel needs 16-byte addresses and an even number of bytes");
  }
}

std::int64_t ctas_of(std::int64_t wanted) {
  return std::max<std::int64_t>(wanted, 1);
}

void request(const void* in, void* out, Traffic traffic, std::uint32_t mask, Copy& copy) {
  require_aligned(in, out, traffic);
  copy = {static_cast<const uint4*>(in), static_cast<uint4*>(out), traffic.read / 16,
          static_cast<int>(traffic.read % 16 / 2), mask};
}

void request(const void* in, void* out, Traffic traffic, std::uint32_t mask, Fold& fold) {
  require_aligned(in, out, traffic);
  if (traffic.read >> 4 >= std::int64_t{1} << 32)
    throw BadRequest("a copy kernel that folds reads less than 64 GiB, not " + std::to_string(traffic.read) +
                     " bytes");
  fold = {static_cast<const uint4*>(in),
          static_cast<std::byte*>(out),
          traffic.read,
          traffic.written,
          ceil_div(traffic.read, 16),
          mask};
}

constexpr std::uint64_t kNoFold = std::uint64_t{1} << 32;  // a fold has 32 bits

void start(void (*kernel)(Copy), const LaunchGrid& grid, Stream stream, const Copy& copy, unsigned) {
  launch(kernel, grid, stream, copy);
}
void start(void (*kernel)(Copy, unsigned), const LaunchGrid& grid, Stream stream, const Copy& copy,
           unsigned turn) {
  launch(kernel, grid, stream, copy, turn);
}
void start(void (*kernel)(Fold, unsigned, std::uint64_t), const LaunchGrid& grid, Stream stream,
           const Fold& fold, unsigned turn) {
  launch(kernel, grid, stream, fold, turn, kNoFold);
}

std::string shape_name(const std::string& family, int vectors, int threads) {
  return family + "_v" + std::to_string(vectors) + "_t" + std::to_string(threads);
}

// The device alone does not decide: a newer one may run code that was compiled for sm_80, which lacks `what`.
std::string hopper_refusal(const std::string& what, KernelAddress kernel, const DeviceInfo& device) {
  if (device.compute_capability() < 90) {
    return what + " compute capability 9.0, " + device.name + " has " + std::to_string(device.compute_major) +
           "." + std::to_string(device.compute_minor);
  }
  if (const int built_for = attributes_of(kernel).ptxVersion; built_for < 90) {
    return what + " code for compute capability 9.0, this build has " + std::to_string(built_for / 10) + "." +
           std::to_string(built_for % 10) + " for " + device.name;
  }
  return "";
}

CopyKernel refused(const std::string& name, const std::string& why_not, bool programmatic, int store_bytes) {
  return {name, why_not, [why_not](auto&&...) { throw BadRequest(why_not); }, programmatic, store_bytes};
}

enum class Order { fixed, rotated, programmatic };

// V vectors a thread, as many CTAs of T threads as that takes, at most `most_ctas`.
template <int V, int T, class Work, class... Rest>
CopyKernel grid_copy(const std::string& family, void (*kernel)(Work, Rest...), const DeviceInfo& device,
                     Order order = Order::fixed, int store_bytes = 16, std::int64_t most_ctas = INT64_MAX) {
  const std::string name = shape_name(family, V, T);
  const bool programmatic = order == Order::programmatic, rotated = order == Order::rotated;
  if (programmatic) {
    const std::string why_not = hopper_refusal("programmatic dependent launch needs", kernel, device);
    if (!why_not.empty()) return refused(name, why_not, true, store_bytes);
  }
  // Another rotation for every launch, also of those captured in one graph; golden-ratio steps never settle.
  const auto launches = std::make_shared<std::atomic<std::uint32_t>>(0);
  const auto enqueue = [=](const void* in, void* out, Traffic traffic, std::uint32_t mask, Stream stream) {
    Work work{};
    request(in, out, traffic, mask, work);
    const LaunchGrid grid{.blocks = ctas_of(std::min(most_ctas, ceil_div(work.vectors, V * T))),
                          .threads = T,
                          .programmatic = programmatic};
    const std::uint64_t turn = rotated ? launches->fetch_add(1) * 2654435769U : 0U;
    start(kernel, grid, stream, work,
          static_cast<unsigned>((turn * static_cast<std::uint64_t>(grid.blocks)) >> 32));
  };
  return {name, "", enqueue, programmatic, store_bytes, rotated};
}

template <int V, int T>
CopyKernel one_shot_copy(const DeviceInfo& device) {
  return grid_copy<V, T>("one_shot", one_shot<V, T, NextLaunch::behind>, device);
}

template <int V, int T>
CopyKernel persistent_copy(const DeviceInfo& device) {
  const std::int64_t resident = std::int64_t{resident_blocks(persistent<V, T>, T, 0)} * device.sm_count;
  return grid_copy<V, T>("persistent", persistent<V, T>, device, Order::fixed, 16, resident);
}

template <int V, int T, NextLaunch next>
CopyKernel programmatic_copy(const DeviceInfo& device) {
  const std::string family = next == NextLaunch::early ? "programmatic_early" : "programmatic_late";
  return grid_copy<V, T>(family, one_shot<V, T, next>, device, Order::programmatic);
}

template <int V, int T, int S, Order order = Order::fixed>
CopyKernel folded_copy(const DeviceInfo& device) {
  constexpr bool programmatic = order == Order::programmatic;
  void (*kernel)(Fold, unsigned, std::uint64_t) = nullptr;
  if constexpr (S == 0)
    kernel = reader<V, T, programmatic>;
  else
    kernel = folded<V, T, S, programmatic>;
  const std::string family = programmatic              ? "programmatic_write"
                             : order == Order::rotated ? "rotated_write"
                                                       : "write";
  return grid_copy<V, T>(family + std::to_string(S), kernel, device, order, S);
}

/// For traffic that stores S bytes for every 16 that are loaded.
template <int S>
void add_folded_copies(std::vector<CopyKernel>& kernels, const DeviceInfo& device) {
  for (CopyKernel& kernel : std::array{
           folded_copy<2, 256, S, Order::rotated>(device), folded_copy<1, 64, S>(device),
           folded_copy<1, 128, S>(device), folded_copy<1, 256, S>(device), folded_copy<1, 512, S>(device),
           folded_copy<2, 64, S>(device), folded_copy<2, 128, S>(device), folded_copy<2, 256, S>(device),
           folded_copy<2, 512, S>(device), folded_copy<4, 64, S>(device), folded_copy<4, 128, S>(device),
           folded_copy<4, 256, S>(device), folded_copy<4, 512, S>(device),
           folded_copy<1, 128, S, Order::programmatic>(device),
           folded_copy<1, 256, S, Order::programmatic>(device),
           folded_copy<2, 256, S, Order::programmatic>(device)}) {
    kernels.push_back(std::move(kernel));
  }
}

// Bulk copies of `chunk_kib` KiB, `stages` of them in flight.
template <class Work>
CopyKernel bulk_grid_copy(const std::string& name, void (*kernel)(Work, int), int chunk_kib, int stages,
                          bool is_persistent, const DeviceInfo& device, int store_bytes) {
  const int shared = stages * chunk_kib * 1024, chunk_vectors = chunk_kib * 64;
  std::string why_not = hopper_refusal("bulk copies need", kernel, device);
  if (why_not.empty()) {
    const std::int64_t needed = shared + static_cast<std::int64_t>(attributes_of(kernel).sharedSizeBytes);
    if (needed > device.shared_bytes_per_block)
      why_not = "needs " + std::to_string(needed) + " bytes of shared memory per block, this device allows " +
                std::to_string(device.shared_bytes_per_block);
  }
  if (!why_not.empty()) return refused(name, why_not, false, store_bytes);
  allow_shared(kernel, static_cast<int>(device.shared_bytes_per_block) - 1024);  // for all numbers of stages
  const std::int64_t most_ctas =
      is_persistent ? std::int64_t{resident_blocks(kernel, kBulkThreads, shared)} * device.sm_count
                    : INT64_MAX;
  const auto enqueue = [=](const void* in, void* out, Traffic traffic, std::uint32_t mask, Stream stream) {
    Work work{};
    request(in, out, traffic, mask, work);
    const std::int64_t ctas = ctas_of(std::min(most_ctas, ceil_div(work.vectors, chunk_vectors)));
    launch(kernel, {.blocks = ctas, .threads = kBulkThreads, .shared = shared}, stream, work, chunk_vectors);
  };
  return {name, "", enqueue, false, store_bytes};
}

template <int kStages>
CopyKernel bulk_copy(int chunk_kib, bool is_persistent, const DeviceInfo& device) {
  const std::string name = std::string(is_persistent ? "bulk_persistent_" : "bulk_one_shot_") +
                           std::to_string(kStages) + "x" + std::to_string(chunk_kib) + "k";
  return bulk_grid_copy(name, bulk<kStages>, chunk_kib, kStages, is_persistent, device, 16);
}

}  // namespace

std::vector<CopyKernel> device_copies(const DeviceInfo& device) {
  std::vector<CopyKernel> kernels = {
      grid_copy<2, 256>("rotated", rotated<2, 256>, device, Order::rotated),
      one_shot_copy<1, 64>(device),
      one_shot_copy<1, 128>(device),
      one_shot_copy<1, 256>(device),
      one_shot_copy<1, 512>(device),
      one_shot_copy<2, 128>(device),
      one_shot_copy<2, 256>(device),
      one_shot_copy<2, 512>(device),
      one_shot_copy<4, 128>(device),
      one_shot_copy<4, 256>(device),
      one_shot_copy<4, 512>(device),
      one_shot_copy<8, 128>(device),
      persistent_copy<1, 256>(device),
      persistent_copy<2, 128>(device),
      bulk_copy<4>(16, true, device),
      bulk_copy<4>(32, true, device),
      bulk_copy<3>(64, true, device),
      bulk_copy<1>(16, false, device),
      bulk_copy<1>(32, false, device),
      programmatic_copy<1, 128, NextLaunch::early>(device),
      programmatic_copy<1, 256, NextLaunch::early>(device),
      programmatic_copy<1, 512, NextLaunch::early>(device),
      programmatic_copy<2, 256, NextLaunch::early>(device),
      programmatic_copy<1, 128, NextLaunch::late>(device),
      programmatic_copy<1, 256, NextLaunch::late>(device),
      programmatic_copy<1, 512, NextLaunch::late>(device),
      programmatic_copy<2, 256, NextLaunch::late>(device),
      programmatic_copy<4, 256, NextLaunch::late>(device),
  };
  add_folded_copies<8>(kernels, device);
  add_folded_copies<4>(kernels, device);
  add_folded_copies<0>(kernels, device);
  for (const int chunk_kib : {8, 16, 32})
    kernels.push_back(bulk_grid_copy("write0_bulk_" + std::to_string(chunk_kib) + "k", bulk_folded, chunk_kib,
                                     1, false, device, 0));
  return kernels;
}

}  // namespace fwht::harness
