#include "variants/kit/on_host/host_lanes.hpp"

#include <cmath>

namespace fwht::rows {

Floats operator+(const Floats& a, const Floats& b) {
  return Floats::from([&](std::size_t l) { return a.at[l] + b.at[l]; });
}
Floats operator-(const Floats& a, const Floats& b) {
  return Floats::from([&](std::size_t l) { return a.at[l] - b.at[l]; });
}
Flags operator|(const Flags& a, const Flags& b) {
  return Flags::from([&](std::size_t l) { return a.at[l] || b.at[l]; });
}

Floats HostLanes::shuffle(const Floats& x, int lane_mask) {
  return Floats::from([&](std::size_t l) { return x.at[l ^ static_cast<std::size_t>(lane_mask)]; });
}
Floats HostLanes::lane_sign(int bit) {
  return Floats::from([&](std::size_t l) { return (l >> bit) & 1 ? -1.0F : 1.0F; });
}
Floats HostLanes::fma(const Floats& a, const Floats& b, const Floats& c) {
  return Floats::from([&](std::size_t l) { return std::fma(a.at[l], b.at[l], c.at[l]); });
}

void HostLanes::widen(const Words (&words)[4], Floats* x) const {
  const int per_word = tile_.vector_elements() / 4;
  for (int e = 0; e < tile_.vector_elements(); ++e) {
    x[e] = Floats::from([&](std::size_t l) {
      const std::uint32_t word = words[e / per_word].at[l];
      const std::uint32_t bits = per_word == 1 ? word : (word >> (16 * (e % 2))) & 0xFFFFU;
      return static_cast<float>(decode(tile_.dtype, bits)) * shrink_;
    });
  }
}

}  // namespace fwht::rows
