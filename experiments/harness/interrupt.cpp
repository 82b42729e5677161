#include "experiments/harness/interrupt.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace fwht::harness {
namespace {

constexpr std::array<int, 4> kSignals = {SIGINT, SIGTERM, SIGHUP, SIGXFSZ};
volatile std::sig_atomic_t came = 0;

void note(int signal) {
  came = signal;
  const int kept = errno;
  constexpr char text[] = "\nstopping after the measurement in progress; once more stops at once\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
  errno = kept;
}

}  // namespace

InterruptWatch::InterruptWatch() {
  came = 0;
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);  // the second one finds the default
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] == SIGXFSZ) action.sa_handler = SIG_IGN;
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN)
      sigaction(kSignals[i], &action, nullptr);  // nohup and the like stay
  }
}

InterruptWatch::~InterruptWatch() {
  for (std::size_t i = 0; i < kSignals.size(); ++i)
    sigaction(kSignals[i], &before_[i], nullptr);
}

int interrupted_by() {
  return came;
}

}  // namespace fwht::harness
