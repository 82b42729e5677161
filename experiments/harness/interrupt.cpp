#include "experiments/harness/interrupt.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

namespace fwht::harness {
namespace {

volatile sig_atomic_t came = 0;

void note(int signal) {
  came = signal;
  const int kept = errno;
  constexpr char text[] = "\nstopping after the measurement in progress; once more stops at once\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
  errno = kept;
}

}  // namespace

void watch_for_interrupt() {
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);  // the second one finds the default
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // nohup and the like stay
  }
}

int interrupted_by() {
  return came;
}

}  // namespace fwht::harness
