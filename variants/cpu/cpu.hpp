#pragma once

#include "common/variant.hpp"

namespace fwht::cpu {

extern const Variant variant;

}  // namespace fwht::cpu
