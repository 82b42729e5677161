// mma_kronecker: the plan. mma_kronecker_kernel.cuh has the idea and the bit card.
#include "variants/mma_kronecker/mma_kronecker.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/device/cuda_check.hpp"
#include "common/device/device_array.cuh"
#include "common/device/launcher.hpp"
#include "common/host/static_dispatch.hpp"
#include "variants/mma_kronecker/mma_kronecker_kernel.cuh"

namespace fwht::mma_kronecker {
namespace {

class MmaKroneckerPlan final : public Plan {
 public:
  MmaKroneckerPlan(const Problem& problem, const DeviceInfo& device, const Cut& cut, Kernel kernel)
      : Plan(problem),
        cut_(cut),
        kernel_(kernel),
        signs_(kept_table(rows::sign_table(cut.shape, cut.shape.order, cut.slow))),
        tiles_((problem.rows + cut.shape.rows - 1) / cut.shape.rows) {
    // All plans share the kernel, so that each allows what any may need.
    allow_shared(kernel, static_cast<int>(device.shared_bytes_per_block));
    const auto resident = [&](int warps, int bytes) {
      return bytes > device.shared_bytes_per_block ? 0 : resident_blocks(kernel, 32 * warps, bytes);
    };
    team_ = team_for(cut, resident, tiles_, device.sm_count);
    blocks_ =
        std::min(tiles_, std::max<std::int64_t>(std::int64_t{team_.blocks_per_sm} * device.sm_count, 1));
  }

  std::size_t alignment() const override { return 16; }
  Numerics numerics() const override { return rows::matrix_rows_numerics(problem()); }

  Settings settings() const override {
    return {{"order", std::int64_t{cut_.shape.order}},
            {"columns", std::int64_t{cut_.shape.columns}},
            {"rows_per_tile", std::int64_t{cut_.shape.rows}},
            {"passes", std::int64_t{cut_.passes(team_.warps)}},
            {"blocks", blocks_},
            {"threads", std::int64_t{32 * team_.warps}},
            {"blocks_per_sm", std::int64_t{team_.blocks_per_sm}},
            {"slots", std::int64_t{team_.slots}},
            {"registers", std::int64_t{registers_of(kernel_)}},
            {"shared_bytes", std::int64_t{shared_bytes()}}};
  }

 private:
  int shared_bytes() const { return cut_.shared_bytes(team_.warps, team_.slots); }

  void enqueue(const Operands& operands, Stream stream) const override {
    const Problem& p = problem();
    const auto* const signs = static_cast<const std::uint8_t*>(operands.signs);
    Work work{static_cast<const std::byte*>(operands.in),
              static_cast<std::byte*>(operands.out),
              2 * p.in.row_stride,
              2 * p.out.row_stride,
              signs_,
              p.op.signs_come_last() ? nullptr : signs,
              p.op.signs_come_last() ? signs : nullptr,
              static_cast<int>(p.rows),
              static_cast<int>(tiles_),
              cut_.shape.order,
              cut_.passes(team_.warps),
              team_.slots,
              static_cast<float>(p.scale)};
    void* arguments[] = {&work};
    launch_at(kernel_,
              {.blocks = blocks_,
               .threads = 32 * team_.warps,
               .shared = shared_bytes(),
               .programmatic = p.programmatic_launch},
              stream, arguments);
  }

  Cut cut_;
  Kernel kernel_;
  const std::uint32_t* signs_;  ///< a table
  std::int64_t tiles_;
  Team team_;
  std::int64_t blocks_ = 0;
};

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  const Cut cut = *cut_for(problem.op);
  const Kernel kernel = dispatch_16_bit(
      problem.dtype(), [&](auto dtype) { return kernels<dtype()>().find(cut.shape.columns); });
  if (kernel == nullptr) throw std::logic_error("mma_kronecker: no kernel is compiled for these columns");
  return std::make_unique<MmaKroneckerPlan>(problem, device, cut, kernel);
}

}  // namespace fwht::mma_kronecker
