// What is offered of encodings, as a variant says it.
#pragma once

#include "common/contract/variant.hpp"
#include "common/host/text.hpp"

namespace fwht::encoder {

/// The sentence of a variant that does not offer an encoding.
template <class... Why>
Support not_offered(const Encoding& encoding, const Why&... why) {
  return {concat("the encoding ", to_string(encoding), " is not offered by this variant: ", why...)};
}

/// What storage_encoder.cuh writes of what output.hpp's supports() allows: numbers are rounded first, and no
/// scale takes a pass of its own. Otherwise a sentence.
Support supports_rounded_first(const Problem& problem);

}  // namespace fwht::encoder
