// Signs of elements as words of 16-bit numbers take them.
#pragma once

#include <cstdint>

namespace fwht::rows {

/// Signs of eight elements, bit i for element i: those of the two 16-bit numbers of word `word`.
constexpr std::uint32_t pair_signs(std::uint32_t eight, int word) {
  return (eight << (15 - 2 * word) & 0x8000U) | (eight << (30 - 2 * word) & 0x80000000U);
}

}  // namespace fwht::rows
