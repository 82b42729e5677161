// mma_split: tensor cores without the price that HadaCore pays for them in accuracy, for rows that live in
// registers; see README.md.
#include "variants/mma_split/mma_split.hpp"

#include "variants/mma_split/kernels.hpp"
#include "variants/mma_split/plain_launches.hpp"
#include "variants/mma_split/signed_kernels.hpp"
#include "variants/mma_split/streamed_shape.hpp"

namespace fwht::mma_split {
namespace {

rows::Kernel find(const KernelId& id) {
  const bool f16 = id.dtype == Dtype::f16;
  if (id.launch.form == rows::Form::in_warps) return f16 ? f16_in_warps(id) : bf16_in_warps(id);
  return f16 ? f16_across_warps(id) : bf16_across_warps(id);
}
rows::Kernel find_signed(const KernelId& id) {
  const rows::SignedKernel kernel = id.dtype == Dtype::f16 ? f16_signed(id) : bf16_signed(id);
  return reinterpret_cast<rows::Kernel>(reinterpret_cast<void (*)()>(kernel));
}

KernelId dense(const Problem& p) {
  const Regime regime = regime_of(p.elements() * bytes_of(p.dtype()));
  const int log_n = log2_floor(p.n());
  const bool in_constants = has_scale_in_constants(p.dtype(), log_n) && factors(p).last == 1.0F;
  return plain_kernel(p.dtype(), log_n, regime, in_constants ? Scaling::constants : Scaling::results);
}

KernelId regular_dense(const Problem& p) {
  return regular(dense(p));
}
KernelId regular_overlapping(Dtype dtype, int log_n, bool single_block) {
  return regular(overlapping_kernel(dtype, log_n, single_block));
}

KernelId signed_dense(const Problem& p) {
  return signed_kernel(p.dtype(), log2_floor(p.n()), regime_of(p.elements() * bytes_of(p.dtype())));
}
KernelId signed_overlapping(Dtype dtype, int log_n, bool) {
  return signed_kernel(dtype, log_n, Regime::small);
}

rows::KernelTable table_for(const Operator& op) {
  if (op.is_regular()) return {regular_dense, regular_overlapping, nullptr, regular_strided_kernel, find};
  if (op.has_signs()) return {signed_dense, signed_overlapping, nullptr, strided_kernel, find_signed};
  return {dense, overlapping_kernel, overlapping_more_kernel, strided_kernel, find};
}

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  if (!problem.encoding.is_plain()) return make_encoded_plan(problem, device);
  if (is_streamed(log2_floor(problem.n()))) return make_streamed_plan(problem, device);
  return rows::make_rows_plan(problem, device, table_for(problem.op), factors(problem),
                              numerics_of(problem, device.compute_capability()));
}

}  // namespace fwht::mma_split
