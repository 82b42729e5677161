#include "common/host/trust.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <system_error>

#include "common/host/text.hpp"

namespace fwht {

namespace fs = std::filesystem;

namespace {

/// By the folders that the path names.
std::string why_not_trusted_as_named(const fs::path& whole) {
  const fs::path folder = whole.parent_path();
  for (fs::path one = whole;; one = one.parent_path()) {
    struct stat about = {};
    if (stat(one.c_str(), &about) != 0) return concat(one.string(), " cannot be looked at");
    const bool near = one == whole || one == folder;
    if (near && about.st_uid != 0 && about.st_uid != geteuid())
      return concat(one.string(), " belongs to another user");
    if ((about.st_mode & S_IWOTH) != 0 && (near || (about.st_mode & S_ISVTX) == 0))
      return concat(one.string(), " can be written by every user");
    if (!one.has_relative_path()) return "";
  }
}

}  // namespace

std::string why_not_trusted(const fs::path& file) {
  const fs::path named = fs::absolute(file);
  if (std::string why = why_not_trusted_as_named(named); !why.empty()) return why;
  // Behind links others may change what is opened.
  std::error_code error;
  const fs::path opened = fs::canonical(named, error);
  if (error) return concat(named.string(), " cannot be looked at");
  return opened == named ? "" : why_not_trusted_as_named(opened);
}

}  // namespace fwht
