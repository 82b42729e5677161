#include "variants/warp_shuffle/warp_shuffle.hpp"

namespace fwht::warp_shuffle {
namespace {

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (Support launch = require_ordinary_launch(problem); !launch) return launch;
  if (Support strides = require_one_row_stride(problem); !strides) return strides;
  return require_sylvester(problem, 2, std::int64_t{1} << kLargestLogN);
}

}  // namespace

const Variant variant{"warp_shuffle",
                      "one row a block, fp32 registers, shuffles, one shared-memory exchange there and back",
                      Memory::device, supports, make_plan};

}  // namespace fwht::warp_shuffle
