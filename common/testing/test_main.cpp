#include "common/testing/test_main.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string_view>

namespace fwht {

int run_all_tests() {
  const int failed = RUN_ALL_TESTS();
  if (failed != 0 || testing::GTEST_FLAG(list_tests)) return failed;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  const char* shard = std::getenv("GTEST_SHARD_INDEX");
  if (all.test_to_run_count() == 0 && (shard == nullptr || std::string_view(shard) == "0")) {
    std::cerr << "no test is selected by --gtest_filter=" << testing::GTEST_FLAG(filter) << '\n';
    return 1;
  }
  return all.test_to_run_count() > 0 && all.successful_test_count() == 0 ? kEverythingSkipped : 0;
}

}  // namespace fwht
