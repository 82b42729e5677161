#include "experiments/accuracy/accuracy.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "variants/registry.hpp"

namespace fwht::accuracy {
namespace {

using reference::Checked;
using reference::InputClass;

Checked check_cpu(const Samples& samples) {
  const auto the_plan = plan(cpu::variant, samples.problem(), this_device());
  support::Slices slices(Memory::host, Placement::in_place, samples.problem().span_bytes(), 1);
  return samples.check(*the_plan, slices);
}

TEST(Accuracy, MeasuresWhatTheModelPredicts) {
  for (const Dtype dtype : kAllDtypes) {
    const Samples samples({dtype, 256, InputClass::normal}, 256, {1, 2, 3});
    const Checked checked = check_cpu(samples);
    ASSERT_TRUE(checked.verdict) << checked.verdict.message;
    EXPECT_EQ(checked.stats.elements, 3 * 256 * 256);
    const auto the_plan = plan(cpu::variant, samples.problem(), this_device());
    const support::CsvRow row = measured_row(cpu::variant, samples, the_plan->numerics(), checked);
    EXPECT_EQ(row.at("status"), "ok");
    EXPECT_EQ(row.at("seeds"), "1;2;3");
    EXPECT_EQ(row.at("elements"), "196608");
    EXPECT_EQ(row.at("source"), "measured");
    EXPECT_NEAR(std::stod(row.at("ratio")), 1.0, 0.05);
    EXPECT_NEAR(std::stod(row.at("rel_l2")) / std::stod(row.at("predicted_rel_l2")),
                std::stod(row.at("ratio")), 1e-4);
  }
}

TEST(Accuracy, EverySeedIsOtherData) {
  const Samples samples({Dtype::f16, 64, InputClass::uniform}, 16, {1, 2, 1});
  const std::size_t part = 64 * 16 * 2;
  ASSERT_EQ(samples.raw().size(), 3 * part);
  EXPECT_NE(std::memcmp(samples.raw().data(), samples.raw().data() + part, part), 0);
  EXPECT_EQ(std::memcmp(samples.raw().data(), samples.raw().data() + 2 * part, part), 0);
}

// A fault in the rows of the last seed only.
TEST(Accuracy, AWrongRowOfAnySeedIsFound) {
  class LastRowWrong final : public Plan {
   public:
    explicit LastRowWrong(const Problem& p) : Plan(p), correct_(plan(cpu::variant, p, this_device())) {}
    NumericModel numerics() const override { return correct_->numerics(); }
    Settings settings() const override { return {}; }

   private:
    void enqueue(const void* in, void* out, Stream stream) const override {
      correct_->execute(in, out, stream);
      static_cast<std::uint16_t*>(out)[problem().elements() - 1] ^= 0x7FU;
    }
    std::unique_ptr<Plan> correct_;
  };
  for (const InputClass input : summary_inputs()) {
    const Samples samples({Dtype::f16, 256, input}, 8, {1, 2, 3});
    EXPECT_TRUE(check_cpu(samples).verdict) << reference::name_of(input);
    support::Slices slices(Memory::host, Placement::in_place, samples.problem().span_bytes(), 1);
    EXPECT_FALSE(samples.check(LastRowWrong(samples.problem()), slices).verdict) << reference::name_of(input);
  }
}

TEST(Accuracy, RowsRoundUp) {
  EXPECT_EQ(rows_per_seed(32768, 1 << 18), 8);
  EXPECT_EQ(rows_per_seed(32768, 100), 1);
  EXPECT_EQ(rows_per_seed(3, 100), 34);
}

TEST(Accuracy, KeysAgree) {
  const Samples samples({Dtype::bf16, 64, InputClass::fa3_mixture}, 4, {1});
  EXPECT_EQ(accuracy_key(failed_row(cpu::variant, samples, "x")), accuracy_key(cpu::variant, samples.what()));
}

}  // namespace
}  // namespace fwht::accuracy
