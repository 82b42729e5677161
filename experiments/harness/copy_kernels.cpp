#include "experiments/harness/copy_kernels.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "common/error.hpp"
#include "common/parallel_for.hpp"

namespace fwht::harness {
namespace {

void flip_words(const std::uint32_t* in, std::uint32_t* out, std::int64_t words, std::uint32_t mask) {
  for (std::int64_t i = 0; i < words; ++i)
    out[i] = in[i] ^ mask;
}

void host_copy(const void* in, void* out, std::int64_t bytes, std::uint32_t mask, int threads) {
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

}  // namespace

std::vector<CopyKernel> host_copies(const DeviceInfo& device) {
  std::vector<int> counts;
  for (int threads = 1; threads < device.host_threads; threads *= 2)
    counts.push_back(threads);
  counts.push_back(device.host_threads);
  std::vector<CopyKernel> kernels;
  for (const int threads : counts) {
    kernels.push_back({"host_t" + std::to_string(threads), "",
                       [threads](const void* in, void* out, std::int64_t bytes, std::uint32_t mask, Stream) {
                         host_copy(in, out, bytes, mask, threads);
                       }});
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

}  // namespace fwht::harness
