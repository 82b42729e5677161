// The C ABI: structs read, exceptions turned into a status and a message, answers as JSON.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "common/encoding.hpp"
#include "common/error.hpp"
#include "common/operator.hpp"
#include "common/operator_data.hpp"
#include "common/provenance.hpp"
#include "common/stream_query.hpp"
#include "fwht.h"
#include "python/src/device.hpp"
#include "python/src/engine.hpp"
#include "variants/registry.hpp"
#include "variants/transform.hpp"

struct fwht_plan {
  std::unique_ptr<fwht::Plan> plan;
  fwht::c_abi::Place place;
  std::string info;
};

namespace fwht::c_abi {
namespace {

// --- errors ----------------------------------------------------------------------------------------------

thread_local std::string last_error;

fwht_status failed(fwht_status status, const char* message) noexcept {
  try {
    last_error = message;
  } catch (...) {
    last_error.clear();  // no memory for the sentence
  }
  return status;
}

template <class Body>
fwht_status guarded(Body&& body) noexcept {
  try {
    body();
    return FWHT_OK;
  } catch (const Unsupported& error) {
    return failed(FWHT_UNSUPPORTED, error.what());
  } catch (const BadRequest& error) {
    return failed(FWHT_BAD_REQUEST, error.what());
  } catch (const std::bad_alloc&) {
    return failed(FWHT_FAILED, "the host is out of memory");
  } catch (const std::exception& error) {
    return failed(FWHT_FAILED, error.what());
  } catch (...) {
    return failed(FWHT_FAILED, "an unknown exception");
  }
}

// --- structs ---------------------------------------------------------------------------------------------

/// What the caller's struct says, the fields that it does not have as zero.
template <class Struct>
Struct read(const Struct* given, std::size_t smallest, const std::string& name) {
  if (given == nullptr) throw BadRequest(name + " is a null pointer");
  constexpr std::size_t kLargest = 4096;  // an uninitialised size is most likely larger
  const std::size_t size = given->struct_size;
  if (size < smallest || size > kLargest) {
    throw BadRequest(name + ".struct_size=" + std::to_string(size) + " must be sizeof(" + name + "), here " +
                     std::to_string(sizeof(Struct)));
  }
  Struct copy{};
  std::memcpy(&copy, given, std::min(size, sizeof(Struct)));
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  if (std::any_of(bytes + std::min(size, sizeof(Struct)), bytes + size,
                  [](auto byte) { return byte != 0; })) {
    throw BadRequest(name + " has fields that this library (version " + fwht_version() + ") does not know");
  }
  return copy;
}

struct Request {
  Problem problem;
  std::int32_t threads = 0;
};

Request read_problem(const fwht_problem* given) {
  const fwht_problem p = read(given, offsetof(fwht_problem, in_stride), "fwht_problem");
  constexpr std::uint32_t kFlags = FWHT_ORTHONORMAL | FWHT_PROGRAMMATIC_LAUNCH;
  if ((p.flags & ~kFlags) != 0)
    throw BadRequest("flags=" + std::to_string(p.flags) +
                     " has unknown bits; known: " + std::to_string(kFlags));
  Request request;
  Problem& problem = request.problem;
  problem.op = p.op_text == nullptr ? Operator::sylvester(p.n) : parse_operator(p.op_text);
  const std::int64_t n = problem.n();
  if (p.op_text != nullptr && p.n != 0 && p.n != n) {
    throw BadRequest("n=" + std::to_string(p.n) + " must be 0 or the order of the operator " + p.op_text +
                     ", which is " + std::to_string(n));
  }
  problem.rows = p.rows;
  problem.placement = static_cast<Placement>(p.placement);
  const std::int64_t in_stride = p.in_stride == 0 ? n : p.in_stride;
  const bool in_place = problem.placement == Placement::in_place;
  const std::int64_t out_stride = p.out_stride == 0 ? (in_place ? in_stride : n) : p.out_stride;
  problem.in = {static_cast<Dtype>(p.dtype), in_stride};
  problem.out = {static_cast<Dtype>(p.dtype), out_stride};
  problem.scale = (p.flags & FWHT_ORTHONORMAL) != 0 && n > 0 ? orthonormal_scale(n) : p.scale;
  problem.programmatic_launch = (p.flags & FWHT_PROGRAMMATIC_LAUNCH) != 0;
  if (p.encoding != nullptr) problem.encoding = parse_encoding(p.encoding);
  request.threads = p.threads;
  return request;
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
  if (o.tensor_scale != 0.0) operands.tensor_scale = static_cast<float>(o.tensor_scale);
  return operands;
}

// --- JSON ------------------------------------------------------------------------------------------------

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

/// Members of one object, in the order in which they are added.
class Object {
 public:
  Object& add(std::string_view key, std::string_view text) { return add_raw(key, quoted(text)); }
  Object& add(std::string_view key, const char* text) { return add_raw(key, quoted(text)); }
  Object& add(std::string_view key, bool value) { return add_raw(key, value ? "true" : "false"); }
  Object& add(std::string_view key, std::int64_t value) { return add_raw(key, std::to_string(value)); }
  Object& add(std::string_view key, double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.17g", value);
    const bool finite = value - value == 0.0;
    return add_raw(key, finite ? digits : "null");
  }
  Object& add_raw(std::string_view key, std::string_view json) {
    text_ += text_.empty() ? "{" : ", ";
    text_ += quoted(key) + ": ";
    text_ += json;
    return *this;
  }
  std::string text() const { return text_.empty() ? "{}" : text_ + "}"; }

 private:
  std::string text_;
};

std::string settings_json(const Settings& settings) {
  Object object;
  for (const auto& [name, value] : settings)
    std::visit([&](const auto& v) { object.add(name, v); }, value);
  return object.text();
}

std::string describe(const fwht_plan& plan) {
  const fwht::Numerics numerics = plan.plan->numerics();
  return Object()
      .add("variant", plan.place.variant->name)
      .add("problem", to_string(plan.plan->problem()))
      .add("device", std::int64_t{plan.place.device})
      .add("alignment", static_cast<std::int64_t>(plan.plan->alignment()))
      .add("roundings", std::int64_t{numerics.roundings()})
      .add("batch_invariant", numerics.promises.batch_invariant)
      .add("layout_invariant", numerics.promises.layout_invariant)
      .add("row_isolation", numerics.promises.row_isolation)
      .add_raw("settings", settings_json(plan.plan->settings()))
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

const char* name_of(ScaleType type) {
  switch (type) {
    case ScaleType::none:
      return "none";
    case ScaleType::f32:
      return "f32";
    case ScaleType::f16:
      return "f16";
    case ScaleType::ue8m0:
      return "ue8m0";
    case ScaleType::e8m0:
      return "e8m0";
    case ScaleType::e4m3:
      return "e4m3";
  }
  return "";
}

const char* name_of(ScaleLayout layout) {
  switch (layout) {
    case ScaleLayout::row_major:
      return "row_major";
    case ScaleLayout::mn_major:
      return "mn_major";
    case ScaleLayout::packed:
      return "packed";
    case ScaleLayout::swizzled_128x4:
      return "128x4";
  }
  return "";
}

const char* name_of(Element element) {
  switch (element) {
    case Element::none:
      return "none";
    case Element::e4m3:
      return "e4m3";
    case Element::e2m1:
      return "e2m1";
    case Element::int8:
      return "int8";
    case Element::int4:
      return "int4";
  }
  return "";
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
  return guarded([&] { text = make(); }) == FWHT_OK ? text.c_str() : nullptr;
}

Operator read_operator(const char* text) {
  if (text == nullptr) throw BadRequest("op_text is a null pointer");
  return parse_operator(text);
}

void execute(const fwht_plan* plan, const Operands& operands, void* stream) {
  if (plan == nullptr) throw BadRequest("plan is a null pointer");
  if (plan->place.device < 0) {
    plan->plan->execute(operands);
  } else {
    const DeviceScope scope(plan->place.device);
    plan->plan->execute(operands, static_cast<Stream>(stream));
  }
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

const char* fwht_last_error(void) {
  return last_error.c_str();
}

const char* fwht_build_info_json(void) {
  static const std::string* const text = new std::string(describe_build());
  return text->c_str();
}

int32_t fwht_device_count(void) {
  return device_count();
}

size_t fwht_variant_count(void) {
  return fwht::registry().size();
}

fwht_status fwht_get_variant(size_t index, fwht_variant* variant) {
  return guarded([&] {
    const fwht_variant known = read(variant, sizeof(fwht_variant), "fwht_variant");
    if (index >= fwht::registry().size()) {
      throw fwht::BadRequest("index=" + std::to_string(index) + " must be below " +
                             std::to_string(fwht::registry().size()));
    }
    const fwht::Variant& found = *fwht::registry()[index];
    // The registry's names are string literals, so they end in a null character.
    *variant = {known.struct_size, found.name.data(), found.summary.data(),
                found.memory == fwht::Memory::device ? 1 : 0};
  });
}

fwht_status fwht_supports(const fwht_problem* problem, const char* variant, int32_t device) {
  return guarded([&] {
    const Request request = read_problem(problem);
    const fwht::Support support = supports(request.problem, place_of(variant, device, request.threads));
    if (!support) throw Unsupported(support.why_not);
  });
}

fwht_status fwht_transform(const fwht_problem* problem, const char* variant, const void* in, void* out,
                           int32_t device, void* stream) {
  return guarded([&] {
    const Request request = read_problem(problem);
    if (device == FWHT_DEVICE_OF_POINTER) device = device_of(out);
    transform(request.problem, place_of(variant, device, request.threads), {in, out},
              static_cast<fwht::Stream>(stream));
  });
}

fwht_status fwht_transform_operands(const fwht_problem* problem, const char* variant,
                                    const fwht_operands* operands, int32_t device, void* stream) {
  return guarded([&] {
    const Request request = read_problem(problem);
    const fwht::Operands read = read_operands(operands);
    if (device == FWHT_DEVICE_OF_POINTER) device = device_of(read.out);
    transform(request.problem, place_of(variant, device, request.threads), read,
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
    fwht::validate(parsed, n);
    if (rows < 0) throw fwht::BadRequest("rows=" + std::to_string(rows) + " must not be negative");
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
    if (plan == nullptr) throw fwht::BadRequest("plan is a null pointer");
    *plan = nullptr;
    const Request request = read_problem(problem);
    auto made = std::make_unique<fwht_plan>();
    made->place = place_of(variant, device, request.threads);
    made->plan = make_plan(request.problem, made->place);
    made->info = describe(*made);
    *plan = made.release();
  });
}

fwht_status fwht_plan_execute(const fwht_plan* plan, const void* in, void* out, void* stream) {
  return guarded([&] { execute(plan, {in, out}, stream); });
}

fwht_status fwht_plan_execute_operands(const fwht_plan* plan, const fwht_operands* operands, void* stream) {
  return guarded([&] { execute(plan, read_operands(operands), stream); });
}

const char* fwht_plan_info_json(const fwht_plan* plan) {
  return plan == nullptr ? "" : plan->info.c_str();
}

void fwht_plan_destroy(fwht_plan* plan) {
  guarded([&] {
    const std::unique_ptr<fwht_plan> owned(plan);
    if (owned == nullptr || owned->place.device < 0) return;
    const fwht::DeviceScope scope(owned->place.device);
    owned->plan.reset();
  });
}

}  // extern "C"
