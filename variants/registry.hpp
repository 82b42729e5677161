// Every variant there is, in ladder order. A back end that is not built stays listed: its `supports` says so.
#pragma once

#include <string_view>

#include "common/contract/variant.hpp"

namespace fwht {

// One line a folder.
// clang-format off
namespace cpu { extern const Variant variant, f64_variant; }
namespace naive { extern const Variant variant; }
namespace warp_shuffle { extern const Variant variant; }
namespace butterflies { extern const Variant variant; }
namespace hadacore { extern const Variant variant, published_variant; }
namespace mma_split { extern const Variant variant; }
namespace wgmma { extern const Variant variant; }
namespace passes { extern const Variant variant; }
namespace factors { extern const Variant variant; }
namespace kronecker { extern const Variant variant; }
namespace mma_kronecker { extern const Variant variant; }
namespace warp_kronecker { extern const Variant variant; }
namespace matmul { extern const Variant variant; }
namespace kokkos { extern const Variant serial_variant, openmp_variant, cuda_variant; }
namespace automatic { extern const Variant variant; }
namespace rotate_then_quantize { extern const Variant variant; }
// clang-format on

RegistryOf<Transforms> registry();
/// The same, for code that is written for every family.
inline RegistryOf<Transforms> registry_of(Transforms) {
  return registry();
}

/// Throws BadRequest that lists the known names.
const Variant& find_variant(std::string_view name);

}  // namespace fwht
