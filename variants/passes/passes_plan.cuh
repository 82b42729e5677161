// passes: a plan is a list of launches over the index bits of its vectors, lowest first; see README.md.
// passes.cu, fp64.cu and integers.cu make it for a type of number each.
#pragma once

#include "variants/passes/passes.hpp"

#include <stdexcept>
#include <string>
#include <vector>

#include "common/device/launcher.hpp"
#include "common/device/plan_scratch.cuh"
#include "common/host/static_dispatch.hpp"
#include "variants/butterflies/butterflies.hpp"
#include "variants/kit/kernel_table.hpp"
#include "variants/passes/cluster_rows.cuh"
#include "variants/passes/tile_kernels.cuh"

namespace fwht::passes {

template <class Number>
constexpr Word word_of_number() {
  if constexpr (sizeof(Number) == 8) return Word::eight_bytes;
  return std::is_same_v<Number, float> ? Word::fp32 : Word::int32;
}

template <class Number>
using PassFunction = void (*)(LongVectors<Number>);
template <class Number>
using PairFunction = void (*)(LongVectors<Number>, const Number*, Counters, int, std::int64_t, std::int64_t);

/// Every kernel that a schedule of some length names, each once.
template <class Kernel, std::size_t most>
struct List {
  std::array<Kernel, most> at{};
  std::size_t count = 0;
  constexpr void add(const Kernel& kernel) {
    for (std::size_t i = 0; i < count; ++i)
      if (at[i] == kernel) return;
    at[count++] = kernel;
  }
};

constexpr PassKernel kernel_for(const PassTile& tile, bool overlaps) {
  // Few blocks: as small as a tile, so that all multiprocessors have one. Else of 128 threads at least.
  return {tile, overlaps ? tile.threads() : std::max(tile.threads(), 128), overlaps};
}

constexpr auto all_kernels(Word word) {
  struct {
    List<PassKernel, 64> passes;
    List<PairKernel, 64> pairs;
  } all;
  for (int log_n = smallest_shared_log_n(word); log_n <= kLargestLogN; ++log_n) {
    const bool fits_l2 = log_n <= largest_inside_l2(word);
    for (const Schedule& s :
         {in_dram(word, log_n), in_small_blocks(word, log_n), (fits_l2 ? inside_l2 : in_dram)(word, log_n)}) {
      if (s.lowest == Lowest::pair) {
        all.pairs.add(s.pair());
      } else {
        if (s.lowest == Lowest::pass) all.passes.add(kernel_for(s.row(), s.overlaps));
        all.passes.add(kernel_for(s.second, s.overlaps));
      }
      if (s.third.bits == 0) continue;
      all.passes.add(kernel_for(s.third, s.overlaps));
      all.passes.add(kernel_for(narrow(s.third), s.overlaps));
    }
  }
  for (int bits = kFewestAxisBits; bits <= kMostAxisBits; ++bits)
    all.passes.add(axis_kernel(axis_passes(word, bits).tiles[0]));
  return all;
}
template <class Number>
constexpr auto kAll = all_kernels(word_of_number<Number>());

template <const auto& list, class Add>
void each_of(const Add& add) {
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    (add(std::integral_constant<std::size_t, i>{}), ...);
  }
  (std::make_index_sequence<list.count>{});
}

template <class Number>
PassFunction<Number> find(const PassKernel& kernel) {
  using Kernels = Table<PassKernel, PassFunction<Number>>;
  static const auto kTable = [] {
    Kernels table;
    static constexpr auto kList = kAll<Number>.passes;
    each_of<kList>([&](auto i) {
      constexpr PassKernel k = kList.at[i()];
      table.add(k,
                pass<Number, k.tile.bits, k.tile.log_columns, k.tile.whole_row, k.threads, k.lets_next_in>);
    });
    return table;
  }();
  return kTable.find(kernel);
}

template <class Number>
PairFunction<Number> find(const PairKernel& kernel) {
  using Kernels = Table<PairKernel, PairFunction<Number>>;
  static const auto kTable = [] {
    Kernels table;
    static constexpr auto kList = kAll<Number>.pairs;
    each_of<kList>([&](auto i) {
      constexpr PairKernel k = kList.at[i()];
      table.add(k, two_passes<Number, k.first.bits, k.second.bits, k.threads>);
    });
    return table;
  }();
  return kTable.find(kernel);
}

template <class Number, class Kernel>
auto compiled(const Kernel& kernel) {
  const auto function = find<Number>(kernel);
  if (function == nullptr) throw std::logic_error("passes: no kernel is compiled for a pass");
  return function;
}

/// Loads to registers hold lines of the L1 until they arrive: shared memory gets what the resident blocks use
/// and no more. Kernels that overlap need the same division, else the second waits for the first to end: 2^20
/// takes 9.8 us in place of 6.5.
inline int ready(KernelAddress kernel, int threads, int shared, bool overlaps, const DeviceInfo& device) {
  allow_shared(kernel, shared);
  const int resident = resident_blocks(kernel, threads, shared);
  constexpr int kReservedOfBlock = 1024;
  const std::int64_t used = std::int64_t{resident} * (shared == 0 ? 0 : shared + kReservedOfBlock);
  const std::int64_t percent =
      overlaps ? 100 : std::min<std::int64_t>(ceil_div(100 * used, device.shared_bytes_per_sm), 100);
  FWHT_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 static_cast<int>(percent)));
  return resident;
}

template <class Number>
using OrderedFunction = void (*)(LongVectors<Number>, Ordering, Ordering);

template <class Number>
OrderedFunction<Number> ordered_kernel(int bits) {
  static_assert(kFewestGatheredBits == 6 && kMostAxisBits == 10);
  switch (bits) {
    case 6:
      return ordered_pass<Number, 6>;
    case 7:
      return ordered_pass<Number, 7>;
    case 8:
      return ordered_pass<Number, 8>;
    case 9:
      return ordered_pass<Number, 9>;
    case 10:
      return ordered_pass<Number, 10>;
    default:
      throw std::logic_error("passes: no kernel is compiled for an ordered pass");
  }
}

inline Numerics numerics_of(const Problem& problem) {
  Numerics numerics = single_rounding_by_dtype(problem);
  // A row is permuted before its sums, so bits are not summed in ascending order of the input's.
  const bool ordered = problem.in_ordering != Ordering::natural || problem.out_ordering != Ordering::natural;
  if (ordered && word_of(problem.dtype()) == Word::fp32) numerics.steps.back().sums = Sums::fp32_any_order;
  return numerics;
}

/// One launch of a pass over all vectors.
template <class Number>
struct PassLaunch {
  PassFunction<Number> kernel = nullptr;
  PassKernel id;
  int shift = 0;
};

template <class Number>
class PassesPlan final : public Plan {
 public:
  PassesPlan(const Problem& problem, const DeviceInfo& device)
      : Plan(problem),
        log_n_(log2_floor(problem.block_elements())),
        schedule_(problem.is_arranged_plainly()
                      ? schedule_for(kWord, log_n_, problem.elements() * bytes_of(problem.dtype()),
                                     device.shared_bytes_per_block)
                      : Schedule{}),
        overlaps_(schedule_.overlaps && require_programmatic_launch(device)) {
    if (problem.inner != 1) {
      add_axis_passes(device);
      return;
    }
    if (!problem.is_arranged_plainly()) {
      add_ordered_passes(device);
      return;
    }
    const Schedule& s = schedule_;
    const PassTile row = s.row();
    switch (s.lowest) {
      case Lowest::pass:
        launches_.push_back(make_launch(row, row.log_columns, device));
        break;
      case Lowest::butterflies: {
        // One launch where the rows of all vectors are one behind the other, else one a vector.
        const std::int64_t vectors = problem.contiguous() ? problem.rows : 1;
        Problem rows = make_problem(Dtype::f32, std::int64_t{1} << s.log_row, vectors << (log_n_ - s.log_row),
                                    problem.placement);
        rows.scale = 1.0;
        rows.programmatic_launch = problem.programmatic_launch;
        rows_ = butterflies::make_plan(rows, device);
        break;
      }
      case Lowest::pair: {
        const PairKernel id = s.pair();
        pair_ = compiled<Number>(id);
        ready(pair_, id.threads, id.shared_bytes(), false, device);
        log_items_ = s.log_chunk - 5 - log2_floor(id.threads);
        items_ = problem.elements() / 32 / id.threads;
        chunks_ = ceil_div(items_, std::int64_t{1} << log_items_);
        counters_ = PlanScratch(static_cast<std::int64_t>(sizeof(unsigned)) * (chunks_ + 1));
        break;
      }
    }
    if (s.lowest != Lowest::pair) launches_.push_back(make_launch(s.second, s.log_row, device));
    if (s.third.bits == 0) return;
    launches_.push_back(make_launch(s.third, s.log_row + s.second.bits, device));
    narrow_ = make_launch(narrow(s.third), s.log_row + s.second.bits, device);
  }

  Numerics numerics() const override { return numerics_of(problem()); }

  bool one_stream_at_a_time() const override { return counters_.is_owned(); }
  std::int64_t scratch_bytes() const override { return counters_.bytes(); }

  Settings settings() const override {
    if (!problem().is_arranged_plainly()) {
      return {
          {"passes_over_memory", static_cast<std::int64_t>(launches_.size()) + (ordered_ == nullptr ? 0 : 1)},
          {"lowest", std::string(ordered_ == nullptr ? "axis" : "pass")},
          {"launch", std::string(problem().programmatic_launch ? "programmatic" : "ordinary")}};
    }
    const char* lowest = schedule_.lowest == Lowest::pass   ? "pass"
                         : schedule_.lowest == Lowest::pair ? "pair"
                                                            : "butterflies";
    return {{"passes_over_memory", std::int64_t{schedule_.third.bits == 0 ? 2 : 3}},
            {"lowest", std::string(lowest)},
            {"row_bits", std::int64_t{schedule_.log_row}},
            {"second_bits", std::int64_t{schedule_.second.bits}},
            {"third_bits", std::int64_t{schedule_.third.bits}},
            {"launch", std::string(problem().programmatic_launch ? "programmatic" : "ordinary")}};
  }

 private:
  static constexpr Word kWord = word_of_number<Number>();

  void add_axis_passes(const DeviceInfo& device) {
    int shift = log2_floor(problem().inner);
    const AxisPasses passes =
        axis_passes(kWord, log_n_ - shift, most_axis_bits(kWord, device.shared_bytes_per_block));
    for (int i = 0; i < passes.count; ++i) {
      const PassTile& tile = passes.tiles[static_cast<std::size_t>(i)];
      launches_.push_back(make_launch(axis_kernel(tile), shift, device));
      shift += tile.bits;
    }
  }

  void add_ordered_passes(const DeviceInfo& device) {
    const OrderedPasses passes = ordered_passes(kWord, log_n_);
    first_ = passes.first;
    ordered_ = ordered_kernel<Number>(first_.bits);
    ready(ordered_, first_.threads(), first_.shared_bytes(), false, device);
    launches_.push_back(make_launch(kernel_for(passes.row, true), passes.row.log_columns, device));
    if (passes.between.bits > 0)
      launches_.push_back(make_launch(axis_kernel(passes.between), passes.log_row, device));
  }

  void run_ordered(LongVectors<Number> vectors, Stream stream) const {
    vectors.shift = log_n_ - first_.bits;
    launch(ordered_,
           {.blocks = problem().elements() >> first_.log_elements(),
            .threads = first_.threads(),
            .shared = first_.shared_bytes(),
            .programmatic = problem().programmatic_launch},
           stream, vectors, problem().in_ordering, problem().out_ordering);
  }

  PassLaunch<Number> make_launch(const PassTile& tile, int shift, const DeviceInfo& device) const {
    return make_launch(kernel_for(tile, schedule_.overlaps), shift, device);
  }

  PassLaunch<Number> make_launch(const PassKernel& id, int shift, const DeviceInfo& device) const {
    const PassFunction<Number> kernel = compiled<Number>(id);
    ready(kernel, id.threads, id.shared_bytes(), schedule_.overlaps, device);
    return {kernel, id, shift};
  }

  void enqueue(const Operands& operands, Stream stream) const override {
    const Problem& p = problem();
    const auto scale = static_cast<Number>(p.scale), one = Number(1);
    LongVectors<Number> vectors{static_cast<const Number*>(operands.in),
                                static_cast<Number*>(operands.out),
                                p.row_stride(),
                                log_n_,
                                0,
                                one};
    if (rows_ != nullptr) run_rows(vectors, stream);
    if (pair_ != nullptr)
      run_pair(vectors, schedule_.third.bits == 0 ? scale : one, counters_.of<unsigned>(operands), stream);
    if (ordered_ != nullptr) run_ordered(vectors, stream);
    bool begins = rows_ == nullptr && pair_ == nullptr && ordered_ == nullptr;
    for (const PassLaunch<Number>& next : launches_) {
      if (!begins) vectors.in = vectors.out;
      const bool last = &next == &launches_.back();
      vectors.scale = last ? scale : one;
      run(last && !takes_pairs(vectors) ? narrow_ : next, vectors, begins ? p.programmatic_launch : overlaps_,
          stream);
      begins = false;
    }
  }

  /// False where the last pass has to do without accesses of 8 bytes.
  bool takes_pairs(const LongVectors<Number>& vectors) const {
    return launches_.back().id.tile.width() == 1 ||
           (reinterpret_cast<std::uintptr_t>(vectors.out) % 8 == 0 && vectors.row_stride % 2 == 0);
  }

  void run(const PassLaunch<Number>& launched, LongVectors<Number> vectors, bool programmatic,
           Stream stream) const {
    vectors.shift = launched.shift;
    launch(launched.kernel,
           {.blocks = problem().elements() / launched.id.elements(),
            .threads = launched.id.threads,
            .shared = launched.id.shared_bytes(),
            .programmatic = programmatic},
           stream, vectors);
  }

  void run_rows(const LongVectors<Number>& vectors, Stream stream) const {
    const std::int64_t launches = problem().contiguous() ? 1 : problem().rows;
    for (std::int64_t i = 0; i < launches; ++i)
      rows_->execute(vectors.in + i * vectors.row_stride, vectors.out + i * vectors.row_stride, stream);
  }

  void run_pair(LongVectors<Number> vectors, Number scale, unsigned* counted, Stream stream) const {
    // Not by the kernel itself: a launch that was aborted would leave them as they were.
    FWHT_CUDA(cudaMemsetAsync(counted, 0, static_cast<std::size_t>(counters_.bytes()), stream));
    vectors.shift = schedule_.log_row;
    vectors.scale = scale;
    const Counters counters{counted, counted + 1};
    launch(pair_,
           {.blocks = 2 * chunks_ << log_items_,
            .threads = schedule_.pair().threads,
            .shared = schedule_.pair().shared_bytes()},
           stream, vectors, static_cast<const Number*>(vectors.out), counters, log_items_, items_, chunks_);
  }

  int log_n_;
  Schedule schedule_;
  bool overlaps_;               // the schedule's launches, where kernels wait for the one in front
  std::unique_ptr<Plan> rows_;  // Lowest::butterflies
  PairFunction<Number> pair_ = nullptr;
  OrderedFunction<Number> ordered_ = nullptr;
  PassTile first_;        // of ordered_
  PlanScratch counters_;  // of the pair
  int log_items_ = 0;
  std::int64_t items_ = 0, chunks_ = 0;
  std::vector<PassLaunch<Number>> launches_;  // behind rows_ or pair_, where there are such
  PassLaunch<Number> narrow_;                 // for the last one, where it has accesses of 8 bytes
};

template <class Number>
using WholeRowsFunction = void (*)(WholeRows<Number>);

template <class Number>
WholeRowsFunction<Number> whole_rows_kernel(const RowTile& tile) {
  constexpr int kLargest = largest_whole_log_n(word_of_number<Number>());
  return dispatch_int<kSmallestRowTile, kLargest>(tile.log_elements, [&](auto log_elements) {
    return tile.ordered ? whole_rows<Number, log_elements(), true>
                        : whole_rows<Number, log_elements(), false>;
  });
}

/// Rows that a block holds, in one kernel.
template <class Number>
class WholeRowsPlan final : public Plan {
 public:
  WholeRowsPlan(const Problem& problem, const DeviceInfo& device)
      : Plan(problem),
        log_n_(log2_floor(problem.n())),
        tile_(
            row_tile(word_of_number<Number>(), log_n_,
                     problem.in_ordering != Ordering::natural || problem.out_ordering != Ordering::natural)),
        kernel_(whole_rows_kernel<Number>(tile_)),
        blocks_(ceil_div(problem.rows, std::int64_t{1} << (tile_.log_elements - log_n_))),
        first_blocks_(std::int64_t{ready(kernel_, tile_.threads(), tile_.shared_bytes(), false, device)} *
                      device.sm_count) {}

  Numerics numerics() const override { return numerics_of(problem()); }

  Settings settings() const override {
    return {{"passes_over_memory", std::int64_t{1}},
            {"lowest", std::string("whole rows")},
            {"row_bits", std::int64_t{log_n_}},
            {"turns", std::int64_t{turns_of(tile_, blocks_, first_blocks_).groups}},
            {"launch", std::string(problem().programmatic_launch ? "programmatic" : "ordinary")}};
  }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    const Problem& p = problem();
    WholeRows<Number> rows{};
    rows.in = static_cast<const Number*>(operands.in);
    rows.out = static_cast<Number*>(operands.out);
    rows.rows = p.rows;
    rows.row_stride = p.row_stride();
    rows.log_n = log_n_;
    rows.scale = static_cast<Number>(p.scale);
    rows.in_units = reinterpret_cast<std::uintptr_t>(operands.in) % 16 == 0 &&
                    p.row_stride() % (1 << tile_.log_unit()) == 0 && log_n_ >= tile_.log_unit();
    rows.turns = turns_of(tile_, blocks_, first_blocks_);
    rows.first_blocks = static_cast<unsigned>(first_blocks_);
    const auto word_of = [&](int element) {
      return permuted_word(tile_, p.in_ordering, p.out_ordering, element, log_n_);
    };
    for (int bit = 0; 1 << bit < tile_.threads(); ++bit)
      rows.word_of_thread[bit] = word_of(tile_.loaded(1 << bit, 0, 0));
    for (int i = 0; i < 32; ++i)
      rows.word_of_access[i] = word_of(tile_.loaded(0, i, 0));
    launch(kernel_,
           {.blocks = blocks_,
            .threads = tile_.threads(),
            .shared = tile_.shared_bytes(),
            .programmatic = p.programmatic_launch},
           stream, rows);
  }

  int log_n_;
  RowTile tile_;
  WholeRowsFunction<Number> kernel_;
  std::int64_t blocks_, first_blocks_;
};

template <class Number, class Stored>
using ClusterFunction = void (*)(LongVectors<Number, Stored, Stored>);

/// Of 16 bits there is one length: other kernels have shorter rows.
template <class Number, class Stored>
ClusterFunction<Number, Stored> cluster_kernel(int log_n) {
  constexpr Word kWord = word_of_number<Number>();
  constexpr bool kIsRounded = sizeof(Stored) == 2;
  constexpr int kShortest = kIsRounded ? kSmallestLongLogN : smallest_cluster_log_n(kWord);
  constexpr int kLongest = kIsRounded ? kSmallestLongLogN : largest_cluster_log_n(kWord);
  return dispatch_int<kShortest, kLongest>(log_n, [](auto n) -> ClusterFunction<Number, Stored> {
    return cluster_rows<Number, n(), cluster_row(kWord, n()).log_blocks, Stored>;
  });
}

/// Whether the device has room for a cluster. There is none of many blocks where it allows fewer, or where
/// its multiprocessors are few, as those of a part of one are.
inline bool has_room_for_cluster(KernelAddress kernel, const LaunchGrid& grid) {
  constexpr int kPortable = 8;
  const auto allowed = [&](cudaError_t status, const char* call) {
    if (status != cudaErrorInvalidClusterSize && status != cudaErrorInvalidValue) {
      check_cuda(status, call, concat("a cluster of ", grid.cluster, " blocks"));
      return true;
    }
    cudaGetLastError();  // which would be the next call's
    return false;
  };
  if (grid.cluster > kPortable &&
      !allowed(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
               "cudaFuncSetAttribute"))
    return false;
  int clusters = 0;
  const LaunchConfig config(grid, nullptr);
  return allowed(cudaOccupancyMaxActiveClusters(&clusters, kernel, config.get()),
                 "cudaOccupancyMaxActiveClusters") &&
         clusters > 0;
}

template <class Number, class Stored>
class ClusterRowsPlan final : public Plan {
 public:
  explicit ClusterRowsPlan(const Problem& problem)
      : Plan(problem),
        row_(cluster_row(word_of_number<Number>(), log2_floor(problem.n()))),
        kernel_(cluster_kernel<Number, Stored>(row_.log_n)) {}

  /// Before the first execution. False where the device has no room for a cluster.
  bool get_ready(const DeviceInfo& device) {
    ready(kernel_, row_.threads(), row_.shared_bytes(), false, device);
    return has_room_for_cluster(kernel_, grid_of(1));
  }

  Numerics numerics() const override { return numerics_of(problem()); }

  Settings settings() const override {
    return {{"passes_over_memory", std::int64_t{1}},
            {"lowest", std::string("clusters")},
            {"blocks_per_row", std::int64_t{row_.blocks()}},
            {"threads", std::int64_t{row_.threads()}},
            {"launch", std::string(problem().programmatic_launch ? "programmatic" : "ordinary")}};
  }

 private:
  LaunchGrid grid_of(std::int64_t rows) const {
    return {.blocks = rows * row_.blocks(),
            .threads = row_.threads(),
            .shared = row_.shared_bytes(),
            .cluster = row_.blocks(),
            .programmatic = problem().programmatic_launch};
  }

  void enqueue(const Operands& operands, Stream stream) const override {
    launch(kernel_, grid_of(problem().rows), stream,
           {static_cast<const Stored*>(operands.in), static_cast<Stored*>(operands.out),
            problem().row_stride(), row_.log_n, 0, static_cast<Number>(problem().scale)});
  }

  ClusterRow row_;
  ClusterFunction<Number, Stored> kernel_;
};

/// nullptr where no clusters share the rows.
template <class Number, class Stored = Number>
std::unique_ptr<Plan> make_cluster_plan(const Problem& problem, const DeviceInfo& device) {
  if (!shares_rows(problem, device)) return nullptr;
  auto plan = std::make_unique<ClusterRowsPlan<Number, Stored>>(problem);
  if (!plan->get_ready(device)) return nullptr;
  return plan;
}

template <class Number>
std::unique_ptr<Plan> make_plan_of(const Problem& problem, const DeviceInfo& device) {
  if (auto plan = make_cluster_plan<Number>(problem, device)) return plan;
  if (holds_rows(problem, device)) return std::make_unique<WholeRowsPlan<Number>>(problem, device);
  return std::make_unique<PassesPlan<Number>>(problem, device);
}

}  // namespace fwht::passes
