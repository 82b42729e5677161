
#include <cstring>
#include <iterator>

#include "common/bits.hpp"
#include "common/error.hpp"
#include "common/text.hpp"
#include "variants/linear/w4a16_pipelined/pipelined.hpp"

namespace fwht::linear::pipelined {

int scales_of(const LinearProblem& problem) {
  const std::int64_t rows = problem.group_rows();
  return rows >= kStepK ? 1 : static_cast<int>(kStepK / rows);
}

Layout layout_of(const LinearProblem& problem) {
  return {ceil_div(problem.n, kTileOutputs), problem.k / kStepK, scales_of(problem)};
}

int form_for(std::int64_t m) {
  constexpr int kLast = static_cast<int>(std::size(kForms)) - 1;
  int form = 0;
  while (form < kLast && m > kForms[form].tokens)
    ++form;
  return form;
}

void pack(const LinearProblem& problem, const GptqWeights& unsorted, std::byte* packed) {
  const GptqWeights weights = sorted_rows(unsorted);
  const Layout layout = layout_of(problem);
  const std::int64_t n = weights.n, group_rows = weights.group_rows();
  const int lowest = problem.zero_points == ZeroPoints::v1 ? 1 : 0;
  // The nibbles 0 1 2 3 of 16 bits to the places 0 16 8 24 of nibble_place.
  const auto spread = [](std::uint32_t word) {
    const std::uint32_t low = word & 0xFFFFU;
    return (low & 0x0F0FU) | (low & 0xF0F0U) << 12;
  };
  for (std::int64_t tile = 0; tile < layout.tiles; ++tile) {
    for (std::int64_t step = 0; step < layout.steps; ++step) {
      const std::int64_t at = tile * layout.steps + step;
      const auto word_of = [&](std::int64_t row8, std::int64_t column) {
        return column < n ? weights.qweight[static_cast<std::size_t>(row8 * n + column)] : 0U;
      };
      for (int block = 0; block < 4; ++block) {
        for (int lane = 0; lane < 32; ++lane) {
          const std::int64_t column = tile * kTileOutputs + lane / 4;
          const std::int64_t row8 = step * (kStepK / 8) + block * 4 + lane % 4;
          const std::uint32_t low = word_of(row8, column), high = word_of(row8, column + 8);
          std::uint32_t words[2] = {spread(low) | spread(high) << 4, spread(low >> 16) | spread(high >> 16)
                                                                                             << 4};
          std::memcpy(packed + at * kStepBytes + block / 2 * 512 + lane * 16 + block % 2 * 8, words,
                      sizeof words);
        }
      }
      for (int row = 0; row < 8; ++row) {
        for (int s = 0; s < layout.scales; ++s) {
          const std::int64_t group = (step * kStepK + s * (kStepK / layout.scales)) / group_rows;
          std::uint16_t pair[2] = {0, 0};
          unsigned zeros = 0;
          for (int half = 0; half < 2; ++half) {
            const std::int64_t column = tile * kTileOutputs + row + 8 * half;
            if (column >= n) continue;
            pair[half] = weights.scales[static_cast<std::size_t>(group * n + column)];
            zeros |= static_cast<unsigned>(weights.zero(group, column) - lowest) << (4 * half);
          }
          const std::int64_t place = (at * 8 + row) * layout.scales + s;
          std::memcpy(packed + layout.scales_at() + place * 4, pair, sizeof pair);
          packed[layout.zeros_at() + place] = static_cast<std::byte>(zeros);
        }
      }
    }
  }
}

namespace {

Support supports(const LinearProblem& problem, const DeviceInfo& device) {
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (problem.programmatic_launch) {
    if (Support launch = require_programmatic_launch(device); !launch) return launch;
  }
  if (Support plain = require_no_rotation(problem); !plain) return plain;
  if (Support sorted = require_sorted_rows(problem); !sorted) return sorted;
  if (problem.n > (std::int64_t{1} << 37) / problem.k)
    return {"n k is beyond 2^37: places of scales are 32-bit numbers"};
  const std::int64_t rows = problem.group_rows();
  if (problem.k % kStepK != 0) return {concat("k = ", problem.k, ": a multiple of ", kStepK, " is needed")};
  if (rows % kStepK != 0 && kStepK % rows != 0)
    return {concat("group ", rows, ": 32, 64 or a multiple of ", kStepK, " is offered")};
  constexpr std::int64_t kMostTokens = 1024;  // far beyond where a dense product is faster
  if (problem.m > kMostTokens) return {concat("m = ", problem.m, " tokens: ", kMostTokens, " is the most")};
  return {};
}

}  // namespace

constinit const LinearVariant variant = {"w4a16_pipelined",
                                         "weights in operand order, streamed once; one rounding",
                                         Memory::device, supports, make_plan};

}  // namespace fwht::linear::pipelined
