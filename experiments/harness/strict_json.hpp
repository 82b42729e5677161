// JSON that a program reads back: nested no deeper than kDeepestJson levels, so that every reader can.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace fwht::harness {

inline constexpr int kDeepestJson = 32;

/// The value in the order of the text, discarded where it is no JSON or too deep; `too_deep` says which.
inline nlohmann::ordered_json parse_json(std::string_view text, bool* too_deep = nullptr) {
  bool beyond = false;
  auto value = nlohmann::ordered_json::parse(
      text,
      [&](int depth, nlohmann::ordered_json::parse_event_t, nlohmann::ordered_json&) {
        beyond = beyond || depth > kDeepestJson;
        return !beyond;
      },
      false);
  if (too_deep != nullptr) *too_deep = beyond;
  return beyond ? nlohmann::ordered_json(nlohmann::ordered_json::value_t::discarded) : value;
}

}  // namespace fwht::harness
