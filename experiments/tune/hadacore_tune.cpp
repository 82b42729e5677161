// hadacore_tune: measures launch configurations, for the table in hadacore.hpp.
#include "experiments/tune/hadacore_tune.hpp"
#include "common/host/error.hpp"

int main(int argc, char** argv) {
  using namespace fwht;
  const LaunchTuning tuning{hadacore::variant, "chunks_per_warp,warps_per_block,blocks_per_sm", 4,
                            hadacore::kLargestLogN, hadacore::candidates};
  return run_main("hadacore_tune", [&] { return tune_launches(tuning, "hadacore_tune", argc, argv); });
}
