#include "experiments/harness/transform.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "experiments/harness/measure.hpp"
#include "variants/registry.hpp"

namespace fwht::harness {
namespace {

Subject cpu_subject(const char* problem) {
  const DeviceInfo device = this_device();
  return transform_subject(cpu::variant, plan(cpu::variant, parse_problem(problem), device), device,
                           std::make_shared<TruthCache>());
}

TEST(Transform, IsDescribedWithoutAPlan) {
  const Description what = describe(naive::variant, parse_problem("f16/n64/r10/out/ld72"));
  EXPECT_EQ(what.name, "naive/f16/n64/r10/out/ld72");
  EXPECT_EQ(what.buffers,
            (Buffers{Memory::device, Placement::out_of_place, 2LL * (9 * 72 + 64), 2LL * (9 * 72 + 64)}));
  EXPECT_EQ(what.traffic, (Traffic{1280, 1280}));
  EXPECT_EQ(what.columns.at("row_stride"), "72");
  const Description encoded = describe(naive::variant, parse_problem("bf16/n64/r10/out>e4m3:row"));
  EXPECT_EQ(encoded.traffic.read, 1280);
  EXPECT_EQ(encoded.traffic.written, parse_problem("bf16/n64/r10/out>e4m3:row").bytes_written());
  EXPECT_EQ(encoded.columns.at("encoding"), "e4m3:row");
}

TEST(Transform, OfRowsBetweenEachOtherMovesTheSameBytes) {
  const Description what = describe(cpu::variant, parse_problem("i32/n64/r8/out/inner4/ld300"));
  EXPECT_EQ(what.name, "cpu/i32/n64/r8/out/inner4/ld300");
  EXPECT_EQ(what.columns.at("arrangement"), "inner4");
  EXPECT_EQ(what.traffic, (Traffic{2048, 2048}));
  EXPECT_EQ(what.buffers.in_bytes, 4 * (300 + 256));
}

TEST(Transform, IsCheckedAndMeasured) {
  const DeviceInfo device = this_device();
  Bench bench(device);
  const Subject subject = cpu_subject("f16/n256/r64");
  const Judgement judgement = subject.check(bench.slice(subject));
  EXPECT_TRUE(judgement.verdict) << judgement.verdict.message;
  EXPECT_GT(std::stod(judgement.columns.at("rel_l2")), 0.0);
  const Timing timing = measure(subject, Mode::host, bench, 3);
  EXPECT_EQ(timing.replays, 3);
  ASSERT_EQ(timing.each_us.size(), 3U);
  EXPECT_GT(timing.min_us, 0.0);
  EXPECT_EQ(*std::min_element(timing.each_us.begin(), timing.each_us.end()), timing.min_us);
}

/// A plan whose codes another plan writes.
class Forwards final : public Plan {
 public:
  Forwards(const Problem& problem, std::unique_ptr<Plan> inner) : Plan(problem), inner_(std::move(inner)) {}
  Numerics numerics() const override { return inner_->numerics(); }
  Settings settings() const override { return inner_->settings(); }

 private:
  void enqueue(const Operands& operands, Stream stream) const override { inner_->execute(operands, stream); }
  std::unique_ptr<Plan> inner_;
};

TEST(Transform, CodesOfEitherIntermediateAreJudged) {
  const DeviceInfo device = this_device();
  Bench bench(device);
  for (const char* text : {"bf16/n128/r64>e4m3:row", "bf16/n128/r64>e4m3:row/f32",
                           "f16/n256/r9000>int8:row/f32", "bf16/n128/r64>nvfp4:128x4/f32"}) {
    const Subject subject = cpu_subject(text);
    const Judgement judgement = subject.check(bench.slice(subject));
    EXPECT_TRUE(judgement.verdict) << text << ": " << judgement.verdict.message;
    EXPECT_GT(std::stod(judgement.columns.at("rel_l2")), 1e-3) << text;
    EXPECT_LT(std::stod(judgement.columns.at("rel_l2")), 0.15) << text;
  }
  // Codes of the other intermediate are wrong, both ways.
  for (const auto& [asked, written] : {std::pair{"bf16/n128/r64>int8:row/f32", "bf16/n128/r64>int8:row"},
                                       {"bf16/n128/r64>int8:row", "bf16/n128/r64>int8:row/f32"}}) {
    auto plan = std::make_unique<Forwards>(parse_problem(asked),
                                           fwht::plan(cpu::variant, parse_problem(written), device));
    const Subject subject =
        transform_subject(cpu::variant, std::move(plan), device, std::make_shared<TruthCache>());
    EXPECT_FALSE(subject.check(bench.slice(subject)).verdict) << asked;
  }
}

/// The cpu variant, which notes the devices that it is asked about.
std::vector<int>& ordinals_asked() {
  static std::vector<int> ordinals;
  return ordinals;
}
const Variant noting{"noting", "", Memory::host,
                     [](const Problem& problem, const DeviceInfo& device) {
                       ordinals_asked().push_back(device.ordinal);
                       return cpu::variant.supports(problem, device);
                     },
                     [](const Problem& problem, const DeviceInfo& device) {
                       ordinals_asked().push_back(device.ordinal);
                       return cpu::variant.make_plan(problem, device);
                     }};

TEST(Transform, CodesAreJudgedByPlansForTheirDevice) {
  DeviceInfo device = this_device();
  Bench bench(device);
  device.ordinal = 3;
  for (const char* text : {"bf16/n128/r64>e4m3:row", "bf16/128+signs/r64>e4m3:row"}) {
    ordinals_asked().clear();
    const Subject subject = transform_subject(noting, plan(noting, parse_problem(text), device), device,
                                              std::make_shared<TruthCache>());
    const Judgement judgement = subject.check(bench.slice(subject));
    EXPECT_TRUE(judgement.verdict) << text << ": " << judgement.verdict.message;
    EXPECT_GE(ordinals_asked().size(), 4U) << "the plan of the codes and the plain one";
    EXPECT_EQ(std::set(ordinals_asked().begin(), ordinals_asked().end()), std::set{3}) << text;
  }
}

TEST(Transform, SubjectsOfOtherBuffersAreNotMeasuredTogether) {
  const DeviceInfo device = this_device();
  Bench bench(device);
  const Subject both[] = {cpu_subject("f16/n256/r64"), cpu_subject("f16/n256/r65")};
  EXPECT_THROW(measure_each(both, Mode::host, bench, [](std::size_t, const Timing&) {}), std::logic_error);
}

TEST(Transform, KnowsHowLongDataStaysTypical) {
  const auto applications = [](const Problem& problem) {
    return applications_in_place(single_rounding(Sums::fp32, problem), problem);
  };
  const Problem orthonormal = make_problem(Dtype::f16, 4096, 1);
  EXPECT_GT(applications(orthonormal), std::int64_t{1} << 40);
  for (std::int64_t n = 2; n <= 32768; n *= 2) {
    EXPECT_GT(applications(make_problem(Dtype::f16, n, 1)), std::int64_t{1} << 40) << n;
  }
  Problem unscaled = orthonormal;
  unscaled.scale = 1.0;  // grows by 2^6 each time
  EXPECT_EQ(applications(unscaled), 1);
  unscaled.set_dtype(Dtype::bf16);
  EXPECT_EQ(applications(unscaled), 6);
  unscaled.op = Operator::sylvester(32768);
  unscaled.set_dtype(Dtype::f16);
  EXPECT_EQ(applications(unscaled), 1) << "once is what was asked for";
  unscaled.scale = 0.0;
  EXPECT_EQ(applications(unscaled), 1);
  Numerics shrinking = single_rounding(Sums::fp32, orthonormal);
  shrinking.steps.front().constant *= 1.0 - 1.0682e-4;
  EXPECT_NEAR(static_cast<double>(applications_in_place(shrinking, orthonormal)), 38930.0, 100.0);
}

}  // namespace
}  // namespace fwht::harness
