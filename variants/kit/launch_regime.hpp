// What the launch tables of the variants are divided by.
#pragma once

#include <cstdint>

namespace fwht {

/// How much work a launch has. What a launch table must balance changes with it: latency of one block
/// (small), warps enough for all multiprocessors (light), blocks that all start at once (medium), the rate of
/// the L2 (full), the rate of DRAM (dram).
enum class Regime { small, light, medium, full, dram };
inline constexpr int kRegimes = 5;

/// By the bytes of the data; the bounds lie between the sizes that were measured on an H200: 256 KiB | 1, 2
/// MiB | 4, 8 MiB | 16, 32 MiB | 64 MiB.
constexpr Regime regime_of(std::int64_t bytes) {
  if (bytes <= std::int64_t{1} << 19) return Regime::small;
  if (bytes <= std::int64_t{1} << 21) return Regime::light;
  if (bytes <= std::int64_t{1} << 23) return Regime::medium;
  return bytes <= std::int64_t{1} << 25 ? Regime::full : Regime::dram;
}

}  // namespace fwht
