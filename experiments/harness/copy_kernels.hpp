// Copies without a transform: they read every byte once and write every byte once, so nothing that moves as
// many bytes can be faster than the best of them. They flip the sign of every number on the way, so that
// nothing is elided, a copy that did not run is found out, and data in place stays random.
//
// Where fewer bytes are written than read, a copy folds: of every 16 bytes that a lane loads it stores the
// xor of both halves, or of all four words, or nothing. What is then left of the output is filled with words
// that are folded likewise.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/contract/dtype.hpp"
#include "common/contract/variant.hpp"
#include "common/device/device_info.hpp"
#include "experiments/harness/traffic.hpp"

namespace fwht::harness {

/// The sign bits of one 32-bit word of data: of two 16-bit numbers or of one 32-bit number.
constexpr std::uint32_t sign_mask(Dtype dtype) {
  return dtype == Dtype::f32 ? 0x80000000U : 0x80008000U;
}

/// How many bytes a copy of that traffic stores for every 16 that it loads: 16 where it reads and writes the
/// same number, else 8, 4 or 0, the most that does not exceed what is to be written.
constexpr int store_bytes(Traffic traffic) {
  if (traffic.read == traffic.written) return 16;
  const std::int64_t vectors = (traffic.read + 15) / 16;
  if (vectors == 0) return 0;
  return traffic.written >= 8 * vectors ? 8 : traffic.written >= 4 * vectors ? 4 : 0;
}

struct CopyKernel {
  std::string name;
  std::string why_not;  ///< empty, or one sentence why this device cannot run it
  /// Both addresses are multiples of 16, the bytes even; no overlap, or in == out for equal traffic. Host
  /// copies have finished when it returns. With store_bytes 16: out = in with the bits of `mask` flipped in
  /// every 32-bit word. Else a fold, see fold_copy.
  std::function<void(const void* in, void* out, Traffic, std::uint32_t mask, Stream)> enqueue;
  /// Launched with programmatic dependence: a limit of what is launched so, and of nothing else.
  bool programmatic = false;
  int store_bytes = 16;    ///< see store_bytes(Traffic)
  bool neighbour = false;  ///< precedes every launch of alternating mode; no limit

  bool moves(Traffic traffic) const { return store_bytes == harness::store_bytes(traffic); }
};

/// What a copy that writes less than it reads gives, on the host. Vector v is the 16 bytes of the input from
/// 16 v, as four 32-bit words, zeros behind the end; b = store_bytes(traffic). Bytes b v to b v + b of the
/// output are, for b = 8, words 0 ^ 1 and 2 ^ 3 of vector v, for b = 4 the xor of its four words. What is
/// left of the output behind them is, word by word, the xor of the four words of vectors 0, 1, 2 ... and so
/// on from the first again, the last word cut off where the output ends. The bits of `mask` are flipped in
/// each.
void fold_copy(const void* in, void* out, Traffic traffic, std::uint32_t mask);

/// Every copy kernel for data in that memory. Memory::device needs a device (device.has_cuda()): BadRequest
/// with the reason otherwise.
std::vector<CopyKernel> copy_kernels(Memory memory, const DeviceInfo& device);

/// The kernel of that name. Throws std::logic_error when there is none.
const CopyKernel& find_copy(const std::vector<CopyKernel>& kernels, const std::string& name);

/// The copy that precedes every launch in alternating mode, as a neighbouring kernel would in a real
/// pipeline. Its CTAs take other addresses in every launch. A copy whose map stays the same would hand every
/// SM of the next kernel the addresses that it has just touched itself whenever their maps agree. The L2
/// rewards that by up to 25 %; a neighbour does not. Throws std::logic_error when there is
/// none for that traffic.
const CopyKernel& find_neighbour(const std::vector<CopyKernel>& kernels, Traffic traffic);

// The two halves of copy_kernels.
std::vector<CopyKernel> host_copies(const DeviceInfo& device);
std::vector<CopyKernel> device_copies(const DeviceInfo& device);

}  // namespace fwht::harness
