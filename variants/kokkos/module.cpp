#include "variants/kokkos/module.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "common/host/text.hpp"
#include "kokkos_config.hpp"
#include "variants/kokkos/module_places.hpp"

namespace fwht::kokkos {
namespace {

// Of the program, or of libfwht.so where this code came in it.
std::string own_object() {
  Dl_info about = {};
  const bool known = dladdr(reinterpret_cast<const void*>(&load_module), &about) != 0;
  return known && about.dli_fname != nullptr ? about.dli_fname : "";
}

ModuleFolders places() {
  const char* named = std::getenv("FWHT_KOKKOS_MODULES");
  return {named == nullptr ? "" : named, own_object(), config::kBuiltModules, config::kInstalledModules};
}

const Module* open(std::string_view file_name) {
  const std::filesystem::path path = find_module(file_name, places());
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
