#include "common/device/nccl.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <future>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

#include "common/device/memory.hpp"
#include "common/device/stream_query.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"
#include "common/host/trust.hpp"
#include "common/host/wait.hpp"

extern char** environ;

namespace fwht::nccl {
namespace {

// The part of nccl.h that is called here; nccl_test.cpp compares it with the header where there is one.
using Result = int;
constexpr Result kSuccess = 0, kInProgress = 7;
constexpr int kInt8 = 0, kSum = 0;

struct Id {
  char internal[128];
};

struct NcclFunctions {
  std::string why_not;
  int version = 0;

  Result (*GetVersion)(int*) = nullptr;
  Result (*GetUniqueId)(Id*) = nullptr;
  Result (*CommInitRank)(ncclComm**, int, Id, int) = nullptr;
  Result (*CommDestroy)(ncclComm*) = nullptr;
  Result (*CommAbort)(ncclComm*) = nullptr;
  Result (*CommCount)(const ncclComm*, int*) = nullptr;
  Result (*CommUserRank)(const ncclComm*, int*) = nullptr;
  Result (*CommGetAsyncError)(ncclComm*, Result*) = nullptr;
  const char* (*GetErrorString)(Result) = nullptr;
  const char* (*GetLastError)(ncclComm*) = nullptr;
  Result (*AllGather)(const void*, void*, std::size_t, int, ncclComm*, Stream) = nullptr;
  Result (*AllReduce)(const void*, void*, std::size_t, int, int, ncclComm*, Stream) = nullptr;
  Result (*Send)(const void*, std::size_t, int, int, ncclComm*, Stream) = nullptr;
  Result (*Recv)(void*, std::size_t, int, int, ncclComm*, Stream) = nullptr;
  Result (*GroupStart)() = nullptr;
  Result (*GroupEnd)() = nullptr;
};

constexpr int kOldest = 21300;  // ncclGetLastError

void* open_library(std::string& tried) {
  const char *set = std::getenv("FWHT_NCCL_LIBRARY"), *built = FWHT_NCCL_LIBRARY;
  const std::string_view named = set == nullptr ? "" : set, recorded = built;
  for (const std::string_view path : {named, recorded, std::string_view("libnccl.so.2")}) {
    if (path.empty()) continue;
    const bool is_named = path == named;
    std::string reason = path == recorded && !is_named ? why_not_trusted(path) : "";
    if (reason.empty()) {
      if (void* handle = dlopen(std::string(path).c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
      const char* error = dlerror();
      reason = error == nullptr ? path : std::string_view(error);
    }
    tried += (tried.empty() ? "" : "; ") + reason;
    if (is_named) break;  // who names a file wants that one
  }
  return nullptr;
}

NcclFunctions load() {
  NcclFunctions library;
  if (constexpr std::string_view why = FWHT_WHY_NO_NCCL; !why.empty()) {
    library.why_not = concat("built without NCCL (", why, ")");
    return library;
  }
  std::string tried;
  void* const handle = open_library(tried);
  if (handle == nullptr) {
    library.why_not = "libnccl.so.2 not found: " + tried;
    return library;
  }
  const auto find = [&](auto& function, const char* name) {
    void* const symbol = dlsym(handle, name);
    if (symbol == nullptr && library.why_not.empty()) library.why_not = concat("libnccl.so.2 has no ", name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  find(library.GetVersion, "ncclGetVersion");
  find(library.GetUniqueId, "ncclGetUniqueId");
  find(library.CommInitRank, "ncclCommInitRank");
  find(library.CommDestroy, "ncclCommDestroy");
  find(library.CommAbort, "ncclCommAbort");
  find(library.CommCount, "ncclCommCount");
  find(library.CommUserRank, "ncclCommUserRank");
  find(library.CommGetAsyncError, "ncclCommGetAsyncError");
  find(library.GetErrorString, "ncclGetErrorString");
  find(library.GetLastError, "ncclGetLastError");
  find(library.AllGather, "ncclAllGather");
  find(library.AllReduce, "ncclAllReduce");
  find(library.Send, "ncclSend");
  find(library.Recv, "ncclRecv");
  find(library.GroupStart, "ncclGroupStart");
  find(library.GroupEnd, "ncclGroupEnd");
  if (library.GetVersion != nullptr) library.GetVersion(&library.version);
  if (library.version < kOldest) {
    library.why_not = concat("libnccl.so.2 is NCCL ", version_text(library.version), ", ",
                             version_text(kOldest), " or newer is needed");
  }
  return library;
}

const NcclFunctions& loaded() {
  static const NcclFunctions library = load();
  return library;
}

const NcclFunctions& library() {
  if (!loaded().why_not.empty()) throw BadRequest(loaded().why_not);
  return loaded();
}

void check(Result result, const char* expression, ncclComm* communicator, const std::string& values,
           const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (result == kSuccess) return;
  const char* last = library().GetLastError(communicator);
  throw std::runtime_error(concat(expression, " failed: ", library().GetErrorString(result),
                                  last == nullptr || *last == '\0' ? "" : ": ", last == nullptr ? "" : last,
                                  " with ", values, " at ", file, ":", line));
}

int number_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f16:
      return 6;
    case Dtype::f32:
      return 7;
    case Dtype::f64:
      return 8;
    case Dtype::i32:
      return 2;
    case Dtype::i64:
      return 4;
    case Dtype::bf16:
      return 9;
  }
  return -1;
}

constexpr auto kLongestAbort = std::chrono::seconds(5);

enum class Owner { caller, us };

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(ncclComm* communicator, int rank, int size, Owner owner, Interruption interrupted)
      : Communicator(rank, size, Memory::device),
        communicator_(communicator),
        owner_(owner),
        interrupted_(std::move(interrupted)) {}

  ~NcclCommunicator() override {
    if (communicator_ != nullptr && owner_ == Owner::us) {
      // Destroying waits for the other ranks; who leaves because of an error does not.
      if (std::uncaught_exceptions() > 0) {
        abort();
      } else {
        library().CommDestroy(communicator_);
      }
    }
    if (aborted_.valid()) aborted_.wait_for(kLongestAbort);
  }

  /// NCCL connects two ranks when they first exchange something, and waits for the other one inside the call
  /// that enqueues it, where no limit reaches. So every kind of exchange is made once, while all are there.
  void connect_all(TimeLimit limit) {
    constexpr std::int64_t kBytes[] = {8, 64 << 10, 4 << 20};  // NCCL chooses its algorithm by size
    Buffer send(Memory::device, static_cast<std::size_t>(size() * kBytes[2])),
        receive(Memory::device, static_cast<std::size_t>(size() * kBytes[2]));
    send.poison(0);
    for (const std::int64_t bytes : kBytes) {
      all_reduce(send.data(), bytes / 2, Dtype::f16, nullptr);
      all_gather(send.data(), receive.data(), bytes, nullptr);
      all_to_all(send.data(), receive.data(), bytes, nullptr);
    }
    finish(nullptr, limit);
  }

  void all_gather(const void* send, void* receive, std::int64_t bytes, Stream stream) override {
    require(library().AllGather(send, receive, static_cast<std::size_t>(bytes), kInt8, live(), stream),
            "ncclAllGather", bytes);
  }

  void all_to_all(const void* send, void* receive, std::int64_t bytes, Stream stream) override {
    const auto count = static_cast<std::size_t>(bytes);
    ncclComm* const communicator = live();
    require(library().GroupStart(), "ncclGroupStart", bytes);
    Result sent = kSuccess, received = kSuccess;
    for (int r = 0; r < size() && sent == kSuccess && received == kSuccess; ++r) {
      sent = library().Send(static_cast<const std::byte*>(send) + r * bytes, count, kInt8, r, communicator,
                            stream);
      received =
          library().Recv(static_cast<std::byte*>(receive) + r * bytes, count, kInt8, r, communicator, stream);
    }
    const Result ended = library().GroupEnd();  // else later calls would join it
    require(sent, "ncclSend", bytes);
    require(received, "ncclRecv", bytes);
    require(ended, "ncclGroupEnd", bytes);
  }

  void all_reduce(void* data, std::int64_t elements, Dtype dtype, Stream stream) override {
    require(library().AllReduce(data, data, static_cast<std::size_t>(elements), number_of(dtype), kSum,
                                live(), stream),
            "ncclAllReduce", elements * bytes_of(dtype));
  }

  void finish(Stream stream, TimeLimit limit) override {
    try {
      wait_until(
          [&] {
            Result error = kSuccess;
            check(library().CommGetAsyncError(live(), &error), "ncclCommGetAsyncError", communicator_,
                  values(0));
            if (error != kInProgress) check(error, "a collective", communicator_, values(0));
            return is_done(stream);
          },
          limit, interrupted_, concat("rank ", rank(), " of ", size(), ": the work enqueued was not done"));
    } catch (...) {
      abort();
      throw;
    }
  }

 private:
  ncclComm* live() const {
    if (communicator_ == nullptr) throw std::runtime_error("this communicator has been aborted");
    return communicator_;
  }
  std::string values(std::int64_t bytes) const {
    return concat("rank ", rank(), " of ", size(), ", ", bytes, " bytes");
  }
  /// check(), but who has ended says more than an error of NCCL.
  void require(Result result, const char* expression, std::int64_t bytes, const char* file = __builtin_FILE(),
               int line = __builtin_LINE()) const {
    if (result != kSuccess) throw_reason(interrupted_);
    check(result, expression, communicator_, values(bytes), file, line);
  }
  /// Ends kernels that wait for other ranks. NCCL returns from this when no captured graph holds the
  /// communicator any more. Whoever waits may own such a graph, so a thread of its own calls it.
  void abort() {
    if (communicator_ == nullptr) return;
    std::packaged_task<Result()> task(
        [communicator = std::exchange(communicator_, nullptr)] { return library().CommAbort(communicator); });
    aborted_ = task.get_future();
    std::thread(std::move(task)).detach();
  }

  ncclComm* communicator_;
  Owner owner_;
  Interruption interrupted_;
  std::future<Result> aborted_;  ///< valid: abort() was called
};

}  // namespace

std::string why_not() {
  return loaded().why_not;
}

int version() {
  return library().version;
}

std::string version_text(int version) {
  const int of_major = version < 10000 ? 1000 : 10000;  // up to 2.8 NCCL counted 2804, from 2.9 on 20900
  return concat(version / of_major, ".", version % of_major / 100, ".", version % 100);
}

std::vector<std::pair<std::string, std::string>> variables() {
  std::vector<std::pair<std::string, std::string>> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (text.starts_with("NCCL_") && equals != std::string_view::npos)
      found.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  std::sort(found.begin(), found.end());
  return found;
}

UniqueId make_unique_id() {
  Id id{};
  check(library().GetUniqueId(&id), "ncclGetUniqueId", nullptr, "no communicator");
  UniqueId bytes;
  std::copy(std::begin(id.internal), std::end(id.internal), bytes.begin());
  return bytes;
}

std::unique_ptr<Communicator> connect(const UniqueId& id, const Rank& rank, TimeLimit limit,
                                      Interruption interrupted) {
  library();
  if (rank.size < 1 || rank.rank < 0 || rank.rank >= rank.size)
    throw BadRequest(concat("rank=", rank.rank, " must be between 0 and ", rank.size - 1));
  const DeviceScope scope(rank.device);
  Id bytes{};
  std::copy(id.begin(), id.end(), std::begin(bytes.internal));
  // NCCL waits for the other ranks for as long as it takes, so a thread of its own does that.
  struct Made {
    Result result = kSuccess;
    ncclComm* communicator = nullptr;
  };
  std::promise<Made> promise;
  std::future<Made> made = promise.get_future();
  std::thread([promise = std::move(promise), bytes, rank]() mutable {
    try {
      const DeviceScope device(rank.device);
      Made answer;
      answer.result = library().CommInitRank(&answer.communicator, rank.size, bytes, rank.rank);
      promise.set_value(answer);
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }).detach();
  wait_until([&] { return made.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready; }, limit,
             interrupted, concat("rank ", rank.rank, " of ", rank.size, ": not all ranks have connected"));
  const Made answer = made.get();
  if (answer.result != kSuccess) throw_reason(interrupted);
  check(answer.result, "ncclCommInitRank", nullptr,
        concat("rank ", rank.rank, " of ", rank.size, " on device ", rank.device));
  auto communicator = std::make_unique<NcclCommunicator>(answer.communicator, rank.rank, rank.size, Owner::us,
                                                         std::move(interrupted));
  communicator->connect_all(limit);
  return communicator;
}

std::unique_ptr<Communicator> adopt(ncclComm* communicator, int size, Interruption interrupted) {
  if (communicator == nullptr) throw BadRequest("the communicator is null");
  int rank = 0, count = 0;
  check(library().CommCount(communicator, &count), "ncclCommCount", communicator, "a caller's communicator");
  check(library().CommUserRank(communicator, &rank), "ncclCommUserRank", communicator,
        "a caller's communicator");
  if (count != size)
    throw BadRequest(concat("the communicator has ", count, " ranks, the problem is for ", size));
  return std::make_unique<NcclCommunicator>(communicator, rank, count, Owner::caller, std::move(interrupted));
}

}  // namespace fwht::nccl
