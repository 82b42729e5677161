// For tests: the machine of split_program.hpp on the host, all 32 lanes at once; the twin of DeviceWarp.
#pragma once

#include "reference/emulation.hpp"
#include "variants/kit/on_host/host_lanes.hpp"
#include "variants/kit/on_host/host_mma.hpp"
#include "variants/mma_split/split_program.hpp"

namespace fwht::mma_split {

/// The tensor core and its constant matrices, from the fragment maps and the model of the sums.
class HostTensorCore {
 public:
  HostTensorCore(const Tile& tile, float shrink, const reference::TensorCore& core);

  void first_stage(rows::Floats (&d)[4], const rows::Words& b0, const rows::Words& b1) const;
  void first_stage_add(rows::Floats (&d)[4], const rows::Words& b0, const rows::Words& b1) const;
  void remove_high(rows::Floats (&d)[4], const rows::Words& h0, const rows::Words& h1) const;
  void second_stage(rows::Floats (&d)[4], const rows::Words& b0, const rows::Words& b1) const;
  void second_stage_add(rows::Floats (&d)[4], const rows::Words& b0, const rows::Words& b1) const;

 private:
  Dtype dtype_;
  reference::TensorCore core_;
  rows::Words first_[4], second_[4], minus_identity_;
};

rows::Words high_pair_on_host(const rows::Floats& a, const rows::Floats& b);
rows::Words low_pair_on_host(const rows::Floats& a, const rows::Floats& b);
rows::Flags is_nan_on_host(const rows::Floats& x);
bool any_on_host(const rows::Flags& flags);
rows::Words keep_lanes_on_host(const rows::Words& word, int shift, int row);

/// See SplitMachine.
template <Tile tile>
class HostWarp : public rows::HostLanesOf<tile>, public HostTensorCore {
 public:
  static constexpr bool first_stage_may_overflow() { return tile.dtype == Dtype::bf16; }

  HostWarp(float shrink, const reference::TensorCore& core, rows::SharedRow& exchange)
      : rows::HostLanesOf<tile>(shrink, exchange), HostTensorCore(tile, shrink, core) {}

  static rows::Words high_pair(const rows::Floats& a, const rows::Floats& b) {
    return high_pair_on_host(a, b);
  }
  static rows::Words low_pair(const rows::Floats& a, const rows::Floats& b) { return low_pair_on_host(a, b); }
  static rows::Flags is_nan(const rows::Floats& x) { return is_nan_on_host(x); }
  static bool any(const rows::Flags& flags) { return any_on_host(flags); }
  static rows::Words keep_lanes(const rows::Words& word, int shift, int row) {
    return keep_lanes_on_host(word, shift, row);
  }
};

}  // namespace fwht::mma_split
