#include "experiments/harness/device_work.hpp"

#include <algorithm>
#include <cstring>

namespace fwht::harness {

std::int64_t period_break(const Buffer& buffer, std::int64_t period, std::int64_t bytes) {
  if (bytes <= period) return -1;
  if (buffer.memory() == Memory::device) return device::period_break(buffer.data(), period, bytes);
  const auto* data = static_cast<const unsigned char*>(buffer.data());
  const auto* found = std::mismatch(data + period, data + bytes, data).first;
  return found == data + bytes ? -1 : found - data;
}

void enqueue_copy(Memory memory, void* to, const void* from, std::int64_t bytes, Stream stream) {
  if (memory == Memory::device) return device::enqueue_copy(to, from, bytes, stream);
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace fwht::harness
