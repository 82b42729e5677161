#include "experiments/harness/copy_kernels.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>

#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/parallel_for.hpp"

namespace fwht::harness {
namespace {

void flip_words(const std::uint32_t* in, std::uint32_t* out, std::int64_t words, std::uint32_t mask) {
  for (std::int64_t i = 0; i < words; ++i)
    out[i] = in[i] ^ mask;
}

void flip_signs(const void* in, void* out, std::int64_t bytes, std::uint32_t mask, int threads) {
  const std::int64_t words = bytes / 4;
  const auto* from = static_cast<const std::uint32_t*>(in);
  auto* to = static_cast<std::uint32_t*>(out);
  parallel_for(words, threads, [&](std::int64_t begin, std::int64_t end) {
    flip_words(from + begin, to + begin, end - begin, mask);
  });
  if (bytes % 4 != 0) {  // one 16-bit number is left
    std::uint16_t last;
    std::memcpy(&last, from + words, sizeof last);
    last = static_cast<std::uint16_t>(last ^ mask);
    std::memcpy(to + words, &last, sizeof last);
  }
}

struct Words {
  std::uint32_t word[4];
  std::uint32_t all() const { return word[0] ^ word[1] ^ word[2] ^ word[3]; }
};

Words vector_at(const std::byte* in, std::int64_t bytes, std::int64_t vector) {
  Words words{};
  const std::int64_t left = bytes - 16 * vector;
  if (left >= 16) {
    std::memcpy(&words, in + 16 * vector, 16);
  } else {
    std::memcpy(&words, in + 16 * vector, static_cast<std::size_t>(left));
  }
  return words;
}

// The share of fold_copy that belongs to vectors [begin, end): all of them read, their bytes written, and
// every word behind those that is made of one of them.
template <int stored>
void fold_vectors_of(const std::byte* __restrict in, std::byte* __restrict out, Traffic traffic,
                     std::uint32_t mask, std::int64_t begin, std::int64_t end) {
  const std::int64_t vectors = ceil_div(traffic.read, 16);
  std::uint32_t seen = 0;
  const auto fold = [&](const Words& words, std::int64_t v) {
    const std::uint32_t halves[2] = {words.word[0] ^ words.word[1] ^ mask,
                                     words.word[2] ^ words.word[3] ^ mask};
    const std::uint32_t all = halves[0] ^ halves[1] ^ mask;
    seen ^= all;
    if constexpr (stored == 8) std::memcpy(out + 8 * v, halves, 8);
    if constexpr (stored == 4) std::memcpy(out + 4 * v, &all, 4);
  };
  const std::int64_t whole = std::min(end, traffic.read / 16);
  for (std::int64_t v = begin; v < whole; ++v) {
    Words words;
    std::memcpy(&words, in + 16 * v, 16);
    fold(words, v);
  }
  for (std::int64_t v = std::max(begin, whole); v < end; ++v)
    fold(vector_at(in, traffic.read, v), v);
  for (std::int64_t v = begin; v < end && stored * vectors + 4 * v < traffic.written; ++v) {
    const std::uint32_t all = vector_at(in, traffic.read, v).all() ^ mask;
    for (std::int64_t at = stored * vectors + 4 * v; at < traffic.written; at += 4 * vectors)
      std::memcpy(out + at, &all, static_cast<std::size_t>(std::min<std::int64_t>(4, traffic.written - at)));
  }
  static std::atomic<std::uint32_t> sink;  // what is written nowhere is read all the same
  sink.store(seen, std::memory_order_relaxed);
}
void fold_vectors(const std::byte* in, std::byte* out, Traffic traffic, std::uint32_t mask,
                  std::int64_t begin, std::int64_t end) {
  const int stored = store_bytes(traffic);
  const auto fold = stored == 8 ? fold_vectors_of<8> : stored == 4 ? fold_vectors_of<4> : fold_vectors_of<0>;
  fold(in, out, traffic, mask, begin, end);
}

CopyKernel host_copy(int threads) {
  return {"host_t" + std::to_string(threads), "",
          [threads](const void* in, void* out, Traffic traffic, std::uint32_t mask, Stream) {
            flip_signs(in, out, traffic.read, mask, threads);
          }};
}

CopyKernel host_fold(int threads, int stored) {
  CopyKernel kernel{"host_write" + std::to_string(stored) + "_t" + std::to_string(threads), "",
                    [threads](const void* in, void* out, Traffic traffic, std::uint32_t mask, Stream) {
                      parallel_for(ceil_div(traffic.read, 16), threads,
                                   [&](std::int64_t begin, std::int64_t end) {
                                     fold_vectors(static_cast<const std::byte*>(in),
                                                  static_cast<std::byte*>(out), traffic, mask, begin, end);
                                   });
                    }};
  kernel.store_bytes = stored;
  return kernel;
}

}  // namespace

void fold_copy(const void* in, void* out, Traffic traffic, std::uint32_t mask) {
  fold_vectors(static_cast<const std::byte*>(in), static_cast<std::byte*>(out), traffic, mask, 0,
               ceil_div(traffic.read, 16));
}

std::vector<CopyKernel> host_copies(const DeviceInfo& device) {
  std::vector<int> counts;
  for (int threads = 1; threads < device.host_threads; threads *= 2)
    counts.push_back(threads);
  counts.push_back(device.host_threads);
  std::vector<CopyKernel> kernels;
  for (const int threads : counts)
    kernels.push_back(host_copy(threads));
  for (const int stored : {8, 4, 0}) {
    for (const int threads : counts)
      kernels.push_back(host_fold(threads, stored));
  }
  return kernels;
}

std::vector<CopyKernel> copy_kernels(Memory memory, const DeviceInfo& device) {
  if (memory == Memory::host) return host_copies(device);
  if (!device.has_cuda()) throw BadRequest("no copy limit of device memory: " + device.why_no_cuda);
  return device_copies(device);
}

const CopyKernel& find_copy(const std::vector<CopyKernel>& kernels, const std::string& name) {
  const auto found =
      std::find_if(kernels.begin(), kernels.end(), [&](const CopyKernel& k) { return k.name == name; });
  if (found == kernels.end()) throw std::logic_error("no copy kernel is called " + name);
  return *found;
}

const CopyKernel& find_neighbour(const std::vector<CopyKernel>& kernels, Traffic traffic) {
  const auto found = std::find_if(kernels.begin(), kernels.end(),
                                  [&](const CopyKernel& k) { return k.neighbour && k.moves(traffic); });
  if (found == kernels.end()) throw std::logic_error("no copy kernel alternates with such traffic");
  return *found;
}

}  // namespace fwht::harness
