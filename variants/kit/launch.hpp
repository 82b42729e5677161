// How a kernel on rows is launched, and the names of its instantiations: plain values, chosen from a table
// with the problem at hand and compared with what the kernel files have instantiated.
#pragma once

#include <cstdint>

#include "common/host/bits.hpp"
#include "variants/kit/launch_regime.hpp"
#include "variants/kit/tile.hpp"

namespace fwht::rows {

/// One kernel each.
enum class Form {
  in_warps,      ///< a warp holds whole rows in its registers
  across_warps,  ///< warps hold a row together and exchange it once
  smem_passes    ///< shared memory holds the row between passes that take it to registers and back
};

/// The first blocks of all multiprocessors do not start together but `clocks` after each other: those of one
/// multiprocessor, or, where there are `groups`, the blocks of every group after those of the one before.
struct Skew {
  int clocks = 0, groups = 0;
  constexpr bool operator==(const Skew&) const = default;
};

/// `blocks_per_sm` is what the registers are limited for; 0 leaves them to the compiler.
struct Launch {
  Form form = Form::in_warps;
  int vectors = 0, warps_per_row = 0, threads = 0, blocks_per_sm = 0;
  Skew skew;
  bool regular = false;  ///< Tile::regular

  constexpr bool operator==(const Launch&) const = default;
};

constexpr Launch in_warps(int vectors, int threads, int blocks_per_sm = 0) {
  return {Form::in_warps, vectors, 1, threads, blocks_per_sm, {}, false};
}
constexpr Launch across_warps(int vectors, int warps, int blocks_per_sm = 0, Skew skew = {}) {
  return {Form::across_warps, vectors, warps, 32 * warps, blocks_per_sm, skew, false};
}
constexpr Launch smem_passes(int vectors, int warps, int blocks_per_sm, Skew skew = {}) {
  return {Form::smem_passes, vectors, warps, 32 * warps, blocks_per_sm, skew, false};
}

constexpr Tile tile_of(Dtype dtype, int log_n, const Launch& launch) {
  return {dtype, log_n, launch.vectors, launch.warps_per_row, launch.threads, launch.regular};
}

/// What a launch must keep for its kernel to be right: warps that share a row have the block to themselves.
constexpr bool fits(Dtype dtype, int log_n, const Launch& launch) {
  const Tile tile = tile_of(dtype, log_n, launch);
  const bool alone = launch.form == Form::in_warps;
  return is_power_of_two(launch.vectors) && is_power_of_two(launch.warps_per_row) &&
         launch.threads % 32 == 0 && launch.threads <= 1024 && tile.vector_bits() >= 0 &&
         launch.vectors >> tile.vector_bits() >= 1 && tile.rows_per_block() >= 1 && tile.piece() >= 1 &&
         alone == (launch.warps_per_row == 1) &&
         (!launch.regular || (alone && dtype != Dtype::f32 && (log_n == 6 || log_n == 8))) &&
         (alone || (launch.threads == 32 * launch.warps_per_row && tile.rows_per_block() == 1)) &&
         (launch.skew.clocks == 0 ? launch.skew.groups == 0 : launch.blocks_per_sm > 0 && !alone);
}

/// A launch as one number: a template argument of a kernel, because nvcc 13.0 declares no object of a class
/// in its host code for one.
using LaunchCode = std::uint64_t;

constexpr LaunchCode code_of(const Launch& launch) {
  LaunchCode code = 0;
  for (const int field :
       {static_cast<int>(launch.form) | (launch.regular ? 0x80 : 0), launch.vectors, launch.warps_per_row,
        launch.threads / 32, launch.blocks_per_sm, launch.skew.groups})
    code = code << 8 | static_cast<LaunchCode>(field);
  return code << 16 | static_cast<LaunchCode>(launch.skew.clocks);
}
constexpr Launch launch_of(LaunchCode code) {
  const auto field = [&](int shift) { return static_cast<int>(code >> shift & 0xFF); };
  return {
      static_cast<Form>(field(56) & 0x7F),          field(48),        field(40), 32 * field(32), field(24),
      {static_cast<int>(code & 0xFFFF), field(16)}, field(56) >= 0x80};
}

/// How a kernel reaches memory. Instantiations, because a run-time branch between the loads and the tensor
/// cores lets the compiler schedule one vector after the other.
enum class Access {
  dense,    ///< 16-byte vectors of contiguous rows: addresses are the thread's number times a constant
  vectors,  ///< 16-byte vectors, rows any distance apart
  elements  ///< element by element, where pointers or the row stride do not allow vectors
};

/// When the next kernel of the stream may be scheduled, if its launch allows that. As soon as this one reads,
/// when its loads are on their way, when the matrices are there too (the data are not yet), or around the
/// exchange.
enum class Trigger { at_end, at_start, behind_loads, behind_matrices, before_exchange, behind_exchange };

constexpr bool at_exchange(Trigger trigger) {
  return trigger == Trigger::before_exchange || trigger == Trigger::behind_exchange;
}

/// Where the scale is: the results are multiplied by it, or it is in the constants of a matrix, so that no
/// multiplication is left.
enum class Scaling { results, constants };

/// One instantiation of a kernel.
struct KernelId {
  Dtype dtype = Dtype::f16;
  int log_n = 0;
  Launch launch;
  Access access = Access::dense;
  Trigger trigger = Trigger::at_end;
  Scaling scaling = Scaling::results;

  constexpr bool operator==(const KernelId&) const = default;
  constexpr Tile tile() const { return tile_of(dtype, log_n, launch); }
};

/// In 16-byte vectors, rows any distance apart.
constexpr KernelId strided_by(Dtype dtype, int log_n, const Launch& launch) {
  return {dtype, log_n, launch, Access::vectors, Trigger::at_end, Scaling::results};
}
/// For pointers or strides off the 16-byte grid: slow anyway, so it has all the registers that it likes.
constexpr KernelId for_elements(KernelId strided) {
  strided.launch.blocks_per_sm = 0;
  strided.access = Access::elements;
  return strided;
}

/// The launches of one size in the five regimes of work (launch_regime.hpp).
struct LaunchRow {
  Launch small, light, medium, full, dram;

  constexpr const Launch& in(Regime regime) const {
    switch (regime) {
      case Regime::small:
        return small;
      case Regime::light:
        return light;
      case Regime::medium:
        return medium;
      case Regime::full:
        return full;
      case Regime::dram:
        break;
    }
    return dram;
  }
};

constexpr LaunchRow at_any_work(const Launch& launch) {
  return {launch, launch, launch, launch, launch};
}

}  // namespace fwht::rows
