// cpu: the plain host transform, so that a machine with neither CUDA nor Kokkos runs the whole testbed.
//
// Idea: a row is widened to fp32 once, transformed by butterflies with ascending strides in a scratch row
// that stays in the cache, scaled, and rounded once on the way out. Rows are shared out over the host's
// threads. The inner loop runs over contiguous elements, so the compiler vectorises it; nothing else is done
// for speed.
//
// Bit card: every index bit is a stride of the scratch row: bit s is done by pass s, in ascending order.
#include "variants/cpu/cpu.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "common/bits.hpp"
#include "common/parallel_for.hpp"

namespace fwht::cpu {
namespace {

constexpr std::int64_t kLargestN = std::int64_t{1} << 30;

template <Dtype dtype>
void widen(const void* from, float* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (dtype == Dtype::f32) {
      to[i] = static_cast<const float*>(from)[i];
    } else if constexpr (dtype == Dtype::bf16) {
      to[i] = bf16_to_float(static_cast<const std::uint16_t*>(from)[i]);
    } else {
      to[i] = f16_to_float(static_cast<const std::uint16_t*>(from)[i]);
    }
  }
}

template <Dtype dtype>
void scale_and_narrow(const float* from, void* to, std::int64_t n, float scale) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float value = from[i] * scale;
    if constexpr (dtype == Dtype::f32) {
      static_cast<float*>(to)[i] = value;
    } else if constexpr (dtype == Dtype::bf16) {
      static_cast<std::uint16_t*>(to)[i] = float_to_bf16(value);
    } else {
      static_cast<std::uint16_t*>(to)[i] = float_to_f16(value);
    }
  }
}

void butterflies(float* row, std::int64_t n) {
  for (std::int64_t half = 1; half < n; half *= 2) {
    for (std::int64_t block = 0; block < n; block += 2 * half) {
      float* low = row + block;
      float* high = low + half;
      for (std::int64_t i = 0; i < half; ++i) {
        const float a = low[i], b = high[i];
        low[i] = a + b;
        high[i] = a - b;
      }
    }
  }
}

class CpuPlan final : public Plan {
 public:
  CpuPlan(const Problem& problem, int threads) : Plan(problem), threads_(threads) {}

  NumericModel numerics() const override { return single_rounding(Arithmetic::fp32_ascending, problem().n); }

  Settings settings() const override {
    return {{"threads", std::int64_t{threads_}}, {"scratch_bytes_per_thread", problem().n * 4}};
  }

 private:
  void enqueue(const void* in, void* out, Stream) const override {
    switch (problem().dtype) {
      case Dtype::f16:
        return transform<Dtype::f16>(in, out);
      case Dtype::bf16:
        return transform<Dtype::bf16>(in, out);
      case Dtype::f32:
        return transform<Dtype::f32>(in, out);
    }
  }

  template <Dtype dtype>
  void transform(const void* in, void* out) const {
    const std::int64_t row_bytes = problem().row_stride * bytes_of(dtype);
    parallel_for(problem().rows, threads_, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> scratch(static_cast<std::size_t>(problem().n));
      for (std::int64_t row = begin; row < end; ++row) {
        widen<dtype>(static_cast<const char*>(in) + row * row_bytes, scratch.data(), problem().n);
        butterflies(scratch.data(), problem().n);
        scale_and_narrow<dtype>(scratch.data(), static_cast<char*>(out) + row * row_bytes, problem().n,
                                static_cast<float>(problem().scale));
      }
    });
  }

  int threads_;
};

Support supports(const Problem& problem, const DeviceInfo&) {
  return require_power_of_two(problem.n, 2, kLargestN);
}

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  return std::make_unique<CpuPlan>(problem, device.host_threads);
}

}  // namespace

const Variant variant{"cpu",
                      "plain host loops: fp32 butterflies over a cached row, one thread a share of the rows",
                      Memory::host, supports, make_plan};

}  // namespace fwht::cpu
