// What a long run is doing, on stderr: one line that is rewritten on a terminal, else a plain line now and
// then.
#pragma once

#include <chrono>
#include <cstddef>
#include <ostream>
#include <string>

namespace fwht::harness {

/// "  3/40  cpu/f16/n16/r8/host  ETA 1:05"; the ETA only once something is done.
std::string progress_line(std::size_t done, std::size_t total, const std::string& current, double elapsed_s);

/// "0:07", "12:34", "1:02:03".
std::string clock_text(double seconds);

class Progress {
 public:
  Progress(std::size_t total, std::ostream& out, bool terminal);
  explicit Progress(std::size_t total);  ///< stderr
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `current` begins. Plain lines come at most once a second.
  void begin(const std::string& current);
  /// What began last is done.
  void done() { ++done_; }
  /// A line of its own that stays.
  void note(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;
  void erase_line();

  std::ostream& out_;
  bool terminal_, line_open_ = false;
  std::size_t total_, done_ = 0;
  Clock::time_point start_ = Clock::now(), last_line_{};
};

}  // namespace fwht::harness
