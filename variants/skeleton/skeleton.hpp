#pragma once

#include "common/variant.hpp"

namespace fwht::skeleton {

extern const Variant variant;

}  // namespace fwht::skeleton
