// skeleton: the smallest correct variant, to copy. Not registered.
//
// Idea: every row as fp32 butterflies in a scratch row, bit by bit, scaled and rounded once. A variant of
// your own says here what it does differently and what that should cost.
//
// Bit card: every index bit is a stride of the scratch row, in ascending order.
#include "variants/skeleton/skeleton.hpp"

#include <cstdint>
#include <memory>
#include <vector>

#include "common/contract/dtype.hpp"

namespace fwht::skeleton {
namespace {

// A plan takes every decision when it is made and does nothing but the work in enqueue.
class SkeletonPlan final : public Plan {
 public:
  explicit SkeletonPlan(const Problem& problem) : Plan(problem) {}

  // What the conformance suite and every experiment judge results by: say what the code does.
  Numerics numerics() const override { return single_rounding(Sums::fp32, problem()); }

  // Columns of the results: what was decided.
  Settings settings() const override { return {{"threads", std::int64_t{1}}}; }

 private:
  // rows >= 1, and the pointers are checked.
  void enqueue(const Operands& operands, Stream) const override {
    const std::int64_t n = problem().n();
    const Dtype dtype = problem().dtype();
    std::vector<float> row(static_cast<std::size_t>(n));
    for (std::int64_t r = 0; r < problem().rows; ++r) {
      const std::int64_t first = r * problem().row_stride();
      for (std::int64_t i = 0; i < n; ++i)
        row[static_cast<std::size_t>(i)] = static_cast<float>(load_element(dtype, operands.in, first + i));
      transform(row);
      for (std::int64_t i = 0; i < n; ++i) {
        const float scaled = row[static_cast<std::size_t>(i)] * static_cast<float>(problem().scale);
        store_element(dtype, operands.out, first + i, scaled);
      }
    }
  }

  static void transform(std::vector<float>& row) {
    for (std::size_t half = 1; half < row.size(); half *= 2) {
      for (std::size_t i = 0; i < row.size(); ++i) {
        if ((i & half) != 0) continue;
        const float a = row[i], b = row[i + half];
        row[i] = a + b;
        row[i + half] = a - b;
      }
    }
  }
};

// Pure, and a sentence with value and limit for everything that the plan cannot do.
Support supports(const Problem& problem, const DeviceInfo&) {
  if (Support launch = require_ordinary_launch(problem); !launch) return launch;
  if (Support strides = require_one_row_stride(problem); !strides) return strides;
  return require_sylvester(problem, 2, 1 << 16);
}

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo&) {
  return std::make_unique<SkeletonPlan>(problem);
}

}  // namespace

const Variant variant{"skeleton", "fp32 butterflies in one scratch row, one thread", Memory::host, supports,
                      make_plan};

}  // namespace fwht::skeleton
