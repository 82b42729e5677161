// kronecker: rows of n = m 2^k elements on Hopper, in one kernel, with one rounding.
//
// A row is read as a matrix X of D x N, D = m 2^j and N = 2^i. Then y = scale * H_D X S_N, where H_D = H_m
// (x) S_(2^j).
//
// What this rung changes: H_m is any matrix of signs, so its fragments are expanded from a table of sign bits
// instead of worked out from lane numbers, and rows come and go by tensor copies: a box of 16 x N is one k
// step of stage 1, one contiguous piece of the row, and what one warp stores. Rows of X beyond D are outside
// the tensor: zero when they are loaded, not written when they are stored, so D need not be a multiple of 16.
//
// Bit card, columns b0 .. b(i-1), rows d of X:
//   load      tensor copies with the 128-byte swizzle: 64 columns of 16 rows are 16 lines of 128 bytes
//   stage 1   k of wgmma: d (exact: +-1 times 16-bit data in fp32)
//             D: b0 register | b1-b2 lane 0-1 | b3 .. column tile (register) | d: lane 2-4, register, warp,
//             warpgroup
//   stage 2   b3 ..       FADD between registers
//             b0-b2       mma.sync m16n8k16, every number as bf16 hi + lo side by side in k
//   store     stmatrix into the warp's staging, one tensor copy of its 16 rows of D
//
// What limits it: memory to 0.95 of a copy; the first load and the last store of a launch, which nothing
// hides, are what long rows lose. An Inf makes its row NaN, because the head of Inf less itself is NaN.
#include "variants/kronecker/kronecker.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "common/cuda_check.hpp"
#include "variants/kronecker/kronecker_kernel.cuh"
#include "variants/kronecker/kronecker_kernels.hpp"

namespace fwht::kronecker {
namespace {

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                                 CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill);

/// The driver's function, asked for by the runtime, so that no driver library is linked.
EncodeTiled encode_tiled() {
  static const EncodeTiled function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    FWHT_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                               &result));
    if (result != cudaDriverEntryPointSuccess)
      throw std::runtime_error("the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<EncodeTiled>(found);
  }();
  return function;
}

CUtensorMap map_of(const void* data, const Array& array, std::int64_t rows, const Shape& shape) {
  const auto columns = static_cast<cuuint64_t>(shape.columns);
  const cuuint64_t extents[4] = {64, static_cast<cuuint64_t>(shape.order), columns / 64,
                                 static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[3] = {columns * 2, 128, static_cast<cuuint64_t>(array.row_stride) * 2};
  const cuuint32_t box[4] = {64, 16, static_cast<cuuint32_t>(columns / 64), 1}, steps[4] = {1, 1, 1, 1};
  const CUtensorMapDataType type =
      array.dtype == Dtype::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  CUtensorMap map;
  const CUresult result = encode_tiled()(
      &map, type, 4, const_cast<void*>(data), extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw std::runtime_error(
        "cuTensorMapEncodeTiled failed with error " + std::to_string(static_cast<int>(result)) + " for " +
        std::to_string(rows) + " rows of " + std::to_string(shape.order) + " x " +
        std::to_string(shape.columns) + ", row stride " + std::to_string(array.row_stride));
  }
  return map;
}

/// Device memory that a plan owns: the sign table, and behind it the row counter, zero.
class Workspace {
 public:
  explicit Workspace(const std::vector<std::uint32_t>& signs) : words_(signs.size()) {
    FWHT_CUDA(cudaMalloc(&memory_, (words_ + 1) * sizeof(std::uint32_t)));
    std::vector<std::uint32_t> contents = signs;
    contents.push_back(0);
    // On a stream of its own: a plan may be made while another one is captured.
    cudaStream_t stream = nullptr;
    FWHT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    FWHT_CUDA(cudaMemcpyAsync(memory_, contents.data(), contents.size() * sizeof(std::uint32_t),
                              cudaMemcpyHostToDevice, stream));
    FWHT_CUDA(cudaStreamSynchronize(stream));
    FWHT_CUDA(cudaStreamDestroy(stream));
  }
  ~Workspace() { cudaFree(memory_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  const std::uint32_t* signs() const { return static_cast<const std::uint32_t*>(memory_); }
  unsigned* counter() const { return static_cast<unsigned*>(memory_) + words_; }

 private:
  std::size_t words_;
  void* memory_ = nullptr;
};

class KroneckerPlan final : public Plan {
 public:
  KroneckerPlan(const Problem& problem, const DeviceInfo& device)
      : Plan(problem),
        launch_(*launch_for(problem.op)),
        kernel_(problem.dtype() == Dtype::f16 ? kernel_f16(launch_) : kernel_bf16(launch_)),
        workspace_(sign_table(launch_.shape, problem.op.factors()[0])) {
    FWHT_CUDA(
        cudaFuncSetAttribute(kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize, launch_.shared_bytes()));
    cudaFuncAttributes attributes{};
    FWHT_CUDA(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel_)));
    registers_ = attributes.numRegs;
    FWHT_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks_per_sm_, kernel_, launch_.threads(), static_cast<std::size_t>(launch_.shared_bytes())));
    const std::int64_t resident = std::max<std::int64_t>(std::int64_t{blocks_per_sm_} * device.sm_count, 1);
    blocks_ = std::min((problem.rows + launch_.teams - 1) / launch_.teams, resident);
  }

  std::size_t alignment() const override { return 16; }
  bool one_stream_at_a_time() const override { return true; }  // the row counter

  Numerics numerics() const override { return numerics_of(problem()); }

  Settings settings() const override {
    return {{"order", std::int64_t{launch_.shape.order}},
            {"columns", std::int64_t{launch_.shape.columns}},
            {"blocks", blocks_},
            {"threads", std::int64_t{launch_.threads()}},
            {"blocks_per_sm", std::int64_t{blocks_per_sm_}},
            {"teams", std::int64_t{launch_.teams}},
            {"slots", std::int64_t{launch_.slots}},
            {"registers", std::int64_t{registers_}},
            {"shared_bytes", std::int64_t{launch_.shared_bytes()}}};
  }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    const Problem& p = problem();
    const Maps maps{map_of(operands.in, p.in, p.rows, launch_.shape),
                    map_of(operands.out, p.out, p.rows, launch_.shape)};
    const Work work{workspace_.signs(), workspace_.counter(), static_cast<int>(p.rows),
                    static_cast<float>(p.scale)};
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks_));
    config.blockDim = dim3(static_cast<unsigned>(launch_.threads()));
    config.dynamicSmemBytes = static_cast<std::size_t>(launch_.shared_bytes());
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = p.programmatic_launch ? 1 : 0;
    FWHT_CUDA(cudaLaunchKernelEx(&config, kernel_, maps, work));
  }

  Launch launch_;
  Kernel kernel_;
  Workspace workspace_;
  int registers_ = 0, blocks_per_sm_ = 0;
  std::int64_t blocks_ = 0;
};

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  return std::make_unique<KroneckerPlan>(problem, device);
}

}  // namespace fwht::kronecker
