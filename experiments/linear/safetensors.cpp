#include "experiments/linear/safetensors.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/host/error.hpp"

namespace fwht::linear_layers {
namespace {

static_assert(std::endian::native == std::endian::little);  // as the file

constexpr std::int64_t kMostHeader = 100'000'000;  // of the format

class File {
 public:
  explicit File(const std::filesystem::path& path) : path_(path), stream_(path, std::ios::binary) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error || !stream_) refuse("cannot be read");
    std::uint64_t length = 0;
    if (size < sizeof length) refuse(fmt::format("has {} bytes, a safetensors file has 8 at least", size));
    stream_.read(reinterpret_cast<char*>(&length), sizeof length);
    if (length > kMostHeader || length > size - sizeof length)
      refuse(fmt::format("is truncated or no safetensors file: a header of {} bytes in {}", length, size));
    std::string text(length, '\0');
    stream_.read(text.data(), static_cast<std::streamsize>(length));
    header_ = nlohmann::json::parse(text, nullptr, false);
    if (!header_.is_object()) refuse("has a header that is no JSON object");
    begin_ = static_cast<std::int64_t>(sizeof length + length);
    bytes_ = static_cast<std::int64_t>(size) - begin_;
  }

  bool has(const std::string& name) const { return header_.contains(name); }

  /// The tensor's shape, of `dimensions` numbers; checks type, offsets and size.
  template <class Element>
  std::vector<std::int64_t> read(const std::string& name, const char* type, std::size_t dimensions,
                                 std::vector<Element>& to) {
    if (!has(name)) refuse(fmt::format("has no tensor {}", name));
    try {
      const nlohmann::json& tensor = header_.at(name);
      const auto dtype = tensor.at("dtype").get<std::string>();
      const auto shape = tensor.at("shape").get<std::vector<std::int64_t>>();
      const auto offsets = tensor.at("data_offsets").get<std::vector<std::int64_t>>();
      if (dtype != type) refuse(fmt::format("has {} in {}, {} is needed", name, dtype, type));
      if (shape.size() != dimensions || offsets.size() != 2)
        refuse(fmt::format("has {} with {} dimensions, {} are needed", name, shape.size(), dimensions));
      std::int64_t count = 1;
      for (const std::int64_t length : shape) {
        if (length < 1 || length > (std::int64_t{1} << 30) || count > (std::int64_t{1} << 40))
          refuse(fmt::format("has {} with a dimension of {}", name, length));
        count *= length;
      }
      const std::int64_t size = count * static_cast<std::int64_t>(sizeof(Element));
      if (offsets[0] < 0 || offsets[1] < offsets[0] || offsets[1] > bytes_ || offsets[1] - offsets[0] != size)
        refuse(fmt::format("has {} at {} to {}: {} bytes are needed, {} follow the header", name, offsets[0],
                           offsets[1], size, bytes_));
      to.resize(static_cast<std::size_t>(count));
      stream_.seekg(begin_ + offsets[0]);
      stream_.read(reinterpret_cast<char*>(to.data()), size);
      if (!stream_) refuse(fmt::format("ends inside {}", name));
      return shape;
    } catch (const nlohmann::json::exception&) {
      refuse(fmt::format("describes {} in a way that is not understood", name));
    }
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw BadRequest(fmt::format("{} {}", path_.string(), why));
  }

 private:
  std::filesystem::path path_;
  std::ifstream stream_;
  nlohmann::json header_;
  std::int64_t begin_ = 0, bytes_ = 0;
};

}  // namespace

GptqWeights read_gptq(const std::filesystem::path& path, const std::string& layer, ZeroPoints zero_points) {
  File file(path);
  GptqWeights weights;
  weights.zero_points = zero_points;
  const auto words = file.read(layer + ".qweight", "I32", 2, weights.qweight);
  const auto scales = file.read(layer + ".scales", "F16", 2, weights.scales);
  weights.k = words[0] * 8;
  weights.n = words[1];
  if (scales[1] != weights.n || weights.k % scales[0] != 0)
    file.refuse(
        fmt::format("has scales [{}][{}] beside qweight [{}][{}]", scales[0], scales[1], words[0], words[1]));
  weights.group = scales[0] == 1 ? LinearProblem::kWhole : weights.k / scales[0];
  if (zero_points != ZeroPoints::symmetric) {
    const auto zeros = file.read(layer + ".qzeros", "I32", 2, weights.qzeros);
    if (zeros[0] != scales[0] || zeros[1] * 8 != weights.n)
      file.refuse(fmt::format("has qzeros [{}][{}] beside scales [{}][{}]", zeros[0], zeros[1], scales[0],
                              scales[1]));
  }
  if (file.has(layer + ".g_idx")) {
    file.read(layer + ".g_idx", "I32", 1, weights.g_idx);
    bool counts = static_cast<std::int64_t>(weights.g_idx.size()) == weights.k;
    for (std::size_t i = 0; counts && i < weights.g_idx.size(); ++i)
      counts = weights.g_idx[i] == static_cast<std::int64_t>(i) / weights.group_rows();
    if (counts) weights.g_idx.clear();
  }
  validate(weights);
  return weights;
}

}  // namespace fwht::linear_layers
