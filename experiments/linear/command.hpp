// The command line of fwht_linear, for the program and for what times kernels of others beside the variants.
#pragma once

#include <string>
#include <vector>

#include "experiments/linear/linear.hpp"

namespace fwht::linear_layers {

/// More variants, asked about every problem.
using Others = std::vector<const LinearVariant*>;

/// Checks and times what the arguments (argv[0] is the program) ask for; writes the results folder. Returns
/// the exit code; throws BadRequest for arguments that cannot be served.
int run(const std::string& program, int argc, const char* const* argv, const Others& others = {});

}  // namespace fwht::linear_layers
