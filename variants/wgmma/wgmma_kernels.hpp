// wgmma: what its kernels take, and where the plan finds them. Each form is compiled by itself.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/contract/dtype.hpp"
#include "variants/wgmma/wgmma.hpp"

namespace fwht::wgmma {

struct RowBatch {
  const std::byte* in;
  std::byte* out;
  int rows;
  std::int64_t in_stride_bytes, out_stride_bytes;  // from a row to the next
  float scale;
};

/// Where the scale is applied. A power of two goes into the constants of stage 3: there it changes no bit and
/// costs nothing. Any other factor multiplies the results, one instruction an element.
enum class Scaling { constants, results };

/// A kernel of one of the two signatures; resident blocks that hand out rows take a counter.
struct Kernel {
  void (*plain)(RowBatch) = nullptr;
  void (*counting)(RowBatch, unsigned*) = nullptr;

  explicit operator bool() const { return plain != nullptr || counting != nullptr; }
  const void* address() const {
    return plain != nullptr ? reinterpret_cast<const void*>(plain) : reinterpret_cast<const void*>(counting);
  }
};

/// The kernel of a launch of that form among kLaunches<log_n>; none where there is no such launch.
Kernel one_shot_kernel(const Launch& launch, int log_n, Dtype dtype, Scaling scaling);
Kernel ring_kernel(const Launch& launch, int log_n, Dtype dtype, Scaling scaling);
Kernel pair_kernel(Dtype dtype, Scaling scaling);
Kernel passes_kernel(Dtype dtype, Scaling scaling, bool dynamic);

}  // namespace fwht::wgmma
