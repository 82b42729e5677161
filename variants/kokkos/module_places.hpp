// Where the Kokkos modules may come from. Loading one runs its code in the caller's process, so no folder is
// searched that somebody else could have filled.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace fwht::kokkos {

struct ModuleFolders {
  std::string named;      ///< FWHT_KOKKOS_MODULES; empty where it is not set
  std::string library;    ///< the object that holds this code: a program, or libfwht.so
  std::string built;      ///< the folder of the build, as the configuration recorded it
  std::string installed;  ///< that of the installation
};

/// The module in the folder that the user named, and in no other where one is named; else beside libfwht.so
/// in `fwht/`, in the folder of the build, in that of the installation. What why_not_trusted refuses is
/// refused but where the user named it.
/// Throws BadRequest for a named folder that is not absolute or does not have it, std::runtime_error
/// otherwise, with the places or the reason.
std::filesystem::path find_module(std::string_view file_name, const ModuleFolders& places);

}  // namespace fwht::kokkos
