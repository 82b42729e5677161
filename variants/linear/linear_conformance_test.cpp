// The conformance tests of linear layers; reference/conformance/driver.hpp makes them from the registry:
// LinearHost.cpu/f16/OneHot.
#include "reference/conformance/driver.hpp"
#include "reference/linear/conformance.hpp"
#include "variants/linear/registry.hpp"

namespace fwht::conformance {
namespace {

bool blames_the_machine(const std::string& why_not) {
  return why_not.find("compute capability") != std::string::npos || lacks_back_end(why_not);
}

/// The first reason, but one that the machine or the build gives before those of single problems: a variant
/// that takes rotations alone refuses the others anywhere.
std::string why_nothing_is_supported(const LinearVariant& variant, Dtype dtype, const DeviceInfo& where) {
  std::string why_not;
  for (const LinearProblem& problem : linear_problems(dtype, false)) {
    const Support support = variant.supports(problem, where);
    if (support) return {};
    if (why_not.empty() || (blames_the_machine(support.why_not) && !blames_the_machine(why_not)))
      why_not = support.why_not;
  }
  return why_not;
}

/// The first problem that the variant takes: some take rotations alone.
void first_problem(LinearRun& session) {
  const LinearProblem& problem = session.problems().front();
  const GptqWeights weights = reference::random_weights(problem, reference::LinearData::normal, 1);
  const Bytes x = reference::random_tokens(problem, reference::LinearData::normal, 2);
  session.expect_judged(session.execute(problem, weights, x), problem, weights, x,
                        reference::LinearData::normal);
}

/// For compute-sanitizer: small layers of every kind, and one of them with every number of tokens.
void small_layers(LinearRun& session) {
  constexpr std::int64_t kMostWeights = 1 << 17;
  std::vector<LinearProblem> problems;
  for (const LinearProblem& problem : session.problems()) {
    if (problem.n * problem.k > kMostWeights) continue;
    if (problems.empty()) problems = session.of_all_tokens(problem);
    problems.push_back(problem);
  }
  for (const LinearProblem& problem : problems) {
    const GptqWeights weights = reference::random_weights(problem, reference::LinearData::normal, 3);
    const Bytes x = reference::random_tokens(problem, reference::LinearData::normal, 4);
    session.expect_judged(session.execute(problem, weights, x), problem, weights, x,
                          reference::LinearData::normal);
  }
}

LinearRun make_run(const LinearVariant& variant, Dtype dtype, const DeviceInfo& where) {
  return {variant, dtype, where};
}

}  // namespace
}  // namespace fwht::conformance

int main(int argc, char** argv) {
  using namespace fwht;
  using namespace fwht::conformance;
  return drive<LinearRun>(
      argc, argv,
      {.name = "Linear",
       .registry = linear_registry(),
       .dtypes = {Dtype::f16, Dtype::bf16},
       .checks = linear_checks(),
       .more = {{"Sanitize", {"SmallLayers", small_layers}}},
       .broken = broken_linear_variants(),
       .without_defect = {"BadInput"},  // common/contract/linear/variant.cpp and weights.cpp refuse
       .smallest = {"FirstProblem", first_problem},
       .make_run = make_run,
       .make_quick_run = make_run,
       .make_small_run = make_run,
       .why_nothing = why_nothing_is_supported,
       .only_forwards = [](const LinearVariant&) { return false; },
       .belongs = [](const CheckOf<LinearRun>&, const LinearVariant&, Dtype) { return true; }});
}
