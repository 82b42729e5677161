#pragma once

#include "common/variant.hpp"

namespace fwht::cpu {

extern const Variant variant, f64_variant;

}  // namespace fwht::cpu
