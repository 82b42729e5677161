// The ways in which a launch is timed. Never mixed: a time is compared with the limit of its own mode only.
#pragma once

#include <string_view>

#include "common/contract/problem.hpp"
#include "common/contract/variant.hpp"
#include "common/host/names.hpp"

namespace fwht::harness {

enum class Mode {
  replay,       ///< the same launch on the same buffer again and again
  replay_pdl,   ///< replay by programmatic dependent launch: each may start while the one before still runs
  alternating,  ///< each launch preceded by a copy of the same buffer, whose own share is subtracted
  cold,         ///< rotating over buffers that together exceed the L2 many times
  host          ///< host memory, steady clock
};

inline constexpr Names<Mode, 5> kModes{"mode",
                                       {{Mode::replay, "replay"},
                                        {Mode::replay_pdl, "replay_pdl"},
                                        {Mode::alternating, "alternating"},
                                        {Mode::cold, "cold"},
                                        {Mode::host, "host"}}};

constexpr std::string_view name_of(Mode mode) {
  return kModes.of(mode);
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
inline constexpr Names<Placement, 2> kPlacements{
    "placement", {{Placement::in_place, "in"}, {Placement::out_of_place, "out"}}};
constexpr std::string_view name_of(Placement placement) {
  return kPlacements.of(placement);
}

}  // namespace fwht::harness
