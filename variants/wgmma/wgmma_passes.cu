#include "variants/wgmma/wgmma_passes_kernel.cuh"

namespace fwht::wgmma {
namespace {

template <bool dynamic>
struct Chosen {
  static constexpr Launch launch = dynamic ? kPasses16Dynamic : kPasses16;
};

template <class Choice>
Kernel kernel(Dtype dtype, Scaling scaling) {
  const auto of = [&](auto on_f16, auto on_bf16) {
    return Kernel{.counting = dtype == Dtype::f16 ? on_f16 : on_bf16};
  };
  if (scaling == Scaling::constants)
    return of(passes<Dtype::f16, Choice, Scaling::constants>,
              passes<Dtype::bf16, Choice, Scaling::constants>);
  return of(passes<Dtype::f16, Choice, Scaling::results>, passes<Dtype::bf16, Choice, Scaling::results>);
}

}  // namespace

Kernel passes_kernel(Dtype dtype, Scaling scaling, bool dynamic) {
  return dynamic ? kernel<Chosen<true>>(dtype, scaling) : kernel<Chosen<false>>(dtype, scaling);
}

}  // namespace fwht::wgmma
