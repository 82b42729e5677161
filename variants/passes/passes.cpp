#include "variants/passes/passes.hpp"

#include "common/host/text.hpp"
#include "variants/butterflies/butterflies.hpp"
#include "variants/passes/schedule.hpp"

namespace fwht::passes {
namespace {

constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::f64, Dtype::i32, Dtype::i64};

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (problem.programmatic_launch) {
    if (Support launch = require_programmatic_launch(device); !launch) return launch;
  }
  if (Support strides = require_one_row_stride(problem); !strides) return strides;
  constexpr std::int64_t kOne = 1;
  if (Support n = require_sylvester(problem, kOne << kSmallestLogN, kOne << kLargestLogN, kDtypes); !n) {
    const bool about_n = problem.op.is_sylvester() && require_plain_rows(problem, kDtypes);
    return about_n ? Support{concat(name_of(problem.dtype()), " data: ", n.why_not)} : n;
  }
  const std::int64_t bytes =
      schedule_for(word_of(problem.dtype()), log2_floor(problem.n()),
                   problem.elements() * bytes_of(problem.dtype()), device.shared_bytes_per_block)
          .shared_bytes();
  if (bytes <= device.shared_bytes_per_block) return {};
  return {concat("n=", problem.n(), " needs ", bytes,
                 " bytes of shared memory per block, this device allows ", device.shared_bytes_per_block)};
}

}  // namespace

const Variant variant{"passes", "vectors of 2^16 to 2^31 elements in two or three passes over tiles of rows",
                      Memory::device, supports, make_plan};

}  // namespace fwht::passes
