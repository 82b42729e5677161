#include "experiments/studies/quantization/quantization.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "experiments/studies/quantization/formats.hpp"
#include "variants/registry.hpp"

namespace fwht::quantization {
namespace {

using reference::InputClass;

// Every number of the format, and the midpoints between neighbours, which go to the even one.
void expect_rounds_to_nearest_even(SmallFloat format) {
  std::vector<float> numbers{0.0F};
  for (int e = format.min_exponent; power_of_two(e) <= format.largest; ++e) {
    for (int m = 0; m < 1 << format.mantissa_bits; ++m) {
      const float x = power_of_two(e) * (1.0F + static_cast<float>(m) * power_of_two(-format.mantissa_bits));
      if (e == format.min_exponent) numbers.push_back(x - power_of_two(e));  // subnormal
      if (x <= format.largest) numbers.push_back(x);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  for (std::size_t i = 0; i + 1 < numbers.size(); ++i) {
    const float low = numbers[i], high = numbers[i + 1], middle = 0.5F * (low + high);
    EXPECT_EQ(round_to(format, low), low);
    EXPECT_EQ(round_to(format, -low), -low);
    EXPECT_EQ(round_to(format, middle), i % 2 == 0 ? low : high) << middle;
    EXPECT_EQ(round_to(format, std::nextafter(middle, 0.0F)), low);
    EXPECT_EQ(round_to(format, std::nextafter(middle, 1e9F)), high);
  }
  EXPECT_EQ(round_to(format, 1.5F * format.largest), format.largest);
  EXPECT_EQ(round_to(format, -1e9F), -format.largest);
}

TEST(Formats, RoundToNearestEvenAndSaturate) {
  expect_rounds_to_nearest_even(kE2m1);
  expect_rounds_to_nearest_even(kE4m3);
}

TEST(Formats, E2m1IsTheKnownList) {
  std::set<float> numbers;
  for (float x = 0.0F; x < 8.0F; x += 0.01F)
    numbers.insert(round_to(kE2m1, x));
  EXPECT_EQ(numbers, (std::set<float>{0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F}));
}

reference::Matrix as_token(const std::vector<float>& numbers) {
  reference::Matrix token(1, static_cast<Eigen::Index>(numbers.size()));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    token(0, static_cast<Eigen::Index>(i)) = static_cast<double>(numbers[i]);
  return token;
}

const StudiedFormat& format_named(std::string_view name) {
  return *std::find_if(kFormats.begin(), kFormats.end(),
                       [&](const StudiedFormat& f) { return f.name == name; });
}

TEST(Quantize, KeepsTheLargestAndHitsTheGrid) {
  std::vector<float> numbers = {0.0F, 0.3F, -7.0F, 2.4F, 3.6F,  -0.5F, 1.0F, 6.9F,
                                0.1F, 0.2F, 0.4F,  5.0F, -2.0F, -3.0F, 1.5F, 0.7F};
  numbers.resize(32, 0.0F);  // one group of every format
  const reference::Matrix token = as_token(numbers);
  const auto to = [&](std::string_view name) { return quantized(format_named(name), token); };
  EXPECT_EQ(to("int4")(0, 2), -7.0);  // scale 1
  EXPECT_EQ(to("int4")(0, 3), 2.0);
  EXPECT_EQ(to("int4")(0, 4), 4.0);
  EXPECT_EQ(to("int4")(0, 5), 0.0) << "ties to even";
  for (const char* name : {"int8", "e4m3", "nvfp4"}) {
    EXPECT_NEAR(to(name)(0, 2), -7.0, 1e-5) << name;
    EXPECT_EQ(to(name)(0, 0), 0.0);
  }
  EXPECT_EQ(to("mxfp4")(0, 2), -6.0) << "scale 2^(2-2): 7 saturates at 6";
  EXPECT_EQ(to("mxfp4")(0, 3), 2.0);
  EXPECT_EQ(to("mxfp4:rceil")(0, 2), -8.0) << "scale 2: no saturation, 3.5 to even";
}

TEST(Quantize, AZeroTokenStaysZero) {
  reference::Matrix zero = reference::Matrix::Zero(2, 128);
  zero(1, 5) = 1.0;  // NVFP4 needs a number in the tensor
  for (const StudiedFormat& format : kFormats)
    EXPECT_EQ(quantized(format, zero).row(0).norm(), 0.0) << format.name;
}

double number(const harness::CsvRow& row, const char* column) {
  return std::stod(row.at(column));
}

const harness::CsvRow& row_of(const std::vector<harness::CsvRow>& rows, std::string_view format) {
  return *std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.at("format") == format; });
}

// Simulated before (docs/numerics.md, Downstream numbers) at n = 4096: int8 8.6e-3, e4m3 2.65e-2,
// NVFP4 9.5e-2 on normal data; rotation gains 27 dB for int8 and loses 24 dB for e4m3 when one channel is
// massive.
TEST(Rotation, HelpsIntegersAndHidesNothingInFloats) {
  const auto with = [](InputClass input, StudiedTokens::Rotated cast, std::string_view format) {
    return number(row_of(StudiedTokens(Dtype::f16, 4096, input, 32, 1).rows(cast), format), "rel_l2");
  };
  using Rotated = StudiedTokens::Rotated;
  EXPECT_NEAR(with(InputClass::normal, Rotated::plain, "int8"), 8.6e-3, 3e-4);
  EXPECT_NEAR(with(InputClass::normal, Rotated::plain, "e4m3"), 2.65e-2, 2e-4);
  EXPECT_NEAR(with(InputClass::normal, Rotated::exact, "nvfp4"), 9.5e-2, 3e-3);
  EXPECT_NEAR(with(InputClass::massive_channel, Rotated::plain, "int8"), 6.4e-2, 1e-2);
  EXPECT_NEAR(with(InputClass::massive_channel, Rotated::exact, "int8"), 2.8e-3, 3e-4);
  EXPECT_LT(with(InputClass::massive_channel, Rotated::plain, "e4m3"), 3e-3);
  EXPECT_NEAR(with(InputClass::massive_channel, Rotated::exact, "e4m3"), 2.5e-2, 2e-3);
}

// The error is measured in the token's own columns: rotating back must undo rotation and signs.
TEST(Rotation, BulkErrorOfAnExactRotationComesBackToItsColumns) {
  const StudiedTokens tokens(Dtype::f16, 1024, InputClass::normal, 16, 1);
  const harness::CsvRow row = row_of(tokens.rows(StudiedTokens::Rotated::exact), "int8");
  EXPECT_NEAR(number(row, "bulk_rel_l2"), number(row, "rel_l2"), 0.02 * number(row, "rel_l2"))
      << "without outliers the bulk is everything";
  EXPECT_EQ(number(row, "transform_rel_l2"), 0.0);
}

TEST(Rotation, AVariantsOwnRoundingIsReported) {
  const StudiedTokens tokens(Dtype::bf16, 128, InputClass::normal, 64, 1);
  harness::Workspace workspace;
  const DeviceInfo device = this_device();
  const harness::Performer cpu(cpu::variant, harness::Source::measured, device);
  const auto rows = tokens.rows(cpu, workspace);
  ASSERT_EQ(rows.size(), kFormats.size());
  EXPECT_NEAR(number(rows[0], "transform_rel_l2"), 0.4247 / 256, 1e-4) << "one bf16 rounding";
  // Codes written behind the rotation are those of the reference on rotated rows; the reference of an
  // emulation.
  const harness::Performer warp(warp_shuffle::variant, harness::Source::emulated, device);
  const auto apart = tokens.rows(warp, workspace);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at("quantizer"), "own");
    EXPECT_EQ(apart[i].at("quantizer"), "reference");
    EXPECT_EQ(apart[i].at("rel_l2"), rows[i].at("rel_l2")) << "warp_shuffle has the bits of cpu";
  }
}

TEST(Rotation, TasksNameEveryFormatAndPerformerOnce) {
  const DeviceInfo device = this_device();
  const auto performers = harness::performers({&cpu::variant}, device);
  harness::Workspace workspace;
  const auto all = tasks({device, performers, workspace});
  EXPECT_EQ(all.size(), 4U * 7U * 2U * 3U);
  std::set<std::string> names;
  for (const harness::Task& task : all)
    names.insert(task.name());
  EXPECT_EQ(names.size(), all.size());
}

}  // namespace
}  // namespace fwht::quantization
