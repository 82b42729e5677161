// Memory on either side of the bus behind one set of names, so that tests and experiments are written once.
// In a build without CUDA every call that names Memory::device throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/contract/variant.hpp"

namespace fwht {

/// The values a guard zone and a poisoned buffer are filled with: a NaN in f16, bf16 and f32 alike.
inline constexpr unsigned char kPoisonByte = 0xFF;

/// Owns `bytes` bytes between two guard zones of kGuardBytes, 256-byte aligned plus an optional offset (to
/// test misaligned pointers). Contents and guards start poisoned.
class Buffer {
 public:
  static constexpr std::size_t kGuardBytes = 4096;

  Buffer() = default;
  Buffer(Memory memory, std::size_t bytes, std::size_t misalign_bytes = 0);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  Memory memory() const { return memory_; }
  std::size_t bytes() const { return bytes_; }
  void* data() { return data_; }
  const void* data() const { return data_; }

  void poison(unsigned char byte = kPoisonByte);
  /// Host to buffer and buffer to host; sizes and offsets in bytes, synchronous.
  void upload(const void* from, std::size_t bytes, std::size_t offset = 0);
  void download(void* to, std::size_t bytes, std::size_t offset = 0) const;
  /// Repeats the first `period` bytes over the whole buffer.
  void tile(std::size_t period);
  /// True when both guard zones still hold the poison byte everywhere.
  bool guards_intact() const;

 private:
  Memory memory_ = Memory::host;
  std::size_t bytes_ = 0;
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t allocated_ = 0;
};

/// The values of a vector, in a buffer of their size; none for none.
template <class Values>
Buffer placed(Memory memory, const Values& values) {
  if (values.empty()) return {};
  Buffer buffer(memory, values.size() * sizeof(values[0]));
  buffer.upload(values.data(), buffer.bytes());
  return buffer;
}

/// Waits for all work on the device (nothing on the host) and throws if any of it failed.
void synchronize(Memory memory);

/// Free bytes of the given memory, as far as the system says.
std::int64_t free_bytes(Memory memory);

}  // namespace fwht
