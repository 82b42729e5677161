// fwht_sweep: checks and times variants over a grid of problems, beside the copy limit of the same bytes.
#include "common/host/run_main.hpp"
#include "experiments/sweep/command.hpp"

int main(int argc, char** argv) {
  return fwht::run_main("fwht_sweep", [&] { return fwht::sweep::run("fwht_sweep", argc, argv); });
}
