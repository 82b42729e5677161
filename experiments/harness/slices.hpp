// Equal pieces of memory that hold the same data: one for most modes, many for the cold one.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <stdexcept>
#include <string>

#include "common/contract/variant.hpp"
#include "common/device/device_info.hpp"
#include "common/device/memory.hpp"
#include "experiments/harness/traffic.hpp"

namespace fwht::harness {

class Slices {
 public:
  /// `count` inputs and, out of place, as many outputs. 256-byte aligned.
  Slices(const Buffers& buffers, std::int64_t count);

  const Buffers& buffers() const { return buffers_; }
  Memory memory() const { return buffers_.memory; }
  Placement placement() const { return buffers_.placement; }
  std::int64_t count() const { return count_; }

  const void* in(std::int64_t slice) const;
  void* out(std::int64_t slice);
  /// The whole buffer that out(0) starts, input or output, for downloads and guard checks.
  const Buffer& output() const { return placement() == Placement::in_place ? input_ : output_; }
  const Buffer& input() const { return input_; }

  /// Every input becomes `period` again and again; outputs are poisoned. Synchronous.
  void fill(std::span<const std::byte> period);

 private:
  Buffers buffers_;
  std::int64_t count_, in_stride_, out_stride_;
  Buffer input_, output_;
};

/// Not enough memory for a problem: a property of the machine, so the problem is unsupported there, not
/// failed.
class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Whether any memory of this machine holds the buffers, told before a folder is made; what is free is looked
/// at when they are made (Workspace::get).
Support fits_into_memory(const Buffers& buffers, const DeviceInfo& device);

/// Keeps the last few Slices, because allocating for every measurement would take longer than measuring.
class Workspace {
 public:
  /// Throws OutOfMemory, with what is needed and what is free, before it allocates too much.
  Slices& get(const Buffers& buffers, std::int64_t count = 1);

 private:
  std::list<Slices> kept_;  // newest first
};

/// How many slices of `bytes` bytes (input and output together) a rotation needs so that nothing stays in the
/// L2: more than four times the L2, and more than 512 MiB as long as `free` bytes allow that.
std::int64_t cold_count(std::int64_t bytes, std::int64_t l2_bytes, std::int64_t free);

}  // namespace fwht::harness
