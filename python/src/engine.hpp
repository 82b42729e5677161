// What the C ABI needs of the library beside the contract: a variant and a device by their numbers and names,
// errors told apart, and the one-call form for every variant. No exception is translated here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "common/contract/linear/variant.hpp"
#include "common/contract/variant.hpp"

namespace fwht::c_abi {

/// A valid problem that the variant does not do; the message is its reason.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A variant, where it runs, and how many threads it may start there.
template <class Family>
struct Placed {
  const VariantOf<Family>* variant = nullptr;
  std::int32_t device = 0;   ///< FWHT_HOST or the ordinal of a CUDA device
  std::int32_t threads = 0;  ///< of host variants; 0: all that the process may use
};
using Place = Placed<Transforms>;

/// `name` nullptr: "auto" on a CUDA device, "cpu" on the host. Throws BadRequest for an unknown name and for
/// a `device` that is no device, Unsupported where the variant works on the other kind of memory.
template <class Family>
Placed<Family> place_of(const char* name, std::int32_t device, std::int32_t threads);

/// Empty when supported. A missing device is a reason.
template <class Family>
Support supports(const typename Family::Problem& problem, const Placed<Family>& place);

/// Throws BadRequest for an invalid problem, Unsupported with the variant's reason, std::runtime_error
/// without the CUDA device.
template <class Family>
std::unique_ptr<typename Family::Plan> make_plan(const typename Family::Problem& problem,
                                                 const Placed<Family>& place);

/// The plan by which `transform` works, where all streams and threads may use it at once; nullptr where it
/// keeps none. A new one on the host.
std::shared_ptr<const Plan> kept_plan(const Problem& problem, const Place& place);

/// By a plan that is made on first use and, on a device, kept (fwht::transform). Throws as make_plan and
/// Plan::execute.
void transform(const Problem& problem, const Place& place, const Operands& operands, Stream stream);

}  // namespace fwht::c_abi
