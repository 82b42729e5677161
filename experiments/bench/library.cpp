// libfwht_bench.so: the sweep with kernels of others, for callers in other languages.
#include <span>
#include <vector>

#include "common/host/run_main.hpp"
#include "experiments/bench/peers.hpp"
#include "experiments/linear/command.hpp"
#include "experiments/sweep/command.hpp"

extern "C" {

__attribute__((visibility("default"))) int32_t fwht_bench_version(void) {
  return FWHT_BENCH_VERSION;
}

__attribute__((visibility("default"))) int32_t fwht_bench_run(int32_t argc, const char* const* argv,
                                                              const fwht_bench_peer* peers, size_t count) {
  const char* const program = argc > 0 ? argv[0] : "fwht_bench";
  return fwht::run_main(program, [&] {
    const auto others = [&](const fwht::DeviceInfo& device) {
      std::vector<fwht::sweep::Contestant> all;
      for (const fwht_bench_peer& peer : std::span(peers, count))
        all.push_back(fwht::bench::contestant_of(peer, device));
      return all;
    };
    return fwht::sweep::run(program, argc, argv, others);
  });
}

__attribute__((visibility("default"))) int32_t fwht_bench_linear_run(int32_t argc, const char* const* argv,
                                                                     const fwht_bench_linear_peer* peers,
                                                                     size_t count) {
  const char* const program = argc > 0 ? argv[0] : "fwht_bench";
  return fwht::run_main(program, [&] {
    return fwht::linear_layers::run(program, argc, argv,
                                    fwht::bench::linear_variants_of(std::span(peers, count)));
  });
}

}  // extern "C"
