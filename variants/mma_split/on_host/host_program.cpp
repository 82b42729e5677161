#include "variants/mma_split/on_host/host_program.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "common/device/ptx/fragments.hpp"
#include "variants/mma_split/on_host/host_warp.hpp"
#include "variants/mma_split/plain_launches.hpp"
#include "variants/mma_split/signed_kernels.hpp"
#include "variants/mma_split/streamed_shape.hpp"

namespace fwht::mma_split {

using rows::Flags;
using rows::Floats;
using rows::Words;

HostTensorCore::HostTensorCore(const Tile& tile, float shrink, const reference::TensorCore& core)
    : dtype_(tile.dtype), core_(core) {
  const auto matrix = [&](Words(&words)[4], const int(&bits)[4], std::uint32_t one) {
    for (int r = 0; r < 4; ++r) {
      words[r] = Words::from([&](std::size_t lane) {
        return fragment_of(tile, static_cast<int>(lane), r, transformed_bits(bits, tile.log_n), one);
      });
    }
  };
  matrix(first_, kFirstStageBits, tile.dtype == Dtype::f16 ? 0x3C00U : 0x3F80U);
  matrix(second_, kSecondStageBits, std::bit_cast<std::uint32_t>(shrink) >> 16);
  minus_identity_ =
      Words::from([](std::size_t lane) { return ptx::minus_identity_fragment(static_cast<int>(lane)); });
}

void HostTensorCore::first_stage(Floats (&d)[4], const Words& b0, const Words& b1) const {
  for (Floats& register_of_d : d)
    register_of_d = {};
  first_stage_add(d, b0, b1);
}
void HostTensorCore::first_stage_add(Floats (&d)[4], const Words& b0, const Words& b1) const {
  rows::mma_on_host(16, d, first_, {b0, b1}, dtype_, core_);
}
void HostTensorCore::remove_high(Floats (&d)[4], const Words& h0, const Words& h1) const {
  const Words a[4] = {h0, h1, {}, {}};
  rows::mma_on_host(8, d, a, {minus_identity_, {}}, Dtype::bf16, core_);
}
void HostTensorCore::second_stage(Floats (&d)[4], const Words& b0, const Words& b1) const {
  for (Floats& register_of_d : d)
    register_of_d = {};
  second_stage_add(d, b0, b1);
}
void HostTensorCore::second_stage_add(Floats (&d)[4], const Words& b0, const Words& b1) const {
  rows::mma_on_host(16, d, second_, {b0, b1}, Dtype::bf16, core_);
}

Words high_pair_on_host(const Floats& a, const Floats& b) {
  return Words::from([&](std::size_t l) {
    return std::bit_cast<std::uint32_t>(a.at[l]) >> 16 |
           (std::bit_cast<std::uint32_t>(b.at[l]) & 0xFFFF0000U);
  });
}
Words low_pair_on_host(const Floats& a, const Floats& b) {
  return Words::from([&](std::size_t l) {
    return std::uint32_t{float_to_bf16(a.at[l])} | std::uint32_t{float_to_bf16(b.at[l])} << 16;
  });
}
Flags is_nan_on_host(const Floats& x) {
  return Flags::from([&](std::size_t l) { return std::isnan(x.at[l]); });
}
bool any_on_host(const Flags& flags) {
  return std::find(flags.at.begin(), flags.at.end(), true) != flags.at.end();
}
Words keep_lanes_on_host(const Words& word, int shift, int row) {
  return Words::from([&](std::size_t l) { return static_cast<int>(l >> shift) == row ? word.at[l] : 0U; });
}

rows::HostRun run_on_host(const Problem& problem, const rows::Bits& in, const reference::TensorCore& core,
                          Regime regime, const void* signs) {
  if (is_streamed(log2_floor(problem.n()))) return run_streamed(problem, in, core);
  KernelId id = plain_kernel(problem.dtype(), log2_floor(problem.n()), regime, Scaling::results);
  if (problem.op.is_regular()) id = regular(id);
  if (problem.op.has_signs()) id = signed_kernel(problem.dtype(), log2_floor(problem.n()), regime);
  const rows::RowSigns of_rows = rows::RowSigns::of(problem.op, signs);
  rows::HostRun run;
  run.out.assign(in.size(), 0xFFFFU);
  if (!run_in_warps(id, problem, in, of_rows, core, run) &&
      !run_across_warps(id, problem, in, of_rows, core, run))
    throw std::logic_error("the host program has no " + rows::describe(id));
  return run;
}

}  // namespace fwht::mma_split
