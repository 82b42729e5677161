// The launch configurations that hadacore_tune measures.
#pragma once

#include <functional>
#include <vector>

#include "variants/hadacore/hadacore.hpp"

namespace fwht::hadacore {

struct Candidate {
  Config config;
  int registers, spilled_bytes;
  /// Contiguous rows, 16-byte aligned, orthonormal.
  std::function<void(const void* in, void* out, std::int64_t rows, Stream)> enqueue;
};

/// Every candidate for this n: fp16 sums for f16, fp32 sums for bf16.
std::vector<Candidate> candidates(Dtype dtype, int log_n);

/// One 16-byte vector a thread: what the candidates are compared with. bytes: a multiple of 16.
void enqueue_copy(const void* in, void* out, std::int64_t bytes, Stream stream);

}  // namespace fwht::hadacore
