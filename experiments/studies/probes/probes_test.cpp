#include "experiments/studies/probes/probes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace fwht::probes {
namespace {

using reference::kAmpereTensorCore;
using reference::kHopperTensorCore;
using reference::TensorCore;

// The probes must find out what a model is that they know nothing of.
TEST(Probes, FindWidthAndLengthOfAnyTensorCore) {
  for (const TensorCore core : {kHopperTensorCore, kAmpereTensorCore, TensorCore{24, 4}}) {
    const Evaluate evaluate = by_model(core);
    for (const Instruction instruction : {Instruction::mma_f32_f16, Instruction::mma_f32_bf16}) {
      EXPECT_EQ(surviving_bits(evaluate, instruction), core.fraction_bits);
      EXPECT_EQ(fused_products(evaluate, instruction), core.fused_terms);
    }
    EXPECT_EQ(fused_products(evaluate, Instruction::mma_f16_f16), core.fused_terms);
  }
}

TEST(Probes, RandomDotsTellTensorCoresApart) {
  for (const Instruction instruction : kInstructions) {
    const std::vector<Dot> dots = random_dots(instruction, 2000, kStep, 1);
    const auto hopper = by_model(kHopperTensorCore)(instruction, dots);
    EXPECT_EQ(mismatches(hopper, by_model(kHopperTensorCore)(instruction, dots)), 0);
    for (const TensorCore other : {kAmpereTensorCore, TensorCore{25, 8}, TensorCore{25, 4}})
      EXPECT_GT(mismatches(hopper, by_model(other)(instruction, dots)), 20);
    if (accumulator_of(instruction) == reference::Accumulator::f16) continue;
    for (const int bits : {23, 24, 26})
      EXPECT_GT(mismatches(hopper, by_model({bits, 16})(instruction, dots)), 20) << bits;
    const auto finite = [](double x) { return std::isfinite(x); };
    EXPECT_TRUE(std::all_of(hopper.begin(), hopper.end(), finite));
  }
}

// Order does not matter where all products are added at once; it does where two blocks are chained.
TEST(Probes, AShiftShowsAChain) {
  const std::vector<Dot> dots = random_dots(Instruction::mma_f16_f16, 2000, kStep, 1);
  const auto differing = [&](TensorCore core) {
    const Evaluate evaluate = by_model(core);
    return mismatches(evaluate(Instruction::mma_f16_f16, dots),
                      evaluate(Instruction::mma_f16_f16, shifted(dots, 2)));
  };
  EXPECT_EQ(differing(kHopperTensorCore), 0);
  EXPECT_GT(differing(kAmpereTensorCore), 100);
}

// docs/numerics.md, fp32 sums: -3.8e-8 per pass that does not fit 24 bits.
TEST(Probes, TruncationHasAGain) {
  const std::vector<Dot> dots = transform_dots(Instruction::mma_f32_bf16, 20000, kStep, 1);
  const double gain = truncation_gain(dots, by_model(kHopperTensorCore)(Instruction::mma_f32_bf16, dots));
  EXPECT_LT(gain, -2e-8);
  EXPECT_GT(gain, -6e-8);
}

const harness::CsvRow& row_of(const std::vector<harness::CsvRow>& rows, const std::string& probe) {
  return *std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.at("probe") == probe; });
}

TEST(Probes, ADisagreementIsIncorrect) {
  const auto right = rows(by_model(kHopperTensorCore), Instruction::mma_f32_f16, kHopperTensorCore);
  for (const auto& row : right)
    EXPECT_EQ(row.at("status"), "ok") << row.at("probe");
  EXPECT_EQ(right.size(), 19U);
  EXPECT_EQ(row_of(right, "fit_25_bits_16_products").at("mismatches"), "0");
  const auto wrong = rows(by_model(kAmpereTensorCore), Instruction::mma_f32_f16, kHopperTensorCore);
  for (const char* probe :
       {"fraction_bits", "fused_products", "random", "chain_of_4", "xor_shift", "truncation_gain"})
    EXPECT_EQ(row_of(wrong, probe).at("status"), "incorrect") << probe;
}

TEST(ProbesGpu, TheDeviceAddsAsTheModelSays) {
  const DeviceInfo device = this_device();
  if (!device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
  for (const Instruction instruction : kInstructions) {
    if (!has_instruction(instruction, device)) continue;
    const TensorCore core = device.compute_capability() >= 90 ? kHopperTensorCore : kAmpereTensorCore;
    for (const auto& row : rows(by_device(), instruction, core))
      EXPECT_EQ(row.at("status"), "ok")
          << name_of(instruction) << " " << row.at("probe") << " " << row.at("value");
  }
}

}  // namespace
}  // namespace fwht::probes
