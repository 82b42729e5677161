// y[m][n] = x[m][k] W as arXiv 2402.00025 computes it ("Accelerating a Triton Fused Kernel for W4A16
// Quantized Inference with SplitK Work Decomposition").
//
// Idea. A block owns a tile of 16 tokens x 32 outputs and takes the k blocks s, s + splits, s + 2 splits ...;
// the blocks of a tile add their results with fp16 atomics into a zeroed y. Weights are rounded to fp16:
// fma(q, s, -fp16(z s)). Unlike the published kernel, tokens beyond m are neither read nor written, a weight
// word is loaded once, and zeroing y is part of the launch.
//
// Bit card of 32 rows, g = lane / 4, t = lane % 4, warp w has outputs 8 w + g:
//   operand B   column g     k 8 t + 0..7: one word of qweight, two multiplies
//   operand A   rows g, g+8  k 8 t + 0..7: 16 bytes of x each
#include <algorithm>
#include <cstring>

#include "common/contract/linear/gptq_layout.hpp"
#include "common/device/cuda_check.hpp"
#include "common/device/launcher.hpp"
#include "common/device/ptx/mma.cuh"
#include "common/device/ptx/mma_accumulate.cuh"
#include "common/host/bits.hpp"
#include "variants/kit/kernel_table.hpp"
#include "variants/linear/unpack.cuh"
#include "variants/linear/w4a16_splitk/splitk.hpp"

namespace fwht::linear::splitk {
namespace {

/// How a block's sums reach y.
enum class Ending { plain, atomic, ordered };
struct Setup {
  int splits;
  Ending ending;
};

constexpr int kWarps = kOutputs / 8, kThreads = 32 * kWarps, kWordRows = kRows / 8, kStages = 3;

struct Arguments {
  const std::uint32_t* qweight;
  const std::uint32_t* qzeros;
  const __half* scales;
  const __half* x;
  __half* y;
  float* partial;     // [tile][split][16][32], only for ordered sums
  unsigned* tickets;  // [tile], zero; for them too
  int m, n, k, group_rows, lowest_zero;
};

/// A lane's share of one k block: 4 words of its column, the column's scale and zero point.
struct WeightBlock {
  std::uint32_t words[4];
  __half scale;
  std::uint32_t zeros;

  __device__ void load(const Arguments& a, int k_block, int column, int t) {
    const std::uint32_t* at = a.qweight + std::int64_t{k_block * kWordRows + t} * a.n + column;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      words[i] = __ldcs(at + std::int64_t{4 * i} * a.n);
    const int group = k_block * kRows / a.group_rows;
    scale = a.scales[std::int64_t{group} * a.n + column];
    zeros = a.qzeros[std::int64_t{group} * (a.n / 8) + column / 8];
  }

  __device__ __half zero(const Arguments& a, int column) const {
    return __int2half_rn(static_cast<int>(zeros >> (4 * (column & 7)) & 15U) + a.lowest_zero);
  }
};

/// A lane's share of x of one k block: 8 numbers of two tokens for every 32 rows. Tokens beyond m stay zero.
struct TokenBlock {
  uint4 low[4] = {}, high[4] = {};

  __device__ void load(const Arguments& a, int k_block, int token, int t) {
    const __half* at = a.x + std::int64_t{token} * a.k + k_block * kRows + 8 * t;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (token < a.m) low[i] = __ldg(reinterpret_cast<const uint4*>(at + 32 * i));
      if (token + 8 < a.m)
        high[i] = __ldg(reinterpret_cast<const uint4*>(at + std::int64_t{8} * a.k + 32 * i));
    }
  }
};

/// Two weights of a word: nibbles i and i + 1.
__device__ std::uint32_t dequantize(std::uint32_t word, int i, __half2 scale, __half2 minus_zero) {
  const __half2 q = __halves2half2(__int2half_rn(static_cast<int>(word >> (4 * i) & 15U)),
                                   __int2half_rn(static_cast<int>(word >> (4 * i + 4) & 15U)));
  const __half2 weight = __hfma2(q, scale, minus_zero);
  std::uint32_t bits;
  memcpy(&bits, &weight, sizeof bits);
  return bits;
}

__device__ void multiply_block(float (&sums)[4], const WeightBlock& block, const TokenBlock& x,
                               const Arguments& a, int column) {
  const __half2 scale = __half2half2(block.scale);
  const __half2 minus_zero = __hneg2(__half2half2(__hmul(block.zero(a, column), block.scale)));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint4 &low = x.low[i], &high = x.high[i];
    const std::uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
    const std::uint32_t word = block.words[i];
    const std::uint32_t b_first[2] = {dequantize(word, 0, scale, minus_zero),
                                      dequantize(word, 2, scale, minus_zero)};
    const std::uint32_t b_second[2] = {dequantize(word, 4, scale, minus_zero),
                                       dequantize(word, 6, scale, minus_zero)};
    ptx::mma_sync_m16n8k16_f32_f16_accumulate(sums, first, b_first);
    ptx::mma_sync_m16n8k16_f32_f16_accumulate(sums, second, b_second);
  }
}

/// The fp32 sums of all blocks of the tile, added in the order of the splits by the block that comes last.
__device__ bool add_in_order(float (&sums)[4], const Arguments& a) {
  __shared__ bool last;
  const int tile = static_cast<int>(blockIdx.x + blockIdx.z * gridDim.x),
            splits = static_cast<int>(gridDim.y);
  auto* mine = reinterpret_cast<float4*>(a.partial) + (std::int64_t{tile} * splits) * kThreads;
  mine[blockIdx.y * kThreads + threadIdx.x] = {sums[0], sums[1], sums[2], sums[3]};
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(a.tickets + tile, 1U) == gridDim.y - 1;
  __syncthreads();
  if (!last) return false;
  __threadfence();
  float4 sum = __ldcg(mine + threadIdx.x);
  for (int split = 1; split < splits; ++split) {
    const float4 more = __ldcg(mine + split * kThreads + threadIdx.x);
    sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
  }
  sums[0] = sum.x;
  sums[1] = sum.y;
  sums[2] = sum.z;
  sums[3] = sum.w;
  return true;
}

template <Ending ending>
__device__ void store(const Arguments& a, int token, int column, float first, float second) {
  if (token >= a.m) return;
  auto* to = reinterpret_cast<__half2*>(a.y + std::int64_t{token} * a.n + column);
  const __half2 pair = __floats2half2_rn(first, second);
  if constexpr (ending == Ending::atomic) {
    atomicAdd(to, pair);
  } else {
    *to = pair;
  }
}

/// Grid: tiles of 32 outputs, splits, tiles of 16 tokens.
template <Ending ending>
__global__ void __launch_bounds__(kThreads) splitk(const Arguments a) {
  const int warp = static_cast<int>(threadIdx.x >> 5), lane = static_cast<int>(threadIdx.x & 31),
            g = lane >> 2, t = lane & 3;
  const int first_output = static_cast<int>(blockIdx.x) * kOutputs + warp * 8, column = first_output + g;
  const int token = static_cast<int>(blockIdx.z) * kTokens + g;
  const int blocks = a.k / kRows, step = static_cast<int>(gridDim.y);
  float sums[4] = {};
  WeightBlock weights[kStages];  // three blocks under way, as the published kernel has stages
  TokenBlock x;
  const int first = static_cast<int>(blockIdx.y);
#pragma unroll
  for (int i = 0; i < kStages; ++i)
    if (first + i * step < blocks) weights[i].load(a, first + i * step, column, t);
  if (first < blocks) x.load(a, first, token, t);
  for (int base = first; base < blocks; base += kStages * step) {
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
      const int at = base + i * step;
      if (at >= blocks) break;
      const TokenBlock now = x;
      if (at + step < blocks) x.load(a, at + step, token, t);
      multiply_block(sums, weights[i], now, a, column);
      if (at + kStages * step < blocks) weights[i].load(a, at + kStages * step, column, t);
    }
  }
  if constexpr (ending == Ending::ordered) {
    if (!add_in_order(sums, a)) return;
  }
  store<ending>(a, token, first_output + 2 * t, sums[0], sums[1]);
  store<ending>(a, token + 8, first_output + 2 * t, sums[2], sums[3]);
}

Table<Ending, void (*)(Arguments)> kernels() {
  Table<Ending, void (*)(Arguments)> table;
  table.add(Ending::plain, splitk<Ending::plain>);
  table.add(Ending::atomic, splitk<Ending::atomic>);
  table.add(Ending::ordered, splitk<Ending::ordered>);
  return table;
}

class SplitkPlan final : public LinearPlan {
 public:
  SplitkPlan(const LinearProblem& problem, Setup setup)
      : LinearPlan(problem),
        setup_(setup),
        layout_(problem),
        kernel_(kernels().find(setup.ending)),
        grid_{.blocks = problem.n / kOutputs,
              .threads = kThreads,
              .layers = setup.splits,
              .depth = ceil_div(problem.m, kTokens)} {}

  std::int64_t packed_bytes() const override { return layout_.bytes; }
  std::string packing() const override { return kGptqPacking; }
  std::int64_t workspace_bytes() const override {
    return setup_.ending == Ending::ordered ? room_for({partial_bytes(), ticket_bytes()}) : 0;
  }

  Numerics numerics() const override {
    Numerics numerics = layer_numerics(problem());
    Step& product = numerics.steps.back();
    product.weights = WeightRounding::published;
    const auto blocks = static_cast<int>(problem().k / kRows);
    product.chained = (blocks + setup_.splits - 1) / setup_.splits * (kRows / 16);
    if (setup_.ending == Ending::atomic) {
      product.sums = Sums::atomic_f16;
      product.parts = std::min(setup_.splits, blocks);  // the others add zero
      numerics.promises.deterministic = numerics.promises.batch_invariant = false;
    }
    return numerics;
  }

  Settings settings() const override {
    return {{"splits", std::int64_t{setup_.splits}},
            {"blocks", grid_.blocks * grid_.layers * grid_.depth},
            {"threads", std::int64_t{kThreads}}};
  }

 private:
  void pack_into(const GptqWeights& weights, std::byte* packed) const override {
    write_gptq(layout_, weights, packed);
  }

  std::int64_t tiles() const { return grid_.blocks * grid_.depth; }
  std::int64_t partial_bytes() const {
    return tiles() * setup_.splits * kTokens * kOutputs * std::int64_t{sizeof(float)};
  }
  std::int64_t ticket_bytes() const { return tiles() * std::int64_t{sizeof(unsigned)}; }

  void enqueue(const LinearOperands& given, Stream stream) const override {
    const LinearProblem& p = problem();
    LinearOperands operands = given;
    float* partial = nullptr;
    unsigned* tickets = nullptr;
    if (setup_.ending == Ending::ordered) {
      partial = static_cast<float*>(take_part(operands, partial_bytes()));
      tickets = static_cast<unsigned*>(take_part(operands, ticket_bytes()));
      FWHT_CUDA(cudaMemsetAsync(tickets, 0, static_cast<std::size_t>(ticket_bytes()), stream));
    }
    const GptqView view(p, operands.weights);
    const Arguments arguments{view.qweight,
                              view.qzeros,
                              reinterpret_cast<const __half*>(view.scales),
                              static_cast<const __half*>(operands.x),
                              static_cast<__half*>(operands.y),
                              partial,
                              tickets,
                              static_cast<int>(p.m),
                              static_cast<int>(p.n),
                              static_cast<int>(p.k),
                              static_cast<int>(p.group_rows()),
                              view.lowest_zero};
    if (setup_.ending == Ending::atomic)
      FWHT_CUDA(cudaMemsetAsync(operands.y, 0, static_cast<std::size_t>(p.bytes_written()), stream));
    launch(kernel_, grid_, stream, arguments);
  }

  Setup setup_;
  GptqLayout layout_;
  void (*kernel_)(Arguments);
  LaunchGrid grid_;
};

}  // namespace

std::unique_ptr<LinearPlan> make_data_parallel(const LinearProblem& problem, const DeviceInfo&) {
  return std::make_unique<SplitkPlan>(problem, Setup{1, Ending::plain});
}
std::unique_ptr<LinearPlan> make_split_4(const LinearProblem& problem, const DeviceInfo&) {
  return std::make_unique<SplitkPlan>(problem, Setup{4, Ending::atomic});
}
std::unique_ptr<LinearPlan> make_split_8(const LinearProblem& problem, const DeviceInfo&) {
  return std::make_unique<SplitkPlan>(problem, Setup{8, Ending::atomic});
}
std::unique_ptr<LinearPlan> make_split_16(const LinearProblem& problem, const DeviceInfo&) {
  return std::make_unique<SplitkPlan>(problem, Setup{16, Ending::atomic});
}
std::unique_ptr<LinearPlan> make_f32(const LinearProblem& problem, const DeviceInfo&) {
  return std::make_unique<SplitkPlan>(problem, Setup{4, Ending::ordered});
}

}  // namespace fwht::linear::splitk
