// mma_split_tune: measures launch configurations, for the table in mma_split.hpp, and what the look for
// infinities and NaN costs and the last multiplication.
#include "experiments/tune/mma_split_tune.hpp"
#include "common/error.hpp"

int main(int argc, char** argv) {
  using namespace fwht;
  const LaunchTuning tuning{
      mma_split::variant, "form,vectors,warps_per_row,threads,blocks_per_sm,stagger,groups,non_finite,scale",
      1, mma_split::kLargestWideLogN, mma_split::candidates};
  return run_main("mma_split_tune", [&] { return tune_launches(tuning, "mma_split_tune", argc, argv); });
}
