// cpu: the layer on the host, from the tensors as the file has them. Every weight is exact in fp32 (16 bits);
// products are added by fused multiply-add in ascending rows and rounded once.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "common/contract/linear/gptq_layout.hpp"
#include "common/contract/linear/rotation_layout.hpp"
#include "common/host/parallel_for.hpp"
#include "variants/cpu/kronecker.hpp"
#include "variants/linear/registry.hpp"

namespace fwht::linear::cpu {
namespace {

constexpr std::int64_t kColumns = 8;  // a word of zero points

class CpuLayerPlan final : public LinearPlan {
 public:
  CpuLayerPlan(const LinearProblem& problem, int threads)
      : LinearPlan(problem), layout_(problem), behind_(problem, layout_.bytes), threads_(threads) {}

  std::int64_t packed_bytes() const override { return behind_.bytes; }
  std::string packing() const override { return kGptqPacking; }
  Numerics numerics() const override { return layer_numerics(problem()); }
  Settings settings() const override { return {{"threads", std::int64_t{threads_}}}; }
  std::int64_t workspace_bytes() const override { return room_for({x_bytes(), sums_bytes()}); }

 private:
  void pack_into(const GptqWeights& weights, std::byte* packed) const override {
    write_gptq(layout_, weights, packed);
    behind_.write(weights, packed);
  }

  using Columns = std::array<float, kColumns>;
  std::int64_t x_bytes() const { return problem().m * problem().k * std::int64_t{sizeof(float)}; }
  std::int64_t sums_bytes() const { return problem().m * problem().n * std::int64_t{sizeof(float)}; }

  void enqueue(const LinearOperands& given, Stream) const override {
    const LinearProblem& p = problem();
    require_groups(given);
    LinearOperands operands = given;
    auto* const x = static_cast<float*>(take_part(operands, x_bytes()));
    auto* const sums = static_cast<Columns*>(take_part(operands, sums_bytes()));
    for (std::int64_t i = 0; i < p.m * p.k; ++i)
      x[i] = static_cast<float>(load_element(p.dtype, operands.x, i));
    if (p.rotates()) rotate(operands, x);
    parallel_for(p.n / kColumns, threads_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block)
        multiply_columns(operands, x, sums + block * p.m, block * kColumns);
    });
  }

  /// The groups of act-order index scales, so bytes that nobody packed must not send a read elsewhere.
  void require_groups(const LinearOperands& operands) const {
    const LinearProblem& p = problem();
    const GptqView view(p, operands.weights);
    if (view.g_idx == nullptr) return;
    const std::int64_t groups = p.k / p.group_rows();
    for (std::int64_t row = 0; row < p.k; ++row) {
      if (view.g_idx[row] < 0 || view.g_idx[row] >= groups) {
        throw BadRequest(concat("packed weights: row ", row, " is in group ", view.g_idx[row], " of ", groups,
                                "; these bytes are not what pack made"));
      }
    }
  }

  /// In fp32, block by block, not rounded.
  void rotate(const LinearOperands& operands, float* x) const {
    const fwht::Problem rotation = rotation_of(problem());
    const std::int64_t order = rotation.n();
    const fwht::cpu::KroneckerProduct<float> product(
        rotation, behind_.operands(rotation.op, operands.x, x, operands.weights));
    const auto factor = static_cast<float>(rotation.scale);
    parallel_for(rotation.rows, threads_, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> scratch(static_cast<std::size_t>(order));
      for (float* row = x + begin * order; row < x + end * order; row += order) {
        product.apply(row, scratch.data());
        std::transform(row, row + order, row, [=](float v) { return v * factor; });
      }
    });
  }

  /// sums[token], of eight outputs from `column` on.
  void multiply_columns(const LinearOperands& operands, const float* x, Columns* sums,
                        std::int64_t column) const {
    const LinearProblem& p = problem();
    const GptqView view(p, operands.weights);
    std::fill(sums, sums + p.m, Columns{});
    Columns scales{}, weights{};
    std::array<int, kColumns> zeros{};
    std::int64_t group = -1;
    for (std::int64_t row = 0; row < p.k; ++row) {
      const std::int64_t at = view.g_idx != nullptr ? view.g_idx[row] : row / p.group_rows();
      if (at != group) {
        group = at;
        for (std::int64_t c = 0; c < kColumns; ++c) {
          scales[c] = f16_to_float(view.scales[group * p.n + column + c]);
          zeros[c] = view.qzeros == nullptr
                         ? 8
                         : static_cast<int>(view.qzeros[group * (p.n / 8) + column / 8] >> (4 * c) & 15U) +
                               view.lowest_zero;
        }
      }
      const std::uint32_t* words = view.qweight + row / 8 * p.n + column;
      for (std::int64_t c = 0; c < kColumns; ++c)
        weights[c] =
            scales[c] * static_cast<float>(static_cast<int>(words[c] >> (4 * (row % 8)) & 15U) - zeros[c]);
      for (std::int64_t token = 0; token < p.m; ++token) {
        const float value = x[token * p.k + row];
        for (std::int64_t c = 0; c < kColumns; ++c)
          sums[token][c] = std::fma(weights[c], value, sums[token][c]);
      }
    }
    for (std::int64_t token = 0; token < p.m; ++token)
      for (std::int64_t c = 0; c < kColumns; ++c)
        store_element(p.dtype, operands.y, token * p.n + column + c, sums[token][c]);
  }

  GptqLayout layout_;
  RotationLayout behind_;
  int threads_;
};

Support supports(const LinearProblem& problem, const DeviceInfo&) {
  if (problem.rotates()) {
    if (Support rotation = fwht::cpu::require_factors(problem.rotation); !rotation) return rotation;
  }
  return require_ordinary_launch(problem);
}

std::unique_ptr<LinearPlan> make_plan(const LinearProblem& problem, const DeviceInfo& device) {
  return std::make_unique<CpuLayerPlan>(problem, device.host_threads);
}

}  // namespace

constinit const LinearVariant variant = {"cpu", "fp32 sums in ascending rows, on the host", Memory::host,
                                         supports, make_plan};

}  // namespace fwht::linear::cpu
