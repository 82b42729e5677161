#include "variants/kit/on_host/host_mma.hpp"

#include <cstddef>
#include <cstdint>

#include "common/contract/dtype.hpp"
#include "common/device/ptx/fragments.hpp"

namespace fwht::rows {

void mma_on_host(int depth, Floats (&d)[4], const Words (&a)[4], const Words (&b)[2], Dtype operand,
                 const reference::TensorCore& core) {
  double left[16][16] = {}, right[8][16] = {};
  for (int lane = 0; lane < 32; ++lane) {
    const auto l = static_cast<std::size_t>(lane);
    for (int half = 0; half < 2; ++half) {
      for (int r = 0; r < depth / 4; ++r) {
        left[ptx::a_row(lane, r)][ptx::a_column(lane, r, half)] =
            decode(operand, (a[r].at[l] >> (16 * half)) & 0xFFFFU);
      }
      for (int r = 0; r < depth / 8; ++r) {
        right[ptx::b_column(lane)][ptx::b_row(lane, r, half)] =
            decode(operand, (b[r].at[l] >> (16 * half)) & 0xFFFFU);
      }
    }
  }
  const auto k = static_cast<std::size_t>(depth);
  for (int lane = 0; lane < 32; ++lane) {
    for (int r = 0; r < 4; ++r) {
      float& sum = d[r].at[static_cast<std::size_t>(lane)];
      sum = static_cast<float>(reference::mma_sum({left[ptx::d_row(lane, r)], k},
                                                  {right[ptx::d_column(lane, r)], k}, sum, operand,
                                                  reference::Accumulator::f32, core));
    }
  }
}

Words ldmatrix_trans_on_host(const std::vector<std::uint16_t>& shared, const Words& addresses, int q) {
  return Words::from([&](std::size_t lane) {
    std::uint32_t word = 0;
    for (int half = 0; half < 2; ++half) {
      const int row = ptx::b_row(static_cast<int>(lane), 0, half),
                element = ptx::b_column(static_cast<int>(lane));
      const std::uint32_t address =
          addresses.at[8 * static_cast<std::size_t>(q) + static_cast<std::size_t>(row)];
      word |= std::uint32_t{shared.at(address / 2 + static_cast<std::size_t>(element))} << (16 * half);
    }
    return word;
  });
}

}  // namespace fwht::rows
