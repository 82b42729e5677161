// SIGINT, SIGTERM and SIGHUP (the terminal was closed): a program stops between two measurements, with whole
// rows on disk.
#pragma once

#include <array>
#include <csignal>

namespace fwht::harness {

/// As long as one lives, the first of these signals is only noted, and said on stderr; a second one ends the
/// process at once. SIGXFSZ is ignored: a file that may not grow is then a disk that takes no more.
/// Afterwards the handlers are those of before: the caller may be a library's user.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

 private:
  std::array<struct sigaction, 4> before_{};
};

/// The signal that came since the newest InterruptWatch began, or 0.
int interrupted_by();

}  // namespace fwht::harness
