
#include <cstring>
#include <iterator>

#include "common/device/sm90a.hpp"
#include "common/host/bits.hpp"
#include "common/host/text.hpp"
#include "variants/linear/w4a16_pipelined/pipelined.hpp"

namespace fwht::linear::pipelined {
namespace {

bool is_hopper(const DeviceInfo& device) {
  return kBuiltForHopper && device.compute_capability() == 90;
}

}  // namespace

int scales_of(const LinearProblem& problem) {
  const std::int64_t rows = problem.group_rows();
  return rows >= kStepK ? 1 : static_cast<int>(kStepK / rows);
}

Layout layout_of(const LinearProblem& problem) {
  return {ceil_div(problem.n, kTileOutputs), problem.k / kStepK, scales_of(problem)};
}

int form_for(const LinearProblem& problem, const DeviceInfo& device) {
  // The fewest tokens that are enough, else the most; the first of equals.
  const auto better = [&](const Form& f, const Form& best) {
    const bool enough = problem.m <= f.tokens, best_is_enough = problem.m <= best.tokens;
    if (enough != best_is_enough) return enough;
    return enough ? f.tokens < best.tokens : f.tokens > best.tokens;
  };
  const Layout layout = layout_of(problem);
  int best = -1;
  for (int i = 0; i < static_cast<int>(std::size(kForms)); ++i) {
    const Form& form = kForms[i];
    if ((form.needs_hopper() && !is_hopper(device)) || form.rotates != problem.rotates()) continue;
    if (layout.tiles < form.least_tiles || layout.tiles > form.most_tiles || layout.scales > form.most_scales)
      continue;
    if (best < 0 || better(form, kForms[best])) best = i;
  }
  return best;
}

void pack(const LinearProblem& problem, const GptqWeights& unsorted, std::byte* packed) {
  const GptqWeights weights = sorted_rows(unsorted);
  const Layout layout = layout_of(problem);
  const std::int64_t n = weights.n, group_rows = weights.group_rows();
  const int lowest = problem.zero_points == ZeroPoints::v1 ? 1 : 0;
  // Four nibbles of neighbouring k and a row, and those of the row 8 below.
  const auto spread = [](std::uint32_t low, std::uint32_t high) {
    std::uint32_t word = 0;
    for (int j = 0; j < 4; ++j) {
      word |= (low >> 4 * j & 0xFU) << nibble_place(0, j).shift;
      word |= (high >> 4 * j & 0xFU) << nibble_place(8, j).shift;
    }
    return word;
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
          const std::uint32_t words[2] = {spread(low, high), spread(low >> 16, high >> 16)};
          const NibblePlace first = nibble_place(lane / 4, block * 32 + lane % 4 * 8);
          std::memcpy(packed + at * kStepBytes + first.vector * 512 + first.lane * 16 + first.word * 4, words,
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
  if (problem.act_order) {
    const std::vector<std::int32_t> order = row_order(unsorted);
    std::memcpy(packed + order_at(problem), order.data(), order.size() * sizeof order[0]);
  }
}

std::int64_t order_at(const LinearProblem& problem) {
  return layout_of(problem).bytes();
}

std::int64_t packed_bytes(const LinearProblem& problem) {
  return order_at(problem) + (problem.act_order ? problem.k * std::int64_t{sizeof(std::int32_t)} : 0);
}

namespace {

Support supports_layer(const LinearProblem& problem, const DeviceInfo& device) {
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (problem.programmatic_launch) {
    if (Support launch = require_programmatic_launch(device); !launch) return launch;
  }
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

Support supports(const LinearProblem& problem, const DeviceInfo& device) {
  if (Support layer = supports_layer(problem, device); !layer) return layer;
  return require_no_rotation(problem);
}

Support supports_rotating(const LinearProblem& problem, const DeviceInfo& device) {
  if (!problem.rotates()) return {"no rotation is asked for"};
  if (!problem.rotation.is_sylvester())
    return {concat("a rotation by ", to_string(problem.rotation), ": H_n alone is offered")};
  if (Support layer = supports_layer(problem, device); !layer) return layer;
  if (!kBuiltForHopper)
    return {"built without sm_90a code, which its clusters need (CMAKE_CUDA_ARCHITECTURES lacks 90a)"};
  if (!is_hopper(device))
    return {concat("its clusters of blocks need compute capability 9.0, ", device.name, " has ",
                   device.compute_major, ".", device.compute_minor)};
  if (Support sorted = require_sorted_rows(problem); !sorted) return sorted;
  const Form& form = kForms[form_for(problem, device)];
  if (problem.k % (form.cluster * kStepK) != 0)
    return {concat("k = ", problem.k, ": a multiple of ", form.cluster * kStepK, " is needed")};
  const std::int64_t slice = problem.k / form.cluster, order = problem.rotation_order();
  if (order < 8 || (slice % order != 0 && order % slice != 0))
    return {concat("a rotation of order ", order, ": at least 8, and a divisor or a multiple of a block's ",
                   slice, " numbers is needed")};
  if (slice > kMostSlice)
    return {concat("k = ", problem.k, ": ", form.cluster * kMostSlice,
                   " numbers of a token fit in shared memory")};
  return {};
}

}  // namespace

constinit const LinearVariant variant = {"w4a16_pipelined",
                                         "weights in operand order, streamed once; one rounding",
                                         Memory::device, supports, make_plan};
constinit const LinearVariant rotating = {"rotated_w4a16_inside",
                                          "w4a16_pipelined whose clusters rotate their tokens themselves",
                                          Memory::device, supports_rotating, make_plan};

}  // namespace fwht::linear::pipelined
