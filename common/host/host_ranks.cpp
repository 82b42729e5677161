#include "common/host/host_ranks.hpp"

#include <cstring>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "common/host/error.hpp"
#include "common/host/text.hpp"
#include "common/host/wait.hpp"

namespace fwht {

void RankMeeting::arrive(TimeLimit limit) {
  std::unique_lock lock(mutex_);
  if (reason_.empty() && ++arrived_ == size_) {
    arrived_ = 0;
    ++round_;
    changed_.notify_all();
    return;
  }
  const std::uint64_t mine = round_;
  const auto over = [&] { return round_ != mine || !reason_.empty(); };
  if (reason_.empty() && !changed_.wait_until(lock, deadline(limit), over)) {
    reason_ = concat("only ", arrived_, " of ", size_, " ranks arrived within ", limit.count(), " ms");
    changed_.notify_all();
  }
  if (round_ == mine) throw std::runtime_error(reason_);
}

void RankMeeting::fail(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (reason_.empty()) reason_ = reason;
  changed_.notify_all();
}

bool RankMeeting::failed() const {
  const std::lock_guard lock(mutex_);
  return !reason_.empty();
}

std::string RankMeeting::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

void run_ranks(int size, RankMeeting& meeting, const std::function<void(int)>& body) {
  std::mutex mutex;
  std::string first;
  bool any = false, bad_request = false;
  const auto failed = [&](int rank, const std::string& what, bool refused) {
    const std::lock_guard lock(mutex);
    // What a rank says because the meeting failed is no news; the reason of the meeting is.
    if (!any) {
      first = what == meeting.reason() ? what : concat("rank ", rank, ": ", what);
      bad_request = refused;
    }
    any = true;
    meeting.fail(first);
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    try {
      threads.emplace_back([&, rank] {
        try {
          body(rank);
        } catch (const BadRequest& error) {
          failed(rank, error.what(), true);
        } catch (const std::exception& error) {
          failed(rank, error.what(), false);
        }
      });
    } catch (const std::system_error& error) {
      failed(rank, concat("its thread does not start: ", error.what()), false);
      break;
    }
  }
  for (std::thread& thread : threads)
    thread.join();
  if (any && bad_request) throw BadRequest(first);
  if (any) throw std::runtime_error(first);
}

struct HostRanks::Exchange {
  Exchange(int size, TimeLimit time_limit)
      : meeting(size), limit(time_limit), sent(static_cast<std::size_t>(size)) {}
  RankMeeting meeting;
  TimeLimit limit;
  std::vector<const std::byte*> sent;  // of each rank, between two meetings
};

namespace {

// Not by way of doubles, which hold 53 bits. Unsigned, so that sums wrap.
std::uint64_t load_integer(Dtype dtype, const void* data, std::int64_t i) {
  if (dtype == Dtype::i32) return static_cast<std::uint64_t>(static_cast<const std::int32_t*>(data)[i]);
  return static_cast<const std::uint64_t*>(data)[i];
}

void store_integer(Dtype dtype, void* data, std::int64_t i, std::uint64_t value) {
  if (dtype == Dtype::i32) {
    static_cast<std::uint32_t*>(data)[i] = static_cast<std::uint32_t>(value);
  } else {
    static_cast<std::uint64_t*>(data)[i] = value;
  }
}

}  // namespace

/// Every collective is: say where my data are, meet, copy what concerns me, meet again.
template <class Shared>
class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(int rank, int size, Shared& shared)
      : Communicator(rank, size, Memory::host), shared_(shared) {}

  void all_gather(const void* send, void* receive, std::int64_t bytes, Stream) override {
    exchange(send, [&](int r, const std::byte* from) { copy(receive, r * bytes, from, bytes); });
  }

  void all_to_all(const void* send, void* receive, std::int64_t bytes, Stream) override {
    exchange(send,
             [&](int r, const std::byte* from) { copy(receive, r * bytes, from + rank() * bytes, bytes); });
  }

  void all_reduce(void* data, std::int64_t elements, Dtype dtype, Stream stream) override {
    const std::int64_t bytes = elements * bytes_of(dtype);
    std::vector<std::byte> all(static_cast<std::size_t>(size() * bytes));
    all_gather(data, all.data(), bytes, stream);
    const auto sum_of = [&](auto sum, const auto& at, std::int64_t i) {
      for (int r = 0; r < size(); ++r)
        sum += at(dtype, all.data() + r * bytes, i);
      return sum;
    };
    for (std::int64_t i = 0; i < elements; ++i) {
      if (is_integer(dtype)) {
        store_integer(dtype, data, i, sum_of(std::uint64_t{0}, load_integer, i));
      } else {
        store_element(dtype, data, i, sum_of(0.0, load_element, i));
      }
    }
  }

  void finish(Stream, TimeLimit) override {
    if (shared_.meeting.failed()) throw std::runtime_error(shared_.meeting.reason());
  }

 private:
  template <class Take>
  void exchange(const void* send, const Take& take) {
    shared_.sent[static_cast<std::size_t>(rank())] = static_cast<const std::byte*>(send);
    shared_.meeting.arrive(shared_.limit);
    for (int r = 0; r < size(); ++r)
      take(r, shared_.sent[static_cast<std::size_t>(r)]);
    shared_.meeting.arrive(shared_.limit);
  }

  static void copy(void* to, std::int64_t offset, const std::byte* from, std::int64_t bytes) {
    std::byte* const there = static_cast<std::byte*>(to) + offset;
    if (there != from) std::memcpy(there, from, static_cast<std::size_t>(bytes));
  }

  Shared& shared_;
};

HostRanks::HostRanks(int size, TimeLimit limit) : exchange_(std::make_unique<Exchange>(size, limit)) {
  for (int rank = 0; rank < size; ++rank)
    communicators_.push_back(std::make_unique<HostCommunicator<Exchange>>(rank, size, *exchange_));
}
HostRanks::~HostRanks() = default;

Communicator& HostRanks::communicator(int rank) {
  return *communicators_.at(static_cast<std::size_t>(rank));
}

RankMeeting& HostRanks::meeting() {
  return exchange_->meeting;
}

}  // namespace fwht
