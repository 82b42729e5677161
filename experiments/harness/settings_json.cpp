#include "experiments/harness/settings_json.hpp"

#include <nlohmann/json.hpp>

namespace fwht::harness {

std::string settings_json(const Plan& plan) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const auto& [name, value] : plan.settings()) {
    std::visit([&, &key = name](const auto& v) { object[key] = v; }, value);
  }
  const Problem& problem = plan.problem();
  if (problem.scale != orthonormal_scale(problem.n())) object["scale"] = problem.scale;
  return object.dump();
}

}  // namespace fwht::harness
