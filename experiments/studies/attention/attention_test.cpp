#include "experiments/studies/attention/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "variants/registry.hpp"

namespace fwht::attention {
namespace {

std::vector<std::byte> values(AttentionShape layout, double (*value)(std::int64_t row, std::int64_t column)) {
  std::vector<std::byte> raw(static_cast<std::size_t>(layout.elements() * 4));
  for (std::int64_t i = 0; i < layout.elements(); ++i)
    store_element(Dtype::f32, raw.data(), i, value(i / layout.d, i % layout.d));
  return raw;
}

void load(Engine& engine, const std::vector<std::byte>& q, const std::vector<std::byte>& k,
          const std::vector<std::byte>& v, Cast cast, int n) {
  engine.load(Slot::q, q, Dtype::f32, cast, n);
  engine.load(Slot::k, k, Dtype::f32, cast, n);
  engine.load(Slot::v, v, Dtype::f32, cast, n);
}

// Without roundings but fp32's own and the output's, every method is the reference.
void expect_exact_without_rounding(Engine& engine, AttentionShape layout) {
  const auto rough = [](std::int64_t r, std::int64_t c) {
    return std::sin(1.0 + static_cast<double>(7 * r + 3 * c));
  };
  const auto raw = values(layout, rough);
  load(engine, raw, raw, raw, Cast::none, layout.rows);
  engine.make_reference(layout.rows);
  for (const bool flash : {true, false}) {
    for (const HeadError& head : engine.errors({flash, false, Rounding::none}, layout.rows)) {
      EXPECT_GT(head.reference2, 1e-4);
      EXPECT_LT(std::sqrt(head.error2 / head.reference2), 4.5e-4) << "one fp16 rounding of the output";
      EXPECT_GT(head.error2, 0.0);
    }
  }
}

TEST(Attention, HostMethodsAreTheReferenceWithoutRoundings) {
  const AttentionShape layout{3, 128, 64};
  expect_exact_without_rounding(*make_host_engine(layout, 16), layout);
}

// All keys alike: every weight is 1/n, so the output is the mean of V; casting V costs what the cast says.
TEST(Attention, EqualKeysAverageTheValues) {
  const AttentionShape layout{1, 128, 64};
  const auto zero = values(layout, [](std::int64_t, std::int64_t) { return 0.0; });
  const auto v = values(layout, [](std::int64_t r, std::int64_t) { return r == 0 ? 448.0 : 17.0; });
  const auto engine = make_host_engine(layout, 4);
  load(*engine, zero, zero, v, Cast::none, layout.rows);
  engine->make_reference(layout.rows);
  load(*engine, zero, zero, v, Cast::per_tensor, layout.rows);
  const HeadError head = engine->errors({true, false, Rounding::e4m3}, layout.rows).front();
  EXPECT_NEAR(head.reference2, std::pow((448.0 + 127 * 17.0) / 128.0, 2), 1e-6);
  // scale 1: 448 stays, 17 becomes 16 (the e4m3 neighbours are 16 and 18; a tie goes to the even one)
  EXPECT_NEAR(std::sqrt(head.error2), 127.0 / 128.0, 0.01);
}

TEST(Attention, BlocksHaveTheirOwnScale) {
  const AttentionShape layout{1, 256, 64};
  const auto zero = values(layout, [](std::int64_t, std::int64_t) { return 0.0; });
  // The second block is less than half of the smallest e4m3 number at the scale of the first: lost with it,
  // kept with its own.
  const auto v =
      values(layout, [](std::int64_t r, std::int64_t) { return r < 128 ? (r % 2 ? 448.0 : -448.0) : 5e-4; });
  const auto engine = make_host_engine(layout, 4);
  load(*engine, zero, zero, v, Cast::none, layout.rows);
  engine->make_reference(layout.rows);
  const auto error = [&](Cast cast) {
    load(*engine, zero, zero, v, cast, layout.rows);
    return std::sqrt(engine->errors({true, false, Rounding::none}, layout.rows).front().error2);
  };
  EXPECT_NEAR(error(Cast::per_tensor), 2.5e-4, 1e-5) << "half of the rows lost 5e-4";
  EXPECT_LT(error(Cast::per_block), 1e-6);
}

// Simulated before (docs/numerics.md, Downstream numbers) for d = 128: baseline 1.5e-2 .. 1.8e-2 with scaled
// weights and 2.3e-2 .. 2.6e-2 with unscaled ones, with rotation 8.0e-3 .. 8.6e-3 (unscaled).
TEST(Attention, RotationHelpsFp8AndTheFp16RowsAreSmall) {
  const AttentionShape layout{4, 1024, 128};
  Experiment experiment(layout, make_host_engine(layout, 64), 1);
  const DeviceInfo device = this_device();
  const harness::Performer cpu(cpu::variant, harness::Source::measured, device);
  harness::Workspace workspace;
  const auto rmse = [&](const char* method, const char* choice = "default") {
    return std::stod(experiment.row(method, choice, layout.rows, &cpu, workspace).at("rmse"));
  };
  EXPECT_NEAR(rmse("fp8_baseline"), 1.7e-2, 0.8e-2);
  EXPECT_NEAR(rmse("fp8_fa3"), 8.5e-3, 2.5e-3);
  EXPECT_GT(rmse("fp8_no_rotation"), 1.2 * rmse("fp8_fa3"));
  EXPECT_LT(rmse("fp8_no_block"), 0.8 * rmse("fp8_baseline")) << "it rotates";
  EXPECT_NE(rmse("fp8_no_block"), rmse("fp8_fa3")) << "one scale, not one for each block";
  EXPECT_NEAR(rmse("fp16_flash"), 1.31e-4, 0.4e-4);
  EXPECT_GT(rmse("fp16_standard"), rmse("fp16_flash"));
  EXPECT_LT(rmse("fp16_flash", "reference_rounded"), 0.5 * rmse("fp16_flash"));
  EXPECT_GT(rmse("fp8_baseline", "p_unscaled"), rmse("fp8_baseline"));
  EXPECT_LT(rmse("fp8_baseline", "p_fp16"), rmse("fp8_baseline"));
  EXPECT_NE(rmse("fp8_baseline", "softmax_fp32"), rmse("fp8_baseline"));
  EXPECT_NEAR(rmse("fp8_baseline", "p_unscaled"), 2.4e-2, 0.8e-2);
  EXPECT_GT(rmse("fp8_fa3", "p_unscaled"), rmse("fp8_fa3"));
}

TEST(Attention, WeightsAreRoundedAtTheirScale) {
  EXPECT_EQ(rounded(Rounding::none, 448.0F, 0.3F), 0.3F);
  EXPECT_EQ(rounded(Rounding::e4m3, 1.0F, 0x1p-11F), 0.0F) << "half of the smallest e4m3 number";
  EXPECT_EQ(rounded(Rounding::e4m3, 256.0F, 0x1p-11F), 0x1p-11F);
  EXPECT_EQ(rounded(Rounding::e4m3, 448.0F, 1.0F), 1.0F) << "448, the largest, does not saturate";
  EXPECT_EQ(rounded(Rounding::f16, 1.0F, 1.0F + 0x1p-11F), 1.0F);
  EXPECT_EQ(rounded(Rounding::e4m3, 1.0F, 0.3), 0.3) << "the FP64 reference rounds nothing";
}

TEST(Attention, EveryTaskIsOneOfItsKind) {
  const DeviceInfo device = this_device();
  const auto performers = harness::performers({&cpu::variant, &hadacore::variant}, device);
  harness::Workspace workspace;
  const harness::StudySetup setup{device, performers, workspace};
  std::set<std::string> names;
  const auto all = tasks(setup);
  for (const harness::Task& task : all)
    EXPECT_TRUE(names.insert(task.name()).second) << task.name();
  EXPECT_GT(all.size(), 20U);
  EXPECT_EQ(published_rmse("fp8_fa3", "default"), 9.1e-3);
  EXPECT_EQ(published_rmse("fp8_fa3", "p_scaled"), 0.0);
}

TEST(AttentionGpu, DeviceAndHostAgree) {
  const DeviceInfo device = this_device();
  if (!device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
  for (const int d : {64, 128, 256}) {
    const AttentionShape layout{2, 256, d};
    const auto on_device = make_device_engine(layout);
    expect_exact_without_rounding(*on_device, layout);
    const harness::Performer cpu(cpu::variant, harness::Source::measured, device);
    harness::Workspace workspace;
    Experiment a(layout, make_device_engine(layout), 1), b(layout, make_host_engine(layout, layout.rows), 1);
    for (const char* method :
         {"fp16_standard", "fp16_flash", "fp8_baseline", "fp8_no_rotation", "fp8_no_block", "fp8_fa3"}) {
      const auto x = a.row(method, "default", layout.rows, &cpu, workspace);
      const auto y = b.row(method, "default", layout.rows, &cpu, workspace);
      EXPECT_NEAR(std::stod(x.at("rmse")) / std::stod(y.at("rmse")), 1.0, 0.02) << method << " d=" << d;
      EXPECT_EQ(x.at("output_rms"), y.at("output_rms")) << "both references are FP64";
    }
    for (const char* choice : {"p_unscaled", "p_fp16", "softmax_fp32"}) {
      const auto x = a.row("fp8_baseline", choice, layout.rows, &cpu, workspace);
      const auto y = b.row("fp8_baseline", choice, layout.rows, &cpu, workspace);
      EXPECT_NEAR(std::stod(x.at("rmse")) / std::stod(y.at("rmse")), 1.0, 0.02) << choice << " d=" << d;
    }
  }
}

}  // namespace
}  // namespace fwht::attention
