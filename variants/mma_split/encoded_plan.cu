// mma_split: the plan of problems whose output is encoded.
#include <cstdint>
#include <stdexcept>

#include "common/cuda_check.hpp"
#include "variants/mma_split/encoded_kernels.hpp"
#include "variants/mma_split/mma_split.hpp"

namespace fwht::mma_split {
namespace {

template <Dtype dtype>
EncodedKernel find(CodeFormat format, const KernelId& id, bool joins, bool rounded) {
  switch (format) {
    case CodeFormat::plain:
      return nullptr;
    case CodeFormat::e4m3:
      return find_encoded<dtype, CodeFormat::e4m3>(id, joins, rounded);
    case CodeFormat::int8:
      return find_encoded<dtype, CodeFormat::int8>(id, joins, rounded);
    case CodeFormat::int4:
      return find_encoded<dtype, CodeFormat::int4>(id, joins, rounded);
    case CodeFormat::mxfp8:
      return find_encoded<dtype, CodeFormat::mxfp8>(id, joins, rounded);
    case CodeFormat::mxfp4:
      return find_encoded<dtype, CodeFormat::mxfp4>(id, joins, rounded);
    case CodeFormat::nvfp4:
      return find_encoded<dtype, CodeFormat::nvfp4>(id, joins, rounded);
  }
  return nullptr;
}

class EncodedPlan final : public Plan {
 public:
  EncodedPlan(const Problem& problem, const DeviceInfo& device)
      : Plan(problem), multiprocessors_(device.sm_count), compute_capability_(device.compute_capability()) {
    const Dtype dtype = problem.dtype();
    const int log_n = log2_floor(problem.n());
    // A wave of warps with four vectors each; below it more warps are better.
    const bool many_rows = problem.elements() > std::int64_t{1024} * 16 * device.sm_count;
    const bool joins = joins_vectors(problem.encoding, problem.n());
    const bool rounded = is_rounded_first(problem.encoding);
    id_ = encoded_kernel(dtype, log_n, many_rows && problem.in.row_stride == problem.n(), joins, rounded);
    const CodeFormat format = problem.encoding.format;
    kernel_ = dtype == Dtype::f16 ? find<Dtype::f16>(format, id_, joins, rounded)
                                  : find<Dtype::bf16>(format, id_, joins, rounded);
    if (kernel_ == nullptr) throw std::logic_error("mma_split: no kernel is compiled for this encoding");
    if (shared_bytes() > 48 * 1024) {
      FWHT_CUDA(cudaFuncSetAttribute(kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes()));
    }
    cudaFuncAttributes attributes{};
    FWHT_CUDA(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel_)));
    registers_ = attributes.numRegs;
  }

  /// Vectors are loaded and stored whole.
  std::size_t alignment() const override { return 16; }

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
            {"shared_bytes", std::int64_t{shared_bytes()}}};
  }

 private:
  std::int64_t blocks() const { return ceil_div(problem().rows, id_.tile().rows_per_block()); }
  int shared_bytes() const { return 4 * id_.tile().exchange_words(); }

  void enqueue(const Operands& operands, Stream stream) const override {
    const EncodedBatch batch{
        rows::batch_of(problem(), id_.tile(), factors(problem()), multiprocessors_, operands.in, nullptr),
        encoder::output_of(problem(), operands, group_in_row(problem().encoding, problem().n()),
                           factors(problem()).last)};
    cudaLaunchAttribute programmatic{};
    programmatic.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    programmatic.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks()));
    config.blockDim = dim3(static_cast<unsigned>(id_.tile().threads));
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes());
    config.stream = stream;
    config.attrs = &programmatic;
    config.numAttrs = problem().programmatic_launch ? 1 : 0;
    FWHT_CUDA(cudaLaunchKernelEx(&config, kernel_, batch));
  }

  KernelId id_;
  EncodedKernel kernel_ = nullptr;
  int multiprocessors_, compute_capability_, registers_ = 0;
};

}  // namespace

std::unique_ptr<Plan> make_encoded_plan(const Problem& problem, const DeviceInfo& device) {
  return std::make_unique<EncodedPlan>(problem, device);
}

}  // namespace fwht::mma_split
