// The seam between fwht and Kokkos: a shared object with a Kokkos of its own inside, loaded when its first
// plan is made.
//
// Why shared objects and not plain linking: a Kokkos with CUDA needs libcuda.so.1 to load at all, so a
// program linked to it does not start on a machine without a driver. And a program has room for one Kokkos
// only, while this one wants a host Kokkos everywhere, a CUDA Kokkos where there is a device, and to stay out
// of the way of the caller's own.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "common/contract/variant.hpp"

namespace fwht::kokkos {

enum class Space { serial, openmp, cuda };

/// What a module asks of the library, which has the tables and knows the machine.
struct Library {
  /// Entries of the named factors of an operator, row-major, none transposed, one matrix behind the other.
  std::vector<float> (*named_entries)(const Operator&);
  void (*check_dense)(const Operator&, Dtype, const void* entries);
  int (*host_threads)();  ///< the most that host variants start
};

struct Module {
  std::uint64_t contract;  ///< contract_of_this_build() of the module
  bool (*has_space)(Space);
  std::unique_ptr<Plan> (*make_plan)(Space, const Problem&, const DeviceInfo&, const Library&);
};

/// Changes with the layout of what crosses the seam: a module from another build is told apart.
constexpr std::uint64_t contract_of_this_build() {
  std::uint64_t digest = 1;
  for (const std::uint64_t size : {sizeof(Problem), sizeof(DeviceInfo), sizeof(Numerics), sizeof(Plan),
                                   sizeof(Setting), sizeof(Module), sizeof(Step), sizeof(Library)}) {
    digest = digest * 1000003 + size;
  }
  return digest;
}

/// The one symbol that a module shows; `const Module* fwht_kokkos_module()`.
inline constexpr const char* kEntryPoint = "fwht_kokkos_module";
using EntryPoint = const Module* (*)();

/// Finds (find_module), opens and checks a module once; the same object ever after. Throws what find_module
/// throws, and std::runtime_error with the loader's message.
const Module& load_module(std::string_view file_name);

}  // namespace fwht::kokkos
