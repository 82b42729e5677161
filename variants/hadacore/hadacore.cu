// placeholder
#include <cstdint>

#include "common/cuda_check.hpp"
#include "common/static_dispatch.hpp"
#include "variants/hadacore/hadacore_kernel.cuh"

namespace fwht::hadacore {
namespace {

using KernelFunction = void (*)(RowBatch);

template <Table table, Dtype dtype, Accumulator accumulator, bool whole_vectors, int log_n>
constexpr KernelFunction kernel_of() {
  constexpr Config config = config_for(table, log_n);
  constexpr Shape shape = shape_of(log_n, config);
  return transform_tile<log_n, shape.log_chunks, shape.log_warps, config.blocks_per_sm, dtype, accumulator,
                        whole_vectors>;
}

/// The kernel for a plan. One pointer to a kernel whose elements travel one by one is enough for both tables.
template <Table table, Dtype dtype, Accumulator accumulator, bool whole_vectors>
KernelFunction find_kernel(int log_n) {
  return dispatch_int<1, kLargestLogN>(
      log_n, [](auto l) { return kernel_of<table, dtype, accumulator, whole_vectors, l()>(); });
}

struct Choice {
  Table table;
  Config config;
  KernelFunction kernel;
};

Choice choose(Table table, const Problem& problem, Accumulator accumulator, bool whole_vectors) {
  const int log_n = log2_floor(problem.n);
  const bool bf16 = problem.dtype == Dtype::bf16;
  const bool wide = accumulator == Accumulator::wide;
  if (!whole_vectors) table = Table::tuned;
  const auto find = [&]<Table t, bool vectors>() {
    if (bf16) return find_kernel<t, Dtype::bf16, Accumulator::wide, vectors>(log_n);
    if constexpr (t == Table::tuned) {
      if (wide) return find_kernel<t, Dtype::f16, Accumulator::wide, vectors>(log_n);
    }
    return find_kernel<t, Dtype::f16, Accumulator::narrow, vectors>(log_n);
  };
  const KernelFunction kernel = !whole_vectors          ? find.operator()<Table::tuned, false>()
                                : table == Table::tuned ? find.operator()<Table::tuned, true>()
                                                        : find.operator()<Table::published, true>();
  return {table, config_for(table, log_n), kernel};
}

class HadacorePlan final : public Plan {
 public:
  HadacorePlan(const Problem& problem, const DeviceInfo& device, Table table, Accumulator accumulator)
      : Plan(problem),
        table_(table),
        accumulator_(accumulator),
        compute_capability_(device.compute_capability()),
        vectors_(choose(table, problem, accumulator, true)),
        elements_(choose(table, problem, accumulator, false)) {
    for (const Choice& choice : {vectors_, elements_})
      prepare(choice);
    cudaFuncAttributes attributes{};
    FWHT_CUDA(cudaFuncGetAttributes(&attributes, chosen(true).kernel));
    registers_ = attributes.numRegs;
  }

  NumericModel numerics() const override {
    return numeric_model(problem(), vectors_.config, accumulator_, compute_capability_);
  }

  Settings settings() const override {
    const Choice& choice = chosen(true);
    const Shape shape = shape_of(log2_floor(problem().n), choice.config);
    const dim3 grid = grid_for(shape, problem().rows);
    return {{"config", std::string(choice.table == Table::tuned ? "tuned" : "published")},
            {"accumulator", std::string(fp16_sums() ? "f16" : "f32")},
            {"access", std::string(rows_fit_vectors() ? "16-byte vectors" : "elements")},
            {"stages", static_cast<std::int64_t>(numerics().stages.size())},
            {"chunks_per_warp", std::int64_t{choice.config.chunks_per_warp}},
            {"warps_per_block", std::int64_t{choice.config.warps_per_block}},
            {"blocks_per_sm", std::int64_t{choice.config.blocks_per_sm}},
            {"blocks", std::int64_t{grid.x} * grid.y},
            {"threads", std::int64_t{shape.threads()}},
            {"shared_bytes", std::int64_t{shape.shared_bytes()}},
            {"registers", std::int64_t{registers_}}};
  }

 private:
  bool fp16_sums() const { return problem().dtype == Dtype::f16 && accumulator_ == Accumulator::narrow; }

  /// Whether rows start at multiples of 16 bytes when the first does; several rows in a vector must be
  /// contiguous.
  bool rows_fit_vectors() const {
    return problem().n < 8 ? problem().contiguous() : problem().row_stride % 8 == 0;
  }

  const Choice& chosen(bool pointers_aligned) const {
    return pointers_aligned && rows_fit_vectors() ? vectors_ : elements_;
  }

  void prepare(const Choice& choice) const {
    const int bytes = shape_of(log2_floor(problem().n), choice.config).shared_bytes();
    if (bytes > 48 * 1024) {
      FWHT_CUDA(cudaFuncSetAttribute(choice.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    }
  }

  void enqueue(const void* in, void* out, Stream stream) const override {
    const auto addresses = reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out);
    const Choice& choice = chosen(addresses % 16 == 0);
    const Shape shape = shape_of(log2_floor(problem().n), choice.config);
    const RowBatch batch{in, out, problem().rows, problem().row_stride,
                         encode(problem().dtype, scale_constant(problem()))};
    choice.kernel<<<grid_for(shape, problem().rows), static_cast<unsigned>(shape.threads()),
                    static_cast<std::size_t>(shape.shared_bytes()), stream>>>(batch);
    FWHT_CUDA(cudaGetLastError());
  }

  Table table_;
  Accumulator accumulator_;
  int compute_capability_;
  Choice vectors_, elements_;
  int registers_ = 0;
};

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  return std::make_unique<HadacorePlan>(problem, device, Table::tuned, Accumulator::narrow);
}

std::unique_ptr<Plan> make_published_plan(const Problem& problem, const DeviceInfo& device) {
  return std::make_unique<HadacorePlan>(problem, device, Table::published, Accumulator::narrow);
}

std::unique_ptr<Plan> make_f32_plan(const Problem& problem, const DeviceInfo& device) {
  return std::make_unique<HadacorePlan>(problem, device, Table::tuned, Accumulator::wide);
}

}  // namespace fwht::hadacore
