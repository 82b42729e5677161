// What the experiments of fwht_studies are given.
#pragma once

#include <vector>

#include "experiments/harness/performer.hpp"

namespace fwht::harness {

struct Setup {
  const DeviceInfo& device;
  const std::vector<Performer>& performers;
  Workspace& workspace;
};

}  // namespace fwht::harness
