#include "variants/kokkos/module_places.hpp"

#include <stdexcept>
#include <vector>

#include "common/host/error.hpp"
#include "common/host/text.hpp"
#include "common/host/trust.hpp"

namespace fwht::kokkos {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

fs::path named_module(std::string_view file_name, const std::string& named) {
  const std::string variable = concat("FWHT_KOKKOS_MODULES=", named);
  if (!fs::path(named).is_absolute()) throw BadRequest(concat(variable, " must be an absolute path"));
  fs::path path = fs::path(named) / file_name;
  if (!is_there(path)) throw BadRequest(concat(variable, ": there is no ", file_name, " in that folder"));
  return path;
}

void require_trust(const fs::path& path) {
  if (const std::string why = why_not_trusted(path); !why.empty()) {
    throw std::runtime_error(concat("the Kokkos module ", path.filename().string(), " is not loaded: ", why,
                                    "; FWHT_KOKKOS_MODULES may name its folder all the same"));
  }
}

std::vector<fs::path> recorded_folders(const ModuleFolders& places) {
  std::vector<fs::path> folders;
  const fs::path library = places.library;
  if (library.is_absolute() && library.filename().string().starts_with("libfwht.so"))
    folders.push_back(library.parent_path() / "fwht");
  folders.emplace_back(places.built);
  folders.emplace_back(places.installed);
  return folders;
}

}  // namespace

fs::path find_module(std::string_view file_name, const ModuleFolders& places) {
  if (!places.named.empty()) return named_module(file_name, places.named);
  std::vector<std::string> searched;
  for (const fs::path& folder : recorded_folders(places)) {
    if (is_there(folder / file_name)) {
      require_trust(folder / file_name);
      return folder / file_name;
    }
    searched.push_back(folder.string());
  }
  throw std::runtime_error(concat("the Kokkos module ", file_name, " was not found in any of: ",
                                  joined(searched, ", "), "; FWHT_KOKKOS_MODULES may name its folder"));
}

}  // namespace fwht::kokkos
