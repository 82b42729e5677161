// wgmma: long rows at the speed of a copy on Hopper, with one rounding.
//
// What this rung changes: the raw 16-bit row is brought in by bulk copies and read by the tensor core where
// it lies. The linear row is already the canonical MN-major operand of wgmma, so the first 6 (n <= 16384) or
// 7 (32768, 65536) index bits cost no load, no shuffle and no conversion. They are exact: products of
// +-1 with 16-bit data in fp32 accumulators. The remaining bits are finished in registers: fp32 additions for
// the column tiles. And one mma.sync stage over b0-b2 and b6 that carries fp32 as a bf16 hi + lo pair (16
// bits of each intermediate, far below the one rounding at the end). Nothing is exchanged between warps. What
// limits it: out of the L2 memory; inside, that all stores come after the loads, and the latencies of the
// finish, which few warps hide.
//
// Bit card, n = 2^L, N columns, j = log2(N / 8). A row has 2^p parts, each of one warpgroup and 64 rows of D:
//
//   form                     L = 12     13         14          15                 16
//   one_shot, ring: N (p)    64 (0)     128 (0)    256 (0)     256 (1)
//   over a cluster: N (p)                          64 (2)      64 .. 256 (3 .. 1) 128, 256 (3, 2)
//   pair: N (p)                                                                   256 (2)
//   passes: N, order                                                              128 in two slices, 128
//
//   load      bulk copy of the row, linear
//   stage 1   k of wgmma   b3-b5 core rows | b(6+j) leading stride | b(7+j)..b(L-1) k steps
//             D, exact     b0 register | b1-b2 lane 0-1 | b3-b5 lane 2-4 | b6..b(5+j) column tile (register)
//                          b(6+j) register | two bits warp | top p bits part
//   stage 2   b7..b(5+j)       FADD between registers (joined: b6 too)
//   stage 3   b0, b1, b2, b6   mma.sync m16n8k16 on bf16 hi + lo: every element keeps its lane and register
//             (joined: b0-b2)
//   store     one_shot: STG.32, a warp writes 128 contiguous bytes; ring: stmatrix into the warp's own
//             staging, then bulk stores: a warp's 16 rows of D are one contiguous piece of the row
//
// Each form is a file, wgmma_FORM_kernel.cuh; pair and passes are for n = 65536 with more than a few rows.
// Passes is the one form where warps exchange something. wgmma_stages.cuh has the arithmetic that they
// share, wgmma_pipeline.cuh how rows come and go.
//
// Inf and NaN: the hi + lo split would turn an Inf into NaN. After stage 2 every register of the first tile
// pair depends on all columns of its lane group, so eight tests a thread and one vote tell whether anything
// is not finite. Then the warp takes stage 3 by fp32 butterflies and shuffles instead, with the semantics of
// plain sums.
//
// Programmatic dependent launch: every kernel waits for the one before it where it issues its first load, and
// everything else follows that load, so barriers and constants are ready by then. Launches of a few blocks
// also let the next kernel begin when their loads are asked for, so that only one launch waits at a time.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "common/device/launcher.hpp"
#include "common/device/plan_scratch.cuh"
#include "variants/wgmma/wgmma_kernels.hpp"

namespace fwht::wgmma {
namespace {

/// Only rows of an even log2 n have an orthonormal scale that is a power of two. The bounds keep sums that
/// are finite or subnormal without the scale as they are with it.
Scaling scaling_for(double scale, int log_n) {
  int exponent = 0;
  const bool power_of_two = std::frexp(scale, &exponent) == 0.5 && exponent > -24 && exponent <= 1;
  return power_of_two && log_n % 2 == 0 ? Scaling::constants : Scaling::results;
}

Kernel kernel_of(const KernelId& id) {
  const Form form = id.launch.form;
  const Kernel found = (form == Form::one_shot ? one_shot_kernels()
                        : form == Form::ring   ? ring_kernels()
                        : form == Form::pair   ? pair_kernels()
                                               : passes_kernels())
                           .find(id);
  if (found == nullptr) throw std::logic_error("wgmma: no kernel is compiled for a launch");
  return found;
}

class WgmmaPlan final : public Plan {
 public:
  WgmmaPlan(const Problem& problem, const DeviceInfo& device)
      : Plan(problem), launch_(choose_launch(problem, device)), eager_(is_eager(launch_, problem, device)) {
    kernel_ = kernel_of({problem.dtype(), launch_, scaling_for(problem.scale, launch_.log_n)});
    const int shared = shared_bytes(launch_);
    allow_shared(kernel_, shared);
    registers_ = registers_of(kernel_);
    blocks_per_sm_ = resident_blocks(kernel_, launch_.threads(), shared);
    const std::int64_t resident =
        std::max(std::int64_t{blocks_per_sm_} * device.sm_count / launch_.cluster(), std::int64_t{1});
    blocks_ = launch_.cluster() *
              (launch_.form == Form::one_shot ? problem.rows : std::min(problem.rows, resident));
    if (launch_.dynamic) counter_ = PlanScratch::of_zeros(sizeof(unsigned));
  }

  std::size_t alignment() const override { return 16; }

  bool one_stream_at_a_time() const override { return counter_.is_owned(); }
  std::int64_t scratch_bytes() const override { return counter_.bytes(); }

  Numerics numerics() const override {
    Numerics numerics = single_rounding(Sums::split_bf16, problem());
    // k steps of 16 are chained with truncation, in an order that a shift permutes.
    numerics.promises.xor_shift_exact = false;
    // At 8192 launches differ in what they sum before the split, above in the chains that sum a row, which
    // are the longer, the larger the cluster.
    numerics.promises.batch_invariant = launch_.log_n < 13;
    return numerics;
  }

  Settings settings() const override {
    const Tile tile = launch_.tile();
    const char* form = launch_.form == Form::one_shot ? "one_shot"
                       : launch_.form == Form::pair   ? "pair"
                       : launch_.form == Form::passes ? (launch_.dynamic ? "passes_dynamic" : "passes")
                       : launch_.dynamic              ? "ring_dynamic"
                                                      : "ring";
    return {{"form", std::string(form)},
            {"exact_order", std::int64_t{tile.order()}},
            {"columns", std::int64_t{launch_.form == Form::passes ? kSliceColumns : tile.columns()}},
            {"cluster", std::int64_t{launch_.cluster()}},
            {"blocks", blocks_},
            {"launch", std::string(problem().programmatic_launch ? "programmatic" : "ordinary")},
            {"threads", std::int64_t{launch_.threads()}},
            {"blocks_per_sm", std::int64_t{blocks_per_sm_}},
            {"teams", std::int64_t{launch_.teams}},
            {"slots", std::int64_t{launch_.slots}},
            {"load_pieces", std::int64_t{launch_.load_pieces}},
            {"store_pieces", std::int64_t{launch_.store_pieces}},
            {"registers", std::int64_t{registers_}},
            {"shared_bytes", std::int64_t{shared_bytes(launch_)}}};
  }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    const Problem& p = problem();
    const RowBatch batch{static_cast<const std::byte*>(operands.in),
                         static_cast<std::byte*>(operands.out),
                         static_cast<int>(p.rows),
                         2 * p.in.row_stride,
                         2 * p.out.row_stride,
                         static_cast<float>(p.scale),
                         eager_};
    unsigned* counter = counter_.bytes() > 0 ? counter_.of<unsigned>(operands) : nullptr;
    const bool clears = counter != nullptr && operands.scratch != nullptr;  // a launch leaves its own at zero
    if (clears) FWHT_CUDA(cudaMemsetAsync(counter, 0, sizeof *counter, stream));
    const LaunchGrid grid{.blocks = blocks_,
                          .threads = launch_.threads(),
                          .shared = shared_bytes(launch_),
                          .cluster = launch_.cluster(),
                          .programmatic = p.programmatic_launch && !clears};
    const void* arguments[] = {&batch, &counter};  // a kernel without a counter takes the front
    launch_at(kernel_, grid, stream, const_cast<void**>(arguments));
  }

  Launch launch_;
  bool eager_;
  Kernel kernel_ = nullptr;
  int registers_ = 0, blocks_per_sm_ = 0;
  std::int64_t blocks_ = 0;
  PlanScratch counter_;  // rows handed out so far
};

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  return std::make_unique<WgmmaPlan>(problem, device);
}

}  // namespace fwht::wgmma
