// Programmatic dependent launch, as a kernel's body says it: the places at which the next kernel could be let
// in stand in the body, the template argument says which of them it is.
#pragma once

#include <cstdint>

#include "common/device/ptx/griddepcontrol.cuh"
#include "variants/kit/launch.hpp"

namespace fwht::rows {

template <Trigger trigger>
struct LaunchTrigger {
  /// Until what the previous kernel of the stream wrote is there.
  __device__ static void wait_for_previous() { ptx::griddepcontrol_wait(); }

  /// Lets the next kernel in, if `here` is the place.
  __device__ static void reached(Trigger here) {
    if (here == trigger) ptx::griddepcontrol_launch_dependents();
  }

  /// The same for Trigger::behind_matrices: not before `word_of_matrices` has been worked out. `zero` is 0,
  /// which the compiler does not know.
  __device__ static void matrices_are_there(std::uint32_t word_of_matrices, std::uint32_t zero) {
    if constexpr (trigger == Trigger::behind_matrices)
      ptx::griddepcontrol_launch_dependents_behind(word_of_matrices, zero);
  }
};

}  // namespace fwht::rows
