// Files that a user names: grids, tables, results. One reader, so that each of them is refused in the same
// words.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace fwht {

/// The bytes of a regular file, or of a pipe that the shell has opened, <(command). Throws BadRequest in one
/// sentence that begins with `name` when there is no such file, or it cannot be read, or it holds more than
/// `most_bytes`. Folders, devices and named pipes (which may never end) are refused too.
std::string read_text_file(const std::filesystem::path& path, std::string_view name,
                           std::size_t most_bytes = std::size_t{64} << 20);

}  // namespace fwht
