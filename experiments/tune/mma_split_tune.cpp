// mma_split_tune: measures launch configurations, for the table in launches.hpp, and what the look for
// infinities and NaN costs and the last multiplication.
#include "experiments/tune/mma_split_tune.hpp"

#include "common/host/error.hpp"
#include "variants/mma_split/launches.hpp"
#include "variants/mma_split/mma_split.hpp"

int main(int argc, char** argv) {
  using namespace fwht;
  const LaunchTuning tuning{mma_split::variant, mma_split::candidate_columns(), mma_split::kSmallestLogN,
                            mma_split::kLargestLogN, mma_split::candidates};
  return run_main("mma_split_tune", [&] { return tune_launches(tuning, "mma_split_tune", argc, argv); });
}
