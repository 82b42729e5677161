// hadacore: the tensor-core transform of the HadaCore paper (arXiv 2412.08832, section 3).
//
// What this rung changes against `warp_shuffle`: four index bits at a time are transformed by one
// mma.sync.m16n8k16 with a constant matrix of +-1/4, on data that stay packed in 16 bit. That takes the
// butterflies out of the FP32 and shuffle pipes and halves the words that the exchange moves. By its accesses
// an element costs 2 words of the load-store pipe (load, exchange in and out, store: half a word each). 2.9
// to 4.0 are counted, and 7 to 17 issue slots, where 8 and 31.9 keep up with DRAM. The price is one rounding
// to 16 bit after each stage, and 181/256 for 1/sqrt(2) where log2 n is odd.
//
// As published: 16-point stages in registers, chunks of 256 elements, one exchange through shared memory
// where a row is wider than a warp, a block-diagonal matrix in the stage with fewer than 4 bits, fp16 sums
// for f16, in place.
//
// Done otherwise, with the same roundings:
//
// (a) The first two stages take the data as operand B, the second one on the result of the first as it comes.
// Reading a result as the next operand B transposes it for free, and twice is where it was. No movmatrix, no
// cp.async; loads and stores are plain 16-byte vectors.
//
// (b) The exchange swaps warp bits with lane and vector bits so that the next stage finds its bits on t0, t1
// and a register, free of bank conflicts. Nothing has to be put back: the store takes elements from where
// they are.
//
// (c) The pack, the half of a 32-bit register, must carry one bit of a full stage; byte permutations (PRMT)
// swap it with a vector bit. Shuffles are left at n = 8 and 16 (two of half the registers), 64 and 128 (one),
// 32768 (one of half), and where a warp has two chunks only at n = 4096 and 8192 (the published
// configurations).
//
// (d) Rows never meet in a product. From n = 16 on the bits that pad a stage are bits of the same row. Below,
// the data of the other rows are replaced by zeros, one product for each: four times the products at n = 2
// and 4, twice at n = 8. Rows past the last one are zeros that are neither loaded nor stored; no thread
// leaves early.
//
// What limits it: memory up to n = 4096. Above, a block loads a row, meets a barrier and stores it; all
// overlap comes from the few rows whose registers fit on a multiprocessor (two of 64 KiB at n = 32768).
//
// Bit card. b: bits of the column, r: bits of the row. mma A (B): stage with the data as operand A (B) that
// transforms the bits named; every line says where the bits are ahead of the step. Lanes are t0 t1 g0 g1 g2.
// make_program decides this; the host test compares it with these lines. They show sizes that between them
// have every kind of move, in the shapes of f16 data at DRAM size; the other shapes transform the same bits
// in the same stages and have other vector and warp bits.
//
// clang-format off
// n = 8
//   SHFL lane 0 <-> word 1    pack b0 | word b1 b2 | vector r5 | lane r0 r1 r2 r3 r4 | warp r6
//   mma A: b0 b1 b2           pack b0 | word b1 r0 | vector r5 | lane b2 r1 r2 r3 r4 | warp r6
//   SHFL lane 0 <-> word 1    pack b0 | word b1 r0 | vector r5 | lane b2 r1 r2 r3 r4 | warp r6
//   store                     pack b0 | word b1 b2 | vector r5 | lane r0 r1 r2 r3 r4 | warp r6
// n = 64
//   mma A: b0 b1 b3 b4        pack b0 | word b1 b2 | vector r2 | lane b3 b4 b5 r0 r1 | warp r3
//   SHFL lanes                pack b0 | word b1 b2 | vector r2 | lane b3 b4 b5 r0 r1 | warp r3
//   mma A: b2 b5              pack b0 | word b1 b2 | vector r2 | lane b5 b4 b3 r0 r1 | warp r3
//   store                     pack b0 | word b1 b2 | vector r2 | lane b5 b4 b3 r0 r1 | warp r3
// n = 4096
//   mma B: b0 b1 b3 b4        pack b0 | word b1 b2 | vector b8 b9 | lane b3 b4 b5 b6 b7 | warp b10 b11
//   mma B: b2 b5 b6 b7        pack b5 | word b1 b2 | vector b8 b9 | lane b6 b7 b0 b3 b4 | warp b10 b11
//   shared memory             pack b0 | word b1 b2 | vector b8 b9 | lane b3 b4 b5 b6 b7 | warp b10 b11
//   PRMT pack <-> vector 1    pack b0 | word b1 b2 | vector b8 b11 | lane b9 b10 b3 b4 b5 | warp b6 b7
//   mma A: b8 b9 b10 b11      pack b11 | word b1 b2 | vector b8 b0 | lane b9 b10 b3 b4 b5 | warp b6 b7
//   PRMT pack <-> vector 1    pack b11 | word b1 b2 | vector b8 b0 | lane b9 b10 b3 b4 b5 | warp b6 b7
//   store                     pack b0 | word b1 b2 | vector b8 b11 | lane b9 b10 b3 b4 b5 | warp b6 b7
// n = 32768
//   mma B: b0 b1 b3 b4        pack b0 | word b1 b2 | vector b8 b9 b10 | lane b3 b4 b5 b6 b7 | warp b11 b12 b13 b14
//   mma B: b2 b5 b6 b7        pack b5 | word b1 b2 | vector b8 b9 b10 | lane b6 b7 b0 b3 b4 | warp b11 b12 b13 b14
//   PRMT pack <-> vector 1    pack b0 | word b1 b2 | vector b8 b9 b10 | lane b3 b4 b5 b6 b7 | warp b11 b12 b13 b14
//   SHFL lane 0 <-> vector 2  pack b9 | word b1 b2 | vector b8 b0 b10 | lane b3 b4 b5 b6 b7 | warp b11 b12 b13 b14
//   mma A: b8 b9 b10          pack b9 | word b1 b2 | vector b8 b0 b3 | lane b10 b4 b5 b6 b7 | warp b11 b12 b13 b14
//   PRMT pack <-> vector 1    pack b9 | word b1 b2 | vector b8 b0 b3 | lane b10 b4 b5 b6 b7 | warp b11 b12 b13 b14
//   shared memory             pack b0 | word b1 b2 | vector b8 b9 b3 | lane b10 b4 b5 b6 b7 | warp b11 b12 b13 b14
//   PRMT pack <-> vector 1    pack b0 | word b1 b2 | vector b11 b14 b6 | lane b12 b13 b3 b4 b5 | warp b7 b8 b9 b10
//   mma A: b11 b12 b13 b14    pack b14 | word b1 b2 | vector b11 b0 b6 | lane b12 b13 b3 b4 b5 | warp b7 b8 b9 b10
//   PRMT pack <-> vector 1    pack b14 | word b1 b2 | vector b11 b0 b6 | lane b12 b13 b3 b4 b5 | warp b7 b8 b9 b10
//   store                     pack b0 | word b1 b2 | vector b11 b14 b6 | lane b12 b13 b3 b4 b5 | warp b7 b8 b9 b10
// clang-format on
#include <cstdint>

#include "common/device/cuda_check.hpp"
#include "common/device/launcher.hpp"
#include "common/host/static_dispatch.hpp"
#include "variants/hadacore/hadacore_kernel.cuh"

namespace fwht::hadacore {
namespace {

using KernelFunction = void (*)(RowBatch);

struct ConfiguredKernel {
  LaunchTable table;
  Config config;
  KernelFunction kernel;
};

template <LaunchTable table, Dtype dtype, bool whole_vectors, Regime regime = Regime::dram>
ConfiguredKernel choose_for(int log_n) {
  return dispatch_int<1, kLargestLogN>(log_n, [](auto l) {
    constexpr Config config = config_for(table, l(), whole_vectors ? dtype : Dtype::f16, regime);
    constexpr Shape shape = shape_of(l(), config);
    constexpr int kBlocks = whole_vectors ? config.blocks_per_sm : 1;  // the slow path may have all registers
    return ConfiguredKernel{
        table, config, transform_tile<l(), shape.log_chunks, shape.log_warps, kBlocks, dtype, whole_vectors>};
  });
}

template <Dtype dtype>
ConfiguredKernel choose_tuned(int log_n, Regime regime) {
  return dispatch_int<0, kRegimes - 1>(static_cast<int>(regime), [&](auto r) {
    return choose_for<LaunchTable::tuned, dtype, true, static_cast<Regime>(r())>(log_n);
  });
}

/// The kernels of a plan. Elements that travel one by one are the slow path: one configuration serves it.
template <Dtype dtype>
ConfiguredKernel choose(LaunchTable table, bool whole_vectors, int log_n, Regime regime) {
  if (!whole_vectors) return choose_for<LaunchTable::tuned, dtype, false>(log_n);
  if (table == LaunchTable::published) return choose_for<LaunchTable::published, dtype, true>(log_n);
  return choose_tuned<dtype>(log_n, regime);
}

ConfiguredKernel choose(Dtype dtype, LaunchTable table, bool whole_vectors, int log_n, Regime regime) {
  return dtype == Dtype::bf16 ? choose<Dtype::bf16>(table, whole_vectors, log_n, regime)
                              : choose<Dtype::f16>(table, whole_vectors, log_n, regime);
}

class HadacorePlan final : public Plan {
 public:
  HadacorePlan(const Problem& problem, const DeviceInfo& device, LaunchTable table)
      : Plan(problem),
        compute_capability_(device.compute_capability()),
        vectors_(
            choose(problem.dtype(), table, true, log2_floor(problem.n()), regime_of(2 * problem.elements()))),
        elements_(choose(problem.dtype(), table, false, log2_floor(problem.n()), Regime::dram)),
        scale_constant_(encode(problem.dtype(), scale_constant(problem))) {
    for (const ConfiguredKernel& choice : {vectors_, elements_})
      allow_shared(choice.kernel, shape_of(choice).shared_bytes());
  }

  Numerics numerics() const override { return numerics_of(problem(), vectors_.config, compute_capability_); }

  Settings settings() const override {
    const ConfiguredKernel& choice = chosen(true);
    const Shape shape = shape_of(choice);
    const dim3 grid = grid_for(shape, problem().rows);
    return {{"config", std::string(choice.table == LaunchTable::tuned ? "tuned" : "published")},
            {"sums", std::string(has_fp16_sums(problem().dtype()) ? "f16" : "f32")},
            {"access", std::string(rows_fit_vectors() ? "vectors of 16 bytes" : "elements")},
            {"stages", static_cast<std::int64_t>(numerics().steps.size())},
            {"chunks_per_warp", std::int64_t{choice.config.chunks_per_warp}},
            {"warps_per_block", std::int64_t{choice.config.warps_per_block}},
            {"blocks_per_sm", std::int64_t{choice.config.blocks_per_sm}},
            {"blocks", std::int64_t{grid.x} * grid.y},
            {"threads", std::int64_t{shape.threads()}},
            {"shared_bytes", std::int64_t{shape.shared_bytes()}},
            {"registers", std::int64_t{registers_of(choice.kernel)}}};
  }

 private:
  Shape shape_of(const ConfiguredKernel& choice) const {
    return hadacore::shape_of(log2_floor(problem().n()), choice.config);
  }

  /// Whether rows start at multiples of 16 bytes when the first does; several rows in a vector must be
  /// contiguous.
  bool rows_fit_vectors() const {
    return problem().n() < 8 ? problem().contiguous() : problem().row_stride() % 8 == 0;
  }

  const ConfiguredKernel& chosen(bool pointers_aligned) const {
    return pointers_aligned && rows_fit_vectors() ? vectors_ : elements_;
  }

  void enqueue(const Operands& operands, Stream stream) const override {
    const auto addresses =
        reinterpret_cast<std::uintptr_t>(operands.in) | reinterpret_cast<std::uintptr_t>(operands.out);
    const ConfiguredKernel& choice = chosen(addresses % 16 == 0);
    const Shape shape = shape_of(choice);
    const RowBatch batch{operands.in, operands.out, problem().rows, problem().row_stride(), scale_constant_};
    choice.kernel<<<grid_for(shape, problem().rows), static_cast<unsigned>(shape.threads()),
                    static_cast<std::size_t>(shape.shared_bytes()), stream>>>(batch);
    FWHT_CUDA(cudaGetLastError());
  }

  int compute_capability_;
  ConfiguredKernel vectors_, elements_;
  std::uint32_t scale_constant_;
};

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  return std::make_unique<HadacorePlan>(problem, device, LaunchTable::tuned);
}

std::unique_ptr<Plan> make_published_plan(const Problem& problem, const DeviceInfo& device) {
  return std::make_unique<HadacorePlan>(problem, device, LaunchTable::published);
}

}  // namespace fwht::hadacore
