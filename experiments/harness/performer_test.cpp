#include "experiments/harness/performer.hpp"

#include <gtest/gtest.h>

#include "reference/inputs.hpp"
#include "variants/registry.hpp"

namespace fwht::harness {
namespace {

std::vector<std::byte> normal_rows(const Problem& problem) {
  std::vector<std::byte> raw(static_cast<std::size_t>(problem.span_bytes()));
  reference::write_input(problem, reference::InputClass::normal, 1, raw.data());
  return raw;
}

TEST(Performers, WithoutADeviceItsVariantsAreEmulated) {
  DeviceInfo none;
  for (const Performer& performer : performers({registry().begin(), registry().end()}, none)) {
    const bool host = performer.variant().memory == Memory::host;
    EXPECT_EQ(performer.source(), host ? Source::measured : Source::emulated) << performer.name();
  }
}

TEST(Performers, WithADeviceTheyAreMeasuredUnlessAskedOtherwise) {
  const DeviceInfo h200 = h200_description();
  for (const Performer& performer : performers({&hadacore::variant, &cpu::variant}, h200))
    EXPECT_EQ(performer.source(), Source::measured);
  const auto emulated = performers({&hadacore::variant, &cpu::variant, &naive::variant}, h200, {true, true});
  ASSERT_EQ(emulated.size(), 4U) << "naive has no tensor-core stages, so an A100 computes the same";
  EXPECT_EQ(emulated[0].source(), Source::emulated);
  EXPECT_EQ(emulated[1].source(), Source::emulated_a100);
  EXPECT_EQ(emulated[2].source(), Source::measured);
  EXPECT_EQ(emulated[3].source(), Source::emulated);
}

TEST(Performers, WhatHasNoEmulationSaysSo) {
  const Performer wgmma(wgmma::variant, Source::emulated, DeviceInfo{});
  EXPECT_FALSE(wgmma.supports(make_problem(Dtype::f16, 4096, 1)));
  const Performer hadacore(hadacore::variant, Source::emulated, DeviceInfo{});
  EXPECT_TRUE(hadacore.supports(make_problem(Dtype::f16, 4096, 1)));
  EXPECT_FALSE(hadacore.supports(make_problem(Dtype::f32, 4096, 1)));
}

// The emulation of the single-rounding kernel is the CPU variant, bit for bit.
TEST(Performers, AnEmulationComputesWhatTheModelSays) {
  const Problem problem = make_problem(Dtype::bf16, 512, 9);
  const std::vector<std::byte> input = normal_rows(problem);
  Workspace workspace;
  const DeviceInfo device = this_device();
  const auto a = Performer(warp_shuffle::variant, Source::emulated, device).run(problem, input, workspace);
  const auto b = Performer(cpu::variant, Source::measured, device).run(problem, input, workspace);
  EXPECT_EQ(a.output, b.output);
  EXPECT_TRUE(b.guards_intact);
  EXPECT_NE(a.output, input);
}

// What the host says without a plan is what the plan says, and what the device does.
TEST(PerformersGpu, EmulationAndDeviceAgreeBitForBit) {
  const DeviceInfo device = this_device();
  if (!device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
  if (device.compute_capability() != 90) GTEST_SKIP() << "the emulation is that of sm_90";
  Workspace workspace;
  int compared = 0;
  for (const Variant* variant : registry()) {
    const Performer measured(*variant, Source::measured, device),
        emulated(*variant, Source::emulated, device);
    for (const Dtype dtype : kAllDtypes) {
      for (const std::int64_t n : {16, 128, 2048, 32768}) {
        const Problem problem = make_problem(dtype, n, 5);
        if (!measured.supports(problem) || !emulated.supports(problem)) continue;
        const std::vector<std::byte> input = normal_rows(problem);
        const auto a = measured.run(problem, input, workspace), b = emulated.run(problem, input, workspace);
        EXPECT_EQ(a.output, b.output) << variant->name << " " << to_string(problem);
        EXPECT_EQ(a.numerics.steps, b.numerics.steps) << variant->name << " " << to_string(problem);
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace fwht::harness
