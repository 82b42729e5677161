#pragma once

#include <string>

#include "common/contract/variant.hpp"

namespace fwht::harness {

/// What a plan of any family decided, as a JSON object in display order.
std::string settings_json(const Settings& settings);
/// The same of a transform; a scale that is not the orthonormal one is added, because the tables have no
/// column for it.
std::string settings_json(const Plan& plan);

}  // namespace fwht::harness
