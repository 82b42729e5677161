// Small device work that the experiments need beside the variants.
#pragma once

#include <cstdint>
#include <string>

#include "common/contract/variant.hpp"
#include "common/device/memory.hpp"

namespace fwht::harness {

/// Where the first `bytes` bytes of `buffer` stop repeating their first `period` bytes: the offset, in bytes,
/// of a place that differs from the place one period before it, or -1. Both are even; synchronous.
std::int64_t period_break(const Buffer& buffer, std::int64_t period, std::int64_t bytes);

/// Copies within one kind of memory. On the device it only enqueues, so that it may stand in a timed
/// sequence; on the host it has finished when it returns. No overlap.
void enqueue_copy(Memory memory, void* to, const void* from, std::int64_t bytes, Stream stream);

namespace device {  // the halves that need CUDA; a build without it throws std::runtime_error
std::int64_t period_break(const void* data, std::int64_t period, std::int64_t bytes);
void enqueue_copy(void* to, const void* from, std::int64_t bytes, Stream stream);
/// Makes the device the one that later calls of this thread use.
void make_current(int ordinal);
/// "0000:1B:00.0".
std::string pci_bus_id(int ordinal);
}  // namespace device

}  // namespace fwht::harness
