// mma_split: tensor cores without the price that HadaCore pays for them in accuracy, for rows that live in
// registers.
//
// What this rung changes. (a) The first tensor-core stage reads the 16-bit data as they came from memory:
// products with +-1 are exact, sums are fp32. (b) Between the stages fp32 is carried as a bf16 pair hi + lo,
// two mma for one; the residual lo = x - hi is computed by the tensor core too (a third, half-size mma with
// -I). One rounding to storage is left, the last. (c) Data are operand B in both stages. An accumulator
// fragment, read as operand B, is transposed, so the second stage reaches the lane bits that the first did
// not, and the result is back where it was loaded: 16-byte loads and stores in natural order, no shuffle, no
// shared memory while a warp holds the row. (d) Longer rows take several warps and one exchange without bank
// conflicts. (e) Short rows (n <= 32) stay on CUDA cores: inside one vector of one lane up to n = 8, where no
// other row's data are near. (f) How many vectors a lane and how many warps a row take changes with the
// amount of work (launch_for in mma_split.hpp); the bits do not. What limits it: memory, as long as several
// blocks fit on an SM. From n = 4096 a lane holds 32 sums (128 at 16384), and the exchange adds two words of
// shared memory an element to the one of load and store.
//
// Bit card, 16-bit data (e: register inside the 16-byte vector, l: lane, v: vector of the lane, w: warp;
// where v and w share bits, the launch table says how many are whose, v the lower ones):
//   n =    2..8   b0..b2 e                                                                FADD
//   n =   16, 32  b0-b2 e | b3.. l                                                        FADD | SHFL + FFMA
//   n =   64      b0-b2 e | b3-b5 l | 8 rows in l, more in v   b0,b1,b3,b4: mma 1 | b2,b5: mma 2
//   n =  128      b0-b2 e | b3-b6 l | 4 rows in l, more in v   b0,b1,b3,b4: mma 1 | b2,b5,b6: mma 2
//   n =  256      b0-b2 e | b3-b7 l | rows in v                b0,b1,b3,b4: mma 1 | b2,b5-b7: mma 2
//   n =  512..    ... | b8.. v and w            then FADD over v | exchange (w <-> v) + FADD over w
//      w has none at n = 512, none or b8-b9 at 1024, b10 or b9-b10 at 2048, b10-b11 or b9-b11 at 4096,
//      b10-b12 at 8192, b12-b13 at 16384 (b11-b13 for data that are not dense)
// fp32 data:
//   n =    2, 4   b0.. e                                                                  FADD
//   n =  8..128   b0-b1 e | b2.. l                                                        FADD | SHFL + FFMA
//   n =  256..    ... | b7.. v and w            then FADD over v | exchange (w <-> v) + FADD over w
//      w has none or b7 at n = 256, up to two bits at 512, up to two at 1024, three at 2048
//   n = 4096..    (2048 inside the L2) three passes through shared memory, FADD only (r: registers of a lane)
//      b0-b4 r, b5-b9 l | b5-b9 r, b0-b4 l | b10.. r, above b0.. l and w
// in ascending order of the index bits: bit for bit the plain host loop, as for 16-bit data up to n = 32.
//
// Why passes. A shuffle costs shared memory as much as a store of the same word. Five of them for the lane
// bits and an exchange are seven words an element, two exchanges four. So the row stays in shared memory from
// load to store: a lane takes 32 consecutive elements, then every 32nd of its warp's, then, behind the only
// barrier of the block, every 1024th of the row. cp.async brings the row there, which spares the lines of the
// L1 that loads to registers hold until they arrive and of which such buffers leave few.
//
// Infinities and NaN. hi + lo turns an infinity into NaN (Inf - Inf), and zeros of block-diagonal matrices
// (n = 64, 128) carry it into neighbouring rows. But then every output of the vector is NaN, and so is its
// sum with others, so a look at one register a lane and row tells (four for bf16, where a sum may overflow;
// see split_failed), before anything is stored: the warp reads its data again and does every vector and every
// row alone, with zeros in place of the neighbours, by butterflies where the tensor cores fail. What fails is
// decided vector by vector (256 elements), so the bits do not depend on the launch there either. The normal
// path pays a comparison and a vote; nothing is looked at between the loads and the additions over v. Where
// warps share a row, what failed is put into the exchange like anything else, and the vote is that of the
// barrier: a vote of the warp before it kept the first sums from the exchange until the last were there. The
// exact paths are functions of their own: inlined they took registers from the normal path and lay in its
// way. mma_split_tune times the first candidate of every size without the look as well.
#include <algorithm>
#include <cstdint>
#include <string>

#include "common/cuda_check.hpp"
#include "common/static_dispatch.hpp"
#include "variants/mma_split/mma_split_kernel.cuh"

namespace fwht::mma_split {
namespace {

struct Choice {
  Geometry geometry;
  Kernel kernel;
};

template <Geometry g, Access access, Trigger trigger = Trigger::at_end>
Choice choice() {
  return {g, kernel_of<g, access, trigger>()};
}

template <Geometry g>
Choice dense_choice(const Problem& problem) {
  if constexpr (has_scale_in_constants(g)) {
    if (final_factor(problem) == 1.0F) {
      return {g, kernel_of<g, Access::dense, Trigger::at_end, NonFinite::handled, Scale::in_constants>()};
    }
  }
  return choice<g, Access::dense>();
}

/// Calls body(integral constant of the dtype, of log2 n).
template <class Body>
Choice dispatch(const Problem& problem, Body&& body) {
  return dispatch_dtype(problem.dtype(), [&](auto dtype) {
    return dispatch_int<1, largest_log_n(dtype())>(log2_floor(problem.n()),
                                                   [&](auto log_n) { return body(dtype, log_n); });
  });
}

Choice choose_dense(const Problem& problem) {
  const Regime regime = regime_of(problem.elements() * bytes_of(problem.dtype()));
  return dispatch(problem, [&](auto dtype, auto log_n) {
    return dispatch_int<0, kRegimes - 1>(static_cast<int>(regime), [&](auto r) {
      constexpr Launch launch = launch_for(dtype(), log_n(), static_cast<Regime>(r()));
      return dense_choice<Geometry{dtype(), log_n(), launch}>(problem);
    });
  });
}

/// Launches that the stream's next one may overlap have few blocks, so they take the table's smallest regime.
template <bool single_block>
Choice choose_overlapping(const Problem& problem) {
  return dispatch(problem, [](auto dtype, auto log_n) {
    constexpr Launch launch = launch_for(dtype(), log_n(), Regime::small);
    constexpr Trigger trigger = trigger_for(dtype(), log_n(), single_block);
    return choice<Geometry{dtype(), log_n(), launch}, Access::dense, trigger>();
  });
}

template <Access access>
Choice choose_fallback(const Problem& problem) {
  return dispatch(problem, [](auto dtype, auto log_n) {
    return choice<Geometry{dtype(), log_n(), fallback_launch(dtype(), log_n())}, access>();
  });
}

std::int64_t blocks_of_rows(const Problem& problem, const Geometry& g) {
  return ceil_div(problem.rows, g.rows_per_block());
}

void allow_shared_memory(const Choice& choice) {
  const int bytes = choice.geometry.shared_bytes();
  if (bytes <= 48 * 1024) return;
  FWHT_CUDA(cudaFuncSetAttribute(choice.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

/// Whether this launch and the next find room on the device side by side. Where they do not, blocks of the
/// next wait in places that this one still needs.
bool leaves_room(const Choice& choice, std::int64_t blocks, const DeviceInfo& device) {
  allow_shared_memory(choice);
  const Geometry& g = choice.geometry;
  int resident = 0;
  FWHT_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, choice.kernel, g.threads(),
                                                          static_cast<std::size_t>(g.shared_bytes())));
  return 2 * blocks <= std::int64_t{resident} * device.sm_count;
}

Choice choose_for_vectors(const Problem& problem, const DeviceInfo& device) {
  if (!problem.contiguous()) return choose_fallback<Access::vectors>(problem);
  if (problem.programmatic_launch) {
    const Choice of_several = choose_overlapping<false>(problem);
    const std::int64_t blocks = blocks_of_rows(problem, of_several.geometry);
    if (blocks == 1) return choose_overlapping<true>(problem);
    if (leaves_room(of_several, blocks, device)) return of_several;
  }
  return choose_dense(problem);
}

class MmaSplitPlan final : public Plan {
 public:
  MmaSplitPlan(const Problem& problem, const DeviceInfo& device)
      : Plan(problem),
        device_(device),
        on_vectors_(choose_for_vectors(problem, device)),
        on_elements_(choose_fallback<Access::elements>(problem)) {
    allow_shared_memory(on_vectors_);
    allow_shared_memory(on_elements_);
    cudaFuncAttributes attributes{};
    FWHT_CUDA(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(on_vectors_.kernel)));
    registers_ = attributes.numRegs;
  }

  Numerics numerics() const override { return numerics_of(problem(), device_.compute_capability()); }

  Settings settings() const override {
    const Geometry& g = on_vectors_.geometry;
    return {{"kernel", std::string(g.kind() == Kind::split_mma     ? "split_mma"
                                   : g.launch.form == Form::passes ? "butterflies, passes"
                                                                   : "butterflies")},
            {"rows_per_block", std::int64_t{g.rows_per_block()}},
            {"warps_per_row", std::int64_t{g.warps_per_row()}},
            {"vectors_per_lane", std::int64_t{g.vectors()}},
            {"blocks", blocks_of(g)},
            {"threads", std::int64_t{g.threads()}},
            {"launch", std::string(problem().programmatic_launch ? "programmatic" : "ordinary")},
            {"registers", std::int64_t{registers_}},
            {"shared_bytes", std::int64_t{g.shared_bytes()}}};
  }

 private:
  std::int64_t blocks_of(const Geometry& g) const { return blocks_of_rows(problem(), g); }

  void enqueue(const Operands& operands, Stream stream) const override {
    const auto& [g, kernel] = fits_vectors(operands.in, operands.out) ? on_vectors_ : on_elements_;
    // A block moves 1 KB or more, so the 2^31 - 1 blocks of the x dimension are more than any memory holds.
    cudaLaunchAttribute programmatic{};
    programmatic.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    programmatic.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks_of(g)));
    config.blockDim = dim3(static_cast<unsigned>(g.threads()));
    config.dynamicSmemBytes = static_cast<std::size_t>(g.shared_bytes());
    config.stream = stream;
    config.attrs = &programmatic;
    config.numAttrs = problem().programmatic_launch ? 1 : 0;
    FWHT_CUDA(cudaLaunchKernelEx(&config, kernel,
                                 batch_of(problem(), g, device_.sm_count, operands.in, operands.out)));
  }

  bool fits_vectors(const void* in, const void* out) const {
    const auto addresses = reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out);
    const auto stride = static_cast<std::uintptr_t>(problem().row_stride() * bytes_of(problem().dtype()));
    // Rows shorter than a vector share one, which needs them side by side.
    const bool rows_fit =
        on_vectors_.geometry.log_rows_per_vector() > 0 ? problem().contiguous() : stride % 16 == 0;
    return addresses % 16 == 0 && rows_fit && problem().row_stride() >> 32 == 0;
  }

  DeviceInfo device_;
  Choice on_vectors_, on_elements_;
  int registers_ = 0;
};

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  return std::make_unique<MmaSplitPlan>(problem, device);
}

}  // namespace fwht::mma_split
