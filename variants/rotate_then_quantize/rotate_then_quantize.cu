#include "variants/rotate_then_quantize/rotate_then_quantize.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "common/device/cuda_check.hpp"
#include "common/device/launcher.hpp"
#include "common/device/plan_scratch.cuh"
#include "common/host/bits.hpp"
#include "common/host/static_dispatch.hpp"
#include "variants/auto/auto.hpp"
#include "variants/rotate_then_quantize/quantizer.hpp"

namespace fwht::rotate_then_quantize {
namespace {

using Kind = ScaleGranularity::Kind;

constexpr std::int64_t kLongestToken = std::int64_t{kMostThreads} * 8 * 8;  // that a block holds

/// Elements that share a scale; where it is given, or the tensor's, as many as a warp likes.
std::int64_t group_of(const Problem& problem) {
  switch (problem.encoding.scales.kind) {
    case Kind::group:
      return problem.encoding.scales.group;
    case Kind::row:
      return token_length(problem.encoding, problem.n());
    case Kind::tensor:
    case Kind::none:
      break;
  }
  return 256;
}

Launch launch_of(const Problem& problem, const DeviceInfo& device) {
  const std::int64_t group = group_of(problem), elements = problem.elements();
  const bool whole_vectors = problem.contiguous() && group % 8 == 0 && elements % 8 == 0;
  if (whole_vectors) {
    if (is_power_of_two(group) && group <= 256) {
      // Below a wave of warps with four vectors each, more warps are better.
      const int vectors = elements <= std::int64_t{1} << 21 ? 1 : 4;
      return {Reader::vectors, vectors, 128, ceil_div(elements, 1024 * vectors)};
    }
    const std::int64_t tokens = elements / group;
    const int sharers = sharers_of_token(group, tokens, device);
    const std::int64_t share = ceil_div(group, sharers);
    if (share <= kLongestToken) {
      const auto threads_of = [&](int vectors) {
        return static_cast<int>(round_up(ceil_div(share, 8 * vectors), 32));
      };
      if (sharers > 1) {
        const int vectors = share <= kMostThreads * 16 ? 2 : 8;
        return {Reader::clusters, vectors, threads_of(vectors), tokens * sharers, sharers};
      }
      const int vectors = share <= 1024 ? 1 : share <= 4096 ? 2 : share <= 16384 ? 4 : 8;
      return {Reader::blocks, vectors, threads_of(vectors), tokens};
    }
    return {Reader::twice, 4, kMostThreads, tokens};
  }
  const bool has_block = group >= kGroupOfBlock;
  const std::int64_t groups = ceil_div(elements, group), groups_of_block = has_block ? 1 : 4;
  return {Reader::any, 1, has_block ? kMostThreads : 128,
          std::min<std::int64_t>(ceil_div(groups, groups_of_block), 65536)};
}

std::unique_ptr<Plan> rotation_plan(const Problem& problem, const DeviceInfo& device) {
  if (problem.n() == 1) return nullptr;
  return automatic::make_plan(rotation_of(problem), device);
}

class TwoLaunches final : public Plan {
 public:
  TwoLaunches(const Problem& problem, const DeviceInfo& device)
      : Plan(problem),
        rotation_(rotation_plan(problem, device)),
        launch_(launch_of(problem, device)),
        begins_early_(begins_early(problem, device)) {
    dispatch_dtype(problem.dtype(), [&](auto dtype) {
      kernel_ = dispatch_format(problem.encoding.format,
                                [&](auto format) { return find_kernel<dtype(), format()>(launch_); });
      find_largest_ = largest_kernel<dtype()>(launch_.reader);
    });
    if (kernel_ == nullptr)
      throw std::logic_error("rotate_then_quantize: no kernel is compiled for this encoding");
    scratch_ = PlanScratch(rotated_bytes() + (finds_largest() ? kPart : 0));
  }

  std::size_t alignment() const override {
    const std::size_t own =
        launch_.reader == Reader::any ? static_cast<std::size_t>(bytes_of(problem().dtype())) : 16;
    return rotation_ ? std::max(own, rotation_->alignment()) : own;
  }
  bool one_stream_at_a_time() const override {
    return scratch_.is_owned() || (rotation_ && rotation_->one_stream_at_a_time());
  }
  /// Rotated rows, the largest |y|, then what the rotation works in: its own, where this plan owns these.
  std::int64_t scratch_bytes() const override {
    return scratch_.bytes() + (rotation_ ? rotation_->scratch_bytes() : 0);
  }

  Numerics numerics() const override {
    return rotation_ ? rotation_->numerics() : single_rounding(Sums::fp32_any_order, problem());
  }

  Settings settings() const override {
    Settings settings;
    if (rotation_) {
      for (const Setting& setting : rotation_->settings())
        settings.emplace_back("rotation_" + setting.first, setting.second);
    }
    constexpr const char* kReaders[] = {"vectors", "blocks", "clusters", "twice", "any"};
    settings.emplace_back("quantizer", std::string(kReaders[static_cast<int>(launch_.reader)]));
    settings.emplace_back("vectors_per_lane", std::int64_t{launch_.vectors});
    settings.emplace_back("threads", std::int64_t{launch_.threads});
    settings.emplace_back("blocks", launch_.blocks);
    settings.emplace_back("blocks_per_token", std::int64_t{launch_.sharers});
    settings.emplace_back("quantizer_launch", std::string(begins_early_ ? "programmatic" : "ordinary"));
    return settings;
  }

 private:
  static constexpr std::int64_t kPart = 256;  // bytes between parts of the scratch

  std::int64_t rotated_bytes() const { return rotation_ ? round_up(problem().span_bytes(), kPart) : 0; }
  bool finds_largest() const { return encoder::finds_tensor_scale(problem().encoding); }

  void enqueue(const Operands& operands, Stream stream) const override {
    const Problem& p = problem();
    auto* const scratch = scratch_.bytes() > 0 ? scratch_.of<std::byte>(operands) : nullptr;
    const std::int64_t group = group_of(p);
    const std::int64_t columns = scale_shape(p.encoding, p.rows, p.n()).columns;
    const int log_columns = is_power_of_two(columns) ? log2_floor(columns) : -1;
    Rows what{encoder::output_of(p, operands, group),
              operands.in,
              p.elements(),
              token_length(p.encoding, p.n()),
              group,
              p.n(),
              p.in.row_stride,
              p.out.row_stride,
              log_columns};
    what.out.largest =
        finds_largest() ? reinterpret_cast<std::uint32_t*>(scratch + rotated_bytes()) : nullptr;
    // Ahead of the rotation, behind which a kernel alone may begin early.
    if (what.out.pads)
      FWHT_CUDA(cudaMemsetAsync(operands.scales, 0, static_cast<std::size_t>(p.scale_bytes_out()), stream));
    if (what.out.largest != nullptr)
      FWHT_CUDA(cudaMemsetAsync(what.out.largest, 0, sizeof(std::uint32_t), stream));
    if (rotation_) {
      Operands rotated = operands;
      rotated.out = scratch;
      rotated.scratch = operands.scratch != nullptr && rotation_->scratch_bytes() > 0
                            ? scratch + scratch_.bytes()
                            : nullptr;
      rotated.scales = nullptr;
      rotated.scales_bytes = -1;
      rotated.tensor_scale = 0.0F;
      rotated.tensor_scale_at = nullptr;
      rotation_->execute(rotated, stream);
      what.in = scratch;
    }
    bool early = begins_early_;
    if (what.out.largest != nullptr) {
      const std::int64_t blocks = launch_.reader == Reader::vectors
                                      ? ceil_div(p.elements(), 128 * 4 * 8)
                                      : std::min<std::int64_t>(ceil_div(p.elements(), 128), 4096);
      launch(find_largest_, {.blocks = blocks, .threads = 128, .programmatic = early}, stream, what);
      early = false;
    }
    launch(kernel_,
           {.blocks = launch_.blocks,
            .threads = launch_.threads,
            .cluster = launch_.sharers,
            .programmatic = early},
           stream, what);
  }

  std::unique_ptr<Plan> rotation_;
  Launch launch_;
  bool begins_early_;
  Kernel kernel_ = nullptr, find_largest_ = nullptr;
  PlanScratch scratch_;
};

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  if (problem.encoding.is_plain()) return automatic::make_plan(problem, device);
  return std::make_unique<TwoLaunches>(problem, device);
}

}  // namespace fwht::rotate_then_quantize
