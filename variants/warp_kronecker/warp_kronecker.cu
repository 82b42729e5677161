// warp_kronecker: the plan. warp_kronecker_kernel.cuh has the idea and the bit card.
#include "variants/warp_kronecker/warp_kronecker.hpp"

#include <cstdint>
#include <memory>

#include "common/device/device_array.cuh"
#include "common/device/launcher.hpp"
#include "common/host/bits.hpp"
#include "common/host/static_dispatch.hpp"
#include "variants/warp_kronecker/warp_kronecker_kernel.cuh"

namespace fwht::warp_kronecker {
namespace {

class WarpKroneckerPlan final : public Plan {
 public:
  WarpKroneckerPlan(const Problem& problem, const WarpCut& cut, const WarpLaunch& launch, Kernel kernel)
      : Plan(problem),
        cut_(cut),
        launch_(launch),
        kernel_(kernel),
        matrix_(kept_table(rows::sign_table(cut.shape, cut.shape.order, cut.slow))) {
    if (launch.hands_out()) allow_shared(kernel_, shared_bytes());
  }

  std::size_t alignment() const override { return 16; }
  Numerics numerics() const override {
    Numerics numerics = rows::matrix_rows_numerics(problem(), launch_.rows_per_warp() == 1);
    numerics.promises.batch_invariant = has_one_cut(problem().op);
    return numerics;
  }

  Settings settings() const override {
    return {{"order", std::int64_t{cut_.shape.order}},
            {"columns", std::int64_t{cut_.shape.columns}},
            {"warps_per_row", std::int64_t{launch_.warps_per_row()}},
            {"rows_per_block", std::int64_t{launch_.rows_per_block()}},
            {"blocks", blocks()},
            {"threads", std::int64_t{launch_.threads()}},
            {"registers", std::int64_t{registers_of(kernel_)}},
            {"shared_bytes", std::int64_t{shared_bytes()}}};
  }

 private:
  int shared_bytes() const { return 4 * launch_.exchange_words(); }
  std::int64_t blocks() const { return ceil_div(problem().rows, std::int64_t{launch_.rows_per_block()}); }

  void enqueue(const Operands& operands, Stream stream) const override {
    const Problem& p = problem();
    const auto* const signs = static_cast<const std::uint8_t*>(operands.signs);
    WarpWork work{static_cast<const std::byte*>(operands.in),
                  static_cast<std::byte*>(operands.out),
                  2 * p.in.row_stride,
                  2 * p.out.row_stride,
                  matrix_,
                  p.op.signs_come_last() ? nullptr : signs,
                  p.op.signs_come_last() ? signs : nullptr,
                  static_cast<int>(p.rows),
                  cut_.shape.order,
                  static_cast<float>(p.scale)};
    void* arguments[] = {&work};
    launch_at(kernel_,
              {.blocks = blocks(),
               .threads = launch_.threads(),
               .shared = launch_.hands_out() ? shared_bytes() : 0,
               .programmatic = p.programmatic_launch},
              stream, arguments);
  }

  WarpCut cut_;
  WarpLaunch launch_;
  Kernel kernel_;
  const std::uint32_t* matrix_;
};

template <Dtype dtype, bool with_signs>
Kernel kernel_for(const WarpLaunch& launch) {
  return dispatch_int<0, kObjectParts - 1>(
      part_of_object(launch), [&](auto part) { return kernels<dtype, with_signs, part()>().find(launch); });
}

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  const auto [launch, cut] = *choice_for(problem.op, problem.rows, device.sm_count);
  const Kernel kernel = dispatch_16_bit(problem.dtype(), [&, &launch = launch](auto dtype) {
    return problem.op.has_signs() ? kernel_for<dtype(), true>(launch) : kernel_for<dtype(), false>(launch);
  });
  return std::make_unique<WarpKroneckerPlan>(problem, cut, launch, kernel);
}

}  // namespace fwht::warp_kronecker
