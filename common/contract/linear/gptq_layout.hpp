// The four tensors of a layer one behind the other, as the file has them: what variants read that repack
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/contract/linear/weights.hpp"
#include "common/contract/scale_layout.hpp"

namespace fwht {

inline constexpr const char* kGptqPacking = "gptq";  ///< LinearPlan::packing

/// Byte offsets, each a multiple of kPartAlignment.
struct GptqLayout {
  std::int64_t qzeros = 0, scales = 0, g_idx = 0, bytes = 0;

  explicit GptqLayout(const LinearProblem& p) {
    const auto up = [](std::int64_t at) { return round_up(at, kPartAlignment); };
    qzeros = up(p.k * p.n / 2);
    scales = up(qzeros + (p.symmetric() ? 0 : p.groups() * p.n / 2));
    g_idx = up(scales + p.groups() * p.n * 2);
    bytes = up(g_idx + (p.act_order ? p.k * 4 : 0));
  }
};

inline void write_gptq(const GptqLayout& layout, const GptqWeights& weights, std::byte* to) {
  const auto put = [&](std::int64_t at, const auto& tensor) {
    if (!tensor.empty()) std::memcpy(to + at, tensor.data(), tensor.size() * sizeof(tensor[0]));
  };
  put(0, weights.qweight);
  put(layout.qzeros, weights.qzeros);
  put(layout.scales, weights.scales);
  put(layout.g_idx, weights.g_idx);
}

/// Pointers into such a block, for host and device.
struct GptqView {
  const std::uint32_t* qweight;
  const std::uint32_t* qzeros;  ///< null: symmetric
  const std::uint16_t* scales;
  const std::int32_t* g_idx;  ///< null: row / group
  int lowest_zero;            ///< what a stored 0 stands for

  GptqView(const LinearProblem& p, const void* block) {
    const GptqLayout layout(p);
    const auto* at = static_cast<const std::byte*>(block);
    qweight = reinterpret_cast<const std::uint32_t*>(at);
    qzeros = p.symmetric() ? nullptr : reinterpret_cast<const std::uint32_t*>(at + layout.qzeros);
    scales = reinterpret_cast<const std::uint16_t*>(at + layout.scales);
    g_idx = p.act_order ? reinterpret_cast<const std::int32_t*>(at + layout.g_idx) : nullptr;
    lowest_zero = p.zero_points == ZeroPoints::v1 ? 1 : 0;
  }
};

}  // namespace fwht
