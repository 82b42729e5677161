// Whether two pieces of memory share a byte.
#pragma once

#include <cstdint>

namespace fwht {

inline bool overlap(std::uintptr_t a, std::int64_t a_bytes, std::uintptr_t b, std::int64_t b_bytes) {
  return a < b + static_cast<std::uintptr_t>(b_bytes) && b < a + static_cast<std::uintptr_t>(a_bytes);
}
inline bool overlap(const void* a, std::int64_t a_bytes, const void* b, std::int64_t b_bytes) {
  return overlap(reinterpret_cast<std::uintptr_t>(a), a_bytes, reinterpret_cast<std::uintptr_t>(b), b_bytes);
}

}  // namespace fwht
