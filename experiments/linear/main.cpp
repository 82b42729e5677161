// fwht_linear: times linear layers with 4-bit weights beside the read limit of the same run.
#include "common/host/run_main.hpp"
#include "experiments/linear/command.hpp"

int main(int argc, char** argv) {
  return fwht::run_main("fwht_linear", [&] { return fwht::linear_layers::run("fwht_linear", argc, argv); });
}
