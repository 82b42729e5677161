#include "common/host/wait.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>

namespace fwht {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::string said(const std::function<bool()>& ready, TimeLimit limit, const Interruption& interrupted,
                 TimeLimit grace = kGrace) {
  try {
    wait_until(ready, limit, interrupted, "the work was not done", grace);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// `text`, from `delay` after now on.
Interruption reason_after(TimeLimit delay, const std::string& text) {
  return [=, from = Clock::now() + delay] { return Clock::now() < from ? "" : text; };
}

bool never() {
  return false;
}
bool broken() {
  throw std::runtime_error("a collective failed");
}

TEST(Wait, EndsWithTheWorkOrTheLimit) {
  int asked = 0;
  EXPECT_EQ(said([&] { return ++asked == 3; }, 10s, {}), "");
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(said([&] { return ++asked == 6; }, TimeLimit::max(), {}), "");
  EXPECT_EQ(said(never, 50ms, {}), "the work was not done within 50 ms");
  EXPECT_EQ(said(never, 50ms, [] { return std::string(); }), "the work was not done within 50 ms");
}

TEST(Wait, AReasonEndsItAtOnce) {
  const auto begin = Clock::now();
  EXPECT_EQ(said(never, 60s, reason_after(20ms, "rank 2 has ended")), "rank 2 has ended");
  EXPECT_LT(Clock::now() - begin, 30s);
}

TEST(Wait, AnErrorGivesWayToAReasonThatComesSoon) {
  EXPECT_EQ(said(broken, 60s, reason_after(20ms, "rank 2 has ended"), 30s), "rank 2 has ended");
  EXPECT_EQ(said(broken, 60s, reason_after(60s, "rank 2 has ended"), 50ms), "a collective failed");
  EXPECT_EQ(said(broken, 60s, {}), "a collective failed");
}

}  // namespace
}  // namespace fwht
