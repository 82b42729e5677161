// The module of Kokkos::Cuda, compiled by nvcc. Everything that is CUDA's own and not Kokkos' common language
// is in this file: the caller's stream, and what must happen before a launch may be captured.
#include <cuda_runtime.h>

#include <mutex>

#include "common/bits.hpp"
#include "common/error.hpp"
#include "variants/kokkos/kokkos_kernel.hpp"
#include "variants/kokkos/module.hpp"
#include "variants/kokkos/runtime.hpp"

namespace fwht::kokkos {
namespace {

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
  }
  template <class Launch>
  void on(cudaStream_t stream, const Launch& launch) {
    const std::lock_guard lock(mutex_);
    cudaStream_t& target = space_.impl_internal_space_instance()->m_stream;
    const auto kept = target;
    target = stream;
    launch(space_);
    target = kept;
  }
  void finish_own_work() { space_.fence("fwht: a plan is made"); }
  cudaStream_t own_stream() const { return own_; }

 private:
  std::mutex mutex_;
  cudaStream_t own_ = nullptr;
  Kokkos::Cuda space_;
};

/// Lives from the first plan until just before Kokkos ends.
LentInstance& lent_instance() {
  static LentInstance* instance = [] {
    auto* made = new LentInstance;
    Kokkos::push_finalize_hook([] { delete instance; });
    return made;
  }();
  return *instance;
}

template <Dtype dtype, int kBits>
class TilePlan final : public Plan {
 public:
  explicit TilePlan(const Problem& problem) : Plan(problem) {
    if (league(problem) > device_limit_) {
      throw BadRequest("kokkos_cuda: rows=" + std::to_string(problem.rows) + " need " +
                       std::to_string(league(problem)) + " teams, a league holds at most " +
                       std::to_string(device_limit_));
    }
    // A launch that touches nothing (no rows) makes CUDA load the kernel and Kokkos look up its attributes
    // and copy its lock arrays now, so that a later launch only enqueues.
    lent_instance().on(lent_instance().own_stream(), [&](const Kokkos::Cuda& space) {
      cudaFuncGetAttributes(&attributes_, reinterpret_cast<const void*>(Launch::get_kernel_func()));
      launch(space, nullptr, nullptr, 0, 1);
    });
    lent_instance().finish_own_work();
  }

  NumericModel numerics() const override { return single_rounding(Arithmetic::fp32_ascending, problem().n); }

  Settings settings() const override {
    return {{"execution_space", std::string(Kokkos::Cuda::name())},
            {"league", league(problem())},
            {"team", std::int64_t{S::kThreads}},
            {"rows_per_team", std::int64_t{1} << log2_rows_per_tile()},
            {"registers", std::int64_t{attributes_.numRegs}},
            {"local_bytes", static_cast<std::int64_t>(attributes_.localSizeBytes)},
            {"scratch_bytes", static_cast<std::int64_t>(Kernel::kScratchBytes)},
            {"elements_per_thread", std::int64_t{S::kRegisters} * S::kChunks},
            {"passes", std::int64_t{S::kPasses}},
            {"kokkos", std::string(kKokkosVersion)}};
  }

 private:
  using S = Shape<dtype, kBits>;
  using Kernel = TileKernel<Kokkos::Cuda, dtype, S>;
  using Launch = Kokkos::Impl::CudaParallelLaunch<Kokkos::Impl::ParallelFor<Kernel, typename Kernel::Policy>,
                                                  typename Kernel::Policy::launch_bounds>;
  static constexpr std::int64_t device_limit_ = 0x7FFFFFFE;

  int log2_rows_per_tile() const {
    const int log2_n = log2_floor(problem().n);
    return log2_n < S::kChunkBits ? S::kChunkBits - log2_n : 0;
  }
  std::int64_t league(const Problem& of) const {
    return ceil_div(of.rows, std::int64_t{1} << log2_rows_per_tile());
  }

  bool vectors(const void* in, const void* out) const {
    const auto misaligned =
        (reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out)) % 16;
    const bool rows_aligned =
        problem().n * S::kStorageBytes >= 16 && problem().row_stride * S::kStorageBytes % 16 == 0;
    return misaligned == 0 && (problem().contiguous() || rows_aligned);
  }

  void enqueue(const void* in, void* out, Stream stream) const override {
    lent_instance().on(stream, [&](const Kokkos::Cuda& space) {
      launch(space, in, out, problem().rows, static_cast<int>(league(problem())));
    });
  }

  void launch(const Kokkos::Cuda& space, const void* in, void* out, std::int64_t rows, int teams) const {
    const std::int64_t span = rows == 0 ? 0 : problem().span_elements();
    TileJob job;
    job.rows = rows;
    job.row_stride = problem().row_stride;
    job.gap = problem().row_stride - problem().n;
    job.log2_n = log2_floor(problem().n);
    job.log2_rows_per_tile = log2_rows_per_tile();
    job.vectors = vectors(in, out);
    job.scale = static_cast<float>(problem().scale);
    const Kernel kernel{job, unowned<Kokkos::Cuda>(static_cast<const Storage<dtype>*>(in), span),
                        unowned<Kokkos::Cuda>(static_cast<Storage<dtype>*>(out), span)};
    typename Kernel::Policy policy(space, teams, S::kThreads, 1);
    policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(Kernel::kScratchBytes)));
    Kokkos::parallel_for("fwht", policy, kernel);
  }

  cudaFuncAttributes attributes_{};
};

template <Dtype dtype>
std::unique_ptr<Plan> plan_for(const Problem& problem) {
  switch (const int log2_n = log2_floor(problem.n)) {
    case 12:
      return std::make_unique<TilePlan<dtype, 12>>(problem);
    case 13:
      return std::make_unique<TilePlan<dtype, 13>>(problem);
    case 14:
      return std::make_unique<TilePlan<dtype, 14>>(problem);
    case 15:
      return std::make_unique<TilePlan<dtype, 15>>(problem);
    default:
      if (log2_n > kLargestTileBits)
        throw BadRequest("kokkos_cuda: n=" + std::to_string(problem.n) + " exceeds 32768");
      return std::make_unique<TilePlan<dtype, kSmallestTileBits>>(problem);
  }
}

bool has_space(Space space) {
  return space == Space::cuda;
}

std::unique_ptr<Plan> make_plan(Space, const Problem& problem, const DeviceInfo& device) {
  start_kokkos(device);
  if (Kokkos::Cuda().cuda_device() != device.ordinal) {
    throw BadRequest(
        "kokkos_cuda: Kokkos was started on CUDA device " + std::to_string(Kokkos::Cuda().cuda_device()) +
        " and serves no other in this process, device " + std::to_string(device.ordinal) + " was asked for");
  }
  switch (problem.dtype) {
    case Dtype::f16:
      return plan_for<Dtype::f16>(problem);
    case Dtype::bf16:
      return plan_for<Dtype::bf16>(problem);
    case Dtype::f32:
      return plan_for<Dtype::f32>(problem);
  }
  return nullptr;
}

}  // namespace
}  // namespace fwht::kokkos

extern "C" __attribute__((visibility("default"))) const fwht::kokkos::Module* fwht_kokkos_module() {
  using namespace fwht::kokkos;
  static constexpr Module module{contract_of_this_build(), kKokkosVersion, has_space, make_plan};
  return &module;
}
