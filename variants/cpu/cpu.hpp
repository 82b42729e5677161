#pragma once

#include "common/contract/variant.hpp"

namespace fwht::cpu {

extern const Variant variant, f64_variant;

}  // namespace fwht::cpu
