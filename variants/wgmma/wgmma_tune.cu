#include "variants/wgmma/wgmma_tune.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/cuda_check.hpp"
#include "common/static_dispatch.hpp"
#include "variants/wgmma/wgmma_kernel.cuh"

namespace fwht::wgmma {
namespace {

constexpr Launch kBlockPerRow{.form = Form::one_shot, .load_pieces = 2};
constexpr Launch kRing{.form = Form::ring, .slots = 2};

constexpr Launch blocks(Launch launch, int blocks_per_sm) {
  launch.blocks_per_sm = blocks_per_sm;
  return launch;
}
constexpr Launch teams(Launch launch, int number, int slots) {
  launch.teams = number;
  launch.slots = slots;
  return launch;
}
constexpr Launch pieces(Launch launch, int load, int store) {
  launch.load_pieces = load;
  launch.store_pieces = store;
  return launch;
}
constexpr Launch parts(Launch launch, int log_parts) {
  launch.log_parts = log_parts;
  return launch;
}
constexpr Launch with_table(Launch launch) {
  launch.table = true;
  return launch;
}
constexpr Launch dynamic(Launch launch) {
  launch.dynamic = true;
  return launch;
}

template <int log_n>
constexpr auto launches_to_try() {
  if constexpr (log_n == 12) {
    constexpr Launch small = with_table(blocks(teams(kRing, 4, 2), 2));
    return std::array{blocks(kBlockPerRow, 6),
                      teams(kRing, 4, 4),
                      teams(kRing, 6, 3),
                      with_table(teams(kRing, 8, 2)),
                      small,
                      pieces(small, 1, 0),
                      dynamic(small)};
  } else if constexpr (log_n == 13) {
    constexpr Launch small = blocks(kRing, 4);
    return std::array{blocks(kBlockPerRow, 4), small,
                      pieces(small, 2, 2),     pieces(small, 2, 0),
                      teams(kRing, 4, 2),      with_table(parts(teams(kRing, 4, 2), 1)),
                      dynamic(small)};
  } else if constexpr (log_n == 14) {
    constexpr Launch small = blocks(kRing, 2), large = teams(kRing, 2, 2);
    return std::array{small,
                      pieces(small, 2, 2),
                      large,
                      pieces(teams(kRing, 2, 3), 4, 0),
                      with_table(pieces(parts(small, 1), 4, 2)),
                      dynamic(large),
                      dynamic(pieces(large, 2, 2))};
  } else {
    constexpr Launch row = parts(kRing, 1);
    return std::array{row,
                      pieces(row, 4, 2),
                      pieces(row, 8, 2),
                      pieces(row, 4, 4),
                      pieces(teams(row, 1, 3), 4, 0),
                      with_table(pieces(parts(kRing, 2), 4, 2)),
                      dynamic(row),
                      dynamic(pieces(row, 8, 2))};
  }
}

template <class Kernel>
Candidate describe(const Launch& launch, Kernel kernel, int shared) {
  FWHT_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  cudaFuncAttributes attributes{};
  FWHT_CUDA(cudaFuncGetAttributes(&attributes, kernel));
  Candidate candidate{launch, attributes.numRegs, static_cast<int>(attributes.localSizeBytes), 0, {}};
  FWHT_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&candidate.blocks_per_sm, kernel, launch.threads(),
                                                          static_cast<std::size_t>(shared)));
  return candidate;
}

RowBatch batch_of(void* data, std::int64_t rows, int log_n) {
  return {static_cast<const std::byte*>(data), static_cast<std::byte*>(data), static_cast<int>(rows),
          std::int64_t{2} << log_n, static_cast<float>(std::pow(2.0, -0.5 * log_n))};
}

unsigned* row_counter() {
  static unsigned* const counter = [] {
    void* memory = nullptr;
    FWHT_CUDA(cudaMalloc(&memory, sizeof(unsigned)));
    FWHT_CUDA(cudaMemset(memory, 0, sizeof(unsigned)));
    return static_cast<unsigned*>(memory);
  }();
  return counter;
}

template <int log_n, int which>
struct Tried {
  static constexpr Launch launch = launches_to_try<log_n>()[which];
};

template <Dtype dtype, int log_n, class Choice>
Candidate candidate() {
  static constexpr Launch launch = Choice::launch;
  static constexpr int shared = shared_bytes(launch, log_n);
  static_assert(shared <= 227 << 10);
  if constexpr (launch.form == Form::one_shot) {
    const auto kernel = one_shot<dtype, log_n, Choice>;
    Candidate result = describe(launch, kernel, shared);
    result.enqueue = [kernel](void* data, std::int64_t rows, Stream stream) {
      kernel<<<static_cast<unsigned>(rows), launch.threads(), shared, stream>>>(batch_of(data, rows, log_n));
      FWHT_CUDA(cudaGetLastError());
    };
    return result;
  } else {
    const auto kernel = ring<dtype, log_n, Choice>;
    Candidate result = describe(launch, kernel, shared);
    int device = 0, sm_count = 0;
    FWHT_CUDA(cudaGetDevice(&device));
    FWHT_CUDA(cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, device));
    const std::int64_t resident_blocks = std::int64_t{result.blocks_per_sm} * sm_count;
    result.enqueue = [kernel, resident_blocks](void* data, std::int64_t rows, Stream stream) {
      const auto blocks = static_cast<unsigned>(std::min(rows, resident_blocks));
      kernel<<<blocks, launch.threads(), shared, stream>>>(batch_of(data, rows, log_n), row_counter());
      FWHT_CUDA(cudaGetLastError());
    };
    return result;
  }
}

__global__ void __launch_bounds__(256) copy_vectors(uint4* data, std::int64_t vectors) {
  const std::int64_t i = std::int64_t{blockIdx.x} * 256 + threadIdx.x;
  if (i >= vectors) return;
  uint4 v = data[i];
  v.x ^= 0x80008000U;
  data[i] = v;
}

}  // namespace

std::vector<Candidate> candidates(int log_n) {
  return dispatch_int<kSmallestLogN, kLargestLogN>(log_n, [&](auto l) {
    return [&]<int... which>(std::integer_sequence<int, which...>) {
      return std::vector{candidate<Dtype::f16, l(), Tried<l(), which>>()...};
    }
    (std::make_integer_sequence<int, static_cast<int>(launches_to_try<l()>().size())>{});
  });
}

void enqueue_copy(void* data, std::int64_t bytes, Stream stream) {
  const std::int64_t vectors = bytes / 16;
  copy_vectors<<<static_cast<unsigned>((vectors + 255) / 256), 256, 0, stream>>>(static_cast<uint4*>(data),
                                                                                 vectors);
  FWHT_CUDA(cudaGetLastError());
}

}  // namespace fwht::wgmma
