#include "variants/kokkos/module.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/text.hpp"
#include "kokkos_config.hpp"

namespace fwht::kokkos {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "kokkos_modules";

// The build tree may have moved with its programs, so the folders above the program come before the recorded
// ones.
std::vector<fs::path> candidate_folders() {
  std::vector<fs::path> folders;
  if (const char* named = std::getenv("FWHT_KOKKOS_MODULES")) folders.emplace_back(named);
  std::error_code none;
  fs::path above = fs::read_symlink("/proc/self/exe", none).parent_path();
  for (int level = 0; level < 5 && above.has_relative_path(); ++level, above = above.parent_path()) {
    folders.push_back(above / kFolder);
    folders.push_back(above / config::kLibraryFolder / "fwht");
  }
  folders.emplace_back(config::kBuiltModules);
  folders.emplace_back(config::kInstalledModules);
  return folders;
}

fs::path find(std::string_view file_name) {
  std::string searched;
  for (const fs::path& folder : candidate_folders()) {
    std::error_code none;
    if (fs::exists(folder / file_name, none)) return folder / file_name;
    searched += (searched.empty() ? "" : ", ") + folder.string();
  }
  throw std::runtime_error(concat("the Kokkos module ", file_name, " was not found in any of: ", searched,
                                  "; FWHT_KOKKOS_MODULES may name its folder"));
}

const Module* open(std::string_view file_name) {
  const fs::path path = find(file_name);
  // Never closed: Kokkos lives until the process ends.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw std::runtime_error(
        concat("the Kokkos module ", path.string(), " could not be loaded: ", dlerror()));
  }
  const auto entry = reinterpret_cast<EntryPoint>(dlsym(handle, kEntryPoint));
  if (entry == nullptr || entry()->contract != contract_of_this_build()) {
    throw std::runtime_error(concat(path.string(), " is not a Kokkos module of this build of fwht"));
  }
  return entry();
}

}  // namespace

const Module& load_module(std::string_view file_name) {
  static std::mutex mutex;
  static std::map<std::string, const Module*, std::less<>> modules;
  const std::lock_guard lock(mutex);
  auto known = modules.find(file_name);
  if (known == modules.end()) known = modules.emplace(file_name, open(file_name)).first;
  return *known->second;
}

}  // namespace fwht::kokkos
