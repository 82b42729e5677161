// Where a ring is: plain numbers, the same in kernels and in host tests.
#pragma once

#include <cstdint>

namespace fwht::rows {

/// A place in a ring of `places`, and the phase of its barriers that the tile at hand completes.
template <int places>
struct RingPlace {
  int place = 0;
  std::uint32_t phase = 0;

  constexpr void advance() {
    if (++place == places) place = 0, phase ^= 1U;
  }
};

}  // namespace fwht::rows
