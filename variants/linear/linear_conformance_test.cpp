// Every check for every variant of the second ladder, made at run time from the registry:
// LinearHost.cpu/f16/OneHot. Suites with "Gpu" hold the variants in device memory.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/testing/test_main.hpp"
#include "reference/linear/conformance.hpp"
#include "variants/linear/registry.hpp"

namespace fwht::conformance {
namespace {

const DeviceInfo& device() {
  static const DeviceInfo info = this_device();
  return info;
}

class Conforms : public testing::Test {
 public:
  Conforms(const LinearVariant& variant, Dtype dtype, const LinearCheck& check)
      : variant_(variant), dtype_(dtype), check_(check) {}

  void TestBody() override {
    if (variant_.memory == Memory::device && !device().has_cuda()) GTEST_SKIP() << device().why_no_cuda;
    LinearSession session(variant_, dtype_, device());
    run(check_, session);
    for (const std::string& failure : session.failures)
      ADD_FAILURE() << failure;
    EXPECT_EQ(session.failure_count, 0);
    if (session.cases == 0) GTEST_SKIP() << variant_.name << " supports no problem that the check looks at";
  }

 private:
  const LinearVariant& variant_;
  Dtype dtype_;
  const LinearCheck& check_;
};

void register_tests() {
  for (const LinearVariant* variant : linear_registry()) {
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
      for (const LinearCheck& check : linear_checks()) {
        const std::string suite = variant->memory == Memory::device ? "LinearGpu" : "LinearHost";
        const std::string name =
            std::string(variant->name) + "/" + std::string(name_of(dtype)) + "/" + std::string(check.name);
        testing::RegisterTest(
            suite.c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
            [variant, dtype, &check]() -> Conforms* { return new Conforms(*variant, dtype, check); });
      }
    }
  }
}

TEST(BrokenLinear, EveryDefectIsSeen) {
  for (const BrokenLinear& broken : broken_linear_variants()) {
    for (const LinearCheck& check : linear_checks()) {
      const bool wanted =
          std::find(broken.caught_by.begin(), broken.caught_by.end(), check.name) != broken.caught_by.end();
      if (!wanted && !broken.caught_by.empty()) continue;
      LinearSession session(broken.variant, Dtype::f16, device());
      run(check, session);
      if (wanted) {
        EXPECT_GT(session.failure_count, 0) << broken.variant.name << " passes " << check.name;
      }
      if (broken.caught_by.empty()) {
        EXPECT_EQ(session.failure_count, 0)
            << check.name << ": " << (session.failures.empty() ? "" : session.failures[0]);
        EXPECT_GT(session.cases, 0) << check.name << " looks at nothing";
      }
    }
  }
}

}  // namespace
}  // namespace fwht::conformance

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  fwht::conformance::register_tests();
  return fwht::run_all_tests();
}
