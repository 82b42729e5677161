// wgmma: what its kernels take, and where the plan finds them. Each form is compiled by itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/contract/dtype.hpp"
#include "variants/kit/kernel_table.hpp"
#include "variants/wgmma/wgmma.hpp"

/// For nvcc 13.0, see kernel_table.hpp.
using _ZN4fwht5wgmma6LaunchE = fwht::wgmma::Launch;

namespace fwht::wgmma {

struct RowBatch {
  const std::byte* in;
  std::byte* out;
  int rows;
  std::int64_t in_stride_bytes, out_stride_bytes;  // from a row to the next
  float scale;
  bool eager = false;  // one_shot: lets the next kernel of the stream begin once the loads are asked for
};

/// Where the scale is applied. A power of two goes into the constants of stage 3: there it changes no bit and
/// costs nothing. Any other factor multiplies the results, one instruction an element.
enum class Scaling { constants, results };

/// One instantiation of a kernel.
struct KernelId {
  Dtype dtype = Dtype::f16;
  Launch launch;
  Scaling scaling = Scaling::results;

  constexpr bool operator==(const KernelId&) const = default;
  /// Only rows of an even log2 n have an orthonormal scale that is a power of two.
  constexpr bool is_compiled() const { return scaling == Scaling::results || launch.log_n % 2 == 0; }
};

inline constexpr auto kKernels = [] {
  std::array<KernelId, 4 * std::size(kLaunches)> all;
  auto next = all.begin();
  for (const Launch& launch : kLaunches)
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
      for (const Scaling scaling : {Scaling::constants, Scaling::results})
        *next++ = {dtype, launch, scaling};
  return all;
}();

/// Takes RowBatch and, where blocks hand out rows, the address of a counter.
using Kernel = const void*;
using Kernels = Table<KernelId, Kernel>;

/// The kernels of each form among kKernels.
const Kernels& one_shot_kernels();
const Kernels& ring_kernels();
const Kernels& pair_kernels();
const Kernels& passes_kernels();

}  // namespace fwht::wgmma
