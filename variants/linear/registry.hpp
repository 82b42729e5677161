// The second ladder: every linear layer there is, in order. A back end that is not built stays listed: its
// `supports` says so.
#pragma once

#include <string_view>

#include "common/contract/linear/variant.hpp"

namespace fwht {

// One line a folder.
// clang-format off
namespace linear::cpu { extern const LinearVariant variant; }
namespace linear::dense { extern const LinearVariant fp16, dequantize_first; }
namespace linear::splitk { extern const LinearVariant data_parallel, split_4, split_8, split_16, f32; }
namespace linear::pipelined { extern const LinearVariant variant, rotating; }
namespace linear::prefill { extern const LinearVariant variant; }
namespace linear::rotated { extern const LinearVariant variant, before_prefill; }
namespace linear::by_tokens { extern const LinearVariant variant; }
namespace linear::automatic { extern const LinearVariant variant; }
// clang-format on

RegistryOf<LinearLayers> linear_registry();
/// The same, for code that is written for every family.
inline RegistryOf<LinearLayers> registry_of(LinearLayers) {
  return linear_registry();
}

/// Throws BadRequest that lists the known names.
const LinearVariant& find_linear_variant(std::string_view name);

}  // namespace fwht
