// Plans of Kokkos::Cuda for operators of several factors, or with signs.
#include <algorithm>
#include <vector>

#include "common/device/device_array.cuh"
#include "variants/kokkos/cuda_plan.hpp"
#include "variants/kokkos/factors.hpp"

namespace fwht::kokkos {
namespace {

/// A team of eight warps; a vector is a warp. Two teams a multiprocessor, fewer where rows are so long that
/// their workspace would be large.
constexpr int kTeamWarps = 8, kTeamsPerSm = 2;
constexpr std::int64_t kMostWorkspaceFloats = std::int64_t{1} << 26;

int league_of(const Problem& problem, const DeviceInfo& device) {
  const std::int64_t by_memory = std::max<std::int64_t>(kMostWorkspaceFloats / (2 * problem.n()), 1);
  const std::int64_t league =
      std::min({problem.rows, std::int64_t{kTeamsPerSm} * device.sm_count, by_memory});
  return static_cast<int>(std::max<std::int64_t>(league, 1));
}

template <Dtype dtype>
class CudaFactorsPlan final : public Plan {
 public:
  CudaFactorsPlan(const Problem& problem, const DeviceInfo& device, const Library& library)
      : Plan(problem), job_(factors_job(problem)), league_(league_of(problem, device)) {
    const std::vector<float> named = library.named_entries(problem.op);
    named_ = DeviceArray(named.data(), named.size() * sizeof(float));
    workspace_ = DeviceArray(static_cast<std::size_t>(workspace_floats(job_, league_)) * sizeof(float));
    // As in TilePlan: what happens at a first launch happens now.
    FactorsJob nothing = job_;
    nothing.rows = 0;
    lent_instance().now([&](const Kokkos::Cuda& space) { launch(space, nothing, {}); });
  }

  bool one_stream_at_a_time() const override { return true; }  // the workspace
  Numerics numerics() const override { return factors_numerics(problem()); }

  Settings settings() const override {
    return {{"execution_space", std::string(Kokkos::Cuda::name())},
            {"league", std::int64_t{league_}},
            {"team", std::int64_t{kTeamWarps}},
            {"vector", std::int64_t{32}},
            {"workspace_bytes", workspace_floats(job_, league_) * 4},
            {"kokkos", std::string(kKokkosVersion)}};
  }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    lent_instance().on(stream, [&](const Kokkos::Cuda& space) { launch(space, job_, operands); });
  }

  void launch(const Kokkos::Cuda& space, const FactorsJob& job, const Operands& operands) const {
    using Kernel = FactorsKernel<Kokkos::Cuda, dtype>;
    Kokkos::parallel_for("fwht_factors", typename Kernel::Policy(space, league_, kTeamWarps, 32),
                         factors_kernel<Kokkos::Cuda, dtype>(job, problem(), operands, named_.as<float>(),
                                                             workspace_.as<float>(), league_));
  }

  FactorsJob job_;
  int league_;
  DeviceArray named_, workspace_;
};

}  // namespace

std::unique_ptr<Plan> cuda_factors_plan(const Problem& problem, const DeviceInfo& device,
                                        const Library& library) {
  switch (problem.dtype()) {
    case Dtype::f16:
      return std::make_unique<CudaFactorsPlan<Dtype::f16>>(problem, device, library);
    case Dtype::bf16:
      return std::make_unique<CudaFactorsPlan<Dtype::bf16>>(problem, device, library);
    case Dtype::f32:
      return std::make_unique<CudaFactorsPlan<Dtype::f32>>(problem, device, library);
    case Dtype::f64:
    case Dtype::i32:
    case Dtype::i64:
      break;  // refused by require_plain_rows
  }
  return nullptr;
}

}  // namespace fwht::kokkos
