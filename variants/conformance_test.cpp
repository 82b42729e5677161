// The conformance tests of transforms; reference/conformance/driver.hpp makes them from the registry.
// SanitizeHost and SanitizeGpu hold the same with few small launches, for compute-sanitizer:
// --gtest_filter='SanitizeGpu.*'.
//
// What neither an H200 nor an A100 supports has no test. Nor has `auto`, whose plans are those of other
// variants: auto/auto_test.cpp shows that it only forwards.
#include <array>

#include "reference/conformance/checks.hpp"
#include "reference/conformance/driver.hpp"
#include "variants/registry.hpp"

namespace fwht::conformance {
namespace {

/// Whether the variant takes an operator of several factors, or with signs.
bool takes_operators(const Variant& variant, Dtype dtype, const DeviceInfo& where) {
  return std::any_of(all_operators().begin(), all_operators().end(), [&](std::string_view text) {
    return static_cast<bool>(variant.supports(make_problem(dtype, parse_operator(text), 1), where));
  });
}

/// Whether the variant takes an encoding with some operator.
bool takes_encodings(const Variant& variant, Dtype dtype, const DeviceInfo& where) {
  for (const std::string_view text : all_encodings()) {
    for (const std::string_view op : {"128", "1024", "8192", "32768", "28x512"}) {
      const std::optional<Problem> problem = encoded(make_problem(dtype, parse_operator(op), 1), text);
      if (problem && variant.supports(*problem, where)) return true;
    }
  }
  return false;
}

std::string why_nothing_is_supported(const Variant& variant, Dtype dtype, const DeviceInfo& where) {
  std::string why_not;
  for (const std::int64_t n : all_sizes()) {
    const Support support = variant.supports(make_problem(dtype, n, 1), where);
    if (support) return {};
    if (why_not.empty() || n == 128) why_not = support.why_not;
  }
  if (takes_operators(variant, dtype, where)) return {};
  return why_not;
}

bool belongs_to(const Check& check, const Variant& variant, Dtype dtype) {
  // Its plain results are auto's, whose plans are those of other variants.
  const bool sanitizes = check.body == small_shapes || check.body == crowded_shapes;
  if (&variant == &rotate_then_quantize::variant && !check.of_encodings && !sanitizes) return false;
  if (std::find(std::begin(kAllDtypes), std::end(kAllDtypes), dtype) == std::end(kAllDtypes))
    return takes_every_dtype(check);
  if (!check.of_operators && !check.of_encodings) return true;
  for (const DeviceInfo& where : {device(), h200_description(), a100_description()}) {
    if (check.of_operators && takes_operators(variant, dtype, where)) return true;
    if (check.of_encodings && takes_encodings(variant, dtype, where)) return true;
  }
  return false;
}

const DeviceInfo& one_multiprocessor() {
  static const DeviceInfo info = [] {
    DeviceInfo one = device();
    one.sm_count = std::min(one.sm_count, 1);
    return one;
  }();
  return info;
}

const DeviceInfo& one_multiprocessor_without_l2() {
  static const DeviceInfo info = [] {
    DeviceInfo one = one_multiprocessor();
    one.l2_bytes = 0;
    return one;
  }();
  return info;
}

ConformanceRun small_run(const Variant& variant, Dtype dtype, const DeviceInfo& where) {
  static constexpr std::int64_t kSizes[] = {2, 4, 32, 128, 1024};
  static constexpr std::string_view kOperators[] = {"12x8",       "116x2", "116tx2", "128+signs",
                                                    "signs+12x4", "d5x8",  "64r",    "16rx2"};
  return {variant, dtype, where, kSizes, kOperators};
}

/// Of the shortest rows that `passes` takes, where the variant takes none of the usual ones.
ConformanceRun quick_run(const Variant& variant, Dtype dtype, const DeviceInfo& where) {
  ConformanceRun usual = {variant, dtype, where, std::array<std::int64_t, 3>{128, 1024, 8192}};
  if (!usual.sizes().empty()) return usual;
  return {variant, dtype, where, std::array<std::int64_t, 1>{1 << 16}};
}

Suite<ConformanceRun> suite() {
  const Check small{"SmallShapes", small_shapes};
  return {.name = "Conformance",
          .registry = registry(),
          .dtypes = {std::begin(kEveryDtype), std::end(kEveryDtype)},
          .checks = all_checks(),
          .more = {{"Sanitize", small},
                   {"Sanitize", {"SmallEncodings", small_encodings, false, false, true}},
                   {"Sanitize", {"OneMultiprocessor", crowded_shapes, true}, one_multiprocessor},
                   {"Sanitize", {"WithoutL2", crowded_shapes, true}, one_multiprocessor_without_l2}},
          .broken = broken_variants(),
          .without_defect = {"RefusedPointers"},  // common/contract/variant_test.cpp tests it
          .smallest = small,
          .make_run = [](const Variant& variant, Dtype dtype, const DeviceInfo& where) -> ConformanceRun {
            return {variant, dtype, where, all_sizes()};
          },
          .make_quick_run = quick_run,
          .make_small_run = small_run,
          .why_nothing = why_nothing_is_supported,
          .only_forwards = [](const Variant& variant) { return &variant == &automatic::variant; },
          .belongs = belongs_to};
}

// Lie 3 of ten: failures are counted, and the suite is green.
TEST(TenLies, Lie03OneFailureAmongManyCasesFails) {
  Report many;
  many.cases = 1000;
  many.failures.emplace_back("row 1");
  many.failure_count = 1;
  ASSERT_EQ(concluded(many).size(), 1U);
  EXPECT_TRUE(concluded(many).front().failed());
  many.failure_count = 500;  // more than are kept
  ASSERT_EQ(concluded(many).size(), 2U);
  EXPECT_NE(std::string(concluded(many).back().message()).find("500"), std::string::npos);
}

// Lie 9 of ten: everything is skipped, and the suite is green.
TEST(TenLies, Lie09ATestThatRanNothingHasNotPassed) {
  Report report;
  ASSERT_EQ(concluded(report).size(), 1U);
  EXPECT_TRUE(concluded(report).front().failed()) << "nothing ran, and nobody says why";
  report.skipped["no such size"] = 3;
  ASSERT_EQ(concluded(report).size(), 1U);
  EXPECT_TRUE(concluded(report).front().skipped());
  report.cases = 1;
  EXPECT_TRUE(concluded(report).empty()) << "passed";
}

}  // namespace
}  // namespace fwht::conformance

int main(int argc, char** argv) {
  return fwht::conformance::drive(argc, argv, fwht::conformance::suite());
}
