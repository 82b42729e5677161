#include "variants/kit/rows_plan.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>

#include "common/device/launcher.hpp"
#include "variants/kit/row_signs.hpp"

namespace fwht::rows {
namespace {

struct NamedKernel {
  KernelId id;
  Kernel kernel;

  Tile tile() const { return id.tile(); }
  int shared_bytes() const { return 4 * tile().exchange_words(); }
};

std::string name_of(Form form) {
  switch (form) {
    case Form::in_warps:
      return "rows_in_warps";
    case Form::across_warps:
      return "rows_across_warps";
    case Form::smem_passes:
      break;
  }
  return "smem_passes";
}

void allow_shared_memory(const NamedKernel& choice) {
  allow_shared(choice.kernel, choice.shared_bytes());
}

std::int64_t blocks_of(const Problem& problem, const NamedKernel& choice) {
  return ceil_div(problem.rows, choice.tile().rows_per_block());
}

/// Whether this launch and the next find room on the device side by side. Where they do not, blocks of the
/// next wait in places that this one still needs.
bool leaves_room(const NamedKernel& choice, std::int64_t blocks, const DeviceInfo& device) {
  allow_shared_memory(choice);
  const int resident = resident_blocks(choice.kernel, choice.tile().threads, choice.shared_bytes());
  return 2 * blocks <= std::int64_t{resident} * device.sm_count;
}

NamedKernel choose(const KernelTable& table, const KernelId& id) {
  const Kernel kernel = table.find(id);
  if (kernel == nullptr) {
    throw std::logic_error("no kernel is compiled for n = 2^" + std::to_string(id.log_n) + " and its launch");
  }
  return {id, kernel};
}

NamedKernel choose_for_vectors(const Problem& problem, const DeviceInfo& device, const KernelTable& table) {
  const Dtype dtype = problem.dtype();
  const int log_n = log2_floor(problem.n());
  if (!problem.contiguous()) return choose(table, table.strided(dtype, log_n));
  if (problem.programmatic_launch) {
    const NamedKernel of_several = choose(table, table.overlapping(dtype, log_n, false));
    const std::int64_t blocks = blocks_of(problem, of_several);
    if (blocks == 1) return choose(table, table.overlapping(dtype, log_n, true));
    if (leaves_room(of_several, blocks, device)) return of_several;
    if (table.overlapping_more != nullptr) {
      const NamedKernel of_more = choose(table, table.overlapping_more(dtype, log_n));
      const bool other = !(of_more.id == of_several.id);
      if (other && leaves_room(of_more, blocks_of(problem, of_more), device)) return of_more;
    }
  }
  return choose(table, table.dense(problem));
}

class RowsPlan final : public Plan {
 public:
  RowsPlan(const Problem& problem, const DeviceInfo& device, const KernelTable& table, const Factors& factors,
           const Numerics& numerics)
      : Plan(problem),
        on_vectors_(choose_for_vectors(problem, device, table)),
        on_elements_(choose(table, for_elements(table.strided(problem.dtype(), log2_floor(problem.n()))))),
        factors_(factors),
        numerics_(numerics),
        multiprocessors_(device.sm_count) {
    allow_shared_memory(on_vectors_);
    allow_shared_memory(on_elements_);
    registers_ = registers_of(on_vectors_.kernel);
  }

  Numerics numerics() const override { return numerics_; }

  Settings settings() const override {
    const Tile tile = on_vectors_.tile();
    return {{"kernel", name_of(on_vectors_.id.launch.form)},
            {"rows_per_block", std::int64_t{tile.rows_per_block()}},
            {"warps_per_row", std::int64_t{tile.warps_per_row}},
            {"vectors_per_lane", std::int64_t{tile.vectors}},
            {"blocks", blocks_of(problem(), on_vectors_)},
            {"threads", std::int64_t{tile.threads}},
            {"launch", std::string(problem().programmatic_launch ? "programmatic" : "ordinary")},
            {"registers", std::int64_t{registers_}},
            {"shared_bytes", std::int64_t{on_vectors_.shared_bytes()}}};
  }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    const NamedKernel& choice = fits_vectors(operands.in, operands.out) ? on_vectors_ : on_elements_;
    const Tile tile = choice.tile();
    SignedBatch batch{batch_of(problem(), tile, factors_, multiprocessors_, operands.in, operands.out),
                      RowSigns::of(problem().op, operands.signs)};
    void* arguments[] = {&batch};
    // A block moves 1 KB or more, so the 2^31 - 1 blocks of the x dimension are more than any memory holds.
    launch_at(reinterpret_cast<const void*>(choice.kernel),
              {.blocks = blocks_of(problem(), choice),
               .threads = tile.threads,
               .shared = choice.shared_bytes(),
               .programmatic = problem().programmatic_launch},
              stream, arguments);
  }

  bool fits_vectors(const void* in, const void* out) const {
    const auto addresses = reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out);
    const auto stride = static_cast<std::uintptr_t>(problem().row_stride() * bytes_of(problem().dtype()));
    // Rows shorter than a vector share one, which needs them side by side.
    const bool rows_fit =
        on_vectors_.tile().log_rows_per_vector() > 0 ? problem().contiguous() : stride % 16 == 0;
    return addresses % 16 == 0 && rows_fit && problem().row_stride() >> 32 == 0;
  }

  NamedKernel on_vectors_, on_elements_;
  Factors factors_;
  Numerics numerics_;
  int multiprocessors_;
  int registers_ = 0;
};

}  // namespace

std::unique_ptr<Plan> make_rows_plan(const Problem& problem, const DeviceInfo& device,
                                     const KernelTable& table, const Factors& factors,
                                     const Numerics& numerics) {
  return std::make_unique<RowsPlan>(problem, device, table, factors, numerics);
}

}  // namespace fwht::rows
