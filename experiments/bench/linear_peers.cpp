#include "experiments/bench/peers.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "common/host/error.hpp"

namespace fwht::bench {
namespace {

class LinearRequest {
 public:
  LinearRequest(const LinearProblem& problem, const DeviceInfo& device)
      : text_(to_string(problem)), request_{text_.c_str(), FWHT_LINEAR_PROBLEM_INIT, device.ordinal} {
    fwht_linear_problem& given = request_.layer;
    given.m = problem.m;
    given.n = problem.n;
    given.k = problem.k;
    given.group = problem.group_rows();
    given.dtype = static_cast<std::int32_t>(problem.dtype);
    given.zero_points = static_cast<std::int32_t>(problem.zero_points);
  }
  LinearRequest(const LinearRequest&) = delete;
  LinearRequest& operator=(const LinearRequest&) = delete;
  const fwht_bench_linear_problem* get() const { return &request_; }

 private:
  std::string text_;
  fwht_bench_linear_problem request_;
};

Support supports(const fwht_bench_linear_peer& peer, const LinearProblem& problem, const DeviceInfo& device) {
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  for (const auto require : {require_no_rotation, require_sorted_rows, require_ordinary_launch}) {
    if (Support plain = require(problem); !plain) return plain;
  }
  Sentence why{};
  const LinearRequest request(problem, device);
  return support_of(peer.supports(request.get(), why.data(), why.size()), why);
}

/// What a peer does, in the words of the contract.
class LinearPeerPlan final : public LinearPlan {
 public:
  LinearPeerPlan(const fwht_bench_linear_peer& peer, const LinearProblem& problem, const DeviceInfo& device)
      : LinearPlan(problem), peer_(peer), request_(problem, device) {}

  std::int64_t packed_bytes() const override { return peer_.packed_bytes(request_.get()); }
  std::string packing() const override { return fmt::format("{}/{}", peer_.name, name_of(problem().dtype)); }

  Numerics numerics() const override { return {}; }  // of others: not known

  Settings settings() const override {
    const auto texts = nlohmann::ordered_json::parse(peer_.settings);
    Settings settings;
    for (const auto& [name, value] : texts.items())
      settings.emplace_back(name, value.get<std::string>());
    return settings;
  }

 private:
  void pack_into(const GptqWeights& weights, std::byte* packed) const override {
    Sentence why{};
    const std::int32_t answer = peer_.pack(request_.get(), weights.qweight.data(),
                                           weights.symmetric() ? nullptr : weights.qzeros.data(),
                                           weights.scales.data(), packed, why.data(), why.size());
    require_done(peer_.name, answer, why);
  }

  void enqueue(const LinearOperands& operands, Stream stream) const override {
    Sentence why{};
    const std::int32_t answer = peer_.launch(request_.get(), operands.x, operands.weights, operands.y, stream,
                                             why.data(), why.size());
    require_done(peer_.name, answer, why);
  }

  const fwht_bench_linear_peer& peer_;
  LinearRequest request_;
};

/// Variants are plain functions: each place has its own, and knows its peer.
std::array<const fwht_bench_linear_peer*, kMostLinearPeers> places{};

template <std::size_t place>
LinearVariant variant_at() {
  return {places[place]->name, "a kernel of others", Memory::device,
          [](const LinearProblem& problem, const DeviceInfo& device) {
            return supports(*places[place], problem, device);
          },
          [](const LinearProblem& problem, const DeviceInfo& device) -> std::unique_ptr<LinearPlan> {
            return std::make_unique<LinearPeerPlan>(*places[place], problem, device);
          }};
}

template <std::size_t... place>
LinearVariant variant_of(std::size_t which, std::index_sequence<place...>) {
  constexpr std::array<LinearVariant (*)(), kMostLinearPeers> kMake = {variant_at<place>...};
  return kMake[which]();
}

void require_complete(const fwht_bench_linear_peer& peer) {
  if (peer.name == nullptr || *peer.name == '\0') throw BadRequest("a peer has no name");
  if (peer.supports == nullptr || peer.packed_bytes == nullptr || peer.pack == nullptr ||
      peer.launch == nullptr)
    throw BadRequest(fmt::format("{} lacks a function", peer.name));
  const nlohmann::json settings =
      peer.settings == nullptr ? nlohmann::json() : nlohmann::json::parse(peer.settings, nullptr, false);
  bool texts = settings.is_object();
  for (const nlohmann::json& value : settings)
    texts = texts && value.is_string();
  if (!texts) throw BadRequest(fmt::format("{}: its settings are no JSON object of texts", peer.name));
}

}  // namespace

std::vector<const LinearVariant*> linear_variants_of(std::span<const fwht_bench_linear_peer> peers) {
  if (peers.size() > kMostLinearPeers) {
    throw BadRequest(
        fmt::format("{} linear layers of others came; {} can take part", peers.size(), kMostLinearPeers));
  }
  static std::vector<LinearVariant> variants;
  variants.clear();
  for (std::size_t place = 0; place < peers.size(); ++place) {
    require_complete(peers[place]);
    places[place] = &peers[place];
    variants.push_back(variant_of(place, std::make_index_sequence<kMostLinearPeers>{}));
  }
  std::vector<const LinearVariant*> all;
  for (const LinearVariant& variant : variants)
    all.push_back(&variant);
  return all;
}

}  // namespace fwht::bench
