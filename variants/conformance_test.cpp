// One suite for every listed variant: each check x variant x dtype is a test of its own, made at run time
// from the registry, e.g. ConformanceGpu.naive/f16/Impulses. Suites whose name contains "Gpu" hold the
// variants in device memory (label gpu), the others those in host memory. SanitizeHost and SanitizeGpu hold
// the same with few small launches, for compute-sanitizer: --gtest_filter='SanitizeGpu.*'.
//
// What neither an H200 nor an A100 supports has no test. Nor has `auto`, whose plans are those of other
// variants: auto/auto_test.cpp shows that it only forwards.
#include <fmt/format.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <set>
#include <sstream>

#include "common/testing/test_main.hpp"
#include "reference/conformance/broken_variants.hpp"
#include "reference/conformance/checks.hpp"
#include "variants/registry.hpp"

namespace fwht::conformance {

// For readable test names.
void PrintTo(const Broken& broken, std::ostream* out) {
  *out << broken.variant.name;
}

namespace {

const DeviceInfo& device() {
  static const DeviceInfo info = this_device();
  return info;
}

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

/// The sentence with which the variant refuses the dtype altogether; empty when it supports something there.
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

std::string why_nothing_is_supported(const Variant& variant, Dtype dtype) {
  return why_nothing_is_supported(variant, dtype, device());
}

/// Whether the suite has tests of the variant and dtype: a described machine supports something. This one is
/// not asked, because a driver takes long to start and every host case is a process.
bool has_tests(const Variant& variant, Dtype dtype) {
  if (&variant == &automatic::variant) return false;
  return why_nothing_is_supported(variant, dtype, h200_description()).empty() ||
         why_nothing_is_supported(variant, dtype, a100_description()).empty();
}

/// Whether the check has something to look at: some machine, this one or a described one, supports it.
bool belongs_to(const Check& check, const Variant& variant, Dtype dtype) {
  if (check.device_only && variant.memory != Memory::device) return false;
  // Its plain results are auto's, whose plans are those of other variants.
  if (&variant == &rotate_then_quantize::variant && !check.of_encodings) return false;
  if (!check.of_operators && !check.of_encodings) return true;
  for (const DeviceInfo& where : {device(), h200_description(), a100_description()}) {
    if (check.of_operators && takes_operators(variant, dtype, where)) return true;
    if (check.of_encodings && takes_encodings(variant, dtype, where)) return true;
  }
  return false;
}

std::string joined(const std::map<std::string, int>& reasons) {
  constexpr std::size_t kMost = 6;
  std::string text;
  std::size_t count = 0;
  for (const auto& [reason, times] : reasons) {
    if (++count > kMost) return fmt::format("{}; and {} other reasons", text, reasons.size() - kMost);
    text += fmt::format("{}{}{}", text.empty() ? "" : "; ", reason,
                        times > 1 ? fmt::format(" ({} times)", times) : "");
  }
  return text;
}

/// Makes of a report what the test becomes: failed by each failure or when nothing was run for no reason,
/// skipped when nothing was run for a reason, else passed.
void conclude(const Variant& variant, const Report& report) {
  for (const std::string& failure : report.failures)
    ADD_FAILURE() << variant.name << ": " << failure;
  if (report.failure_count > static_cast<std::int64_t>(report.failures.size())) {
    ADD_FAILURE() << report.failure_count << " failures in all";
  }
  if (report.failure_count > 0 || report.cases > 0) return;
  if (report.skipped.empty()) {
    ADD_FAILURE() << "nothing was run, and no reason was given";
    return;
  }
  GTEST_SKIP() << joined(report.skipped);
}

using Machine = DeviceInfo (*)();

DeviceInfo one_multiprocessor() {
  DeviceInfo info = device();
  info.sm_count = std::min(info.sm_count, 1);
  return info;
}

DeviceInfo one_multiprocessor_without_l2() {
  DeviceInfo info = one_multiprocessor();
  info.l2_bytes = 0;
  return info;
}

class ConformanceTest : public testing::Test {
 public:
  ConformanceTest(const Variant& variant, Dtype dtype, const Check& check, Machine machine)
      : variant_(variant), dtype_(dtype), check_(check), machine_(machine) {}

 private:
  void TestBody() override {
    if (const std::string why_not = why_nothing_is_supported(variant_, dtype_); !why_not.empty()) {
      GTEST_SKIP() << variant_.name << ": " << why_not;
    }
    ConformanceRun session(variant_, dtype_, machine_(), all_sizes());
    run(check_, session);
    RecordProperty("cases", std::to_string(session.report().cases));
    if (!session.report().skipped.empty())
      std::cout << "left out: " << joined(session.report().skipped) << '\n';
    conclude(variant_, session.report());
  }

  const Variant& variant_;
  Dtype dtype_;
  Check check_;
  Machine machine_;
};

void register_test(
    const char* suite, const Variant& variant, Dtype dtype, const Check& check, const std::string& name,
    Machine machine = [] { return device(); }) {
  testing::RegisterTest(suite, name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                        [&variant, dtype, check, machine]() -> testing::Test* {
                          return new ConformanceTest(variant, dtype, check, machine);
                        });
}

std::string test_name(const Variant& variant, Dtype dtype, std::string_view check) {
  return fmt::format("{}/{}/{}", variant.name, name_of(dtype), check);
}

void register_all() {
  for (const Variant* variant : registry()) {
    const bool on_device = variant->memory == Memory::device;
    for (const Dtype dtype : kAllDtypes) {
      if (!has_tests(*variant, dtype)) continue;
      for (const Check& check : all_checks()) {
        if (!belongs_to(check, *variant, dtype)) continue;
        register_test(on_device ? "ConformanceGpu" : "ConformanceHost", *variant, dtype, check,
                      test_name(*variant, dtype, check.name));
      }
      register_test(on_device ? "SanitizeGpu" : "SanitizeHost", *variant, dtype,
                    {"SmallShapes", small_shapes}, test_name(*variant, dtype, "SmallShapes"));
      if (const Check small{"SmallEncodings", small_encodings, false, false, true};
          belongs_to(small, *variant, dtype)) {
        register_test(on_device ? "SanitizeGpu" : "SanitizeHost", *variant, dtype, small,
                      test_name(*variant, dtype, small.name));
      }
      if (!on_device) continue;
      register_test("SanitizeGpu", *variant, dtype, {"OneMultiprocessor", crowded_shapes},
                    test_name(*variant, dtype, "OneMultiprocessor"), one_multiprocessor);
      register_test("SanitizeGpu", *variant, dtype, {"WithoutL2", crowded_shapes},
                    test_name(*variant, dtype, "WithoutL2"), one_multiprocessor_without_l2);
    }
  }
}

// ------------------------------------------------------------ the suite is complete, and not all of it is
// skipped

std::set<std::string> registered_tests() {
  std::set<std::string> names;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      names.insert(fmt::format("{}.{}", suite.name(), suite.GetTestInfo(t)->name()));
    }
  }
  return names;
}

TEST(ConformanceCoverage, EveryVariantHasEveryCheckForEveryDtype) {
  const std::set<std::string> names = registered_tests();
  for (const Variant* variant : registry()) {
    const bool on_device = variant->memory == Memory::device;
    for (const Dtype dtype : kAllDtypes) {
      if (!has_tests(*variant, dtype)) {
        // The golden table says which dtypes a variant takes; only a missing back end and auto are beside it.
        const std::string why_not = why_nothing_is_supported(*variant, dtype, h200_description());
        EXPECT_TRUE(variant == &automatic::variant || why_not.starts_with("built without") ||
                    why_not.find(name_of(dtype)) != std::string::npos)
            << variant->name << "/" << name_of(dtype) << " has no tests: " << why_not;
        continue;
      }
      for (const Check& check : all_checks()) {
        if (!belongs_to(check, *variant, dtype)) continue;
        EXPECT_TRUE(names.contains(fmt::format("{}.{}", on_device ? "ConformanceGpu" : "ConformanceHost",
                                               test_name(*variant, dtype, check.name))));
      }
      EXPECT_TRUE(names.contains(fmt::format("{}.{}", on_device ? "SanitizeGpu" : "SanitizeHost",
                                             test_name(*variant, dtype, "SmallShapes"))));
    }
  }
}

/// Dtypes for which the variant really transforms something, rightly, on this machine.
int dtypes_that_run(const Variant& variant) {
  int count = 0;
  for (const Dtype dtype : kAllDtypes) {
    if (!why_nothing_is_supported(variant, dtype).empty()) continue;
    EXPECT_TRUE(has_tests(variant, dtype) || &variant == &automatic::variant)
        << variant.name << "/" << name_of(dtype) << " runs here, but has no tests";
    ConformanceRun session(variant, dtype, device(), std::array<std::int64_t, 3>{128, 1024, 8192});
    run({"SmallShapes", small_shapes}, session);
    EXPECT_EQ(session.report().failure_count, 0) << variant.name;
    count += session.report().cases > 0;
  }
  return count;
}

/// A refusal of the whole variant that a machine with a CUDA device may give: another machine or build is
/// needed.
bool needs_another_machine(const Variant& variant) {
  return std::all_of(std::begin(kAllDtypes), std::end(kAllDtypes), [&](Dtype dtype) {
    const std::string why_not = why_nothing_is_supported(variant, dtype);
    return why_not.find("compute capability") != std::string::npos || why_not.starts_with("built without") ||
           why_not.find("cannot be loaded") != std::string::npos;
  });
}

void expect_variants_run(Memory memory) {
  int ran = 0;
  for (const Variant* variant : registry()) {
    if (variant->memory != memory) continue;
    if (needs_another_machine(*variant)) {
      std::cout << variant->name << " was not run: " << why_nothing_is_supported(*variant, Dtype::f16)
                << '\n';
      continue;
    }
    const int dtypes = dtypes_that_run(*variant);
    EXPECT_GT(dtypes, 0) << variant->name << " runs nothing on this machine: "
                         << why_nothing_is_supported(*variant, Dtype::f16);
    ran += dtypes > 0;
  }
  EXPECT_GT(ran, 0) << "no variant was run on this machine: everything else in this suite was skipped";
}

TEST(ConformanceCoverage, HostVariantsReallyRun) {
  expect_variants_run(Memory::host);
}

TEST(ConformanceCoverageGpu, DeviceVariantsReallyRun) {
  if (!device().has_cuda()) GTEST_SKIP() << device().why_no_cuda;
  expect_variants_run(Memory::device);
}

// ------------------------------------------------------------ the checks can fail

constexpr std::int64_t kSomeSizes[] = {2, 4, 32, 128, 1024};
constexpr std::string_view kSomeOperators[] = {"12x8", "116x2", "116tx2", "128+signs", "signs+12x4", "d5x8"};

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;)
    words.push_back(word);
  return words;
}

const Check* check_named(std::string_view name) {
  for (const Check& check : all_checks()) {
    if (check.name == name) return &check;
  }
  return nullptr;
}

// What becomes of a report, without becoming the outcome of this test.
std::vector<testing::TestPartResult> concluded(const Report& report) {
  testing::TestPartResultArray results;
  {
    testing::ScopedFakeTestPartResultReporter catcher(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    conclude(broken_variants().front().variant, report);
  }
  std::vector<testing::TestPartResult> parts;
  parts.reserve(static_cast<std::size_t>(results.size()));
  for (int i = 0; i < results.size(); ++i)
    parts.push_back(results.GetTestPartResult(i));
  return parts;
}

class BrokenVariantTest : public testing::TestWithParam<Broken> {};

TEST_P(BrokenVariantTest, IsCaught) {
  const Broken& broken = GetParam();
  if (broken.defect == Defect::none) GTEST_SKIP() << "the control; see SoundVariant";
  for (const std::string& name : words_of(broken.caught_by)) {
    const Check* check = check_named(name);
    ASSERT_NE(check, nullptr) << "there is no check " << name;
    ConformanceRun session(broken.variant, Dtype::f16, device(), kSomeSizes, kSomeOperators);
    session.stop_at_first_failure();
    run(*check, session);
    EXPECT_GT(session.report().failure_count, 0) << name << " does not catch " << broken.variant.name;
    // Lie 3 of ten: failures are counted, and the suite is green.
    const auto parts = concluded(session.report());
    EXPECT_TRUE(!parts.empty() && parts.front().failed()) << broken.variant.name;
    for (const std::string& failure : session.report().failures) {
      EXPECT_FALSE(failure.starts_with("exception")) << name << " broke down instead of judging: " << failure;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checks, BrokenVariantTest,
                         testing::ValuesIn(broken_variants().begin(), broken_variants().end()),
                         [](const auto& param) { return std::string(param.param.variant.name); });

// The same plan without a defect passes everything: what is caught above is the defect.
TEST(SoundVariant, PassesEveryCheck) {
  const Broken& sound = broken_variants().front();
  ASSERT_EQ(sound.defect, Defect::none);
  for (const Check& check : all_checks()) {
    if (check.device_only) continue;
    ConformanceRun session(sound.variant, Dtype::f16, device(), kSomeSizes, kSomeOperators);
    run(check, session);
    EXPECT_EQ(session.report().failure_count, 0)
        << check.name << ": " << (session.report().failures.empty() ? "" : session.report().failures.front());
  }
}

// Lie 3 of ten; BrokenVariantTest shows it for every kind of failure.
TEST(TenLies, Lie03EveryFailureFailsTheTest) {
  Report many;  // one failure among many cases still fails
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

// Every check of host memory catches some defect, save one: null and overlapping pointers are refused by
// Plan::execute for every variant alike, so that no variant can get it wrong
// (common/contract/variant_test.cpp tests it).
TEST(BrokenVariants, EveryCheckCatchesSomething) {
  std::set<std::string> catching{"RefusedPointers"};
  for (const Broken& broken : broken_variants()) {
    for (const std::string& name : words_of(broken.caught_by))
      catching.insert(name);
  }
  for (const Check& check : all_checks()) {
    if (check.device_only) continue;
    EXPECT_TRUE(catching.contains(std::string(check.name))) << check.name << " catches nothing";
  }
}

}  // namespace
}  // namespace fwht::conformance

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  fwht::conformance::register_all();
  return fwht::run_all_tests();
}
