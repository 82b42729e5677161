// fwht::transform: refusals on any machine; on a GPU the results of `auto`, from many threads and in graphs.
#include "variants/transform.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "common/device_info.hpp"
#include "common/error.hpp"
#include "common/memory.hpp"
#include "reference/conformance/device_tools.hpp"
#include "reference/inputs.hpp"
#include "reference/tolerance.hpp"
#include "variants/registry.hpp"

namespace fwht {
namespace {

/// A plan whose execution is a call of transform, so that the tools for plans can drive it.
class TransformPlan final : public Plan {
 public:
  explicit TransformPlan(const Problem& problem) : Plan(problem) {}
  Numerics numerics() const override { return {}; }
  Settings settings() const override { return {}; }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    transform(operands.in, operands.out, problem(), stream);
  }
};

struct Work {
  explicit Work(const Problem& p, std::uint64_t seed)
      : problem(p),
        raw(static_cast<std::size_t>(p.span_bytes())),
        in(Memory::device, raw.size()),
        out(Memory::device, raw.size()) {
    reference::write_input(problem, reference::InputClass::normal, seed, raw.data());
    in.upload(raw.data(), raw.size());
    synchronize(Memory::device);
  }

  void expect_right(const char* what) const {
    synchronize(Memory::device);
    std::vector<std::byte> got(raw.size());
    out.download(got.data(), got.size());
    const std::unique_ptr<Plan> model = plan(find_variant("auto"), problem, this_device());
    const reference::Checked checked =
        reference::check(problem, model->numerics(), reference::InputClass::normal, raw.data(), got.data());
    EXPECT_TRUE(checked.verdict) << what << ": " << to_string(problem) << ": " << checked.verdict.message;
  }

  Problem problem;
  std::vector<std::byte> raw;
  Buffer in, out;
};

Problem apart(Dtype dtype, std::int64_t n, std::int64_t rows) {
  return make_problem(dtype, n, rows, Placement::out_of_place);
}

TEST(Transform, RefusesBeforeAnythingElse) {
  Problem nonsense = make_problem(Dtype::f16, 64, 1);
  nonsense.set_row_stride(3);
  EXPECT_THROW(transform(nullptr, nullptr, nonsense), BadRequest);
  if (!this_device().has_cuda()) {
    EXPECT_THROW(transform(nullptr, nullptr, make_problem(Dtype::f16, 64, 1)), BadRequest);
  }
}

class TransformGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const DeviceInfo device = this_device(); !device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
    clear_transform_plans();
  }
};

TEST_F(TransformGpu, KeepsOnePlanForOneProblem) {
  Work work(apart(Dtype::f16, 1024, 9), 1);
  for (int i = 0; i < 3; ++i)
    transform(work.in.data(), work.out.data(), work.problem);
  work.expect_right("called three times");
  EXPECT_EQ(clear_transform_plans(), 1U);
  EXPECT_EQ(clear_transform_plans(), 0U);
  EXPECT_THROW(transform(work.in.data(), work.in.data(), work.problem), BadRequest) << "overlap";
  EXPECT_THROW(transform(nullptr, work.out.data(), work.problem), BadRequest);
}

TEST_F(TransformGpu, AnswersManyThreadsAtOnce) {
  std::vector<std::unique_ptr<Work>> works;
  for (const std::int64_t n : {64, 4096, 16384, 32768}) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      // Long enough for plans that count rows while they run.
      works.push_back(std::make_unique<Work>(apart(Dtype::bf16, n, (std::int64_t{1} << 25) / n), seed));
    }
  }
  std::vector<std::thread> threads;
  for (const auto& work : works) {
    threads.emplace_back([&work = *work] {
      const TransformPlan call(work.problem);
      for (int i = 0; i < 5; ++i)  // on a stream of its own
        conformance::execute_on_new_stream(call, work.in.data(), work.out.data());
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const auto& work : works)
    work->expect_right("from many threads");
}

TEST_F(TransformGpu, MakesItsPlanWhileAStreamIsCaptured) {
  for (const std::int64_t n : {256, 8192, 32768}) {
    Work work(apart(Dtype::f16, n, (std::int64_t{1} << 25) / n), 7);
    conformance::execute_captured(TransformPlan(work.problem), work.in.data(), work.out.data(), 2);
    work.expect_right("first call inside a capture");
    work.out.poison(kPoisonByte);
    conformance::execute_on_new_stream(TransformPlan(work.problem), work.in.data(), work.out.data());
    work.expect_right("after the capture");
  }
}

}  // namespace
}  // namespace fwht
