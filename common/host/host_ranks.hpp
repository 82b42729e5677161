// Ranks as threads of one process that exchange host memory: what proves shard maps where there is no GPU.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/host/communicator.hpp"

namespace fwht {

/// A meeting point of `size` threads that nobody waits at for ever.
class RankMeeting {
 public:
  explicit RankMeeting(int size) : size_(size) {}

  /// Returns when all have arrived. Throws std::runtime_error when somebody failed, or when not all have
  /// arrived within `limit`; then everybody who waits or arrives later throws as well.
  void arrive(TimeLimit limit);
  /// Says that one thread will not arrive any more. The first reason is kept.
  void fail(const std::string& reason);
  bool failed() const;
  std::string reason() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const int size_;
  int arrived_ = 0;
  std::uint64_t round_ = 0;
  std::string reason_;  // empty: nobody failed
};

/// Runs body(rank) for every rank, each in a thread of its own, and waits for all. When one throws, `meeting`
/// fails with "rank r: <what>", so that the others end; that first error is thrown here, a BadRequest as
/// BadRequest.
void run_ranks(int size, RankMeeting& meeting, const std::function<void(int rank)>& body);

/// A group of `size` communicators over host memory.
class HostRanks {
 public:
  HostRanks(int size, TimeLimit limit);
  ~HostRanks();

  Communicator& communicator(int rank);
  RankMeeting& meeting();

 private:
  struct Exchange;
  std::unique_ptr<Exchange> exchange_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

}  // namespace fwht
