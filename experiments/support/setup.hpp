// What the experiments of fwht_analysis are given.
#pragma once

#include <vector>

#include "experiments/support/performer.hpp"

namespace fwht::support {

struct Setup {
  const DeviceInfo& device;
  const std::vector<Performer>& performers;
  Workspace& workspace;
};

}  // namespace fwht::support
