// Ranks that exchange buffers, as one of them sees it. What is written over this interface runs on NCCL
// (common/device/nccl.hpp) and on threads of one process without a GPU (common/host/host_ranks.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/contract/dtype.hpp"
#include "common/contract/variant.hpp"

namespace fwht {

using TimeLimit = std::chrono::milliseconds;
/// Asked while something waits: a reason to stop waiting, or an empty text.
using Interruption = std::function<std::string()>;

/// One rank's end of a group. Every rank makes the same calls in the same order, each from its own thread or
/// process. A call only enqueues on `stream`, so that it can be captured in a CUDA graph; over host memory it
/// has finished when it returns. Buffers lie in `memory()` and do not overlap unless said otherwise.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  Memory memory() const { return memory_; }

  /// receive[r] = send of rank r, for all r: size() pieces of `bytes` bytes in rank order. `send` may be
  /// where it ends up, receive[rank()].
  virtual void all_gather(const void* send, void* receive, std::int64_t bytes, Stream stream) = 0;
  /// receive[r] = piece `rank()` of what rank r sends: both are size() pieces of `bytes` bytes.
  virtual void all_to_all(const void* send, void* receive, std::int64_t bytes, Stream stream) = 0;
  /// data = the sum over all ranks, in place. 16-bit sums are rounded in an order that the back end chooses;
  /// exact where every partial sum is representable.
  virtual void all_reduce(void* data, std::int64_t elements, Dtype dtype, Stream stream) = 0;

  /// Waits for the stream's work. Throws std::runtime_error, in one sentence, when another rank has failed or
  /// the work is not done within `limit`; the group is of no use after that, and every other rank that waits
  /// ends with a sentence too.
  virtual void finish(Stream stream, TimeLimit limit) = 0;

 protected:
  Communicator(int rank, int size, Memory memory) : rank_(rank), size_(size), memory_(memory) {}

 private:
  int rank_, size_;
  Memory memory_;
};

/// A group of one rank, which needs neither NCCL nor threads. Its all_gather and all_to_all copy at once, so
/// they cannot be captured; all_reduce does nothing.
std::unique_ptr<Communicator> single_rank(Memory memory);

/// What one rank says of itself before the ranks start something together.
struct Statement {
  std::string problem;  ///< must be the same on all ranks
  std::string why_not;  ///< empty when this rank can take part
};

/// Set-up, not to be captured: every rank states what it is about to do. Returns on every rank, or throws
/// BadRequest on every rank, in one sentence that names the first rank that cannot take part, or the first
/// two that have different problems. Waits at most `limit`.
void agree(Communicator& communicator, const Statement& mine, TimeLimit limit);

}  // namespace fwht
