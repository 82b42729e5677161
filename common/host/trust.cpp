#include "common/host/trust.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include "common/host/text.hpp"

namespace fwht {

namespace fs = std::filesystem;

std::string why_not_trusted(const fs::path& file) {
  const fs::path whole = fs::absolute(file), folder = whole.parent_path();
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

}  // namespace fwht
