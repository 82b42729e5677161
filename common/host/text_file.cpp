#include "common/host/text_file.hpp"

#include <sys/vfs.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "common/host/error.hpp"
#include "common/host/text.hpp"

namespace fwht {
namespace {

/// A pipe without a name: somebody has opened its other end.
bool is_open_pipe(const std::filesystem::path& path) {
  constexpr auto kPipes = 0x50495045;  // PIPEFS_MAGIC
  struct statfs where {};
  return statfs(path.c_str(), &where) == 0 && where.f_type == kPipes;
}

BadRequest refusal(std::string_view name, const std::string& why) {
  return BadRequest(concat(name, ": ", why));
}

}  // namespace

std::string read_text_file(const std::filesystem::path& path, std::string_view name, std::size_t most_bytes) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) throw refusal(name, "there is no such file");
  if (status.type() == fs::file_type::none || status.type() == fs::file_type::unknown)
    throw refusal(name, "the file cannot be read: " + error.message());
  if (status.type() == fs::file_type::directory) throw refusal(name, "this is a folder, not a file");
  if (status.type() == fs::file_type::fifo && !is_open_pipe(path))
    throw refusal(name, "this is a named pipe, not a file");
  if (status.type() != fs::file_type::regular && status.type() != fs::file_type::fifo)
    throw refusal(name, "this is a device, not a file");

  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw refusal(name,
                  "the file cannot be read: " + std::error_code(errno, std::generic_category()).message());
  std::string text;
  char block[1 << 14];
  while (file.read(block, sizeof block), file.gcount() > 0) {
    text.append(block, static_cast<std::size_t>(file.gcount()));
    if (text.size() > most_bytes)
      throw refusal(name, concat("the file is longer than the limit of ", most_bytes, " bytes"));
  }
  if (file.bad()) throw refusal(name, "the file cannot be read to its end");
  return text;
}

}  // namespace fwht
