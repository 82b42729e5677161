// The seam between memory.cpp and the CUDA runtime: implemented by backend_cuda.cu, or by without_cuda.cpp in
// a build without CUDA.
#pragma once

#include <cstddef>

#include "common/contract/variant.hpp"

namespace fwht::backend {

std::byte* allocate(Memory memory, std::size_t bytes);
void release(Memory memory, std::byte* data) noexcept;
void fill(Memory memory, std::byte* data, unsigned char byte, std::size_t bytes);
/// `to` and `from` must not overlap unless they are adjacent parts of one buffer.
void copy(Memory to_memory, std::byte* to, Memory from_memory, const std::byte* from, std::size_t bytes);

/// Fills the CUDA fields of `info`.
void describe_cuda(DeviceInfo& info, int ordinal);

}  // namespace fwht::backend
