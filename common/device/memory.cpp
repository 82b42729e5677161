#include "common/device/memory.hpp"

#include <algorithm>
#include <utility>

#include "common/device/memory_backend.hpp"

namespace fwht {
namespace {
constexpr std::size_t kAlignment = 256;
}

Buffer::Buffer(Memory memory, std::size_t bytes, std::size_t misalign_bytes)
    : memory_(memory), bytes_(bytes) {
  allocated_ = kGuardBytes + misalign_bytes + bytes + kGuardBytes + kAlignment;
  base_ = backend::allocate(memory, allocated_);
  const std::size_t skip = (kAlignment - reinterpret_cast<std::uintptr_t>(base_) % kAlignment) % kAlignment;
  data_ = base_ + skip + kGuardBytes + misalign_bytes;
  backend::fill(memory_, base_, kPoisonByte, allocated_);
}

Buffer::~Buffer() {
  if (base_ != nullptr) backend::release(memory_, base_);
}

Buffer::Buffer(Buffer&& other) noexcept {
  *this = std::move(other);
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  std::swap(base_, other.base_);
  std::swap(data_, other.data_);
  std::swap(allocated_, other.allocated_);
  return *this;
}

void Buffer::poison(unsigned char byte) {
  backend::fill(memory_, data_, byte, bytes_);
}

void Buffer::upload(const void* from, std::size_t bytes, std::size_t offset) {
  if (bytes == 0) return;  // an empty vector may have no address, which memcpy must not see
  backend::copy(memory_, data_ + offset, Memory::host, static_cast<const std::byte*>(from), bytes);
}

void Buffer::download(void* to, std::size_t bytes, std::size_t offset) const {
  if (bytes == 0) return;
  backend::copy(Memory::host, static_cast<std::byte*>(to), memory_, data_ + offset, bytes);
}

void Buffer::tile(std::size_t period) {
  for (std::size_t filled = period; filled < bytes_;) {
    const std::size_t part = std::min(filled, bytes_ - filled);
    backend::copy(memory_, data_ + filled, memory_, data_, part);
    filled += part;
  }
}

bool Buffer::guards_intact() const {
  const auto intact = [&](const std::byte* from, std::size_t bytes) {
    std::vector<std::byte> zone(bytes);
    backend::copy(Memory::host, zone.data(), memory_, from, bytes);
    return std::all_of(zone.begin(), zone.end(), [](std::byte b) { return b == std::byte{kPoisonByte}; });
  };
  return intact(base_, static_cast<std::size_t>(data_ - base_)) &&
         intact(data_ + bytes_, static_cast<std::size_t>(base_ + allocated_ - (data_ + bytes_)));
}

}  // namespace fwht
