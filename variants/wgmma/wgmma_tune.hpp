// The launches that wgmma_tune measures.
#pragma once

#include <functional>
#include <vector>

#include "variants/wgmma/wgmma.hpp"

namespace fwht::wgmma {

struct Candidate {
  Launch launch;
  int registers, spilled_bytes, blocks_per_sm;
  /// In place, contiguous rows, 16-byte aligned, orthonormal.
  std::function<void(void* data, std::int64_t rows, Stream)> enqueue;
};

/// Every candidate for this n, fp16 data: bf16 runs the same instructions at the same rates.
std::vector<Candidate> candidates(int log_n);

/// One 16-byte vector a thread: what the candidates are compared with. bytes: a multiple of 16.
void enqueue_copy(void* data, std::int64_t bytes, Stream stream);

}  // namespace fwht::wgmma
