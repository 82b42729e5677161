#include "variants/kit/simd/rows.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace fwht::simd {
#if defined(__x86_64__)
namespace {

bool has_f16c() {  // a name that __builtin_cpu_supports of older compilers does not know
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace
#endif

namespace {

const RowKernels& kernels_of_this_processor() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512cd")) {
    return x86_64_v4::kernels;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
      has_f16c()) {
    return x86_64_v3::kernels;
  }
#endif
  return baseline::kernels;
}

}  // namespace

const RowKernels& best_kernels() {
  static const RowKernels& best = kernels_of_this_processor();  // cpuid leaves a virtual machine each time
  return best;
}

}  // namespace fwht::simd
