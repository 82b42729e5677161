// fwht_run_once: one plan, a few launches; what profilers and debuggers are pointed at.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "common/device/memory.hpp"
#include "common/host/error.hpp"
#include "common/host/run_main.hpp"
#include "experiments/harness/cli.hpp"
#include "experiments/harness/measure.hpp"
#include "experiments/harness/settings_json.hpp"
#include "experiments/harness/transform.hpp"
#include "variants/registry.hpp"

namespace fwht {
namespace {

struct CallOptions {
  std::string variant, problem, input = "normal", seed = "1";
  int repeat = 1;
  std::optional<int> device;
  bool check = false;
};

bool parse(CallOptions& options, int argc, const char* const* argv) {
  CLI::App app{"Makes one plan and executes it: what profilers and debuggers are pointed at.",
               "fwht_run_once"};
  app.add_option("--variant", options.variant, "name of the variant")->required();
  app.add_option("--problem", options.problem, "f16/n4096/r8192[/out][/ld4104][/s1]")->required();
  app.add_option("--repeat", options.repeat, "launches (default: 1)");
  app.add_option("--input", options.input, "input class (default: normal)");
  app.add_option("--seed", options.seed, "seed of the input (default: 1)");
  app.add_option("--device", options.device, "CUDA device (default: 0)");
  app.add_flag("--check", options.check, "compare the first launch with the FP64 truth");
  return harness::parse_command_line(app, argc, argv);
}

void print_plan(const Plan& plan, const Numerics& numerics) {
  std::cout << fmt::format("problem    {}\nsettings   {}\n", to_string(plan.problem()),
                           harness::settings_json(plan));
  std::cout << fmt::format(
      "numerics   steps={} roundings={} gain_error={:.4g} sum_rms={:.4g} sum_bias={:.3g} row_isolation={} "
      "intermediate_growth={:.4g}\n",
      numerics.steps.size(), numerics.roundings(), numerics.gain_error(plan.problem().scale),
      numerics.sum_rms(), numerics.sum_bias(), numerics.promises.row_isolation,
      numerics.promises.intermediate_growth);
}

int run(int argc, const char* const* argv) {
  CallOptions options;
  if (!parse(options, argc, argv)) return 0;
  if (options.repeat < 1) throw BadRequest(fmt::format("--repeat={} must be at least 1", options.repeat));
  const std::uint64_t seed = harness::parse_seed(options.seed);
  const Variant& variant = find_variant(options.variant);
  const Problem problem = parse_problem(options.problem);
  harness::require_judged(problem);
  const reference::InputClass input = reference::parse_input_class(options.input);
  const DeviceInfo device = harness::open_device(options.device);
  if (const Support fits = harness::fits_into_memory(harness::describe(variant, problem).buffers, device);
      !fits)
    throw BadRequest(fmt::format("{}: {}", variant.name, fits.why_not));
  const std::shared_ptr<const Plan> the_plan = plan(variant, problem, device);
  print_plan(*the_plan, the_plan->numerics());
  if (problem.rows == 0) {
    std::cout << "rows=0: nothing to do\n";
    return 0;
  }

  harness::Bench bench(device);
  const harness::Subject subject = harness::transform_subject(
      variant, the_plan, device, std::make_shared<harness::TruthCache>(), input, seed);
  harness::Slices& slices = bench.slice(subject);
  int launches = 0;
  bool correct = true;
  if (options.check) {
    const harness::Judgement judgement = subject.check(slices);
    ++launches;
    correct = static_cast<bool>(judgement.verdict);
    std::cout << fmt::format("check      {}\nerrors    ",
                             correct ? "ok" : "incorrect: " + judgement.verdict.message);
    for (const auto& [name, value] : judgement.columns)
      std::cout << ' ' << name << '=' << value;
    std::cout << '\n';
  } else {
    subject.fill(slices);
  }
  for (; launches < options.repeat; ++launches)
    subject.launch(slices.in(0), slices.out(0), nullptr);
  synchronize(variant.memory);
  std::cout << fmt::format("launches   {}\n", launches);
  return correct ? 0 : 1;
}

}  // namespace
}  // namespace fwht

int main(int argc, char** argv) {
  return fwht::run_main("fwht_run_once", [&] { return fwht::run(argc, argv); });
}
