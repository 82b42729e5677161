// mma_kronecker: the plan. mma_kronecker_kernel.cuh has the idea and the bit card.
#include "variants/mma_kronecker/mma_kronecker.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/device/cuda_check.hpp"
#include "common/device/device_array.cuh"
#include "common/device/launcher.hpp"
#include "common/device/plan_scratch.cuh"
#include "common/host/static_dispatch.hpp"
#include "variants/mma_kronecker/mma_kronecker_encoded.hpp"

namespace fwht::mma_kronecker {
namespace {

class MmaKroneckerPlan final : public Plan {
 public:
  MmaKroneckerPlan(const Problem& problem, const DeviceInfo& device, const Cut& cut, Kernel kernel)
      : Plan(problem),
        cut_(cut),
        kernel_(kernel),
        signs_(cut.is_dense() ? nullptr : kept_table(rows::sign_table(cut.shape, cut.shape.order, cut.slow))),
        second_(kept_table(rows::second_table(cut.shape.second, cut.second))),
        tiles_(ceil_div(problem.rows, cut.shape.rows)) {
    // All plans share the kernel, so that each allows what any may need.
    allow_shared(kernel, static_cast<int>(device.shared_bytes_per_block));
    const auto resident = [&](int warps, int bytes) {
      return bytes > device.shared_bytes_per_block ? 0 : resident_blocks(kernel, 32 * warps, bytes);
    };
    if (cut.is_dense()) fragments_ = PlanScratch(4 * std::int64_t{cut.fragment_words()});
    team_ = team_for(cut, resident, tiles_, device.sm_count);
    blocks_ =
        std::min(tiles_, std::max<std::int64_t>(std::int64_t{team_.blocks_per_sm} * device.sm_count, 1));
  }

  std::size_t alignment() const override { return 16; }
  bool one_stream_at_a_time() const override { return fragments_.is_owned(); }
  std::int64_t scratch_bytes() const override { return fragments_.bytes(); }
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
    const std::uint32_t* matrix = signs_;
    if (cut_.is_dense()) {
      auto* const fragments = fragments_.of<std::uint32_t>(operands);
      rows::expand_dense({static_cast<const std::uint16_t*>(operands.dense),
                          static_cast<int>(cut_.slow.order), cut_.shape.order, cut_.slow.transposed},
                         cut_.shape.k_steps(), cut_.fragment_words(), fragments, stream);
      matrix = fragments;
    }
    // A kernel that writes no codes takes the front.
    EncodedWork work{
        {static_cast<const std::byte*>(operands.in), static_cast<std::byte*>(operands.out),
         2 * p.in.row_stride, 2 * p.out.row_stride, matrix, second_, p.op.signs_come_last() ? nullptr : signs,
         p.op.signs_come_last() ? signs : nullptr, static_cast<int>(p.rows), static_cast<int>(tiles_),
         cut_.shape.order, cut_.passes(team_.warps), team_.slots, static_cast<float>(p.scale)},
        {}};
    if (cut_.results != Results::rows)
      work.out = encoder::output_of(p, operands, encoder::group_in_row(p.encoding, p.n()));
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
  const std::uint32_t *signs_, *second_;  ///< tables; null where there is none
  PlanScratch fragments_;                 ///< of a dense factor
  std::int64_t tiles_;
  Team team_;
  std::int64_t blocks_ = 0;
};

template <Dtype dtype>
Kernel kernel_for_rows(const Cut& cut) {
  const int columns = cut.shape.columns;
  switch (cut.matrices()) {
    case Matrices::one:
      if (cut.is_narrow())
        return kernels_of_narrow_tiles<dtype>().find({columns, cut.shape.rows, cut.blocks_at_once});
      return kernels<dtype>().find(columns);
    case Matrices::two:
      return kernels_of_two_matrices<dtype>().find(columns);
    case Matrices::dense:
      return kernels_of_dense<dtype>().find(columns);
  }
  return nullptr;
}

/// In the part that has it.
template <Dtype dtype, CodeFormat format>
Kernel kernel_for_codes(const Cut& cut) {
  const int columns = cut.shape.columns;
  const bool whole_row = cut.results == Results::codes_of_rows;
  return [&]<int... part>(std::integer_sequence<int, part...>) {
    Kernel found = nullptr;
    ((kEncodedParts[part].whole_row == whole_row && kEncodedParts[part].matrices == cut.matrices() &&
              kEncodedParts[part].has(columns)
          ? static_cast<void>(found = encoded_kernels<dtype, format, part>().find(columns))
          : void()),
     ...);
    return found;
  }
  (std::make_integer_sequence<int, encoded_parts(format)>{});
}

Kernel kernel_for(const Problem& problem, const Cut& cut) {
  return dispatch_16_bit(problem.dtype(), [&](auto dtype) {
    if (cut.results == Results::rows) return kernel_for_rows<dtype()>(cut);
    return dispatch_format(problem.encoding.format,
                           [&](auto format) { return kernel_for_codes<dtype(), format()>(cut); });
  });
}

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  // Codes are those of the rows that a plain plan writes: rows are cut alike.
  Cut cut = *cut_for(problem.op);
  cut.results = results_of(problem.encoding);
  cut = tiling_for(cut, problem.rows, device.sm_count);
  const Kernel kernel = kernel_for(problem, cut);
  if (kernel == nullptr) throw std::logic_error("mma_kronecker: no kernel is compiled for these columns");
  return std::make_unique<MmaKroneckerPlan>(problem, device, cut, kernel);
}

}  // namespace fwht::mma_kronecker
