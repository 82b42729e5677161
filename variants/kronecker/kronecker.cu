// kronecker: rows of n = m 2^k elements on Hopper, in one kernel, with one rounding.
//
// A row is read as a matrix X of D x N, D = m 2^j and N = 2^i. Then y = scale * H_D X S_N, where H_D = H_m
// (x) S_(2^j). With a second matrix of signs, S_N is S_P (x) H_E. Short rows share a tile, side by side.
//
// What this rung changes: H_m is any matrix, so its fragments come from a table of sign bits, or of a dense
// factor, instead of from lane numbers. Rows come and go by tensor copies: a box is 16 rows of X, one k
// step of stage 1 and what one warp stores. Rows of X beyond D are outside the tensor: zero when they are
// loaded, not written when they are stored, so D need not be a multiple of 16.
//
// Bit card, columns b0 .. b(i-1), rows d of X, row r of the tile:
//   load      tensor copies: a line is 16, 32 or 64 columns of one d, swizzled by as many bytes
//   stage 1   k of wgmma: d (exact: +-1 times 16-bit data in fp32)
//             D: b0 register | b1-b2 lane 0-1 | b3 .., r column tile (register) | d: lane 2-4, register,
//             warp, warpgroup, pass or part
//   stage 2   b3 ..       FADD between registers
//             b0-b2       mma.sync m16n8k16, every number as bf16 hi + lo side by side in k; H_E likewise,
//                         in a ring by wgmma
//   store     stmatrix into the warp's staging, one tensor copy of its 16 rows of D
//
// What limits it: memory to 0.98 of a copy; the first load and the last store of a launch, which nothing
// hides, are what long rows lose. An Inf makes its row NaN, because the head of Inf less itself is NaN.
#include "variants/kronecker/kronecker.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "common/device/cuda_check.hpp"
#include "common/device/device_array.cuh"
#include "common/device/launcher.hpp"
#include "common/device/plan_scratch.cuh"
#include "common/device/tensor_map.hpp"
#include "common/host/static_dispatch.hpp"
#include "variants/kit/dense_fragments.hpp"
#include "variants/kit/launch_regime.hpp"
#include "variants/kronecker/kronecker_encoded.hpp"
#include "variants/kronecker/kronecker_kernel.cuh"
#include "variants/kronecker/kronecker_kernels.hpp"

namespace fwht::kronecker {
namespace {

/// Rows as matrices: the columns of a line, rows of the matrix, lines side by side, rows of the problem. A
/// box has `box_rows` rows of the matrix.
Tensor<4> matrices(const Array& array, std::int64_t rows, const Shape& shape, int order, int box_rows) {
  const auto columns = static_cast<cuuint64_t>(shape.columns), line = static_cast<cuuint64_t>(shape.line());
  return {{line, static_cast<cuuint64_t>(order), columns / line, static_cast<cuuint64_t>(rows)},
          {columns * 2, line * 2, static_cast<cuuint64_t>(array.row_stride) * 2},
          {static_cast<cuuint32_t>(line), static_cast<cuuint32_t>(box_rows),
           static_cast<cuuint32_t>(columns / line), static_cast<cuuint32_t>(shape.rows)},
          line == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
          : line == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                       : CU_TENSOR_MAP_SWIZZLE_32B};
}

class KroneckerPlan final : public Plan {
 public:
  KroneckerPlan(const Problem& problem, const DeviceInfo& device, const Choice& choice, Kernel kernel)
      : Plan(problem),
        choice_(choice),
        launch_(choice.launch),
        kernel_(kernel),
        fragment_words_(is_dense() ? 512 * launch_.shape.warpgroups() * launch_.shape.k_steps() : 0),
        signs_(kept_table(is_dense() ? std::vector<std::uint32_t>(4)
                                     : sign_table(launch_.shape, choice_.order, choice_.slow))),
        second_(kept_table(second_table(launch_, choice_.second))),
        tiles_((problem.rows + launch_.shape.rows - 1) / launch_.shape.rows) {
    allow_shared(kernel_, shared_bytes());
    registers_ = registers_of(kernel_);
    blocks_per_sm_ = resident_blocks(kernel_, launch_.threads(), shared_bytes());
    const std::int64_t resident = std::max<std::int64_t>(std::int64_t{blocks_per_sm_} * device.sm_count, 1);
    const std::int64_t at_once = launch_.places > 0 ? 1 : launch_.teams;  // tiles that a block begins with
    if (by_counter() || is_dense()) scratch_ = PlanScratch::of_zeros((std::int64_t{fragment_words_} + 1) * 4);
    blocks_ =
        launch_.spread ? tiles_ * choice_.cluster() : std::min((tiles_ + at_once - 1) / at_once, resident);
  }

  std::size_t alignment() const override { return 16; }
  bool one_stream_at_a_time() const override { return scratch_.is_owned(); }  // the counter, the fragments
  std::int64_t scratch_bytes() const override { return scratch_.bytes(); }

  Numerics numerics() const override { return numerics_of(problem()); }

  Settings settings() const override {
    return {{"order", std::int64_t{choice_.order}},
            {"columns", std::int64_t{launch_.shape.columns}},
            {"rows_per_tile", std::int64_t{launch_.shape.rows}},
            {"parts", std::int64_t{launch_.parts()}},
            {"blocks", blocks_},
            {"threads", std::int64_t{launch_.threads()}},
            {"blocks_per_sm", std::int64_t{blocks_per_sm_}},
            {"cluster", std::int64_t{choice_.cluster()}},
            {"teams", std::int64_t{launch_.teams}},
            {"slots", std::int64_t{launch_.slots}},
            {"places", std::int64_t{launch_.places}},
            {"tiles", std::string(by_counter() ? "counter" : "stride")},
            {"registers", std::int64_t{registers_}},
            {"shared_bytes", std::int64_t{shared_bytes()}}};
  }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    const Problem& p = problem();
    const Shape& shape = launch_.shape;
    const int order = choice_.order, box_rows = launch_.spread ? 16 * launch_.piece_steps() : 16;
    const CUtensorMap in =
        tensor_map(operands.in, tensor_element(p.dtype()), matrices(p.in, p.rows, shape, order, box_rows));
    Maps maps{in, is_encoded() ? in  // codes take another way out
                               : tensor_map(operands.out, tensor_element(p.dtype()),
                                            matrices(p.out, p.rows, shape, order, 16))};
    auto* const fragments = scratch_.bytes() > 0 ? scratch_.of<std::uint32_t>(operands) : nullptr;
    std::uint32_t* const counter = fragments + fragment_words_;  // a launch leaves its own at zero
    const bool clears = by_counter() && operands.scratch != nullptr;
    if (clears) FWHT_CUDA(cudaMemsetAsync(counter, 0, sizeof *counter, stream));
    if (is_dense()) expand(operands.dense, fragments, stream);
    const auto* const signs = static_cast<const std::uint8_t*>(operands.signs);
    // A kernel that writes no codes takes the front.
    EncodedWork work{{signs_,
                      is_dense() ? fragments : nullptr,
                      second_,
                      p.op.signs_come_last() ? nullptr : signs,
                      p.op.signs_come_last() ? signs : nullptr,
                      by_counter() ? counter : nullptr,
                      static_cast<int>(tiles_),
                      choice_.order,
                      static_cast<float>(p.scale),
                      {static_cast<std::byte*>(operands.out), 2 * p.out.row_stride},
                      sends_at_once()},
                     {},
                     static_cast<int>(p.rows)};
    if (is_encoded()) work.out = encoder::output_of(p, operands, encoder::group_in_row(p.encoding, p.n()));
    void* arguments[] = {&maps, &work};
    launch_at(kernel_,
              {.blocks = blocks_,
               .threads = launch_.threads(),
               .shared = shared_bytes(),
               .cluster = choice_.cluster(),
               .programmatic = p.programmatic_launch && !clears},
              stream, arguments);
  }

  bool is_encoded() const { return !problem().encoding.is_plain(); }
  int shared_bytes() const { return launch_.shared_bytes() + (is_encoded() ? launch_.maxima_bytes() : 0); }
  /// Inside the L2 tiles come faster than one counter counts.
  bool by_counter() const {
    return launch_.places > 0 ||
           regime_of(problem().elements() * bytes_of(problem().dtype())) == Regime::dram;
  }
  /// So few tiles a team that nothing hides the last store. The bound lies between sizes that were measured:
  /// 16 | 32 MiB.
  bool sends_at_once() const {
    return !by_counter() && problem().elements() * bytes_of(problem().dtype()) <= std::int64_t{24} << 20;
  }
  bool is_dense() const { return choice_.slow.basis == Basis::dense; }
  void expand(const void* dense, std::uint32_t* fragments, Stream stream) const {
    rows::expand_dense({static_cast<const std::uint16_t*>(dense), static_cast<int>(choice_.slow.order),
                        choice_.order, choice_.slow.transposed},
                       launch_.shape.k_steps(), fragment_words_, fragments, stream);
  }

  Choice choice_;
  Launch launch_;
  Kernel kernel_;
  int fragment_words_;
  const std::uint32_t *signs_, *second_;  ///< tables
  PlanScratch scratch_;                   ///< fragments of a dense factor, and the tile counter, zero
  std::int64_t tiles_;
  int registers_ = 0, blocks_per_sm_ = 0;
  std::int64_t blocks_ = 0;
};

template <Dtype dtype>
const Kernels& kernels_for(const Encoding& encoding, const Launch& launch) {
  if (encoding.is_plain())
    return launch.spread       ? few_rows_kernels<dtype>()
           : launch.places > 0 ? ring_kernels<dtype>()
                               : kernels<dtype>();
  return dispatch_format(encoding.format, [&](auto format) -> const Kernels& {
    return encoded_kernels<dtype, format()>(encoding.scales.kind != ScaleGranularity::Kind::group);
  });
}

Kernel kernel_for(const Problem& problem, const Launch& launch) {
  const Kernels& kernels = dispatch_16_bit(problem.dtype(), [&](auto dtype) -> const Kernels& {
    return kernels_for<dtype()>(problem.encoding, launch);
  });
  const Kernel found = kernels.find(whole_steps(launch));
  if (found == nullptr) throw std::logic_error("kronecker: no kernel is compiled for a launch");
  return found;
}

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  // Codes are those of the rows that a plain plan writes: rows are cut alike.
  const std::optional<Choice> few = few_rows_choice_for(problem.op, problem.rows, device.sm_count);
  Choice choice = few ? *few : *choice_for(problem.op);
  if (!problem.encoding.is_plain()) choice.launch = codes_launch(choice.launch);
  return std::make_unique<KroneckerPlan>(problem, device, choice, kernel_for(problem, choice.launch));
}

}  // namespace fwht::kronecker
