#include <gtest/gtest.h>

#include "common/testing/test_main.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return fwht::run_all_tests();
}
