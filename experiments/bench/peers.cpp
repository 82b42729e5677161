#include "experiments/bench/peers.hpp"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "common/host/error.hpp"
#include "experiments/harness/transform.hpp"

namespace fwht::bench {
namespace {

class PeerRequest {
 public:
  PeerRequest(const Problem& problem, const DeviceInfo& device)
      : text_(to_string(problem)),
        op_text_(to_string(problem.op)),
        request_{text_.c_str(), FWHT_PROBLEM_INIT, device.ordinal} {
    fwht_problem& given = request_.problem;
    given.n = problem.n();
    given.rows = problem.rows;
    given.scale = problem.scale;
    given.dtype = static_cast<std::int32_t>(problem.dtype());
    given.placement = problem.placement == Placement::in_place ? FWHT_IN_PLACE : FWHT_OUT_OF_PLACE;
    given.op_text = op_text_.c_str();
  }
  PeerRequest(const PeerRequest&) = delete;
  PeerRequest& operator=(const PeerRequest&) = delete;
  const fwht_bench_problem* get() const { return &request_; }

 private:
  std::string text_, op_text_;
  fwht_bench_problem request_;
};

Support supports(const fwht_bench_peer& peer, const Problem& problem, const DeviceInfo& device) {
  constexpr std::array kDtypes = {Dtype::f16, Dtype::bf16, Dtype::f32};
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (Support launch = require_ordinary_launch(problem); !launch) return launch;
  if (Support rows = require_plain_rows(problem, kDtypes); !rows) return rows;
  if (problem.op.has_signs() || problem.op.has_dense())
    return {"kernels of others are timed without signs and dense factors"};
  if (problem.in.row_stride != problem.n() || problem.out.row_stride != problem.n())
    return {"kernels of others are timed on contiguous rows"};
  Sentence why{};
  const PeerRequest request(problem, device);
  return support_of(peer.supports(request.get(), why.data(), why.size()), why);
}

/// What a peer does, in the words of the contract.
class PeerPlan final : public Plan {
 public:
  PeerPlan(const fwht_bench_peer& peer, const Problem& problem, const DeviceInfo& device, bool deliver)
      : Plan(problem), peer_(peer), request_(problem, device), deliver_(deliver) {}

  Numerics numerics() const override { return {}; }
  Settings settings() const override { return {}; }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    Sentence why{};
    const std::int32_t answer = peer_.launch(request_.get(), operands.in, operands.out, stream,
                                             deliver_ ? 1 : 0, why.data(), why.size());
    require_done(peer_.name, answer, why);
  }

  const fwht_bench_peer& peer_;
  PeerRequest request_;
  bool deliver_;
};

harness::Subject subject_of(const fwht_bench_peer& peer, const Problem& problem, const DeviceInfo& device,
                            const std::shared_ptr<harness::TruthCache>& truths) {
  harness::Subject subject = harness::transform_subject(
      peer.name, Memory::device, std::make_shared<PeerPlan>(peer, problem, device, /*deliver=*/true), truths);
  const auto timed = std::make_shared<PeerPlan>(peer, problem, device, /*deliver=*/false);
  subject.launch = [timed](const void* in, void* out, Stream stream) { timed->execute(in, out, stream); };
  subject.settings = [text = std::string(peer.settings)] { return text; };
  subject.host_us = [&peer, request = std::make_shared<PeerRequest>(problem, device)] {
    return peer.host_us(request->get());
  };
  return subject;
}

}  // namespace

sweep::Contestant contestant_of(const fwht_bench_peer& peer, const DeviceInfo& device) {
  if (peer.name == nullptr || *peer.name == '\0') throw BadRequest("a peer has no name");
  if (peer.supports == nullptr || peer.launch == nullptr || peer.host_us == nullptr)
    throw BadRequest(fmt::format("{} lacks a function", peer.name));
  if (peer.settings == nullptr || !nlohmann::json::parse(peer.settings, nullptr, false).is_object())
    throw BadRequest(fmt::format("{}: its settings are no JSON object", peer.name));
  return {peer.name, Memory::device,
          [&peer, &device](const Problem& problem) { return supports(peer, problem, device); },
          [&peer, &device](const Problem& problem, const std::shared_ptr<harness::TruthCache>& truths) {
            return subject_of(peer, problem, device, truths);
          }};
}

}  // namespace fwht::bench
