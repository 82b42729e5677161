// How much memory a launch needs, and how much of it must move.
#pragma once

#include <compare>
#include <cstdint>

#include "common/contract/problem.hpp"
#include "common/contract/variant.hpp"

namespace fwht::harness {

/// The fewest bytes that must be read and written: what copy limits are measured for.
struct Traffic {
  std::int64_t read = 0, written = 0;
  constexpr std::int64_t useful() const { return read + written; }
  constexpr auto operator<=>(const Traffic&) const = default;  // NOLINT(modernize-use-nullptr): a false alarm
};

/// What a launch is given: one block to read and one to write, laid out as it likes. In place both are one,
/// and in_bytes == out_bytes.
struct Buffers {
  Memory memory = Memory::host;
  Placement placement = Placement::in_place;
  std::int64_t in_bytes = 0, out_bytes = 0;

  constexpr std::int64_t bytes() const {
    return placement == Placement::in_place ? in_bytes : in_bytes + out_bytes;
  }
  constexpr bool operator==(const Buffers&) const = default;
};

}  // namespace fwht::harness
