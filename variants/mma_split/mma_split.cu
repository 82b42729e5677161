// mma_split: tensor cores without the price that HadaCore pays for them in accuracy, for rows that live in
// registers; see README.md.
#include "variants/mma_split/mma_split.hpp"

#include "variants/mma_split/kernels.hpp"
#include "variants/mma_split/launches.hpp"

namespace fwht::mma_split {
namespace {

rows::Kernel find(const KernelId& id) {
  const bool f16 = id.dtype == Dtype::f16;
  if (id.launch.form == rows::Form::in_warps) return f16 ? f16_in_warps(id) : bf16_in_warps(id);
  return f16 ? f16_across_warps(id) : bf16_across_warps(id);
}

KernelId dense(const Problem& p) {
  const Regime regime = regime_of(p.elements() * bytes_of(p.dtype()));
  const int log_n = log2_floor(p.n());
  const bool in_constants = has_scale_in_constants(p.dtype(), log_n) && factors(p).last == 1.0F;
  return dense_kernel(p.dtype(), log_n, regime, in_constants ? Scaling::constants : Scaling::results);
}

KernelId regular_dense(const Problem& p) {
  return regular(dense(p));
}
KernelId regular_overlapping(Dtype dtype, int log_n, bool single_block) {
  return regular(overlapping_kernel(dtype, log_n, single_block));
}

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  if (!problem.encoding.is_plain()) return make_encoded_plan(problem, device);
  const rows::KernelTable table =
      problem.op.is_regular()
          ? rows::KernelTable{regular_dense, regular_overlapping, regular_strided_kernel, find}
          : rows::KernelTable{dense, overlapping_kernel, strided_kernel, find};
  return rows::make_rows_plan(problem, device, table, factors(problem),
                              numerics_of(problem, device.compute_capability()));
}

}  // namespace fwht::mma_split
