// The C ABI of transforms: fwht.h without the linear layers.
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <variant>

#include "common/contract/encoding.hpp"
#include "common/contract/operator.hpp"
#include "common/contract/operator_data.hpp"
#include "common/contract/scratch.hpp"
#include "common/host/error.hpp"
#include "common/host/provenance.hpp"
#include "common/host/text.hpp"
#include "fwht.h"
#include "python/src/abi.hpp"
#include "python/src/device.hpp"
#include "python/src/engine.hpp"
#include "variants/library/transform.hpp"
#include "variants/registry.hpp"

struct fwht_plan : fwht::c_abi::PlanHandle<fwht::Transforms> {};

namespace fwht::c_abi {

Request<Transforms> read_problem(const fwht_problem* given) {
  const fwht_problem p = read(given, offsetof(fwht_problem, in_stride), "fwht_problem");
  require_known_flags(p.flags, FWHT_ORTHONORMAL | FWHT_PROGRAMMATIC_LAUNCH | FWHT_SCALE_AS_GIVEN);
  Request<Transforms> request;
  Problem& problem = request.problem;
  problem.op = p.op_text == nullptr ? Operator::sylvester(p.n) : parse_operator(p.op_text);
  const std::int64_t n = problem.n();
  if (p.op_text != nullptr && p.n != 0 && p.n != n) {
    throw BadRequest("n=" + std::to_string(p.n) + " must be 0 or the order of the operator " + p.op_text +
                     ", which is " + std::to_string(n));
  }
  problem.rows = p.rows;
  problem.placement = static_cast<Placement>(p.placement);
  problem.in_ordering = static_cast<Ordering>(p.in_ordering);
  problem.out_ordering = static_cast<Ordering>(p.out_ordering);
  problem.inner = p.inner == 0 ? 1 : p.inner;
  std::int64_t block = 0;
  if (__builtin_mul_overflow(n, problem.inner, &block)) block = n;  // which is refused
  const std::int64_t in_stride = p.in_stride == 0 ? block : p.in_stride;
  const bool in_place = problem.placement == Placement::in_place;
  const std::int64_t out_stride = p.out_stride == 0 ? (in_place ? in_stride : block) : p.out_stride;
  problem.in = {static_cast<Dtype>(p.dtype), in_stride};
  problem.out = {static_cast<Dtype>(p.dtype), out_stride};
  const bool by_default = p.scale == 0.0 && (p.flags & FWHT_SCALE_AS_GIVEN) == 0;
  const bool orthonormal = by_default || (p.flags & FWHT_ORTHONORMAL) != 0;
  problem.scale = orthonormal && n > 0 ? orthonormal_scale(n) : p.scale;
  problem.programmatic_launch = (p.flags & FWHT_PROGRAMMATIC_LAUNCH) != 0;
  if (p.encoding != nullptr) problem.encoding = parse_encoding(p.encoding);
  if (p.preparation != nullptr) parse_preparations(p.preparation, problem.prologue, problem.paging);
  request.threads = p.threads;
  return request;
}

namespace {

/// Throws BadRequest where fp32 has 0 or no number for it.
float in_fp32(const char* name, double given, const char* rule) {
  const auto number = static_cast<float>(given);
  if ((number == 0.0F) == (given == 0.0) && std::isfinite(number)) return number;
  throw BadRequest(concat(name, "=", given, " must be ", rule));
}

Operands read_operands(const fwht_operands* given) {
  const fwht_operands o = read(given, offsetof(fwht_operands, signs), "fwht_operands");
  if (o.scales_bytes < 0)
    throw BadRequest("scales_bytes=" + std::to_string(o.scales_bytes) + " must not be negative");
  Operands operands;
  operands.in = o.in;
  operands.out = o.out;
  operands.signs = o.signs;
  operands.dense = o.dense;
  operands.scales = o.scales;
  if (o.scales_bytes > 0) operands.scales_bytes = o.scales_bytes;
  operands.tensor_scale = in_fp32("tensor_scale", o.tensor_scale, "a positive fp32 number, or 0: not given");
  operands.tensor_scale_at = o.tensor_scale_at;
  const float epsilon = in_fp32("epsilon", o.epsilon, "0 or a positive fp32 number");
  operands.prepared = {o.weight, epsilon, o.cos_sin, o.positions, o.slots};
  return operands;
}

/// Throws BadRequest unless the execution brings as much as it needs, or nothing. Null where it needs none.
void* read_scratch(const fwht_operands* given, std::int64_t needed) {
  const fwht_operands o = read(given, offsetof(fwht_operands, signs), "fwht_operands");
  if (o.scratch == nullptr && o.scratch_bytes == 0) return nullptr;
  if (o.scratch == nullptr || o.scratch_bytes < needed) {
    throw BadRequest("scratch_bytes=" + std::to_string(o.scratch_bytes) +
                     (o.scratch == nullptr ? " behind no scratch" : "") + " must be at least " +
                     std::to_string(needed) + ", or both fields 0");
  }
  return needed == 0 ? nullptr : o.scratch;
}

void refuse_scratch(const fwht_operands* given) {
  const fwht_operands o = read(given, offsetof(fwht_operands, signs), "fwht_operands");
  if (o.scratch == nullptr && o.scratch_bytes == 0) return;
  throw BadRequest(
      "scratch is given, but fwht_transform_operands works in what its plans own; "
      "fwht_plan_execute_operands takes it");
}

/// The variant whose bits the results have: `auto` picks another.
std::string arithmetic_of(const fwht_plan& plan, const Settings& settings) {
  for (const auto& [name, value] : settings) {
    const auto* const picked = std::get_if<std::string>(&value);
    if (name == "picked" && picked != nullptr) return *picked;
  }
  return std::string(plan.place.variant->name);
}

std::string describe(const fwht_plan& plan) {
  const fwht::Numerics numerics = plan.plan->numerics();
  const Settings settings = plan.plan->settings();
  return identity(plan)
      .add("arithmetic", arithmetic_of(plan, settings))
      .add("alignment", static_cast<std::int64_t>(plan.plan->alignment()))
      .add("scratch_bytes", plan.plan->scratch_bytes())
      .add("one_stream_at_a_time", plan.plan->one_stream_at_a_time())
      .add("roundings", std::int64_t{numerics.roundings()})
      .add("batch_invariant", numerics.promises.batch_invariant)
      .add("layout_invariant", numerics.promises.layout_invariant)
      .add("row_isolation", numerics.promises.row_isolation)
      .add_raw("settings", settings_json(settings))
      .text();
}

std::string describe(const Operator& op) {
  return Object()
      .add("text", to_string(op))
      .add("n", op.n())
      .add("symmetric", op.is_symmetric())
      .add("signs", !op.has_signs()        ? "none"
                    : op.signs_come_last() ? "last"
                                           : "first")
      .add("dense_entries", dense_entry_count(op))
      .text();
}

std::string describe(const Encoding& encoding, std::int64_t n, std::int64_t rows) {
  const ScaleShape shape = scale_shape(encoding, rows, n);
  return Object()
      .add("text", to_string(encoding))
      .add("element", name_of(element_of(encoding.format)))
      .add("code_bits", std::int64_t{code_bits(encoding.format)})
      .add("scale_type", name_of(encoding.scale_type))
      .add("layout", name_of(encoding.layout))
      .add("token", token_length(encoding, n))
      .add("scale_rows", shape.rows)
      .add("scale_columns", shape.columns)
      .add("scale_bytes", scale_buffer_bytes(encoding, rows, n))
      .add("needs_tensor_scale", needs_tensor_scale(encoding))
      .text();
}

/// The text that `make` returns, kept for this thread; nullptr where it throws.
template <class Make>
const char* answer(Make&& make) noexcept {
  thread_local std::string text;
  const char* answer = nullptr;
  guarded([&] {
    text = make();
    answer = text.c_str();
  });
  return answer;
}

Operator read_operator(const char* text) {
  if (text == nullptr) throw BadRequest("op_text is a null pointer");
  return parse_operator(text);
}

std::string describe_build() {
  const BuildRecord build = this_build();
  return Object()
      .add("version", build.version)
      .add("commit", build.commit)
      .add("dirty", build.dirty)
      .add("sources_hash", build.sources_hash)
      .add("build_type", build.build_type)
      .add("cxx", build.cxx)
      .add("cxx_flags", build.cxx_flags)
      .add("cuda", build.cuda)
      .add("cuda_flags", build.cuda_flags)
      .add("abi_version", std::int64_t{FWHT_ABI_VERSION})
      .text();
}

}  // namespace
}  // namespace fwht::c_abi

using namespace fwht::c_abi;

extern "C" {

int32_t fwht_abi_version(void) {
  return FWHT_ABI_VERSION;
}

const char* fwht_version(void) {
  return FWHT_VERSION;
}

const char* fwht_build_info_json(void) {
  const char* text = nullptr;
  guarded([&] {
    static const std::string* const kept = new std::string(describe_build());
    text = kept->c_str();
  });
  return text;
}

int32_t fwht_device_count(void) {
  return device_count();
}

size_t fwht_variant_count(void) {
  return fwht::registry().size();
}

fwht_status fwht_get_variant(size_t index, fwht_variant* variant) {
  return guarded([&] { describe_variant<fwht::Transforms>(fwht::registry(), index, variant); });
}

fwht_status fwht_supports(const fwht_problem* problem, const char* variant, int32_t device) {
  return guarded([&] { require_supported(read_problem(problem), variant, device); });
}

fwht_status fwht_transform(const fwht_problem* problem, const char* variant, const void* in, void* out,
                           int32_t device, void* stream) {
  return guarded([&] {
    const auto request = read_problem(problem);
    if (device == FWHT_DEVICE_OF_POINTER) device = device_of(out);
    transform(request.problem, place_of<fwht::Transforms>(variant, device, request.threads), {in, out},
              static_cast<fwht::Stream>(stream));
  });
}

fwht_status fwht_transform_operands(const fwht_problem* problem, const char* variant,
                                    const fwht_operands* operands, int32_t device, void* stream) {
  return guarded([&] {
    const auto request = read_problem(problem);
    const fwht::Operands given = read_operands(operands);
    refuse_scratch(operands);
    if (device == FWHT_DEVICE_OF_POINTER) device = device_of(given.out);
    transform(request.problem, place_of<fwht::Transforms>(variant, device, request.threads), given,
              static_cast<fwht::Stream>(stream));
  });
}

const char* fwht_operator_for(int64_t n) {
  return answer([&] { return to_string(fwht::operator_for(n)); });
}

const char* fwht_operator_transposed(const char* op_text) {
  return answer([&] { return to_string(read_operator(op_text).transposed()); });
}

const char* fwht_operator_info_json(const char* op_text) {
  return answer([&] { return describe(read_operator(op_text)); });
}

const char* fwht_encoding_info_json(const char* encoding, int64_t n, int64_t rows) {
  return answer([&] {
    if (encoding == nullptr) throw fwht::BadRequest("encoding is a null pointer");
    const fwht::Encoding parsed = fwht::parse_encoding(encoding);
    fwht::validate(parsed, n, rows);
    return describe(parsed, n, rows);
  });
}

size_t fwht_clear_plans(void) {
  size_t count = 0;
  guarded([&] { count = fwht::clear_transform_plans(); });
  return count;
}

fwht_status fwht_plan_create(const fwht_problem* problem, const char* variant, int32_t device,
                             fwht_plan** plan) {
  return guarded([&] {
    bool of_caller = false;
    give_plan(
        plan, variant, device,
        [&] {
          fwht_problem asked_for = read(problem, offsetof(fwht_problem, in_stride), "fwht_problem");
          of_caller = (asked_for.flags & FWHT_SCRATCH_OF_CALLER) != 0;
          asked_for.flags &= ~FWHT_SCRATCH_OF_CALLER;
          asked_for.struct_size = sizeof asked_for;  // the caller's may be larger
          return read_problem(&asked_for);
        },
        [&](const fwht::Problem& asked, const Place& place) {
          if (!of_caller) return make_plan(asked, place);
          const fwht::ScratchOfCallers none;
          auto made = make_plan(asked, place);
          if (made->one_stream_at_a_time()) {
            throw fwht::BadRequest(
                fwht::concat("FWHT_SCRATCH_OF_CALLER (in Python own_scratch=False) asks for a plan that owns "
                             "no memory, but ",
                             place.variant->name, " keeps what it works in for ", to_string(asked)));
          }
          return made;
        },
        [](const fwht_plan& made) { return describe(made); });
  });
}

fwht_status fwht_plan_execute(const fwht_plan* plan, const void* in, void* out, void* stream) {
  return guarded([&] { execute(plan, {in, out}, stream); });
}

fwht_status fwht_plan_execute_operands(const fwht_plan* plan, const fwht_operands* operands, void* stream) {
  return guarded([&] {
    fwht::Operands given = read_operands(operands);
    given.scratch = read_scratch(operands, required(plan).plan->scratch_bytes());
    execute(plan, given, stream);
  });
}

fwht_status fwht_plan_kept(const fwht_problem* problem, const char* variant, int32_t device,
                           fwht_plan** plan) {
  return guarded([&] {
    give_plan(
        plan, variant, device, [&] { return read_problem(problem); },
        [](const fwht::Problem& asked, const Place& place) { return kept_plan(asked, place); },
        [](const fwht_plan& made) { return describe(made); });
  });
}

const char* fwht_plan_info_json(const fwht_plan* plan) {
  return info_of(plan);
}

void fwht_plan_destroy(fwht_plan* plan) {
  destroy(plan);
}

}  // extern "C"
