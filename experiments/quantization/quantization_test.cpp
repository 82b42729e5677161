#include "experiments/quantization/quantization.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "experiments/quantization/formats.hpp"
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

TEST(Quantize, KeepsTheLargestAndHitsTheGrid) {
  const std::vector<float> token = {0.0F, 0.3F, -7.0F, 2.4F, 3.6F,  -0.5F, 1.0F, 6.9F,
                                    0.1F, 0.2F, 0.4F,  5.0F, -2.0F, -3.0F, 1.5F, 0.7F};
  std::vector<float> to(token.size());
  quantize(Format::int4, token, to);  // scale 1
  EXPECT_EQ(to[2], -7.0F);
  EXPECT_EQ(to[3], 2.0F);
  EXPECT_EQ(to[4], 4.0F);
  EXPECT_EQ(to[5], 0.0F) << "ties to even";
  for (const Format format : {Format::int8, Format::e4m3, Format::nvfp4}) {
    quantize(format, token, to);
    EXPECT_NEAR(to[2], -7.0F, 1e-5) << name_of(format);
    EXPECT_EQ(to[0], 0.0F);
  }
  quantize(Format::mxfp4, token, to);  // scale 2^(2-2): 7 saturates at 6
  EXPECT_EQ(to[2], -6.0F);
  EXPECT_EQ(to[3], 2.0F);
}

TEST(Quantize, AZeroTokenStaysZero) {
  const std::vector<float> zero(64, 0.0F);
  for (const Format format : kFormats) {
    std::vector<float> to(64, 1.0F);
    quantize(format, zero, to);
    EXPECT_EQ(to, zero) << name_of(format);
  }
}

double number(const harness::CsvRow& row, const char* column) {
  return std::stod(row.at(column));
}

const harness::CsvRow& row_of(const std::vector<harness::CsvRow>& rows, Format format) {
  return *std::find_if(rows.begin(), rows.end(),
                       [&](const auto& row) { return row.at("format") == name_of(format); });
}

// Simulated before (docs/numerics.md, Downstream numbers) at n = 4096: int8 8.6e-3, e4m3 2.65e-2,
// NVFP4 9.5e-2 on normal data; rotation gains 27 dB for int8 and loses 24 dB for e4m3 when one channel is
// massive.
TEST(Rotation, HelpsIntegersAndHidesNothingInFloats) {
  const auto with = [](InputClass input, Tokens::Cast cast, Format format) {
    return number(row_of(Tokens(Dtype::f16, 4096, input, 32, 1).rows(cast), format), "rel_l2");
  };
  using Cast = Tokens::Cast;
  EXPECT_NEAR(with(InputClass::normal, Cast::plain, Format::int8), 8.6e-3, 3e-4);
  EXPECT_NEAR(with(InputClass::normal, Cast::plain, Format::e4m3), 2.65e-2, 2e-4);
  EXPECT_NEAR(with(InputClass::normal, Cast::exact, Format::nvfp4), 9.5e-2, 3e-3);
  EXPECT_NEAR(with(InputClass::massive_channel, Cast::plain, Format::int8), 6.4e-2, 1e-2);
  EXPECT_NEAR(with(InputClass::massive_channel, Cast::exact, Format::int8), 2.8e-3, 3e-4);
  EXPECT_LT(with(InputClass::massive_channel, Cast::plain, Format::e4m3), 3e-3);
  EXPECT_NEAR(with(InputClass::massive_channel, Cast::exact, Format::e4m3), 2.5e-2, 2e-3);
}

// The error is measured in the token's own columns: rotating back must undo rotation and signs.
TEST(Rotation, BulkErrorOfAnExactRotationComesBackToItsColumns) {
  const Tokens tokens(Dtype::f16, 1024, InputClass::normal, 16, 1);
  const harness::CsvRow row = row_of(tokens.rows(Tokens::Cast::exact), Format::int8);
  EXPECT_NEAR(number(row, "bulk_rel_l2"), number(row, "rel_l2"), 0.02 * number(row, "rel_l2"))
      << "without outliers the bulk is everything";
  EXPECT_EQ(number(row, "transform_rel_l2"), 0.0);
}

TEST(Rotation, AVariantsOwnRoundingIsReported) {
  const Tokens tokens(Dtype::bf16, 128, InputClass::normal, 64, 1);
  harness::Workspace workspace;
  const DeviceInfo device = this_device();
  const harness::Performer cpu(cpu::variant, harness::Source::measured, device);
  const auto rows = tokens.rows(cpu.run(tokens.problem(), tokens.signed_raw(), workspace).output);
  EXPECT_NEAR(number(rows[0], "transform_rel_l2"), 0.4247 / 256, 1e-4) << "one bf16 rounding";
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
