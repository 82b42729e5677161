#include "experiments/harness/settings_json.hpp"

#include <nlohmann/json.hpp>

namespace fwht::harness {

std::string settings_json(const Settings& settings) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const auto& [name, value] : settings) {
    std::visit([&, &key = name](const auto& v) { object[key] = v; }, value);
  }
  return object.dump();
}

std::string settings_json(const Plan& plan) {
  Settings settings = plan.settings();
  const Problem& problem = plan.problem();
  if (problem.scale != orthonormal_scale(problem.n())) settings.emplace_back("scale", problem.scale);
  return settings_json(settings);
}

}  // namespace fwht::harness
