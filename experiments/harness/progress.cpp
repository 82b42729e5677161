#include "experiments/harness/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <iostream>

namespace fwht::harness {

std::string clock_text(double seconds) {
  const auto all = static_cast<long>(std::ceil(seconds));
  if (all >= 3600) return fmt::format("{}:{:02}:{:02}", all / 3600, all / 60 % 60, all % 60);
  return fmt::format("{}:{:02}", all / 60, all % 60);
}

std::string progress_line(std::size_t done, std::size_t total, const std::string& current, double elapsed_s) {
  const int width = static_cast<int>(fmt::formatted_size("{}", total));
  std::string line = fmt::format("{:>{}}/{}  {}", done, width, total, current);
  if (done > 0 && done < total) {
    line += fmt::format(
        "  ETA {}", clock_text(elapsed_s / static_cast<double>(done) * static_cast<double>(total - done)));
  }
  return line;
}

Progress::Progress(std::size_t total, std::ostream& out, bool terminal)
    : out_(out), terminal_(terminal), total_(total) {}

Progress::Progress(std::size_t total) : Progress(total, std::cerr, isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  erase_line();
}

void Progress::erase_line() {
  if (line_open_) out_ << "\r\033[K" << std::flush;
  line_open_ = false;
}

void Progress::begin(const std::string& current) {
  const Clock::time_point now = Clock::now();
  const double elapsed_s = std::chrono::duration<double>(now - start_).count();
  const std::string line = progress_line(done_, total_, current, elapsed_s);
  if (terminal_) {
    erase_line();
    out_ << line << std::flush;
    line_open_ = true;
  } else if (last_line_ == Clock::time_point{} || now - last_line_ >= std::chrono::seconds(1)) {
    out_ << line << std::endl;
    last_line_ = now;
  }
}

void Progress::note(const std::string& text) {
  erase_line();
  out_ << text << std::endl;
}

}  // namespace fwht::harness
