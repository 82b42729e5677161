// kokkos: one portable source on every execution space that Kokkos was built with.
#pragma once

#include "common/contract/variant.hpp"

namespace fwht::kokkos {

extern const Variant serial_variant, openmp_variant, cuda_variant;

}  // namespace fwht::kokkos
