// Host memory primitives shared by both back ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>

namespace fwht::backend {

inline std::byte* host_allocate(std::size_t bytes) {
  void* data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (data == nullptr) throw std::bad_alloc();
  return static_cast<std::byte*>(data);
}

inline void host_release(std::byte* data) noexcept {
  std::free(data);
}

/// MemAvailable of /proc/meminfo; 0 where the system does not say.
inline std::int64_t host_free_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    std::int64_t kibibytes = 0;
    if (word == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

}  // namespace fwht::backend
