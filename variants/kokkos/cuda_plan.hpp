// Plans of Kokkos::Cuda. Everything that is CUDA's own and not Kokkos' common language is here and in
// cuda_module.cpp: the caller's stream, and what must happen before a launch may be captured.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "common/contract/variant.hpp"
#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "variants/kokkos/kokkos_kernel.hpp"
#include "variants/kokkos/module.hpp"
#include "variants/kokkos/runtime.hpp"

namespace fwht::kokkos {

/// The one execution space instance that plans launch with, pointed at the caller's stream for the time of a
/// launch.
///
/// Kokkos makes an instance for a stream by allocating and clearing device memory, which a stream that is
/// being captured forbids, and a caller may capture a stream that no plan has seen. So one instance, made on
/// a stream of its own, lends its place: `m_stream` is where Kokkos 5 keeps the stream that its launches go
/// to.
class LentInstance {
 public:
  LentInstance() {
    if (cudaStreamCreateWithFlags(&own_, cudaStreamNonBlocking) != cudaSuccess) {
      throw std::runtime_error("kokkos_cuda: no CUDA stream could be made");
    }
    space_ = Kokkos::Cuda(own_);
    // Kokkos grows the team scratch in global memory at a launch: from nothing to nothing by a cudaMalloc of
    // 0 bytes at every launch. With something there already, a launch allocates nothing.
    for (int pool = 0; pool < internals().m_n_team_scratch; ++pool)
      internals().resize_team_scratch_space(pool, 256);
  }
  ~LentInstance() {
    space_ = Kokkos::Cuda();
    cudaStreamDestroy(own_);
  }
  LentInstance(const LentInstance&) = delete;
  LentInstance& operator=(const LentInstance&) = delete;

  /// launch(space), where space launches into `stream`.
  template <class Launch>
  void on(cudaStream_t stream, const Launch& launch) {
    const std::lock_guard lock(mutex_);
    struct Lent {
      ~Lent() { place = own; }
      cudaStream_t &place, own;
    } lent{internals().m_stream, own_};
    lent.place = stream;
    launch(space_);
  }
  /// on() its own stream, and waits.
  template <class Launch>
  void now(const Launch& launch) {
    on(own_, launch);
    space_.fence("fwht: a plan is made");
  }

 private:
  Kokkos::Impl::CudaInternal& internals() { return *space_.impl_internal_space_instance(); }

  std::mutex mutex_;
  cudaStream_t own_ = nullptr;
  Kokkos::Cuda space_;
};

/// Lives from the first plan until just before Kokkos ends.
LentInstance& lent_instance();

/// For operators of several factors, or with signs (cuda_factors.cpp).
std::unique_ptr<Plan> cuda_factors_plan(const Problem& problem, const DeviceInfo& device,
                                        const Library& library);

template <Dtype dtype, int kBits>
class TilePlan final : public Plan {
 public:
  TilePlan(const Problem& problem, const DeviceInfo& device)
      : Plan(problem),
        job_(make_tile_job<S>(problem.n(), problem.rows, problem.row_stride(),
                              static_cast<float>(problem.scale))) {
    if (job_.tiles > kLongestLeague) {
      throw BadRequest("kokkos_cuda: rows=" + std::to_string(problem.rows) + " need " +
                       std::to_string(job_.tiles) + " teams, a league holds at most " +
                       std::to_string(kLongestLeague));
    }
    const std::int64_t resident = std::int64_t{S::kBlocksPerSm} * device.sm_count;
    league_ = static_cast<int>(S::kPersistent ? std::min(job_.tiles, resident) : job_.tiles);
    // A launch that touches nothing makes CUDA load the kernel, and Kokkos look up its attributes and copy
    // its lock arrays, now: a later launch only enqueues.
    lent_instance().now([&](const Kokkos::Cuda& space) {
      launch<true>(space, TileJob{}, 1, nullptr, nullptr);
      launch<false>(space, TileJob{}, 1, nullptr, nullptr);
    });
    attributes_ = attributes<true>();
  }

  Numerics numerics() const override { return single_rounding(Sums::fp32, problem()); }

  Settings settings() const override {
    return {{"execution_space", std::string(Kokkos::Cuda::name())},
            {"league", std::int64_t{league_}},
            {"team", std::int64_t{S::kThreads}},
            {"rows_per_tile", std::int64_t{1} << job_.log2_rows_per_tile},
            {"registers", std::int64_t{attributes_.numRegs}},
            {"local_bytes", static_cast<std::int64_t>(attributes_.localSizeBytes)},
            {"scratch_bytes", static_cast<std::int64_t>(S::kScratchFloats * sizeof(float))},
            {"elements_per_thread", std::int64_t{S::kRegisters} * S::kChunks},
            {"passes", std::int64_t{S::kPasses}},
            {"kokkos", std::string(kKokkosVersion)}};
  }

 private:
  using S = Shape<dtype, kBits>;
  template <bool kVectors>
  using KernelFor =
      TileKernel<Kokkos::Cuda, dtype, std::conditional_t<kVectors, S, PatientShape<dtype, kBits>>, kVectors>;
  static constexpr std::int64_t kLongestLeague = 0x7FFFFFFE;  // Kokkos asks for less than the grid's 2^31 - 1

  void enqueue(const Operands& operands, Stream stream) const override {
    lent_instance().on(stream, [&](const Kokkos::Cuda& space) {
      if (whole_vectors<S>(job_, operands.in, operands.out)) {
        launch<true>(space, job_, league_, operands.in, operands.out);
      } else {
        launch<false>(space, job_, league_, operands.in, operands.out);
      }
    });
  }

  template <bool kVectors>
  void launch(const Kokkos::Cuda& space, const TileJob& job, int league, const void* in, void* out) const {
    using Kernel = KernelFor<kVectors>;
    const std::int64_t span = in == nullptr ? 0 : problem().span_elements();
    const Kernel kernel{job, unowned<Kokkos::Cuda>(static_cast<const Storage<dtype>*>(in), span),
                        unowned<Kokkos::Cuda>(static_cast<Storage<dtype>*>(out), span)};
    typename Kernel::Policy policy(space, league, S::kThreads, 1);
    policy.set_scratch_size(0, Kokkos::PerTeam(Kernel::kScratchBytes));
    Kokkos::parallel_for("fwht", policy, kernel);
  }

  template <bool kVectors>
  static cudaFuncAttributes attributes() {
    using Kernel = KernelFor<kVectors>;
    using Closure = Kokkos::Impl::ParallelFor<Kernel, typename Kernel::Policy>;
    using Launch = Kokkos::Impl::CudaParallelLaunch<Closure, typename Kernel::Policy::launch_bounds>;
    return Launch::get_cuda_func_attributes(Kokkos::Cuda().impl_internal_space_instance());
  }

  TileJob job_;
  int league_ = 1;
  cudaFuncAttributes attributes_{};
};

/// Instantiated in cuda_f16.cpp, cuda_bf16.cpp and cuda_f32.cpp, which CMake makes, so that nvcc compiles
/// them side by side.
template <Dtype dtype>
std::unique_ptr<Plan> cuda_plan(const Problem& problem, const DeviceInfo& device) {
  std::unique_ptr<Plan> made;
  const auto try_size = [&]<int bits>() {
    if (problem.n() == 1 << bits) made = std::make_unique<TilePlan<dtype, bits>>(problem, device);
  };
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (try_size.template operator()<i + 1>(), ...);
  }
  (std::make_integer_sequence<int, kLargestTileBits>{});
  if (made == nullptr)
    throw BadRequest("kokkos_cuda: n=" + std::to_string(problem.n()) + " is not supported");
  return made;
}

}  // namespace fwht::kokkos
