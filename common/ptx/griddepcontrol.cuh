// Programmatic dependent launch (PTX ISA, "Parallel Synchronization and Communication Instructions:
// griddepcontrol"). Needs sm_90; before, both do nothing, and a launch that asks for it is refused on the
// host.
#pragma once

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

}  // namespace fwht::ptx
