// Checks by tolerances that are derived from the plan's steps (reference/tolerance): two-sided windows
// on the RMS error, the gain and the norm on smooth data, bounds on every element and every row of any data.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reference/conformance/checks.hpp"
#include "reference/emulation.hpp"

namespace fwht::conformance {
namespace {

using reference::InputClass;

constexpr std::uint64_t kSeeds[] = {1, 2, 3};

/// One row more than fill the elements, so that no count of rows is round.
std::int64_t rows_for(std::int64_t n, std::int64_t elements) {
  return std::max<std::int64_t>(elements / n, 1) + 1;
}

/// Placement alternates with the seed.
Problem problem_for(const ConformanceRun& session, std::int64_t n, std::int64_t elements,
                    std::uint64_t seed) {
  return make_problem(session.dtype(), n, rows_for(n, elements),
                      seed % 2 == 0 ? Placement::out_of_place : Placement::in_place);
}

void judge_class(ConformanceRun& session, InputClass input_class, std::int64_t n, std::int64_t elements,
                 std::uint64_t seed) {
  const Problem problem = problem_for(session, n, elements, seed);
  session.execute_and_judge(problem, input_class, make_input(problem, input_class, seed),
                            fmt::format("{} input with seed {}", reference::name_of(input_class), seed));
}

void judge_classes(ConformanceRun& session, bool smooth, std::int64_t elements) {
  for (const InputClass input_class : reference::all_input_classes()) {
    if (reference::is_smooth(input_class) != smooth) continue;
    for (const std::int64_t n : session.sizes()) {
      for (const std::uint64_t seed : kSeeds)
        judge_class(session, input_class, n, elements, seed);
    }
  }
}

}  // namespace

// B1 to B5, B9: T1 to T5 on every smooth class.
void smooth_inputs(ConformanceRun& session) {
  judge_classes(session, true, std::int64_t{1} << 15);
  for (const std::int64_t n : session.large_sizes()) {
    judge_class(session, InputClass::normal, n, std::int64_t{1} << 17, kSeeds[0]);
  }
}

// B6, B7, B10: element and row bounds on everything else, integers and adversarial inputs included.
void structured_inputs(ConformanceRun& session) {
  judge_classes(session, false, std::int64_t{1} << 13);
  for (const std::int64_t n : session.large_sizes()) {
    judge_class(session, InputClass::massive_channel, n, std::int64_t{1} << 17, kSeeds[0]);
    judge_class(session, InputClass::sign_sparse, n, std::int64_t{1} << 17, kSeeds[0]);
  }
}

// B8. The relative error does not depend on the size of the data, down to the subnormals and up to the range.
void scale_sweep(ConformanceRun& session) {
  const Format format = format_of(session.dtype());
  for (const std::int64_t n : session.sizes()) {
    for (const int exponent : {-20, -16, -12, -8, -4, 4, 8, 12}) {
      const Problem problem = problem_for(session, n, std::int64_t{1} << 14, kSeeds[0]);
      const reference::Matrix values =
          std::exp2(exponent) * reference::generate(problem, InputClass::normal, kSeeds[0]);
      Bytes input = blank(problem);
      reference::store_rows(problem, values, input.data());
      // Where the data come within 2^6 of the smallest normal number, they lie on the coarse lattice of the
      // subnormals and are no smooth density any more: only the bounds hold.
      const bool smooth = exponent >= format.min_exponent + 6;
      session.execute_and_judge(problem, smooth ? InputClass::normal : InputClass::massive_channel, input,
                                fmt::format("normal input times 2^{} with seed {}", exponent, kSeeds[0]));
    }
  }
}

// E5. fp32 registers in any order: nearly every 16-bit result is the correctly rounded one, so that two such
// variants agree in at least 99.9 % of their results (docs/numerics.md, Bitwise symmetries: 99.94 to
// 99.99 % measured).
void bit_match(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    const Problem problem = problem_for(session, n, std::int64_t{1} << 16, kSeeds[0]);
    const std::unique_ptr<Plan> plan = session.plan(problem);
    const Numerics numerics = plan->numerics();
    const bool fp32_registers =
        numerics.roundings() == 1 &&
        std::all_of(numerics.steps.begin(), numerics.steps.end(), [](const Step& step) {
          return step.sums == Sums::fp32 || step.sums == Sums::fp32_any_order;
        });
    if (numerics.sum_bias_margin() > 0.0) {
      session.skip("a library forms the sums, in chains of any length");
      continue;
    }
    if (!fp32_registers || session.dtype() == Dtype::f32) {
      session.skip(fp32_registers ? "f32 results show the order of the additions"
                                  : "not an fp32-register arithmetic");
      continue;
    }
    const Bytes input = make_input(problem, InputClass::normal, kSeeds[0]);
    const Bytes got = session.execute(*plan, input);
    Bytes want = input;
    reference::emulate(problem, single_rounding(Sums::fp32, problem), input.data(), want.data());
    std::int64_t equal = 0;
    for (std::int64_t i = 0; i < problem.elements(); ++i) {
      equal += bits_at(problem.dtype(), got.data(), i) == bits_at(problem.dtype(), want.data(), i);
    }
    const double rate = static_cast<double>(equal) / static_cast<double>(problem.elements());
    if (!(rate >= 0.999)) {
      session.fail(
          fmt::format("{}: {:.4f} of the results equal those of fp32 butterflies, at least 0.999 should",
                      to_string(problem), rate));
    }
  }
}

}  // namespace fwht::conformance
