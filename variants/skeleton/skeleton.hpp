#pragma once

#include "common/contract/variant.hpp"

namespace fwht::skeleton {

extern const Variant variant;

}  // namespace fwht::skeleton
