#include "common/host/rendezvous.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "common/host/error.hpp"
#include "common/testing/refusal.hpp"

namespace fwht {
namespace {

using namespace std::chrono_literals;

/// A port that nobody listens at, as the system gives it.
int free_port() {
  const int handle = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(handle, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::getsockname(handle, reinterpret_cast<sockaddr*>(&address), &length), 0);
  ::close(handle);
  return ntohs(address.sin_port);
}

Message message_of(char fill) {
  Message message;
  std::fill(message.begin(), message.end(), fill);
  message[100] = '\0';
  return message;
}

/// The message of rank 0, and nothing more of the others.
Message share(const RankPlace& place, const Message& message, TimeLimit limit) {
  return RankLines(place, message, limit).message();
}

/// Runs `body` in a process of its own; its exit code. 2: BadRequest, 1: another error.
pid_t start(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  int code = 1;
  try {
    code = body();
  } catch (const BadRequest&) {
    code = 2;
  } catch (const std::exception&) {
    code = 1;
  }
  ::_exit(code);
}

int code_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Rendezvous, ProcessesGetTheMessageOfRank0) {
  const int port = free_port();
  std::vector<pid_t> children;
  for (int rank = 3; rank >= 0; --rank) {  // rank 0 is the last to start
    children.push_back(start([=] {
      const RankPlace place{rank, 4, rank, "127.0.0.1", port};
      const Message got = share(place, message_of(rank == 0 ? 'x' : '?'), 10s);
      return got == message_of('x') ? 0 : 3;
    }));
  }
  for (const pid_t child : children)
    EXPECT_EQ(code_of(child), 0);
}

TEST(Rendezvous, SignalsDoNotEndTheWaiting) {
  const int port = free_port();
  const pid_t first = start([=] {
    struct sigaction action {};  // without SA_RESTART
    action.sa_handler = [](int) {};
    ::sigaction(SIGALRM, &action, nullptr);
    const itimerval every{{0, 5000}, {0, 5000}};
    ::setitimer(ITIMER_REAL, &every, nullptr);
    const Message got = share({0, 2, 0, "127.0.0.1", port}, message_of('x'), 10s);
    return got == message_of('x') ? 0 : 3;
  });
  const pid_t second = start([=] {
    ::usleep(300000);
    return share({1, 2, 1, "127.0.0.1", port}, message_of('?'), 10s) == message_of('x') ? 0 : 3;
  });
  EXPECT_EQ(code_of(first), 0);
  EXPECT_EQ(code_of(second), 0);
}

/// Listens, and takes no connection: the queue of those that wait is full.
class FullListener {
 public:
  FullListener() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    handles_.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(::bind(handles_[0], at, length), 0);
    EXPECT_EQ(::listen(handles_[0], 0), 0);
    EXPECT_EQ(::getsockname(handles_[0], at, &length), 0);
    port_ = ntohs(address.sin_port);
    for (int i = 0; i < 16 && !is_full_; ++i) {
      handles_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      if (::connect(handles_.back(), at, length) == 0) continue;
      pollfd entry{handles_.back(), POLLOUT, 0};
      is_full_ = ::poll(&entry, 1, 200) == 0;
    }
  }
  ~FullListener() {
    for (const int handle : handles_)
      ::close(handle);
  }
  FullListener(const FullListener&) = delete;
  FullListener& operator=(const FullListener&) = delete;
  int port() const { return port_; }
  bool is_full() const { return is_full_; }

 private:
  std::vector<int> handles_;
  int port_ = 0;
  bool is_full_ = false;
};

TEST(Rendezvous, AHostThatTakesNoConnectionEndsTheWaitingWithinTheLimit) {
  const FullListener listener;
  ASSERT_TRUE(listener.is_full());
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(share({1, 2, 1, "127.0.0.1", listener.port()}, {}, 400ms), std::runtime_error);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 8s);
}

TEST(Rendezvous, AMissingRankEndsTheOthersWithinTheLimit) {
  const int port = free_port();
  const auto begin = std::chrono::steady_clock::now();
  const pid_t other = start([=] {
    share({1, 3, 1, "127.0.0.1", port}, {}, 10s);  // gets its answer
    return 0;
  });
  try {
    share({0, 3, 0, "127.0.0.1", port}, message_of('x'), 700ms);
    FAIL() << "rank 2 never came";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), "rank 2 did not come to port " + std::to_string(port) + " within 700 ms");
  }
  EXPECT_EQ(code_of(other), 0);
  EXPECT_THROW(share({1, 2, 1, "127.0.0.1", port}, {}, 300ms), std::runtime_error);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 8s);
}

TEST(Rendezvous, OtherSizesAndDoubledRanksAreRefusedOnBothSides) {
  for (const RankPlace& wrong : {RankPlace{1, 3, 1, "127.0.0.1", 0}, RankPlace{0, 2, 0, "127.0.0.1", 0}}) {
    const int port = free_port();
    RankPlace peer = wrong;
    peer.port = port;
    if (peer.rank == 0) continue;
    const pid_t other = start([=] {
      share(peer, {}, 10s);
      return 0;
    });
    EXPECT_THROW(share({0, 2, 0, "127.0.0.1", port}, message_of('x'), 10s), BadRequest);
    EXPECT_EQ(code_of(other), 2);
  }
  const int port = free_port();
  std::vector<pid_t> twins;
  for (int i = 0; i < 2; ++i) {
    twins.push_back(start([=] {
      share({1, 3, 1, "127.0.0.1", port}, {}, 10s);
      return 0;
    }));
  }
  EXPECT_THROW(share({0, 3, 0, "127.0.0.1", port}, message_of('x'), 10s), BadRequest);
  std::vector<int> codes = {code_of(twins[0]), code_of(twins[1])};
  std::sort(codes.begin(), codes.end());
  EXPECT_EQ(codes, (std::vector<int>{0, 2}));
}

TEST(Rendezvous, AStrangerAtThePortIsIgnored) {
  const int port = free_port();
  const pid_t other = start([=] {
    const int handle = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    while (::connect(handle, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      ::usleep(10000);
    const char noise[] = "GET / HTTP/1.1\r\n\r\n";
    if (::write(handle, noise, sizeof noise) < 0) return 4;
    ::close(handle);
    return share({1, 2, 1, "127.0.0.1", port}, {}, 10s) == message_of('x') ? 0 : 3;
  });
  EXPECT_EQ(share({0, 2, 0, "127.0.0.1", port}, message_of('x'), 10s), message_of('x'));
  EXPECT_EQ(code_of(other), 0);
}

/// What a rank hears within `limit`; empty where it hears nothing.
std::string heard(RankLines& lines, TimeLimit limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < end) {
    if (std::string reason = lines.reason(); !reason.empty()) return reason;
    ::usleep(1000);
  }
  return "";
}

/// Ranks 1 and up of `size` in processes: all but `other`, which does something else, wait to hear
/// `expected`.
std::vector<pid_t> start_ranks(int port, int size, int other, const std::function<int(RankLines&)>& does,
                               const std::string& expected) {
  std::vector<pid_t> children;
  for (int rank = 1; rank < size; ++rank) {
    children.push_back(start([=] {
      RankLines lines({rank, size, rank, "127.0.0.1", port}, {}, 10s);
      if (rank == other) return does(lines);
      return heard(lines, 10s) == expected ? 0 : 3;
    }));
  }
  return children;
}

TEST(Rendezvous, AKilledRankIsNamedOnAllOthers) {
  const int port = free_port();
  const std::vector<pid_t> children = start_ranks(
      port, 4, 2,
      [](RankLines&) {
        ::pause();
        return 0;
      },
      "rank 2 has ended");
  RankLines lines({0, 4, 0, "127.0.0.1", port}, message_of('x'), 10s);
  EXPECT_EQ(heard(lines, 100ms), "");
  const auto begin = std::chrono::steady_clock::now();
  ::kill(children[1], SIGKILL);
  EXPECT_EQ(heard(lines, 10s), "rank 2 has ended");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_EQ(lines.reason(), "rank 2 has ended");
  EXPECT_EQ(code_of(children[0]), 0);
  EXPECT_EQ(code_of(children[1]), -1);
  EXPECT_EQ(code_of(children[2]), 0);
}

TEST(Rendezvous, ARankThatFailsTellsTheOthersWhy) {
  const int port = free_port();
  const std::vector<pid_t> children = start_ranks(
      port, 3, 1,
      [](RankLines& lines) {
        lines.fail("no memory\nis left");
        return 0;
      },
      "rank 1: no memory is left");
  RankLines lines({0, 3, 0, "127.0.0.1", port}, message_of('x'), 10s);
  EXPECT_EQ(heard(lines, 10s), "rank 1: no memory is left");
  for (const pid_t child : children)
    EXPECT_EQ(code_of(child), 0);
}

TEST(Rendezvous, AKilledRankCountsForMoreThanWhatOthersSayOfIt) {
  const int port = free_port();
  const std::vector<pid_t> children = start_ranks(
      port, 3, 1,
      [](RankLines& lines) {
        lines.fail("the work enqueued was not done");
        return 0;
      },
      "");
  {
    RankLines lines({0, 3, 0, "127.0.0.1", port}, message_of('x'), 10s);
    EXPECT_EQ(code_of(children[0]), 0);  // before rank 0 asks
    ::kill(children[1], SIGKILL);
    EXPECT_EQ(code_of(children[1]), -1);
    EXPECT_EQ(heard(lines, 10s), "rank 2 has ended");
  }
}

TEST(Rendezvous, Rank0IsNamedByTheOthersAndTellsThem) {
  for (const bool says_why : {false, true}) {
    const int port = free_port();
    const pid_t rank_0 = start([=] {
      RankLines lines({0, 3, 0, "127.0.0.1", port}, message_of('x'), 10s);
      if (says_why) {
        lines.fail("the disk is full");
        return 0;
      }
      ::_exit(0);  // as a crash does: nothing is said
    });
    const std::vector<pid_t> children =
        start_ranks(port, 3, 0, {}, says_why ? "rank 0: the disk is full" : "rank 0 has ended");
    EXPECT_EQ(code_of(rank_0), 0);
    for (const pid_t child : children)
      EXPECT_EQ(code_of(child), 0);
  }
}

TEST(Rendezvous, ARankThatIsDoneIsNoneThatHasEnded) {
  const int port = free_port();
  const pid_t other = start([=] {
    const RankLines lines({1, 2, 1, "127.0.0.1", port}, {}, 10s);
    return 0;
  });
  RankLines lines({0, 2, 0, "127.0.0.1", port}, message_of('x'), 10s);
  EXPECT_EQ(code_of(other), 0);
  EXPECT_EQ(heard(lines, 100ms), "");
}

TEST(Rendezvous, WhoIsThereHearsWhichRankDidNotCome) {
  const int port = free_port();
  const std::string expected = "rank 2 did not come to port " + std::to_string(port) + " within 700 ms";
  const pid_t other = start([=] {
    RankLines lines({1, 3, 1, "127.0.0.1", port}, {}, 10s);
    return heard(lines, 10s) == expected ? 0 : 3;
  });
  EXPECT_THROW(RankLines({0, 3, 0, "127.0.0.1", port}, message_of('x'), 700ms), std::runtime_error);
  EXPECT_EQ(code_of(other), 0);
}

class PlaceFromEnvironment : public testing::Test {
 protected:
  PlaceFromEnvironment() {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"})
      ::unsetenv(name);
  }
  static std::string refusal() {
    return bad_request_of([&] { place_from_environment(); });
  }
};

TEST_F(PlaceFromEnvironment, ReadsWhatTorchrunSets) {
  EXPECT_FALSE(launched_as_rank());
  ::setenv("RANK", "9", 1);
  ::setenv("WORLD_SIZE", "16", 1);
  ::setenv("LOCAL_RANK", "1", 1);
  ::setenv("MASTER_ADDR", "node0", 1);
  ::setenv("MASTER_PORT", "29500", 1);
  EXPECT_TRUE(launched_as_rank());
  const RankPlace place = place_from_environment();
  EXPECT_EQ(place.rank, 9);
  EXPECT_EQ(place.size, 16);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.address, "node0");
  EXPECT_EQ(place.port, 29500);
  ::unsetenv("LOCAL_RANK");
  EXPECT_EQ(place_from_environment().local_rank, 9);
}

TEST_F(PlaceFromEnvironment, RefusesWhatIsMissingOrWrong) {
  EXPECT_EQ(refusal(), "the environment variable RANK is missing");
  ::setenv("RANK", "2", 1);
  EXPECT_EQ(refusal(), "the environment variable WORLD_SIZE is missing");
  ::setenv("WORLD_SIZE", "2", 1);
  EXPECT_EQ(refusal(), "RANK=2 must be between 0 and 1");
  ::setenv("WORLD_SIZE", "two", 1);
  EXPECT_EQ(refusal(), "WORLD_SIZE=two is no number");
  ::setenv("WORLD_SIZE", "4", 1);
  EXPECT_EQ(refusal(), "the environment variable MASTER_PORT is missing");
  ::setenv("MASTER_PORT", "70000", 1);
  EXPECT_EQ(refusal(), "MASTER_PORT=70000 must be between 1 and 65535");
}

}  // namespace
}  // namespace fwht
