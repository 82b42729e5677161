// fwht_devices: prints who serves what on which device, as experiments/devices/served.csv has it.
#include <CLI/CLI.hpp>
#include <iostream>

#include "common/host/run_main.hpp"
#include "experiments/devices/served.hpp"
#include "experiments/harness/cli.hpp"

int main(int argc, char** argv) {
  return fwht::run_main("fwht_devices", [&] {
    CLI::App app{"Prints what auto chooses for every timed problem on described devices, as CSV.",
                 "fwht_devices"};
    if (fwht::harness::parse_command_line(app, argc, argv)) std::cout << fwht::devices::served_csv();
    return 0;
  });
}
