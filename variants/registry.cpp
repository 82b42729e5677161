#include "variants/registry.hpp"

namespace fwht {
namespace {

// One line a variant.
// clang-format off
constexpr const Variant* kLadder[] = {
    &cpu::variant,
    &cpu::f64_variant,
    &naive::variant,
    &warp_shuffle::variant,
    &butterflies::variant,
    &hadacore::variant,
    &hadacore::published_variant,
    &mma_split::variant,
    &wgmma::variant,
    &passes::variant,
    &factors::variant,
    &kronecker::variant,
    &mma_kronecker::variant,
    &warp_kronecker::variant,
    &matmul::variant,
    &kokkos::serial_variant,
    &kokkos::openmp_variant,
    &kokkos::cuda_variant,
    &automatic::variant,
    &rotate_then_quantize::variant,
};
// clang-format on

}  // namespace

RegistryOf<Transforms> registry() {
  return kLadder;
}

const Variant& find_variant(std::string_view name) {
  return find_in<Transforms>(registry(), name);
}

}  // namespace fwht
