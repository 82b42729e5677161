// The module of the host spaces: Serial and, where Kokkos has it, OpenMP.
#include <algorithm>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "common/host/bits.hpp"
#include "variants/kokkos/factors.hpp"
#include "variants/kokkos/kokkos_kernel.hpp"
#include "variants/kokkos/module.hpp"
#include "variants/kokkos/runtime.hpp"

namespace fwht::kokkos {
namespace {

/// Of a space, those that a plan takes: a team is one thread.
template <class ExecutionSpace>
int threads_of(const ExecutionSpace& space, const DeviceInfo& device) {
  return std::min(space.concurrency(), device.host_threads);
}

/// Rows a team takes: about 64 KiB of fp32, so that starting a team costs little, yet enough teams for every
/// thread. Where a plan takes fewer threads than the space has, as many teams as threads.
std::int64_t rows_per_team(const Problem& problem, int threads, int threads_of_space) {
  const std::int64_t by_size = std::max<std::int64_t>(1, (1 << 14) / problem.n());
  const std::int64_t by_threads = std::max<std::int64_t>(1, ceil_div(problem.rows, 4 * threads));
  const std::int64_t rows = threads < threads_of_space
                                ? std::max<std::int64_t>(1, ceil_div(problem.rows, threads))
                                : std::min(by_size, by_threads);
  // Short rows fill packs: whole groups of 256 elements but for the last team.
  const std::int64_t group = std::max<std::int64_t>(1, 256 / problem.n());
  return ceil_div(rows, group) * group;
}

template <class ExecutionSpace>
class KokkosRowsPlan final : public Plan {
 public:
  KokkosRowsPlan(const Problem& problem, const DeviceInfo& device)
      : Plan(problem),
        threads_(threads_of(space_, device)),
        rows_per_team_(kokkos::rows_per_team(problem, threads_, space_.concurrency())) {
    scratch_level_ = simd::scratch_floats(problem.n()) * 4 <= policy_limit(0) ? 0 : 1;
  }

  Numerics numerics() const override { return single_rounding(Sums::fp32, problem()); }

  Settings settings() const override {
    return {{"execution_space", std::string(ExecutionSpace::name())},
            {"threads", std::int64_t{threads_}},
            {"instruction_set", std::string(kernels_.instruction_set)},
            {"pack", std::int64_t{kernels_.pack}},
            {"league", league()},
            {"rows_per_team", rows_per_team_},
            {"scratch_bytes_per_team", simd::scratch_floats(problem().n()) * 4},
            {"kokkos", std::string(kKokkosVersion)}};
  }

 private:
  using AnyPolicy = Kokkos::TeamPolicy<ExecutionSpace>;
  static int policy_limit(int level) { return AnyPolicy::scratch_size_max(level); }

  std::int64_t league() const { return ceil_div(problem().rows, rows_per_team_); }

  void enqueue(const Operands& operands, Stream) const override {
    switch (problem().dtype()) {
      case Dtype::f16:
        return launch<Dtype::f16>(operands.in, operands.out);
      case Dtype::bf16:
        return launch<Dtype::bf16>(operands.in, operands.out);
      case Dtype::f32:
        return launch<Dtype::f32>(operands.in, operands.out);
      case Dtype::f64:
      case Dtype::i32:
      case Dtype::i64:
        throw std::logic_error("kokkos: such data have no kernel");  // refused by require_sylvester
    }
  }

  template <Dtype dtype>
  void launch(const void* in, void* out) const {
    using Kernel = RowsKernel<ExecutionSpace, dtype>;
    const std::int64_t span = problem().span_elements();
    const Kernel kernel{{problem().n(), problem().row_stride(), problem().row_stride(),
                         log2_floor(problem().n()), static_cast<float>(problem().scale)},
                        kernels_.of(dtype),
                        problem().rows,
                        rows_per_team_,
                        scratch_level_,
                        unowned<ExecutionSpace>(static_cast<const Storage<dtype>*>(in), span),
                        unowned<ExecutionSpace>(static_cast<Storage<dtype>*>(out), span)};
    typename Kernel::Policy policy(space_, static_cast<int>(league()), 1, 1);
    policy.set_scratch_size(scratch_level_, Kokkos::PerTeam(kernel.scratch_bytes() + 64));
    Kokkos::parallel_for("fwht", policy, kernel);
    space_.fence("fwht: a host plan has finished when it returns");
  }

  ExecutionSpace space_;
  const simd::RowKernels& kernels_ = simd::best_kernels();
  int threads_;
  std::int64_t rows_per_team_;
  int scratch_level_ = 0;
};

/// A team of one thread for each thread of the plan, at most one a row.
template <class ExecutionSpace>
class KokkosFactorsPlan final : public Plan {
 public:
  KokkosFactorsPlan(const Problem& problem, const DeviceInfo& device, const Library& library)
      : Plan(problem),
        library_(library),
        job_(factors_job(problem)),
        named_(library.named_entries(problem.op)),
        threads_(threads_of(space_, device)),
        league_(std::min<std::int64_t>(problem.rows, threads_)) {}

  Numerics numerics() const override { return factors_numerics(problem()); }

  Settings settings() const override {
    return {{"execution_space", std::string(ExecutionSpace::name())},
            {"threads", std::int64_t{threads_}},
            {"league", league_},
            {"workspace_bytes", workspace_floats(job_, league_) * 4},
            {"kokkos", std::string(kKokkosVersion)}};
  }

 private:
  void enqueue(const Operands& operands, Stream) const override {
    if (job_.dense_entries > 0) library_.check_dense(problem().op, problem().dtype(), operands.dense);
    switch (problem().dtype()) {
      case Dtype::f16:
        return launch<Dtype::f16>(operands);
      case Dtype::bf16:
        return launch<Dtype::bf16>(operands);
      case Dtype::f32:
        return launch<Dtype::f32>(operands);
      case Dtype::f64:
      case Dtype::i32:
      case Dtype::i64:
        throw std::logic_error("kokkos: such data have no kernel");  // refused by require_plain_rows
    }
  }

  template <Dtype dtype>
  void launch(const Operands& operands) const {
    // Of this execution: a plan may be executed by several threads at once.
    const auto workspace =
        std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(workspace_floats(job_, league_)));
    using Kernel = FactorsKernel<ExecutionSpace, dtype>;
    Kokkos::parallel_for("fwht_factors", typename Kernel::Policy(space_, static_cast<int>(league_), 1, 1),
                         factors_kernel<ExecutionSpace, dtype>(job_, problem(), operands, named_.data(),
                                                               workspace.get(), league_));
    space_.fence("fwht: a host plan has finished when it returns");
  }

  ExecutionSpace space_;
  Library library_;
  FactorsJob job_;
  std::vector<float> named_;
  int threads_;
  std::int64_t league_;
};

template <class ExecutionSpace>
std::unique_ptr<Plan> plan_on(const Problem& problem, const DeviceInfo& device, const Library& library) {
  if (is_one_sylvester(problem.op)) return std::make_unique<KokkosRowsPlan<ExecutionSpace>>(problem, device);
  return std::make_unique<KokkosFactorsPlan<ExecutionSpace>>(problem, device, library);
}

bool has_space(Space space) {
#ifdef KOKKOS_ENABLE_OPENMP
  if (space == Space::openmp) return true;
#endif
  return space == Space::serial;
}

std::unique_ptr<Plan> make_plan(Space space, const Problem& problem, const DeviceInfo& device,
                                const Library& library) {
  start_kokkos(device, library);
#ifdef KOKKOS_ENABLE_OPENMP
  if (space == Space::openmp) return plan_on<Kokkos::OpenMP>(problem, device, library);
#endif
  (void)space;
  return plan_on<Kokkos::Serial>(problem, device, library);
}

}  // namespace
}  // namespace fwht::kokkos

extern "C" [[gnu::visibility("default")]] const fwht::kokkos::Module* fwht_kokkos_module() {
  using namespace fwht::kokkos;
  static constexpr Module module{contract_of_this_build(), has_space, make_plan};
  return &module;
}
