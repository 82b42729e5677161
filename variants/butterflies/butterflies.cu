// butterflies: rows transformed by fp32 additions alone, in one pass over memory; see README.md.
#include "variants/butterflies/butterflies.hpp"

#include "variants/butterflies/kernels.hpp"
#include "variants/butterflies/launches.hpp"

namespace fwht::butterflies {
namespace {

rows::Kernel find(const KernelId& id) {
  if (id.dtype != Dtype::f32) return rows_16_bit(id);
  return id.launch.form == rows::Form::smem_passes ? passes_f32(id) : rows_f32(id);
}

KernelId dense(const Problem& p) {
  return dense_kernel(p.dtype(), log2_floor(p.n()), regime_of(p.elements() * bytes_of(p.dtype())));
}

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  return rows::make_rows_plan(problem, device, {dense, overlapping_kernel, nullptr, strided_kernel, find},
                              factors(problem), numerics_of(problem));
}

}  // namespace fwht::butterflies
