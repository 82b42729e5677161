// Copies without a transform: they read every byte once and write every byte once, so no transform of the
// same bytes can be faster than the best of them. They flip the sign of every number on the way, so that
// nothing is elided, a copy that did not run is found out, and data in place stays random.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/device_info.hpp"
#include "common/dtype.hpp"
#include "common/variant.hpp"

namespace fwht::harness {

/// The sign bits of one 32-bit word of data: of two 16-bit numbers or of one 32-bit number.
constexpr std::uint32_t sign_mask(Dtype dtype) {
  return dtype == Dtype::f32 ? 0x80000000U : 0x80008000U;
}

struct CopyKernel {
  std::string name;
  std::string why_not;  ///< empty, or one sentence why this device cannot run it
  /// out = in with the bits of `mask` flipped in every 32-bit word. Both addresses are multiples of 16;
  /// `bytes` is even, any size; in == out or no overlap. Host copies have finished when it returns.
  std::function<void(const void* in, void* out, std::int64_t bytes, std::uint32_t mask, Stream)> enqueue;
  /// Launched with programmatic dependence: the limit of mode replay_pdl, and of no other.
  bool programmatic = false;
};

/// Every copy kernel for data in that memory. Memory::device needs a device (device.has_cuda()): BadRequest
/// with the reason otherwise.
std::vector<CopyKernel> copy_kernels(Memory memory, const DeviceInfo& device);

/// The copy that precedes every launch in alternating mode, as a neighbouring kernel would in a real
/// pipeline. Its CTAs take other addresses in every launch: a copy whose map stands still would hand every SM
/// of the next kernel the addresses that it has just touched itself whenever their maps agree, which the L2
/// rewards by up to 25 %, and which a neighbour does not give.
inline constexpr const char* kReferenceCopy = "rotated_v2_t256";

/// The kernel of that name. Throws std::logic_error when there is none.
const CopyKernel& find_copy(const std::vector<CopyKernel>& kernels, const std::string& name);

// The two halves of copy_kernels.
std::vector<CopyKernel> host_copies(const DeviceInfo& device);
std::vector<CopyKernel> device_copies(const DeviceInfo& device);

}  // namespace fwht::harness
