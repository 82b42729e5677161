#include "variants/registry.hpp"

#include <string>

#include "common/host/error.hpp"

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
    &factors::variant,
    &kronecker::variant,
    &matmul::variant,
    &kokkos::serial_variant,
    &kokkos::openmp_variant,
    &kokkos::cuda_variant,
    &automatic::variant,
    &rotate_then_quantize::variant,
};
// clang-format on

}  // namespace

std::span<const Variant* const> registry() {
  return kLadder;
}

const Variant& find_variant(std::string_view name) {
  std::string known;
  for (const Variant* variant : registry()) {
    if (variant->name == name) return *variant;
    known += (known.empty() ? "" : ", ") + std::string(variant->name);
  }
  throw BadRequest("unknown variant '" + std::string(name) + "'; known: " + known);
}

}  // namespace fwht
