// What the C ABI asks of the CUDA runtime beside common/device/stream_query.hpp. Implemented by
// device_cuda.cpp, or by device_host.cpp in a build without CUDA.
#pragma once

#include <cstdint>

namespace fwht::c_abi {

/// CUDA devices of this machine; 0 where CUDA cannot be used.
std::int32_t device_count();

/// Ordinal of the CUDA device whose memory `pointer` is, or FWHT_HOST.
std::int32_t device_of(const void* pointer);

}  // namespace fwht::c_abi
