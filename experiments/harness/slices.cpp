#include "experiments/harness/slices.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/host/bits.hpp"
#include "experiments/harness/device_work.hpp"

namespace fwht::harness {
namespace {

constexpr std::int64_t kAlignment = 256;
constexpr std::int64_t kColdBytes = std::int64_t{512} << 20;
constexpr std::int64_t kMostColdSlices = 8192;  // what one graph holds without taking seconds to build
constexpr std::size_t kKept = 6;

std::int64_t stride_for(std::int64_t bytes, std::int64_t count) {
  return count == 1 ? bytes : ceil_div(bytes, kAlignment) * kAlignment;
}

std::size_t total(std::int64_t bytes, std::int64_t count) {
  return static_cast<std::size_t>(stride_for(bytes, count) * (count - 1) + bytes);
}

}  // namespace

Slices::Slices(const Buffers& buffers, std::int64_t count)
    : buffers_(buffers),
      count_(count),
      in_stride_(stride_for(buffers.in_bytes, count)),
      out_stride_(stride_for(buffers.out_bytes, count)),
      input_(buffers.memory, total(buffers.in_bytes, count)) {
  if (placement() == Placement::out_of_place) output_ = Buffer(memory(), total(buffers.out_bytes, count));
}

const void* Slices::in(std::int64_t slice) const {
  return static_cast<const std::byte*>(input_.data()) + slice * in_stride_;
}

void* Slices::out(std::int64_t slice) {
  Buffer& buffer = placement() == Placement::in_place ? input_ : output_;
  return static_cast<std::byte*>(buffer.data()) + slice * out_stride_;
}

void Slices::fill(std::span<const std::byte> period) {
  const std::int64_t bytes = buffers_.in_bytes;
  const std::int64_t uploaded = std::min(static_cast<std::int64_t>(period.size()), bytes);
  auto* first = static_cast<std::byte*>(input_.data());
  input_.upload(period.data(), static_cast<std::size_t>(uploaded));
  const auto copy = [&](std::int64_t to, std::int64_t length) {
    enqueue_copy(memory(), first + to, first, length, nullptr);
  };
  for (std::int64_t filled = uploaded; filled < bytes; filled *= 2) {
    copy(filled, std::min(filled, bytes - filled));
  }
  for (std::int64_t slice = 1; slice < count_; ++slice)
    copy(slice * in_stride_, bytes);
  if (placement() == Placement::out_of_place) output_.poison();
  synchronize(memory());
}

Support fits_into_memory(const Buffers& buffers, const DeviceInfo& device) {
  const bool on_host = buffers.memory == Memory::host;
  const std::int64_t there = on_host ? device.host_memory_bytes : device.memory_bytes;
  const std::int64_t out = buffers.placement == Placement::in_place ? 0 : buffers.out_bytes;
  if (there == 0 || buffers.in_bytes <= there - std::min(there, out)) return {};  // 0: not known
  return {fmt::format("needs {} MiB of {} memory, there are {}", (buffers.in_bytes >> 20) + (out >> 20),
                      on_host ? "host" : "device", there >> 20)};
}

Slices& Workspace::get(const Buffers& buffers, std::int64_t count) {
  const auto same = [&](const Slices& s) { return s.buffers() == buffers && s.count() == count; };
  if (const auto found = std::find_if(kept_.begin(), kept_.end(), same); found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
    return kept_.front();
  }
  constexpr std::int64_t kReserve = std::int64_t{128} << 20;  // graphs, modules, a plan's workspace
  std::int64_t needed = static_cast<std::int64_t>(total(buffers.in_bytes, count)) + kReserve;
  if (buffers.placement == Placement::out_of_place)
    needed += static_cast<std::int64_t>(total(buffers.out_bytes, count));
  if (needed > free_bytes(buffers.memory)) kept_.clear();
  if (const std::int64_t free = free_bytes(buffers.memory); needed > free) {
    throw OutOfMemory(fmt::format("needs {} MiB of {} memory, {} MiB are free", needed >> 20,
                                  buffers.memory == Memory::host ? "host" : "device", free >> 20));
  }
  while (kept_.size() >= kKept)
    kept_.pop_back();
  kept_.emplace_front(buffers, count);
  return kept_.front();
}

std::int64_t cold_count(std::int64_t bytes, std::int64_t l2_bytes, std::int64_t free) {
  const std::int64_t slice = std::max<std::int64_t>(bytes, 1);
  const std::int64_t least = 4 * l2_bytes / slice + 1;
  const std::int64_t wanted = std::max({least, kColdBytes / slice + 1, std::int64_t{2}});
  const std::int64_t allowed = std::max(free / slice, least);
  return std::min({wanted, allowed, std::max(kMostColdSlices, least)});
}

}  // namespace fwht::harness
