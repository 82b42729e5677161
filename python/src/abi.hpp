// What every function of the C ABI is made of: structs read, exceptions turned into a status and a message,
// answers as JSON.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "common/contract/family.hpp"
#include "common/device/stream_query.hpp"
#include "common/host/error.hpp"
#include "fwht.h"
#include "python/src/engine.hpp"

namespace fwht::c_abi {

/// Keeps the message for fwht_last_error() of this thread and returns the status.
fwht_status failed(fwht_status status, const char* message) noexcept;

template <class Body>
fwht_status guarded(Body&& body) noexcept {
  try {
    body();
    return FWHT_OK;
  } catch (const Unsupported& error) {
    return failed(FWHT_UNSUPPORTED, error.what());
  } catch (const NoCuda& error) {
    return failed(FWHT_FAILED, error.what());
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

/// What the caller's struct says, the fields that it does not have as zero.
template <class Struct>
Struct read(const Struct* given, std::size_t smallest, const std::string& name) {
  if (given == nullptr) throw BadRequest(name + " is a null pointer");
  constexpr std::size_t kLargest = 4096;  // an uninitialised size is most likely larger
  const std::size_t size = given->struct_size;
  const bool whole = size % alignof(Struct) == 0;  // as every sizeof is; else half a pointer would be read
  if (size < smallest || size > kLargest || !whole) {
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

/// Throws BadRequest for bits that are not of `known`.
void require_known_flags(std::uint32_t flags, std::uint32_t known);

/// Entry `index` of a family's registry.
template <class Family>
void describe_variant(RegistryOf<Family> registry, std::size_t index, fwht_variant* variant) {
  const fwht_variant known = read(variant, sizeof(fwht_variant), "fwht_variant");
  if (index >= registry.size()) {
    throw BadRequest("index=" + std::to_string(index) + " must be below " + std::to_string(registry.size()));
  }
  const VariantOf<Family>& found = *registry[index];
  // The registry's names are string literals, so they end in a null character.
  *variant = {known.struct_size, found.name.data(), found.summary.data(),
              found.memory == Memory::device ? 1 : 0};
}

/// Members of one JSON object, in the order in which they are added.
class Object {
 public:
  Object& add(std::string_view key, std::string_view text);
  Object& add(std::string_view key, const char* text) { return add(key, std::string_view(text)); }
  Object& add(std::string_view key, bool value) { return add_raw(key, value ? "true" : "false"); }
  Object& add(std::string_view key, std::int64_t value) { return add_raw(key, std::to_string(value)); }
  Object& add(std::string_view key, double value);
  Object& add_raw(std::string_view key, std::string_view json);
  std::string text() const { return text_.empty() ? "{}" : text_ + "}"; }

 private:
  std::string text_;
};

std::string settings_json(const Settings& settings);

/// What a caller's struct asks for.
template <class AnyFamily>
struct Request {
  typename AnyFamily::Problem problem;
  std::int32_t threads = 0;
};

Request<Transforms> read_problem(const fwht_problem* given);

/// What is behind the opaque plan of a family, whose struct derives from it.
template <class AnyFamily>
struct PlanHandle {
  using Family = AnyFamily;
  std::shared_ptr<const typename Family::Plan> plan;
  Placed<Family> place;
  std::string info;  ///< JSON
};

template <class Handle>
const Handle& required(const Handle* plan) {
  if (plan == nullptr) throw BadRequest("plan is a null pointer");
  return *plan;
}

/// The members with which every plan's description begins.
template <class Handle>
Object identity(const Handle& handle) {
  Object object;
  object.add("variant", handle.place.variant->name)
      .add("problem", to_string(handle.plan->problem()))
      .add("device", std::int64_t{handle.place.device});
  return object;
}

template <class Family>
void require_supported(const Request<Family>& request, const char* variant, std::int32_t device) {
  const Support support = supports(request.problem, place_of<Family>(variant, device, request.threads));
  if (!support) throw Unsupported(support.why_not);
}

/// Sets `*to` to a handle of the plan that `make` returns for what `read` reads, described by `describe`;
/// to nullptr where there is none.
template <class Handle, class Read, class Make, class Describe>
void give_plan(Handle** to, const char* variant, std::int32_t device, const Read& read, const Make& make,
               const Describe& describe) {
  if (to == nullptr) throw BadRequest("plan is a null pointer");
  *to = nullptr;
  const Request<typename Handle::Family> request = read();
  auto handle = std::make_unique<Handle>();
  handle->place = place_of<typename Handle::Family>(variant, device, request.threads);
  handle->plan = make(request.problem, handle->place);
  if (handle->plan == nullptr) return;
  handle->info = describe(*handle);
  *to = handle.release();
}

template <class Handle>
void execute(const Handle* plan, const typename Handle::Family::Operands& operands, void* stream) {
  const Handle& handle = required(plan);
  if (handle.place.device < 0) {
    handle.plan->execute(operands);
  } else {
    const DeviceScope scope(handle.place.device);
    handle.plan->execute(operands, static_cast<Stream>(stream));
  }
}

template <class Handle>
const char* info_of(const Handle* plan) {
  return plan == nullptr ? "" : plan->info.c_str();
}

template <class Handle>
void destroy(Handle* plan) {
  guarded([&] {
    const std::unique_ptr<Handle> owned(plan);
    if (owned == nullptr || owned->place.device < 0) return;
    const DeviceScope scope(owned->place.device);
    const CaptureAllowed allowed;  // caches drop plans at any time
    owned->plan.reset();
  });
}

}  // namespace fwht::c_abi
