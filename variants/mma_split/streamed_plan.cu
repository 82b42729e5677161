// mma_split: the plan of rows of 32768 and 65536; streamed_rows.cuh has the kernel.
#include <algorithm>
#include <cstdint>
#include <memory>

#include "common/device/launcher.hpp"
#include "common/host/static_dispatch.hpp"
#include "variants/mma_split/mma_split.hpp"
#include "variants/mma_split/streamed_rows.cuh"

namespace fwht::mma_split {
namespace {

using Kernel = void (*)(Batch);

Kernel kernel_of(Dtype dtype, const StreamedShape& shape) {
  return dispatch_16_bit(dtype, [&](auto d) {
    return dispatch_int<StreamedShape::kSmallestLogN, StreamedShape::kLargestLogN>(
        shape.log_n, [&](auto log_n) -> Kernel {
          if (shape.rounds == 2) return streamed_rows<d(), log_n(), 2>;
          return streamed_rows<d(), log_n(), 4>;
        });
  });
}

class StreamedPlan final : public Plan {
 public:
  StreamedPlan(const Problem& problem, const DeviceInfo& device)
      : Plan(problem),
        shape_(streamed_shape(log2_floor(problem.n()), device.shared_bytes_per_block)),
        kernel_(kernel_of(problem.dtype(), shape_)),
        numerics_(numerics_of(problem, device.compute_capability())),
        blocks_(std::min<std::int64_t>(problem.rows, device.sm_count)),
        multiprocessors_(device.sm_count) {
    allow_shared(kernel_, shape_.shared_bytes());
  }

  std::size_t alignment() const override { return StreamedShape::kVectorBytes; }
  Numerics numerics() const override { return numerics_; }

  Settings settings() const override {
    return {{"kernel", std::string("streamed_rows")},
            {"passes", std::int64_t{shape_.halves()}},
            {"rounds", std::int64_t{shape_.rounds}},
            {"warps_per_row", std::int64_t{StreamedShape::kWarps}},
            {"vectors_per_lane", std::int64_t{StreamedShape::kVectors}},
            {"blocks", blocks_},
            {"threads", std::int64_t{StreamedShape::kThreads}},
            {"launch", std::string(problem().programmatic_launch ? "programmatic" : "ordinary")},
            {"registers", std::int64_t{registers_of(kernel_)}},
            {"shared_bytes", std::int64_t{shape_.shared_bytes()}}};
  }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    const rows::Tile row{problem().dtype(), shape_.log_n, StreamedShape::kVectors * shape_.halves(),
                         StreamedShape::kWarps, StreamedShape::kThreads};
    Batch batch = batch_of(problem(), row, factors(problem()), multiprocessors_, operands.in, operands.out);
    void* arguments[] = {&batch};
    launch_at(reinterpret_cast<const void*>(kernel_),
              {.blocks = blocks_,
               .threads = StreamedShape::kThreads,
               .shared = shape_.shared_bytes(),
               .programmatic = problem().programmatic_launch},
              stream, arguments);
  }

  StreamedShape shape_;
  Kernel kernel_;
  Numerics numerics_;
  std::int64_t blocks_;
  int multiprocessors_;
};

}  // namespace

std::unique_ptr<Plan> make_streamed_plan(const Problem& problem, const DeviceInfo& device) {
  return std::make_unique<StreamedPlan>(problem, device);
}

}  // namespace fwht::mma_split
