// Errors. Library code throws; only main() catches (common/host/run_main.hpp).
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace fwht {

/// A request that cannot be served as it stands: one sentence with the value and the limit. Exit code 2.
class BadRequest : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// A message as one line of a terminal: control characters, which a file or an option may have brought along,
/// become '?', and what is longer than 2000 bytes ends in "...".
inline std::string printable(std::string_view message) {
  constexpr std::size_t kMost = 2000;
  std::string line(message.substr(0, kMost));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = c == '\n' || c == '\t' ? ' ' : '?';
  }
  return message.size() > kMost ? line + "..." : line;
}

}  // namespace fwht
