#include "common/host/rendezvous.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "common/host/error.hpp"
#include "common/host/text.hpp"
#include "common/host/wait.hpp"

namespace fwht {
namespace {

using Clock = std::chrono::steady_clock;

int number_in(const char* name, const char* fallback) {
  const char* text = std::getenv(name);
  if (text == nullptr) text = fallback;
  if (text == nullptr) throw BadRequest(concat("the environment variable ", name, " is missing"));
  int value = 0;
  const char* const end = text + std::strlen(text);
  if (const auto [stop, error] = std::from_chars(text, end, value); error != std::errc{} || stop != end)
    throw BadRequest(concat(name, "=", text, " is no number"));
  return value;
}

class Socket {
 public:
  explicit Socket(int handle) : handle_(handle) {}
  ~Socket() {
    if (handle_ >= 0) ::close(handle_);
  }
  Socket(Socket&& other) noexcept : handle_(std::exchange(other.handle_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  int handle() const { return handle_; }

 private:
  int handle_;
};

/// Whether one of `events` comes at the socket before `end`.
bool happens(const Socket& socket, short events, Clock::time_point end) {
  pollfd entry{socket.handle(), events, 0};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    const int found = ::poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left, INT_MAX)));
    if (found > 0) return true;
    if (found < 0 && errno != EINTR) return false;
  }
}

bool readable(const Socket& socket, Clock::time_point end) {
  return happens(socket, POLLIN, end);
}

/// Whether the socket is connected before `end`. A host that does not answer keeps a blocking connect() for
/// minutes.
bool connect_before(const Socket& socket, const sockaddr* address, socklen_t length, Clock::time_point end) {
  const int flags = ::fcntl(socket.handle(), F_GETFL);
  ::fcntl(socket.handle(), F_SETFL, flags | O_NONBLOCK);
  if (::connect(socket.handle(), address, length) != 0) {
    if ((errno != EINPROGRESS && errno != EINTR) || !happens(socket, POLLOUT, end)) return false;
    int error = 0;
    socklen_t bytes = sizeof error;
    if (::getsockopt(socket.handle(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0) return false;
  }
  return ::fcntl(socket.handle(), F_SETFL, flags) == 0;
}

bool receive_all(const Socket& socket, void* data, std::size_t bytes, Clock::time_point end) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    if (!readable(socket, end)) return false;
    const ssize_t got = ::recv(socket.handle(), to, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool send_all(const Socket& socket, const void* data, std::size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(socket.handle(), from, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    from += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

/// What a rank says first, and what rank 0 answers.
struct Hello {
  char magic[8];
  std::int32_t rank, size;
};
constexpr char kMagic[8] = {'f', 'w', 'h', 't', '-', 'r', 'v', '2'};
struct Answer {
  Message message;
  char why_not[128];
};

Socket listen_at(int port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ::setsockopt(socket.handle(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::bind(socket.handle(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.handle(), 64) != 0) {
    throw BadRequest(concat("port ", port, " cannot be listened at: ", std::strerror(errno)));
  }
  return socket;
}

/// The connection with one other rank after the rendezvous. What is said is a line of text: why a rank ends,
/// or an empty one where it is done.
struct RankLine {
  int rank;  ///< at the other end
  Socket socket;
  std::string heard;  ///< and not yet a whole line
  enum class State { open, done, failed, ended } state = State::open;

  /// Takes what has come, without waiting. `heard` is the reason where the state is `failed`.
  void listen() {
    char part[1024];
    while (state == State::open) {
      const ssize_t got = ::recv(socket.handle(), part, sizeof part, MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (got <= 0) {
        state = State::ended;
        return;
      }
      heard.append(part, static_cast<std::size_t>(got));
      if (const std::size_t end = heard.find('\n'); end != std::string::npos) {
        heard.resize(end);
        state = heard.empty() ? State::done : State::failed;
      }
    }
  }

  void say(std::string text) const {
    std::replace(text.begin(), text.end(), '\n', ' ');
    text += '\n';
    send_all(socket, text.data(), text.size());  // where nobody is left to hear it, nothing is lost
  }
};

/// Fills `lines` with one to every other rank, as they come.
void serve(const RankPlace& place, const Message& message, Clock::time_point end, TimeLimit limit,
           std::vector<RankLine>& lines) {
  const Socket listening = listen_at(place.port);
  std::vector<bool> here(static_cast<std::size_t>(place.size));
  here[0] = true;
  for (int missing = place.size - 1; missing > 0;) {
    if (!readable(listening, end)) {
      std::string absent;
      for (int r = 0; r < place.size; ++r) {
        if (!here[static_cast<std::size_t>(r)]) absent += concat(absent.empty() ? "" : ", ", r);
      }
      throw std::runtime_error(
          concat("rank ", absent, " did not come to port ", place.port, " within ", limit.count(), " ms"));
    }
    Socket peer(::accept4(listening.handle(), nullptr, nullptr, SOCK_CLOEXEC));
    Hello hello{};
    // A stranger or one that hangs must not keep the ranks waiting.
    const auto soon = std::min(end, Clock::now() + std::chrono::seconds(2));
    if (!receive_all(peer, &hello, sizeof hello, soon)) continue;
    if (std::memcmp(hello.magic, kMagic, sizeof kMagic) != 0) continue;
    Answer answer{message, {}};
    std::string why;
    if (hello.size != place.size) {
      why = concat("rank ", hello.rank, " expects ", hello.size, " ranks, rank 0 expects ", place.size);
    } else if (hello.rank < 1 || hello.rank >= place.size || here[static_cast<std::size_t>(hello.rank)]) {
      why = concat("two processes are rank ", hello.rank);
    }
    std::memcpy(answer.why_not, why.data(), std::min(why.size(), sizeof answer.why_not - 1));
    send_all(peer, &answer, sizeof answer);
    if (!why.empty()) throw BadRequest(why);
    here[static_cast<std::size_t>(hello.rank)] = true;
    lines.push_back({hello.rank, std::move(peer), ""});
    --missing;
  }
}

Message ask(const RankPlace& place, Clock::time_point end, TimeLimit limit, std::vector<RankLine>& lines) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(place.address.c_str(), std::to_string(place.port).c_str(), &hints, &found) != 0)
    throw BadRequest(concat("MASTER_ADDR=", place.address, " is no address that this host knows"));
  sockaddr_storage address{};
  const socklen_t length = found->ai_addrlen;
  std::memcpy(&address, found->ai_addr, length);
  ::freeaddrinfo(found);
  Hello hello{{}, place.rank, place.size};
  std::memcpy(hello.magic, kMagic, sizeof kMagic);
  while (Clock::now() < end) {
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    Answer answer{};
    if (connect_before(socket, reinterpret_cast<const sockaddr*>(&address), length, end) &&
        send_all(socket, &hello, sizeof hello) && receive_all(socket, &answer, sizeof answer, end)) {
      answer.why_not[sizeof answer.why_not - 1] = '\0';
      if (answer.why_not[0] != '\0') throw BadRequest(answer.why_not);
      lines.push_back({0, std::move(socket), ""});
      return answer.message;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  throw std::runtime_error(concat("rank ", place.rank, ": rank 0 did not answer at ", place.address, ":",
                                  place.port, " within ", limit.count(), " ms"));
}

}  // namespace

bool launched_as_rank() {
  return std::getenv("RANK") != nullptr && std::getenv("WORLD_SIZE") != nullptr;
}

RankPlace place_from_environment() {
  RankPlace place;
  place.rank = number_in("RANK", nullptr);
  place.size = number_in("WORLD_SIZE", nullptr);
  if (place.size < 1) throw BadRequest(concat("WORLD_SIZE=", place.size, " must be at least 1"));
  if (place.rank < 0 || place.rank >= place.size)
    throw BadRequest(concat("RANK=", place.rank, " must be between 0 and ", place.size - 1));
  place.local_rank = number_in("LOCAL_RANK", std::to_string(place.rank).c_str());
  const char* address = std::getenv("MASTER_ADDR");
  place.address = address == nullptr ? "127.0.0.1" : address;
  place.port = number_in("MASTER_PORT", nullptr);
  if (place.port < 1 || place.port > 65535)
    throw BadRequest(concat("MASTER_PORT=", place.port, " must be between 1 and 65535"));
  return place;
}

class RankLines::Lines {
 public:
  Lines(const RankPlace& place, const Message& message, TimeLimit limit)
      : rank_(place.rank), message_(message) {
    const auto end = deadline(limit);
    if (rank_ != 0) {
      message_ = ask(place, end, limit, lines_);
      return;
    }
    try {
      serve(place, message, end, limit, lines_);
    } catch (const std::exception& error) {
      tell(error.what());
      throw;
    }
  }

  const Message& message() const { return message_; }

  std::string reason() {
    if (!reason_.empty()) return reason_;
    for (RankLine& line : lines_)
      line.listen();
    // A rank that ended without a word comes first: what others say then follows from it.
    for (const RankLine::State state : {RankLine::State::ended, RankLine::State::failed}) {
      for (const RankLine& line : lines_) {
        if (!reason_.empty() || line.state != state) continue;
        reason_ = state == RankLine::State::ended ? concat("rank ", line.rank, " has ended")
                  : rank_ == 0                    ? concat("rank ", line.rank, ": ", line.heard)
                                                  : line.heard;
        if (rank_ == 0) tell(reason_);
      }
    }
    return reason_;
  }

  void fail(const std::string& why) {
    if (reason_.empty()) tell(rank_ == 0 ? "rank 0: " + why : why);
    has_said_ = true;
  }

  void leave() {
    if (!has_said_) tell("");
  }

 private:
  void tell(const std::string& text) {
    for (const RankLine& line : lines_)
      line.say(text);
    has_said_ = true;
  }

  int rank_;
  Message message_;
  std::vector<RankLine> lines_;  ///< rank 0: with every other rank; else with rank 0
  std::string reason_;
  bool has_said_ = false;
};

RankLines::RankLines(const RankPlace& place, const Message& message, TimeLimit limit)
    : lines_(std::make_unique<Lines>(place, message, limit)) {}

RankLines::~RankLines() {
  lines_->leave();
}

const Message& RankLines::message() const {
  return lines_->message();
}

std::string RankLines::reason() {
  return lines_->reason();
}

void RankLines::fail(const std::string& why) {
  lines_->fail(why);
}

}  // namespace fwht
