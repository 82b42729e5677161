// The C ABI of linear layers with 4-bit weights.
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "common/contract/linear/variant.hpp"
#include "common/contract/linear/weights.hpp"
#include "common/contract/operator_data.hpp"
#include "common/device/stream_query.hpp"
#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "fwht.h"
#include "python/src/abi.hpp"
#include "python/src/engine.hpp"
#include "variants/linear/registry.hpp"

struct fwht_linear_plan : fwht::c_abi::PlanHandle<fwht::LinearLayers> {};

namespace fwht::c_abi {
namespace {

ZeroPoints zero_points_of(std::int32_t value) {
  switch (value) {
    case FWHT_ZERO_POINTS_V1:
      return ZeroPoints::v1;
    case FWHT_ZERO_POINTS_V2:
      return ZeroPoints::v2;
    case FWHT_ZERO_POINTS_SYMMETRIC:
      return ZeroPoints::symmetric;
    default:
      throw BadRequest("zero_points=" + std::to_string(value) + " must be between 0 and 2");
  }
}

Request<LinearLayers> read_linear_problem(const fwht_linear_problem* given) {
  const fwht_linear_problem p = read(given, offsetof(fwht_linear_problem, rotation), "fwht_linear_problem");
  require_known_flags(p.flags, FWHT_PROGRAMMATIC_LAUNCH | FWHT_ACT_ORDER);
  Request<LinearLayers> request;
  LinearProblem& problem = request.problem;
  problem.m = p.m;
  problem.n = p.n;
  problem.k = p.k;
  problem.dtype = static_cast<Dtype>(p.dtype);
  problem.group = p.group;
  problem.zero_points = zero_points_of(p.zero_points);
  problem.act_order = (p.flags & FWHT_ACT_ORDER) != 0;
  const bool by_text = p.rotation_op != nullptr && *p.rotation_op != '\0';
  if (by_text && p.rotation != 0) {
    throw BadRequest("rotation=" + std::to_string(p.rotation) + " and rotation_op=" + p.rotation_op +
                     " exclude each other");
  }
  if (p.rotation < LinearProblem::kWhole)
    throw BadRequest("rotation=" + std::to_string(p.rotation) +
                     " must be -1 (all of k), 0 (none) or an order");
  if (by_text) {
    problem.rotation = parse_operator(p.rotation_op);
  } else if (p.rotation != 0) {
    problem.rotation = Operator::sylvester(p.rotation == LinearProblem::kWhole ? p.k : p.rotation);
  }
  problem.programmatic_launch = (p.flags & FWHT_PROGRAMMATIC_LAUNCH) != 0;
  request.threads = p.threads;
  return request;
}

/// None where `count` is 0: a tensor that nothing reads is refused, as by transforms.
template <class Entry>
std::vector<Entry> copied(const char* name, const Entry* from, std::int64_t count,
                          const LinearProblem& problem) {
  if (from == nullptr && count > 0) throw BadRequest(std::string(name) + " is a null pointer");
  if (from != nullptr && count == 0)
    throw BadRequest(std::string(name) + " is given, but " + to_string(problem) + " has none");
  if (reinterpret_cast<std::uintptr_t>(from) % alignof(Entry) != 0)
    throw BadRequest(std::string(name) + " must be aligned to " + std::to_string(alignof(Entry)) + " bytes");
  return std::vector<Entry>(from, from + count);
}

/// The caller's tensors, of the sizes that the problem says.
GptqWeights read_weights(const LinearProblem& problem, const fwht_gptq_weights* given) {
  const fwht_gptq_weights w = read(given, offsetof(fwht_gptq_weights, signs), "fwht_gptq_weights");
  validate(problem);
  GptqWeights weights;
  weights.n = problem.n;
  weights.k = problem.k;
  weights.group = problem.group;
  weights.zero_points = problem.zero_points;
  const std::int64_t groups = problem.groups();
  const auto take = [&](const char* name, const auto* from, std::int64_t count) {
    return copied(name, from, count, problem);
  };
  weights.qweight = take("qweight", w.qweight, problem.k / 8 * problem.n);
  weights.qzeros = take("qzeros", w.qzeros, problem.symmetric() ? 0 : groups * (problem.n / 8));
  weights.scales = take("scales", w.scales, groups * problem.n);
  if (w.g_idx != nullptr) weights.g_idx = take("g_idx", w.g_idx, problem.k);
  const Operator& rotation = problem.rotation;
  weights.signs = take("signs", w.signs, rotation.has_signs() ? ceil_div(rotation.n(), 32) : 0);
  weights.dense = take("dense", static_cast<const std::byte*>(w.dense),
                       dense_entry_count(rotation) * bytes_of(problem.dtype));
  return weights;
}

std::string describe(const fwht_linear_plan& plan) {
  const Promises promises = plan.plan->numerics().promises;
  return identity(plan)
      .add("alignment", static_cast<std::int64_t>(LinearPlan::kAlignment))
      .add("packed_bytes", plan.plan->packed_bytes())
      .add("workspace_bytes", plan.plan->workspace_bytes())
      .add("deterministic", promises.deterministic)
      .add("batch_invariant", promises.batch_invariant)
      .add("row_isolation", promises.row_isolation)
      .add_raw("settings", settings_json(plan.plan->settings()))
      .text();
}

}  // namespace
}  // namespace fwht::c_abi

using namespace fwht::c_abi;

extern "C" {

size_t fwht_linear_variant_count(void) {
  return fwht::linear_registry().size();
}

fwht_status fwht_get_linear_variant(size_t index, fwht_variant* variant) {
  return guarded([&] { describe_variant<fwht::LinearLayers>(fwht::linear_registry(), index, variant); });
}

fwht_status fwht_linear_supports(const fwht_linear_problem* problem, const char* variant, int32_t device) {
  return guarded([&] { require_supported(read_linear_problem(problem), variant, device); });
}

fwht_status fwht_linear_plan_create(const fwht_linear_problem* problem, const char* variant, int32_t device,
                                    fwht_linear_plan** plan) {
  return guarded([&] {
    give_plan(
        plan, variant, device, [&] { return read_linear_problem(problem); },
        [](const auto& asked, const auto& place) { return make_plan(asked, place); },
        [](const fwht_linear_plan& made) { return describe(made); });
  });
}

const char* fwht_linear_plan_info_json(const fwht_linear_plan* plan) {
  return info_of(plan);
}

fwht_status fwht_linear_plan_pack(const fwht_linear_plan* plan, const fwht_gptq_weights* weights,
                                  void* packed, int64_t packed_bytes) {
  return guarded([&] {
    const fwht::LinearPlan& made = *required(plan).plan;
    if (packed == nullptr) throw fwht::BadRequest("packed is a null pointer");
    if (packed_bytes != made.packed_bytes()) {
      throw fwht::BadRequest("packed_bytes=" + std::to_string(packed_bytes) + " must be " +
                             std::to_string(made.packed_bytes()));
    }
    const std::vector<std::byte> bytes = made.pack(read_weights(made.problem(), weights));
    std::memcpy(packed, bytes.data(), bytes.size());
  });
}

int64_t fwht_linear_plan_workspace_bytes(const fwht_linear_plan* plan) {
  return plan == nullptr ? 0 : plan->plan->workspace_bytes();
}

fwht_status fwht_linear_plan_execute(const fwht_linear_plan* plan, const void* x, const void* packed, void* y,
                                     void* workspace, int64_t workspace_bytes, void* stream) {
  return guarded([&] {
    if (workspace != nullptr && required(plan).place.device >= 0) {
      const fwht::CaptureAllowed allowed;
      fwht::require_reachable("workspace", workspace, plan->place.device);
    }
    execute(plan, {x, packed, y, workspace, workspace_bytes}, stream);
  });
}

void fwht_linear_plan_destroy(fwht_linear_plan* plan) {
  destroy(plan);
}

fwht_status fwht_gptq_sort_rows(const fwht_linear_problem* problem, const fwht_gptq_weights* weights,
                                uint32_t* qweight, int32_t* order) {
  return guarded([&] {
    if (qweight == nullptr) throw fwht::BadRequest("qweight is a null pointer");
    if (order == nullptr) throw fwht::BadRequest("order is a null pointer");
    const fwht::GptqWeights given = read_weights(read_linear_problem(problem).problem, weights);
    fwht::validate(given);
    const fwht::GptqWeights sorted = fwht::sorted_rows(given);
    const std::vector<std::int32_t> rows = fwht::row_order(given);
    std::memcpy(qweight, sorted.qweight.data(), sorted.qweight.size() * sizeof(uint32_t));
    std::memcpy(order, rows.data(), rows.size() * sizeof(int32_t));
  });
}

}  // extern "C"
