// passes: vectors of 16 bits, with fp32 between the passes in a workspace, so that results are rounded once.
// f16.cu and bf16.cu make the plan for a type each; schedule.hpp (RoundedPasses) says which passes.
#pragma once

#include <algorithm>

#include "variants/passes/passes_plan.cuh"

namespace fwht::passes {

/// Kernels of a first pass, of a last one, and of one that is both.
struct RoundedKernels {
  List<PassKernel, 64> first, last, alone;
};

constexpr PassKernel first_kernel(const RoundedPasses& passes) {
  return kernel_for(passes.first, passes.overlaps);
}
/// A row of an ordered transform has its own block, as that of fp32.
constexpr PassKernel last_kernel(const RoundedPasses& passes) {
  return kernel_for(passes.last, passes.last.whole_row || (passes.overlaps && passes.middle_bits == 0));
}

/// Of the last pass, where results lie at odd places.
constexpr PassKernel narrow_kernel(const RoundedPasses& passes) {
  return kernel_for(narrow(passes.last), last_kernel(passes).lets_next_in);
}

constexpr RoundedKernels rounded_kernels() {
  constexpr std::int64_t kSmallBlock = 64 * 1024, kLargeBlock = 128 * 1024;
  RoundedKernels all;
  for (int log_n = kSmallestLongLogN; log_n <= kLargestLogN; ++log_n) {
    for (const std::int64_t shared : {kSmallBlock, kLargeBlock}) {
      const RoundedPasses rows = rounded_passes(log_n, shared);
      all.first.add(first_kernel(rows));
      all.last.add(last_kernel(rows));
      all.last.add(narrow_kernel(rows));
    }
    all.last.add(last_kernel(rounded_ordered_passes(log_n)));
  }
  for (int bits = kFewestAxisBits; bits <= kMostAxisBits; ++bits) {
    const PassKernel axis = axis_kernel(axis_passes(Word::fp32, bits).tiles[0]);
    all.first.add(axis);
    all.last.add(axis);
    all.alone.add(axis);
  }
  return all;
}

template <class In, class Out>
using RoundedFunction = void (*)(LongVectors<float, In, Out>);

template <class In, class Out, const auto& list>
RoundedFunction<In, Out> rounded_kernel(const PassKernel& kernel) {
  using Kernels = Table<PassKernel, RoundedFunction<In, Out>>;
  static const auto kTable = [] {
    Kernels table;
    each_of<list>([&](auto i) {
      constexpr PassKernel k = list.at[i()];
      table.add(
          k,
          pass<float, k.tile.bits, k.tile.log_columns, k.tile.whole_row, k.threads, k.lets_next_in, In, Out>);
    });
    return table;
  }();
  const auto function = kTable.find(kernel);
  if (function == nullptr) throw std::logic_error("passes: no kernel of 16 bits is compiled for a pass");
  return function;
}

inline constexpr RoundedKernels kRoundedKernels = rounded_kernels();
inline constexpr auto kFirstKernels = kRoundedKernels.first;
inline constexpr auto kLastKernels = kRoundedKernels.last;
inline constexpr auto kLoneKernels = kRoundedKernels.alone;

inline RoundedPasses rounded_passes_of(const Problem& problem, const DeviceInfo& device) {
  const int log_n = log2_floor(problem.n());
  if (problem.inner != 1) {
    const int most_bits = most_axis_bits(Word::fp32, device.shared_bytes_per_block);
    return rounded_axis_passes(log_n, log2_floor(problem.inner), most_bits);
  }
  if (!problem.is_arranged_plainly()) return rounded_ordered_passes(log_n);
  return rounded_passes(log_n, device.shared_bytes_per_block);
}

template <class Stored>
class RoundedPlan final : public Plan {
 public:
  RoundedPlan(const Problem& problem, const DeviceInfo& device)
      : Plan(problem),
        log_n_(log2_floor(problem.block_elements())),
        passes_(rounded_passes_of(problem, device)),
        overlaps_(passes_.overlaps && require_programmatic_launch(device)),
        vectors_(problem.rows / problem.inner),
        vectors_together_(vectors_together(log_n_, vectors_)) {
    if (passes_.is_one_pass()) {
      alone_id_ = axis_kernel(passes_.first);
      alone_ = rounded_kernel<Stored, Stored, kLoneKernels>(alone_id_);
      make_ready(alone_, alone_id_, device);
      return;
    }
    if (gathers()) {
      ordered_ = ordered_kernel_of_bits();
      first_id_ = axis_kernel(passes_.first);
      make_ready(ordered_, first_id_, device);
    } else {
      first_id_ = problem.inner == 1 ? first_kernel(passes_) : axis_kernel(passes_.first);
      first_ = rounded_kernel<Stored, float, kFirstKernels>(first_id_);
      make_ready(first_, first_id_, device);
    }
    last_id_ = problem.inner == 1 ? last_kernel(passes_) : axis_kernel(passes_.last);
    last_ = rounded_kernel<float, Stored, kLastKernels>(last_id_);
    make_ready(last_, last_id_, device);
    if (passes_.last.width() > 1) {
      narrow_id_ = narrow_kernel(passes_);
      narrow_ = rounded_kernel<float, Stored, kLastKernels>(narrow_id_);
      make_ready(narrow_, narrow_id_, device);
    }
    if (passes_.middle_bits > 0) {
      Problem middle = make_problem(Dtype::f32, std::int64_t{1} << passes_.middle_bits,
                                    std::int64_t{1} << (passes_.log_part - passes_.middle_bits));
      middle.inner = std::int64_t{1} << passes_.middle_shift;
      middle.set_row_stride(middle.block_elements());
      middle.scale = 1.0;
      middle.programmatic_launch = overlaps_;
      middle_ = make_plan(middle, device);
    }
    between_ = PlanScratch((vectors_together_ << log_n_) * std::int64_t{sizeof(float)});
  }

  Numerics numerics() const override { return numerics_of(problem()); }

  bool one_stream_at_a_time() const override { return between_.is_owned(); }
  std::int64_t scratch_bytes() const override { return between_.bytes(); }

  Settings settings() const override {
    const int passes = passes_.is_one_pass() ? 1 : middle_ == nullptr ? 2 : 3;
    return {{"passes_over_memory", std::int64_t{passes}},
            {"lowest", std::string(gathers()              ? "gathered"
                                   : problem().inner != 1 ? "axis"
                                                          : "pass")},
            {"first_bits", std::int64_t{passes_.first.levels()}},
            {"middle_bits", std::int64_t{passes_.middle_bits}},
            {"last_bits", std::int64_t{passes_.last.levels()}},
            {"vectors_together", vectors_together_},
            {"workspace_bytes", scratch_bytes()},
            {"launch", std::string(problem().programmatic_launch ? "programmatic" : "ordinary")}};
  }

 private:
  using First = LongVectors<float, Stored, float>;
  using Last = LongVectors<float, float, Stored>;
  using OrderedFirst = void (*)(First, Ordering, Ordering);

  bool gathers() const { return problem().inner == 1 && !problem().is_arranged_plainly(); }

  OrderedFirst ordered_kernel_of_bits() const {
    return dispatch_int<kFewestGatheredBits, kMostAxisBits>(
        passes_.first.bits, [](auto bits) -> OrderedFirst { return ordered_pass<float, bits(), Stored>; });
  }

  void make_ready(KernelAddress kernel, const PassKernel& id, const DeviceInfo& device) const {
    ready(kernel, id.threads, id.shared_bytes(), passes_.overlaps, device);
  }

  static LaunchGrid grid_of(const PassKernel& id, std::int64_t elements, bool programmatic) {
    return {.blocks = elements / id.elements(),
            .threads = id.threads,
            .shared = id.shared_bytes(),
            .programmatic = programmatic};
  }

  void enqueue(const Operands& operands, Stream stream) const override {
    const Problem& p = problem();
    const auto* in = static_cast<const Stored*>(operands.in);
    auto* out = static_cast<Stored*>(operands.out);
    const auto scale = static_cast<float>(p.scale);
    if (passes_.is_one_pass()) {
      launch(alone_, grid_of(alone_id_, p.elements(), p.programmatic_launch), stream,
             {in, out, p.row_stride(), log_n_, passes_.first_shift, scale});
      return;
    }
    auto* const between = between_.of<float>(operands);
    bool begins = true;
    each_work(passes_, log_n_, vectors_, [&](const RoundedWork& work) {
      const std::int64_t at = work.vector * p.row_stride();
      switch (work.pass) {
        case RoundedWork::Pass::first:
          run_first(in + at, between, work, begins ? p.programmatic_launch : overlaps_, stream);
          break;
        case RoundedWork::Pass::middle:
          middle_->execute(between + work.part, between + work.part, stream);
          break;
        case RoundedWork::Pass::last:
          run_last(between, out + at, work.elements, scale, stream);
          break;
      }
      begins = false;
    });
  }

  void run_first(const Stored* in, float* between, const RoundedWork& work, bool programmatic,
                 Stream stream) const {
    const Problem& p = problem();
    // A part of a vector is a shorter vector.
    const int log_n = std::min(log_n_, passes_.log_part);
    const First vectors{in + work.part, between + work.part, p.row_stride(),
                        log_n,          passes_.first_shift, 1.0F};
    const LaunchGrid grid = grid_of(first_id_, work.elements, programmatic);
    if (gathers()) {
      launch(ordered_, grid, stream, vectors, p.in_ordering, p.out_ordering);
    } else {
      launch(first_, grid, stream, vectors);
    }
  }

  void run_last(const float* between, Stored* out, std::int64_t elements, float scale, Stream stream) const {
    const bool narrow = narrow_ != nullptr && !takes_pairs(out);
    launch(narrow ? narrow_ : last_, grid_of(narrow ? narrow_id_ : last_id_, elements, overlaps_), stream,
           {between, out, problem().row_stride(), log_n_, passes_.last_shift, scale});
  }

  /// Two neighbours of every vector lie in one access.
  bool takes_pairs(const Stored* out) const {
    return reinterpret_cast<std::uintptr_t>(out) % (2 * sizeof(Stored)) == 0 &&
           (vectors_ == 1 || problem().row_stride() % 2 == 0);
  }

  int log_n_;
  RoundedPasses passes_;
  bool overlaps_;  // those of passes_, where kernels wait for the one in front
  std::int64_t vectors_, vectors_together_;
  RoundedFunction<Stored, Stored> alone_ = nullptr;
  RoundedFunction<Stored, float> first_ = nullptr;
  OrderedFirst ordered_ = nullptr;
  RoundedFunction<float, Stored> last_ = nullptr, narrow_ = nullptr;
  PassKernel alone_id_, first_id_, last_id_, narrow_id_;
  std::unique_ptr<Plan> middle_;
  PlanScratch between_;
};

}  // namespace fwht::passes
