// passes: a plan is a list of launches over the index bits of its vectors, lowest first; see README.md.
#include "variants/passes/passes.hpp"

#include <stdexcept>
#include <string>
#include <vector>

#include "common/device/device_array.cuh"
#include "common/device/launcher.hpp"
#include "variants/butterflies/butterflies.hpp"
#include "variants/kit/kernel_table.hpp"
#include "variants/passes/tile_kernels.cuh"

namespace fwht::passes {
namespace {

using PassFunction = void (*)(LongVectors);
using PairFunction = void (*)(LongVectors, const float*, Counters, int, std::int64_t, std::int64_t);

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

constexpr auto all_kernels() {
  struct {
    List<PassKernel, 64> passes;
    List<PairKernel, 64> pairs;
  } all;
  for (int log_n = kSmallestLogN; log_n <= kLargestLogN; ++log_n) {
    for (const bool large : {false, true}) {
      if (!large && log_n > kLargestInsideL2) continue;
      const Schedule s = large ? in_dram(log_n) : inside_l2(log_n);
      if (s.lowest == Lowest::pair) {
        all.pairs.add(s.pair());
      } else {
        if (s.lowest == Lowest::pass) all.passes.add(kernel_for(row_tile(s.log_row), s.overlaps));
        all.passes.add(kernel_for(s.second, s.overlaps));
      }
      if (s.third.bits == 0) continue;
      all.passes.add(kernel_for(s.third, s.overlaps));
      all.passes.add(kernel_for(narrow(s.third), s.overlaps));
    }
  }
  return all;
}
constexpr auto kAll = all_kernels();

template <const auto& list, class Add>
void each_of(const Add& add) {
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    (add(std::integral_constant<std::size_t, i>{}), ...);
  }
  (std::make_index_sequence<list.count>{});
}

PassFunction find(const PassKernel& kernel) {
  using Kernels = Table<PassKernel, PassFunction>;
  static const auto kTable = [] {
    Kernels table;
    static constexpr auto kList = kAll.passes;
    each_of<kList>([&](auto i) {
      constexpr PassKernel k = kList.at[i()];
      table.add(k, pass<k.tile.bits, k.tile.log_columns, k.tile.whole_row, k.threads, k.lets_next_in>);
    });
    return table;
  }();
  return kTable.find(kernel);
}

PairFunction find(const PairKernel& kernel) {
  using Kernels = Table<PairKernel, PairFunction>;
  static const auto kTable = [] {
    Kernels table;
    static constexpr auto kList = kAll.pairs;
    each_of<kList>([&](auto i) {
      constexpr PairKernel k = kList.at[i()];
      table.add(k, two_passes<k.first.bits, k.second.bits, k.threads>);
    });
    return table;
  }();
  return kTable.find(kernel);
}

template <class Kernel>
auto compiled(const Kernel& kernel) {
  const auto function = find(kernel);
  if (function == nullptr) throw std::logic_error("passes: no kernel is compiled for a pass");
  return function;
}

/// Loads to registers hold lines of the L1 until they arrive: shared memory gets what the resident blocks use
/// and no more. Kernels that overlap need the same division, else the second waits for the first to end: 2^20
/// takes 9.8 us in place of 6.5.
int ready(KernelAddress kernel, int threads, int shared, bool overlaps, const DeviceInfo& device) {
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

/// One launch of a pass over all vectors.
struct PassLaunch {
  PassFunction kernel = nullptr;
  PassKernel id;
  int shift = 0;
};

class PassesPlan final : public Plan {
 public:
  PassesPlan(const Problem& problem, const DeviceInfo& device)
      : Plan(problem),
        log_n_(log2_floor(problem.n())),
        schedule_(schedule_for(log_n_, 4 * problem.elements())) {
    const Schedule& s = schedule_;
    const PassTile row = row_tile(s.log_row);
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
        pair_ = compiled(id);
        ready(pair_, id.threads, id.shared_bytes(), false, device);
        log_items_ = s.log_chunk - 5 - log2_floor(id.threads);
        items_ = problem.elements() / 32 / id.threads;
        chunks_ = ceil_div(items_, std::int64_t{1} << log_items_);
        counter_bytes_ = sizeof(unsigned) * static_cast<std::size_t>(chunks_ + 1);
        counters_ = DeviceArray(counter_bytes_);
        break;
      }
    }
    if (s.lowest != Lowest::pair) launches_.push_back(make_launch(s.second, s.log_row, device));
    if (s.third.bits == 0) return;
    launches_.push_back(make_launch(s.third, s.log_row + s.second.bits, device));
    narrow_ = make_launch(narrow(s.third), s.log_row + s.second.bits, device);
  }

  Numerics numerics() const override { return single_rounding(Sums::fp32, problem()); }

  bool one_stream_at_a_time() const override { return pair_ != nullptr; }

  Settings settings() const override {
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
  PassLaunch make_launch(const PassTile& tile, int shift, const DeviceInfo& device) const {
    const PassKernel id = kernel_for(tile, schedule_.overlaps);
    const PassFunction kernel = compiled(id);
    ready(kernel, id.threads, id.shared_bytes(), schedule_.overlaps, device);
    return {kernel, id, shift};
  }

  void enqueue(const Operands& operands, Stream stream) const override {
    const Problem& p = problem();
    const float scale = static_cast<float>(p.scale);
    LongVectors vectors{static_cast<const float*>(operands.in),
                        static_cast<float*>(operands.out),
                        p.row_stride(),
                        log_n_,
                        0,
                        1.0F};
    if (rows_ != nullptr) run_rows(vectors, stream);
    if (pair_ != nullptr) run_pair(vectors, schedule_.third.bits == 0 ? scale : 1.0F, stream);
    bool begins = rows_ == nullptr && pair_ == nullptr;
    for (const PassLaunch& next : launches_) {
      if (!begins) vectors.in = vectors.out;
      const bool last = &next == &launches_.back();
      vectors.scale = last ? scale : 1.0F;
      run(last && !takes_pairs(vectors) ? narrow_ : next, vectors,
          begins ? p.programmatic_launch : schedule_.overlaps, stream);
      begins = false;
    }
  }

  /// False where the last pass has to do without accesses of 8 bytes.
  bool takes_pairs(const LongVectors& vectors) const {
    return launches_.back().id.tile.width() == 1 ||
           (reinterpret_cast<std::uintptr_t>(vectors.out) % 8 == 0 && vectors.row_stride % 2 == 0);
  }

  void run(const PassLaunch& launched, LongVectors vectors, bool programmatic, Stream stream) const {
    vectors.shift = launched.shift;
    launch(launched.kernel,
           {.blocks = problem().elements() / 32 / launched.id.threads,
            .threads = launched.id.threads,
            .shared = launched.id.shared_bytes(),
            .programmatic = programmatic},
           stream, vectors);
  }

  void run_rows(const LongVectors& vectors, Stream stream) const {
    const std::int64_t launches = problem().contiguous() ? 1 : problem().rows;
    for (std::int64_t i = 0; i < launches; ++i)
      rows_->execute(vectors.in + i * vectors.row_stride, vectors.out + i * vectors.row_stride, stream);
  }

  void run_pair(LongVectors vectors, float scale, Stream stream) const {
    // Not by the kernel itself: a launch that was aborted would leave them as they were.
    FWHT_CUDA(cudaMemsetAsync(counters_.as<unsigned>(), 0, counter_bytes_, stream));
    vectors.shift = schedule_.log_row;
    vectors.scale = scale;
    const Counters counters{counters_.as<unsigned>(), counters_.as<unsigned>() + 1};
    launch(pair_,
           {.blocks = 2 * chunks_ << log_items_,
            .threads = schedule_.pair().threads,
            .shared = schedule_.pair().shared_bytes()},
           stream, vectors, static_cast<const float*>(vectors.out), counters, log_items_, items_, chunks_);
  }

  int log_n_;
  Schedule schedule_;
  std::unique_ptr<Plan> rows_;  // Lowest::butterflies
  PairFunction pair_ = nullptr;
  DeviceArray counters_;  // of the pair
  std::size_t counter_bytes_ = 0;
  int log_items_ = 0;
  std::int64_t items_ = 0, chunks_ = 0;
  std::vector<PassLaunch> launches_;  // behind rows_ or pair_, where there are such
  PassLaunch narrow_;                 // for the last one, where it has accesses of 8 bytes
};

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  return std::make_unique<PassesPlan>(problem, device);
}

}  // namespace fwht::passes
