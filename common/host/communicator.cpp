#include "common/host/communicator.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/device/memory.hpp"
#include "common/device/memory_backend.hpp"
#include "common/device/stream_query.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"
#include "common/host/wait.hpp"

namespace fwht {
namespace {

constexpr std::size_t kTextBytes = 256;  // of each part of a statement; what is longer is cut

struct Packed {
  char problem[kTextBytes] = {};
  char why_not[kTextBytes] = {};
};

void copy_text(const std::string& text, char (&to)[kTextBytes]) {
  std::memcpy(to, text.data(), std::min(text.size(), kTextBytes - 1));
}

class SingleRank final : public Communicator {
 public:
  explicit SingleRank(Memory memory) : Communicator(0, 1, memory) {}

  void all_gather(const void* send, void* receive, std::int64_t bytes, Stream stream) override {
    finish(stream, std::chrono::minutes(1));
    backend::copy(memory(), static_cast<std::byte*>(receive), memory(), static_cast<const std::byte*>(send),
                  static_cast<std::size_t>(bytes));
  }
  void all_to_all(const void* send, void* receive, std::int64_t bytes, Stream stream) override {
    all_gather(send, receive, bytes, stream);
  }
  void all_reduce(void*, std::int64_t, Dtype, Stream) override {}

  void finish(Stream stream, TimeLimit limit) override {
    wait_until([&] { return memory() != Memory::device || is_done(stream); }, limit, {},
               "the work enqueued was not done");
  }
};

}  // namespace

std::unique_ptr<Communicator> single_rank(Memory memory) {
  return std::make_unique<SingleRank>(memory);
}

void agree(Communicator& communicator, const Statement& mine, TimeLimit limit) {
  Packed packed;
  copy_text(mine.problem, packed.problem);
  copy_text(mine.why_not, packed.why_not);
  const auto ranks = static_cast<std::size_t>(communicator.size());
  Buffer send(communicator.memory(), sizeof packed), receive(communicator.memory(), ranks * sizeof packed);
  send.upload(&packed, sizeof packed);
  communicator.all_gather(send.data(), receive.data(), sizeof packed, nullptr);
  communicator.finish(nullptr, limit);
  std::vector<Packed> all(ranks);
  receive.download(all.data(), ranks * sizeof packed);
  for (std::size_t r = 0; r < ranks; ++r) {
    if (all[r].why_not[0] != '\0') throw BadRequest(concat("rank ", r, ": ", all[r].why_not));
  }
  for (std::size_t r = 1; r < ranks; ++r) {
    if (std::strcmp(all[0].problem, all[r].problem) != 0) {
      throw BadRequest(concat("the ranks have different problems: rank 0 has ", all[0].problem, ", rank ", r,
                              " has ", all[r].problem));
    }
  }
}

}  // namespace fwht
