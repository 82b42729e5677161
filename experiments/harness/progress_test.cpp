#include "experiments/harness/progress.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace fwht::harness {
namespace {

TEST(Progress, LinesSayHowFarAndHowLong) {
  EXPECT_EQ(progress_line(0, 40, "a", 1.0), " 0/40  a");
  EXPECT_EQ(progress_line(10, 40, "a", 5.0), "10/40  a  ETA 0:15");
  EXPECT_EQ(progress_line(40, 40, "a", 5.0), "40/40  a");
  EXPECT_EQ(clock_text(65.0), "1:05");
  EXPECT_EQ(clock_text(3723.0), "1:02:03");
}

TEST(Progress, RewritesOneLineOnATerminalAndPlainLinesElsewhere) {
  std::ostringstream terminal, file;
  {
    Progress progress(2, terminal, true);
    progress.begin("a");
    progress.done();
    progress.begin("b");
    progress.note("b went wrong");
  }
  EXPECT_EQ(terminal.str(), "0/2  a\r\033[K1/2  b  ETA 0:01\r\033[Kb went wrong\n");
  Progress progress(3, file, false);
  progress.begin("a");
  progress.done();
  progress.begin("b");  // within the same second
  EXPECT_EQ(file.str(), "0/3  a\n");
}

}  // namespace
}  // namespace fwht::harness
