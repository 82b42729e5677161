// Tests from a registry: each check x variant x dtype is a test of its own, made at run time, e.g.
// ConformanceGpu.naive/f16/Impulses. Suites whose name contains "Gpu" hold the variants in device memory, the
// others those in host memory. Beside them, tests that the suite is complete, that it really runs, and that
// its checks can fail. Written once for every family; for test programs.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/test_main.hpp"
#include "reference/conformance/family_run.hpp"

namespace fwht::conformance {

inline const DeviceInfo& device() {
  static const DeviceInfo info = this_device();
  return info;
}

using Machine = const DeviceInfo& (*)();

/// What a family has to say to the driver.
template <class Run>
struct Suite {
  using Family = typename Run::Family;
  using Variant = VariantOf<Family>;
  /// A check of one suite beside the main one, on a machine that is described.
  struct More {
    std::string name;  ///< "Sanitize": SanitizeHost and SanitizeGpu
    CheckOf<Run> check;
    Machine machine = device;
  };

  std::string name;  ///< "Conformance": ConformanceHost and ConformanceGpu
  RegistryOf<Family> registry;
  std::vector<Dtype> dtypes;
  std::span<const CheckOf<Run>> checks;
  std::vector<More> more;
  std::span<const BrokenOf<Family>> broken;
  /// Checks of what no variant can get wrong, because the family's own code does it.
  std::set<std::string> without_defect;
  CheckOf<Run> smallest;  ///< shows that a variant really runs

  Run (*make_run)(const Variant&, Dtype, const DeviceInfo&);
  Run (*make_quick_run)(const Variant&, Dtype, const DeviceInfo&);  ///< to see that something runs
  Run (*make_small_run)(const Variant&, Dtype, const DeviceInfo&);  ///< for broken variants
  /// The sentence with which the variant refuses the dtype altogether; empty when it supports something.
  std::string (*why_nothing)(const Variant&, Dtype, const DeviceInfo&);
  /// Its plans are those of other variants.
  bool (*only_forwards)(const Variant&);
  /// Whether some machine lets the check look at something.
  bool (*belongs)(const CheckOf<Run>&, const Variant&, Dtype);

  /// Whether there are tests: a described machine supports something. This one is not asked, because a driver
  /// takes long to start and every host case is a process.
  bool has_tests(const Variant& variant, Dtype dtype) const {
    return !only_forwards(variant) && (why_nothing(variant, dtype, h200_description()).empty() ||
                                       why_nothing(variant, dtype, a100_description()).empty());
  }
  bool takes(const CheckOf<Run>& check, const Variant& variant, Dtype dtype) const {
    return (!check.device_only || variant.memory == Memory::device) && belongs(check, variant, dtype);
  }
  const CheckOf<Run>* check_named(std::string_view wanted) const {
    for (const CheckOf<Run>& check : checks)
      if (check.name == wanted) return &check;
    return nullptr;
  }
};

inline bool lacks_back_end(const std::string& why_not) {
  return why_not.starts_with("built without") || why_not.find("cannot be loaded") != std::string::npos;
}

inline std::string joined(const std::map<std::string, int>& reasons) {
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
inline void conclude(std::string_view variant, const Report& report) {
  for (const std::string& failure : report.failures)
    ADD_FAILURE() << variant << ": " << failure;
  if (report.failure_count > static_cast<std::int64_t>(report.failures.size()))
    ADD_FAILURE() << report.failure_count << " failures in all";
  if (report.failure_count > 0 || report.cases > 0) return;
  if (report.skipped.empty()) {
    ADD_FAILURE() << "nothing was run, and no reason was given";
    return;
  }
  GTEST_SKIP() << joined(report.skipped);
}

/// The same, without becoming the outcome of the test at hand.
inline std::vector<testing::TestPartResult> concluded(const Report& report) {
  testing::TestPartResultArray results;
  {
    testing::ScopedFakeTestPartResultReporter catcher(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    conclude("a variant", report);
  }
  std::vector<testing::TestPartResult> parts;
  parts.reserve(static_cast<std::size_t>(results.size()));
  for (int i = 0; i < results.size(); ++i)
    parts.push_back(results.GetTestPartResult(i));
  return parts;
}

inline void register_test(const std::string& suite, const std::string& name, std::function<void()> body) {
  class Test : public testing::Test {
   public:
    explicit Test(std::function<void()> body) : body_(std::move(body)) {}

   private:
    void TestBody() override { body_(); }
    std::function<void()> body_;
  };
  testing::RegisterTest(suite.c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                        [body = std::move(body)]() -> testing::Test* { return new Test(body); });
}

inline std::set<std::string> registered_tests() {
  std::set<std::string> names;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t)
      names.insert(fmt::format("{}.{}", suite.name(), suite.GetTestInfo(t)->name()));
  }
  return names;
}

inline std::vector<std::string> words_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;)
    words.push_back(word);
  return words;
}

template <class Run>
class Driver {
 public:
  explicit Driver(Suite<Run> suite) : suite_(std::move(suite)) {}

  /// Call once, before the tests run; this object lives as long as they do.
  void register_all() const {
    for_each_case([&](const std::string& suite, const std::string& name, const Variant& variant, Dtype dtype,
                      const CheckOf<Run>& check, Machine machine) {
      register_test(suite, name,
                    [this, &variant, dtype, check, machine] { test(variant, dtype, check, machine); });
    });
    register_test(suite_.name + "Coverage", "EveryVariantHasEveryCheckForEveryDtype",
                  [this] { expect_complete(); });
    register_test(suite_.name + "Coverage", "HostVariantsReallyRun",
                  [this] { expect_variants_run(Memory::host); });
    register_test(suite_.name + "CoverageGpu", "DeviceVariantsReallyRun", [this] {
      if (!device().has_cuda()) GTEST_SKIP() << device().why_no_cuda;
      expect_variants_run(Memory::device);
    });
    for (const Broken& broken : suite_.broken.subspan(1))
      register_test("BrokenVariant", std::string(broken.variant.name), [&] { expect_caught(broken); });
    register_test("SoundVariant", "PassesEveryCheck", [this] { expect_sound(); });
    register_test("BrokenVariants", "EveryCheckCatchesSomething", [this] { expect_checks_catch(); });
  }

 private:
  using Family = typename Run::Family;
  using Variant = VariantOf<Family>;
  using Broken = BrokenOf<Family>;

  template <class Body>
  void for_each_case(const Body& body) const {
    for (const Variant* variant : suite_.registry) {
      const std::string_view where = variant->memory == Memory::device ? "Gpu" : "Host";
      for (const Dtype dtype : suite_.dtypes) {
        if (!suite_.has_tests(*variant, dtype)) continue;
        const auto add = [&](std::string_view suite, const CheckOf<Run>& check, Machine machine) {
          if (!suite_.takes(check, *variant, dtype)) return;
          body(fmt::format("{}{}", suite, where),
               fmt::format("{}/{}/{}", variant->name, name_of(dtype), check.name), *variant, dtype, check,
               machine);
        };
        for (const CheckOf<Run>& check : suite_.checks)
          add(suite_.name, check, device);
        for (const auto& more : suite_.more)
          add(more.name, more.check, more.machine);
      }
    }
  }

  void test(const Variant& variant, Dtype dtype, const CheckOf<Run>& check, Machine machine) const {
    if (const std::string why_not = suite_.why_nothing(variant, dtype, device()); !why_not.empty())
      GTEST_SKIP() << variant.name << ": " << why_not;
    Run session = suite_.make_run(variant, dtype, machine());
    run(check, session);
    testing::Test::RecordProperty("cases", std::to_string(session.report().cases));
    if (!session.report().skipped.empty())
      std::cout << "left out: " << joined(session.report().skipped) << '\n';
    conclude(variant.name, session.report());
  }

  // ------------------------------------------------------------ the suite is complete, and not all of it is
  // skipped

  void expect_complete() const {
    const std::set<std::string> names = registered_tests();
    for_each_case([&](const std::string& suite, const std::string& name, const auto&...) {
      EXPECT_TRUE(names.contains(fmt::format("{}.{}", suite, name))) << suite << "." << name;
    });
    for (const Variant* variant : suite_.registry) {
      for (const Dtype dtype : suite_.dtypes) {
        if (suite_.has_tests(*variant, dtype) || suite_.only_forwards(*variant)) continue;
        // The golden table says which dtypes a variant takes; only a missing back end is beside it.
        const std::string why_not = suite_.why_nothing(*variant, dtype, h200_description());
        EXPECT_TRUE(lacks_back_end(why_not) || why_not.find(name_of(dtype)) != std::string::npos)
            << variant->name << "/" << name_of(dtype) << " has no tests: " << why_not;
      }
    }
  }

  /// Dtypes for which the variant really computes something, rightly, on this machine.
  int dtypes_that_run(const Variant& variant) const {
    int count = 0;
    for (const Dtype dtype : suite_.dtypes) {
      if (!suite_.why_nothing(variant, dtype, device()).empty()) continue;
      EXPECT_TRUE(suite_.has_tests(variant, dtype) || suite_.only_forwards(variant))
          << variant.name << "/" << name_of(dtype) << " runs here, but has no tests";
      Run session = suite_.make_quick_run(variant, dtype, device());
      run(suite_.smallest, session);
      EXPECT_EQ(session.report().failure_count, 0) << variant.name;
      count += session.report().cases > 0;
    }
    return count;
  }

  /// Whether another machine or build is needed for every dtype that the variant takes.
  bool needs_another_machine(const Variant& variant) const {
    bool is_needed = false;
    for (const Dtype dtype : suite_.dtypes) {
      const std::string why_not = suite_.why_nothing(variant, dtype, device());
      if (why_not.find("compute capability") != std::string::npos || lacks_back_end(why_not)) {
        is_needed = true;
      } else if (why_not.find(name_of(dtype)) == std::string::npos) {
        return false;
      }
    }
    return is_needed;
  }

  void expect_variants_run(Memory memory) const {
    int ran = 0;
    for (const Variant* variant : suite_.registry) {
      if (variant->memory != memory) continue;
      const std::string why_not = suite_.why_nothing(*variant, Dtype::f16, device());
      if (needs_another_machine(*variant)) {
        std::cout << variant->name << " was not run: " << why_not << '\n';
        continue;
      }
      const int dtypes = dtypes_that_run(*variant);
      EXPECT_GT(dtypes, 0) << variant->name << " runs nothing on this machine: " << why_not;
      ran += dtypes > 0;
    }
    EXPECT_GT(ran, 0) << "no variant was run on this machine: everything else in this suite was skipped";
  }

  // ------------------------------------------------------------ the checks can fail

  /// By every check that is named; and each failure fails its test (lie 3 of ten).
  void expect_caught(const Broken& broken) const {
    for (const std::string& name : words_of(broken.caught_by)) {
      const CheckOf<Run>* check = suite_.check_named(name);
      ASSERT_NE(check, nullptr) << "there is no check " << name;
      Run session = suite_.make_small_run(broken.variant, Dtype::f16, device());
      session.stop_at_first_failure();
      run(*check, session);
      EXPECT_GT(session.report().failure_count, 0) << name << " does not catch " << broken.variant.name;
      for (const std::string& failure : session.report().failures)
        EXPECT_FALSE(failure.starts_with("exception"))
            << name << " broke down instead of judging: " << failure;
      const auto parts = concluded(session.report());
      EXPECT_TRUE(!parts.empty() && parts.front().failed()) << name;
    }
  }

  /// The same plan without a defect passes everything: what is caught above is the defect.
  void expect_sound() const {
    const Broken& sound = suite_.broken.front();
    ASSERT_TRUE(sound.caught_by.empty());
    for (const CheckOf<Run>& check : suite_.checks) {
      if (check.device_only) continue;
      Run session = suite_.make_small_run(sound.variant, Dtype::f16, device());
      run(check, session);
      const Report& report = session.report();
      EXPECT_EQ(report.failure_count, 0)
          << check.name << ": " << (report.failures.empty() ? "" : report.failures.front());
      EXPECT_TRUE(report.cases > 0 || !report.skipped.empty()) << check.name << " looks at nothing";
    }
  }

  void expect_checks_catch() const {
    std::set<std::string> catching = suite_.without_defect;
    for (const Broken& broken : suite_.broken)
      for (const std::string& name : words_of(broken.caught_by))
        catching.insert(name);
    for (const CheckOf<Run>& check : suite_.checks)
      EXPECT_TRUE(check.device_only || catching.contains(std::string(check.name)))
          << check.name << " catches nothing";
  }

  Suite<Run> suite_;
};

/// The main function of a program that drives one family.
template <class Run>
int drive(int argc, char** argv, Suite<Run> suite) {
  testing::InitGoogleTest(&argc, argv);
  const Driver<Run> driver(std::move(suite));
  driver.register_all();
  return run_all_tests();
}

}  // namespace fwht::conformance
