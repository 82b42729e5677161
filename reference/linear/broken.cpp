#include <algorithm>
#include <cstring>

#include "common/contract/linear/gptq_layout.hpp"
#include "common/contract/linear/rotation_layout.hpp"
#include "reference/linear/conformance.hpp"

namespace fwht::conformance {
namespace {

enum class LinearDefect {
  none,
  nibbles_reversed,
  zero_without_one,
  group_off_by_one,
  scale_of_column_8,
  last_block_dropped,
  row_behind_the_last,  // the published kernels mask no token
  stale_output,
  fp16_accumulator,
  g_idx_ignored,
  order_applied_twice,
  one_rotation_too_many,
  tokens_mixed,
  packing_of_one_plan,
  stale_workspace,
  beside_workspace,
  signs_ignored,
  dense_off_by_one
};

class BrokenLinearPlan final : public LinearPlan {
 public:
  BrokenLinearPlan(const LinearProblem& problem, LinearDefect defect)
      : LinearPlan(problem), defect_(defect) {}

  std::int64_t packed_bytes() const override {
    return RotationLayout(problem(), GptqLayout(problem()).bytes).bytes;
  }
  std::string packing() const override {
    // One name for what depends on m: the defect.
    return has(LinearDefect::packing_of_one_plan) ? "one for all" : kGptqPacking;
  }
  Numerics numerics() const override { return layer_numerics(problem()); }
  Settings settings() const override { return {}; }
  std::int64_t workspace_bytes() const override {
    return has(LinearDefect::stale_workspace) || has(LinearDefect::beside_workspace) ? 16 : 0;
  }

 private:
  bool has(LinearDefect which) const { return defect_ == which; }

  void pack_into(const GptqWeights& weights, std::byte* packed) const override {
    GptqWeights w = weights;
    if (has(LinearDefect::nibbles_reversed)) {
      for (std::uint32_t& word : w.qweight) {
        std::uint32_t reversed = 0;
        for (int i = 0; i < 8; ++i)
          reversed |= (word >> (4 * i) & 15U) << (28 - 4 * i);
        word = reversed;
      }
    }
    if (has(LinearDefect::g_idx_ignored)) {
      for (std::size_t i = 0; i < w.g_idx.size(); ++i)
        w.g_idx[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) / w.group_rows());
    }
    if (has(LinearDefect::scale_of_column_8)) {
      for (std::int64_t i = 0; i + 8 < w.n; ++i)
        w.scales[static_cast<std::size_t>(i)] = w.scales[static_cast<std::size_t>(i + 8)];
    }
    if (has(LinearDefect::packing_of_one_plan)) {
      if (problem().m > 1) std::reverse(w.qweight.begin(), w.qweight.end());
    }
    if (has(LinearDefect::signs_ignored)) std::fill(w.signs.begin(), w.signs.end(), 0U);
    if (has(LinearDefect::dense_off_by_one) && !w.dense.empty())
      std::rotate(w.dense.begin(), w.dense.begin() + bytes_of(problem().dtype), w.dense.end());
    write_gptq(GptqLayout(problem()), w, packed);
    RotationLayout(problem(), GptqLayout(problem()).bytes).write(w, packed);
  }

  void enqueue(const LinearOperands& operands, Stream) const override {
    const LinearProblem& p = problem();
    if (has(LinearDefect::beside_workspace)) static_cast<std::byte*>(operands.workspace)[16] = std::byte{1};
    std::vector<std::byte> packed;
    if (has(LinearDefect::packing_of_one_plan) && p.m > 1) {
      const auto* from = static_cast<const std::byte*>(operands.weights);
      packed.assign(from, from + packed_bytes());
      auto* words = reinterpret_cast<std::uint32_t*>(packed.data());
      std::reverse(words, words + p.k / 8 * p.n);
    }
    const GptqView view(p, packed.empty() ? operands.weights : packed.data());
    std::vector<std::byte> x(static_cast<std::size_t>(p.m * p.k * 2));
    std::memcpy(x.data(), operands.x, x.size());
    const RotationLayout rotation(p, GptqLayout(p).bytes);
    const fwht::Operands data = rotation.operands(p.rotation, nullptr, nullptr, operands.weights);
    reference::Matrix tokens = reference::rotated_tokens(p, x.data(), data.signs, data.dense);
    if (has(LinearDefect::one_rotation_too_many)) {
      if (p.rotates()) tokens *= 0.5;
    }
    for (std::int64_t r = 0; r < p.m; ++r) {
      for (std::int64_t c = 0; c < p.n; ++c) {
        double sum = 0.0;
        const std::int64_t k_end = has(LinearDefect::last_block_dropped) ? p.k - 32 : p.k;
        for (std::int64_t i = 0; i < k_end; ++i) {
          std::int64_t g = view.g_idx != nullptr ? view.g_idx[i] : i / p.group_rows();
          if (has(LinearDefect::group_off_by_one) && i % p.group_rows() == p.group_rows() - 1)
            g = std::min(g + 1, p.groups() - 1);
          int zero = 8;
          if (view.qzeros != nullptr) {
            zero = static_cast<int>(view.qzeros[g * (p.n / 8) + c / 8] >> (4 * (c % 8)) & 15U);
            zero += has(LinearDefect::zero_without_one) ? 0 : view.lowest_zero;
          }
          const int q = static_cast<int>(view.qweight[i / 8 * p.n + c] >> (4 * (i % 8)) & 15U);
          const double scale = decode(Dtype::f16, view.scales[g * p.n + c]);
          std::int64_t from = i;
          if (has(LinearDefect::order_applied_twice) && view.g_idx != nullptr) from = (i + 1) % p.k;
          double x_value = tokens(r, from);
          if (has(LinearDefect::row_behind_the_last) && r == p.m - 1)
            x_value += 0.0 * load_element(p.dtype, operands.x, p.m * p.k + i);
          if (has(LinearDefect::tokens_mixed)) x_value += 0.0 * tokens(p.m - 1, from);
          sum += scale * (q - zero) * x_value;
          if (has(LinearDefect::fp16_accumulator)) sum = round_to(p.dtype, sum);
        }
        if (has(LinearDefect::stale_workspace)) sum += load_element(p.dtype, operands.workspace, 0);
        if (has(LinearDefect::stale_output)) sum += load_element(p.dtype, operands.y, r * p.n + c);
        store_element(p.dtype, operands.y, r * p.n + c, sum);
      }
    }
  }

  LinearDefect defect_;
};

Support supports(const LinearProblem& problem, const DeviceInfo&) {
  if (problem.n * problem.k > (std::int64_t{1} << 17) || problem.m > 9)
    return {"too large for a broken variant"};
  return {};
}

template <LinearDefect defect>
constexpr BrokenOf<LinearLayers> broken(std::string_view name, std::string_view caught_by) {
  return {{name, "right but for one defect", Memory::host, supports,
           [](const LinearProblem& problem, const DeviceInfo&) -> std::unique_ptr<LinearPlan> {
             return std::make_unique<BrokenLinearPlan>(problem, defect);
           }},
          caught_by};
}

}  // namespace

std::span<const BrokenOf<LinearLayers>> broken_linear_variants() {
  using enum LinearDefect;
  static constexpr BrokenOf<LinearLayers> kBroken[] = {
      broken<none>("sound", ""),
      broken<nibbles_reversed>("nibbles_reversed", "OneHot Integers NormalData"),
      broken<zero_without_one>("zero_without_one", "OneHot Integers ExtremeZeroPoints"),
      broken<group_off_by_one>("group_off_by_one", "OneHot Integers"),
      broken<scale_of_column_8>("scale_of_column_8", "OneHot Integers"),
      broken<last_block_dropped>("last_block_dropped", "OneHot Integers ExtremeZeroPoints"),
      broken<row_behind_the_last>("row_behind_the_last", "OneHot NormalData"),
      broken<stale_output>("stale_output", "StaleOutputs OneHot"),
      broken<fp16_accumulator>("fp16_accumulator", "NormalData"),
      broken<g_idx_ignored>("g_idx_ignored", "ActOrder OneHot"),
      broken<order_applied_twice>("order_applied_twice", "ActOrder OneHot"),
      broken<one_rotation_too_many>("one_rotation_too_many", "Rotation NormalData"),
      broken<tokens_mixed>("tokens_mixed", "TokensApart"),
      broken<packing_of_one_plan>("packing_of_one_plan", "Packing"),
      broken<stale_workspace>("stale_workspace", "StaleOutputs OneHot"),
      broken<beside_workspace>("beside_workspace", "OneHot NormalData"),
      broken<signs_ignored>("signs_ignored", "Rotation NormalData"),
      broken<dense_off_by_one>("dense_off_by_one", "NormalData")};
  return kBroken;
}

}  // namespace fwht::conformance
