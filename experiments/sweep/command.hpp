// The command line of the sweep, for fwht_sweep and for what times kernels of others beside the variants.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/sweep/jobs.hpp"

namespace fwht::sweep {

/// More contestants, on the device that the command line chose; it outlives them.
using Others = std::function<std::vector<Contestant>(const DeviceInfo& device)>;

/// Checks and times what the arguments (argv[0] is the program) ask for, and `others` with it on every
/// problem; writes the results folder. Returns the exit code; throws BadRequest for arguments that cannot be
/// served.
int run(const std::string& program, int argc, const char* const* argv, const Others& others = {});

}  // namespace fwht::sweep
