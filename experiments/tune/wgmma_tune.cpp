// wgmma_tune: measures launches, for the table in wgmma.hpp. Their sums run in different orders, so they are
// compared on integers.
#include "experiments/tune/wgmma_tune.hpp"

#include "common/host/error.hpp"

int main(int argc, char** argv) {
  using namespace fwht;
  constexpr std::int64_t kSeveralRowsForEveryTeam = std::int64_t{1} << 24;
  const LaunchTuning tuning{
      wgmma::variant,
      "form,parts,teams,slots,blocks_per_sm,load_pieces,store_pieces,chains,table,deferred,joined,"
      "start_groups,start_step",
      wgmma::kSmallestLogN,
      wgmma::kLargestLogN,
      wgmma::candidates,
      kSeveralRowsForEveryTeam,
      true};
  return run_main("wgmma_tune", [&] { return tune_launches(tuning, "wgmma_tune", argc, argv); });
}
