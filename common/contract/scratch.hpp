// Who owns the memory that executions of a plan work in.
#pragma once

namespace fwht {

/// While it lives, plans that this thread makes own none: each execution brings Plan::scratch_bytes(), is
/// refused without, and may run beside others. Plans that offer no scratch are as ever.
class ScratchOfCallers {
 public:
  ScratchOfCallers() { ++depth_; }
  ~ScratchOfCallers() { --depth_; }
  ScratchOfCallers(const ScratchOfCallers&) = delete;
  ScratchOfCallers& operator=(const ScratchOfCallers&) = delete;
  static bool asked() { return depth_ > 0; }

 private:
  static thread_local int depth_;
};

}  // namespace fwht
