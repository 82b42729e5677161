// mma_split: the plan of problems whose output is encoded.
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "common/device/cuda_check.hpp"
#include "common/device/launcher.hpp"
#include "common/device/plan_scratch.cuh"
#include "common/host/static_dispatch.hpp"
#include "variants/mma_split/encoded_kernels.hpp"
#include "variants/mma_split/mma_split.hpp"
#include "variants/mma_split/roped_kernels.hpp"

namespace fwht::mma_split {
namespace {

/// What serves a plan; kernels with a prologue take a PreparedBatch, whose front the others take.
struct Kernels {
  const void* encode = nullptr;
  const void* find_largest = nullptr;  // of the tensor; nullptr where it is not asked for
};

/// What `find` finds in the first of so many parts that has it; each is an integral constant.
template <std::size_t parts, class Find>
auto find_in_parts(const Find& find) {
  decltype(find(std::integral_constant<int, 0>{})) found = nullptr;
  [&]<int... part>(std::integer_sequence<int, part...>) {
    static_cast<void>((((found = find(std::integral_constant<int, part>{})) != nullptr) || ...));
  }
  (std::make_integer_sequence<int, static_cast<int>(parts)>{});
  return found;
}

template <Dtype dtype, CodeFormat format, bool prepares>
CodesKernel<prepares> find(const CodesId& id) {
  return find_in_parts<encoded_parts(format, prepares).size()>(
      [&](auto part) { return find_encoded<dtype, format, part(), prepares>(id); });
}
template <Dtype dtype>
CodesKernel<true> find_with_prologue(CodeFormat format, const CodesId& id) {
  if (format == CodeFormat::e4m3) return find<dtype, CodeFormat::e4m3, true>(id);
  if (format == CodeFormat::mxfp4) return find<dtype, CodeFormat::mxfp4, true>(id);
  return nullptr;
}

template <Dtype dtype>
CodesKernel<true> find_of_heads(CodeFormat format, const KernelId& id) {
  return format == CodeFormat::e4m3 ? find_roped<dtype, CodeFormat::e4m3>(id)
                                    : find_roped<dtype, CodeFormat::mxfp4>(id);
}

template <Dtype dtype>
Kernels kernels_for(const Problem& problem, const CodesId& id) {
  const CodeFormat format = problem.encoding.format;
  const bool two_passes = encoder::finds_tensor_scale(problem.encoding);
  const auto pointer = [](auto kernel) {
    if (kernel == nullptr) throw std::logic_error("mma_split: no kernel is compiled for this encoding");
    return reinterpret_cast<const void*>(kernel);
  };
  if (is_roped(problem)) return {pointer(find_of_heads<dtype>(format, id.kernel)), nullptr};
  if (has_prologue(problem)) {
    return {pointer(find_with_prologue<dtype>(format, id)),
            two_passes ? pointer(find_largest<dtype, true>(id.kernel)) : nullptr};
  }
  const CodesKernel<false> kernel =
      dispatch_format(format, [&](auto here) { return find<dtype, here(), false>(id); });
  return {pointer(kernel), two_passes ? pointer(find_largest<dtype, false>(id.kernel)) : nullptr};
}

class EncodedPlan final : public Plan {
 public:
  EncodedPlan(const Problem& problem, const DeviceInfo& device)
      : Plan(problem), multiprocessors_(device.sm_count), compute_capability_(device.compute_capability()) {
    const Dtype dtype = problem.dtype();
    const int log_n = log2_floor(problem.n());
    const bool joins = joins_vectors(problem.encoding, problem.n());
    const bool many_rows =
        problem.elements() >
        fewest_of_many(log_n, encoder::family_of(problem.encoding.format), device.sm_count);
    const bool roped = is_roped(problem);
    const bool rounded = is_rounded_first(problem.encoding, problem.n());
    const bool many_dense = many_rows && problem.in.row_stride == problem.n();
    const bool many_heads = many_rows && roped && shares_positions(problem.prologue->heads, log_n, true);
    id_ = roped                   ? roped_kernel(dtype, log_n, many_heads)
          : has_prologue(problem) ? prepared_kernel(dtype, log_n, many_dense, joins, rounded)
                                  : encoded_kernel(dtype, log_n, many_dense, joins, rounded);
    const CodesId asked{id_, joins, rounded};
    rounded_ = rounded;
    kernels_ = dispatch_16_bit(dtype, [&](auto type) { return kernels_for<type()>(problem, asked); });
    for (const void* kernel : {kernels_.encode, kernels_.find_largest}) {
      if (kernel != nullptr) allow_shared(kernel, shared_bytes());
    }
    registers_ = registers_of(kernels_.encode);
    if (kernels_.find_largest != nullptr) largest_ = PlanScratch(sizeof(std::uint32_t));
  }

  /// Vectors are loaded and stored whole.
  std::size_t alignment() const override { return 16; }
  bool one_stream_at_a_time() const override { return largest_.is_owned(); }
  std::int64_t scratch_bytes() const override { return largest_.bytes(); }

  Numerics numerics() const override { return numerics_of(problem(), compute_capability_); }

  Settings settings() const override {
    const Tile tile = id_.tile();
    return {{"kernel", std::string(tile.warps_per_row == 1 ? "rows_in_warps" : "rows_across_warps")},
            {"rows_per_block", std::int64_t{tile.rows_per_block()}},
            {"warps_per_row", std::int64_t{tile.warps_per_row}},
            {"vectors_per_lane", std::int64_t{tile.vectors}},
            {"blocks", blocks()},
            {"threads", std::int64_t{tile.threads}},
            {"launch", std::string(problem().programmatic_launch ? "programmatic" : "ordinary")},
            {"registers", std::int64_t{registers_}},
            {"shared_bytes", std::int64_t{shared_bytes()}},
            {"passes", std::int64_t{kernels_.find_largest == nullptr ? 1 : 2}}};
  }

 private:
  std::int64_t blocks() const { return ceil_div(problem().rows, id_.tile().rows_per_block()); }
  int shared_bytes() const { return 4 * id_.tile().exchange_words(); }

  void enqueue(const Operands& operands, Stream stream) const override {
    PreparedBatch batch{
        {rows::batch_of(problem(), id_.tile(), factors(problem()), multiprocessors_, operands.in, nullptr),
         encoder::output_of(problem(), operands, encoder::group_in_row(problem().encoding, problem().n()),
                            factors(problem()).last)},
        prologue_of(problem(), operands),
        places_of(problem(), operands)};
    if (problem().paging) batch.out.scales = operands.out;
    batch.out.last_of_numbers = std::ldexp(
        batch.out.last, -log_of_first_stage(problem().dtype(), log2_floor(problem().n()), rounded_));
    if (kernels_.find_largest != nullptr) {
      batch.out.largest = largest_.of<std::uint32_t>(operands);
      FWHT_CUDA(cudaMemsetAsync(batch.out.largest, 0, sizeof *batch.out.largest, stream));
      launch(kernels_.find_largest, batch, stream, false);  // behind a memset
    }
    launch(kernels_.encode, batch, stream, problem().programmatic_launch);
  }

  void launch(const void* kernel, PreparedBatch& batch, Stream stream, bool overlaps) const {
    void* arguments[] = {&batch};
    launch_at(kernel,
              {.blocks = blocks(),
               .threads = id_.tile().threads,
               .shared = shared_bytes(),
               .programmatic = overlaps},
              stream, arguments);
  }

  KernelId id_;
  Kernels kernels_;
  PlanScratch largest_;
  int multiprocessors_, compute_capability_, registers_ = 0;
  bool rounded_ = false;  // numbers, before they are encoded
};

}  // namespace

std::unique_ptr<Plan> make_encoded_plan(const Problem& problem, const DeviceInfo& device) {
  return std::make_unique<EncodedPlan>(problem, device);
}

}  // namespace fwht::mma_split
