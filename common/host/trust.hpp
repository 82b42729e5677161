// Who else could have written a file whose code is about to run in this process.
#pragma once

#include <filesystem>
#include <string>

namespace fwht {

/// Empty where the file and its folder belong to root or this user and nobody else may change them; else what
/// is wrong, as a sentence without an end. Folders above count too: not those that everybody may write, but
/// for sticky ones such as /tmp. Of links, what they point to counts too. A group is trusted: many systems
/// give each user one of his own.
std::string why_not_trusted(const std::filesystem::path& file);

}  // namespace fwht
