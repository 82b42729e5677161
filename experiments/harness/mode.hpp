// The ways in which a launch is timed. Never mixed: a time is compared with the limit of its own mode only.
#pragma once

#include <string_view>

#include "common/contract/problem.hpp"
#include "common/contract/variant.hpp"

namespace fwht::harness {

enum class Mode {
  replay,       ///< the same launch on the same buffer again and again
  replay_pdl,   ///< replay by programmatic dependent launch: each may start while the one before still runs
  alternating,  ///< each launch preceded by a copy of the same buffer, whose own share is subtracted
  cold,         ///< rotating over buffers that together exceed the L2 many times
  host          ///< host memory, steady clock
};

inline constexpr Mode kAllModes[] = {Mode::replay, Mode::replay_pdl, Mode::alternating, Mode::cold,
                                     Mode::host};

constexpr std::string_view name_of(Mode mode) {
  switch (mode) {
    case Mode::replay:
      return "replay";
    case Mode::replay_pdl:
      return "replay_pdl";
    case Mode::alternating:
      return "alternating";
    case Mode::cold:
      return "cold";
    case Mode::host:
      return "host";
  }
  return "";
}

constexpr Memory memory_of(Mode mode) {
  return mode == Mode::host ? Memory::host : Memory::device;
}

constexpr bool is_programmatic(Mode mode) {
  return mode == Mode::replay_pdl;
}

/// As the results folders and the text form of problems spell them.
constexpr std::string_view name_of(Memory memory) {
  return memory == Memory::host ? "host" : "device";
}
constexpr std::string_view name_of(Placement placement) {
  return placement == Placement::in_place ? "in" : "out";
}

/// Throw BadRequest that lists the known names.
Mode parse_mode(std::string_view text);
Placement parse_placement(std::string_view text);

}  // namespace fwht::harness
