// butterflies_tune: measures launch configurations, for the table in launches.hpp.
#include "experiments/tune/butterflies_tune.hpp"

#include "common/host/error.hpp"
#include "variants/butterflies/butterflies.hpp"
#include "variants/butterflies/launches.hpp"

int main(int argc, char** argv) {
  using namespace fwht;
  const LaunchTuning tuning{butterflies::variant, butterflies::candidate_columns(), 1,
                            butterflies::kLargestWideLogN, butterflies::candidates};
  return run_main("butterflies_tune", [&] { return tune_launches(tuning, "butterflies_tune", argc, argv); });
}
