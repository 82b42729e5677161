// Programmatic dependent launch (PTX ISA, "Parallel Synchronization and Communication Instructions:
// griddepcontrol"). Needs sm_90; before, both do nothing, and a launch that asks for it is refused on the
// host.
#pragma once

#include <cstdint>

namespace fwht::ptx {

/// griddepcontrol.wait: until the kernels that this one depends on have finished and what they wrote is
/// visible. Returns at once where the launch did not ask for programmatic dependence.
__device__ inline void griddepcontrol_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// griddepcontrol.launch_dependents: once every block has issued it or ended, the next kernel of the stream
/// may be scheduled, if its launch asked for programmatic dependence. Orders no memory. Blocks of a
/// kernel that contains it start at a lower rate, so it belongs in instantiations for few blocks.
__device__ inline void griddepcontrol_launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// The same, but not before `word` has been worked out. The instruction has no operand, so the compiler may
/// move it to before whatever it stands behind, if that is no access to memory; `zero` is 0, which the
/// compiler must not know.
__device__ inline void griddepcontrol_launch_dependents_behind([[maybe_unused]] std::uint32_t word,
                                                               [[maybe_unused]] std::uint32_t zero) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .pred always;\n"
      ".reg .b32 nothing;\n"
      "and.b32 nothing, %0, %1;\n"
      "setp.eq.u32 always, nothing, 0;\n"
      "@always griddepcontrol.launch_dependents;\n"
      "}" ::"r"(word),
      "r"(zero)
      : "memory");
#endif
}

}  // namespace fwht::ptx
