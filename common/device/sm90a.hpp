// Whether the build has machine code of sm_90a, Hopper's own instructions: CMake says so to the files that
// ask.
#pragma once

namespace fwht {

#ifdef FWHT_WITHOUT_SM90A
inline constexpr bool kBuiltForHopper = false;
#else
inline constexpr bool kBuiltForHopper = true;
#endif

}  // namespace fwht
