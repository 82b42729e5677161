// butterflies: what one warp computes in passes through shared memory, written once and executed twice; see
// variants/kit/warp_program.hpp.
//
// The elements of a warp are 32 runs, each as many consecutive ones as a lane has registers, in units of
// four. In the first pass a lane has a run. In the second the element of one number of every run (or of two,
// one in every 32), in the third, behind the only barrier of the block, what the exchange gives it.
#pragma once

#include "variants/kit/tile.hpp"
#include "variants/kit/warp_program.hpp"

namespace fwht::butterflies {

using rows::Tile;

/// Where shared memory keeps the elements of a row: runs in order, their units swizzled so that the first
/// pass, in which the lanes are a run apart, finds no bank conflict either. Sums, not bitwise or: what is
/// known when the kernel is compiled becomes part of an instruction.
struct RunBuffer {
  Tile tile;

  constexpr int run_length() const { return 4 * tile.vectors; }
  /// Numbers of every run that a lane has in the second pass.
  constexpr int numbers_of_lane() const { return tile.vectors / 8; }

  /// Word of element e of vector v of a lane of warp `from`, as loaded and as exchanged.
  constexpr int word(int from, int v, int lane, int e) const {
    const int run_of_vector = lane >> tile.vector_bits(), unit = lane & (tile.vectors - 1);
    return (((from * tile.vectors + v) * 32 + (run_of_vector << tile.vector_bits())) << 2) +
           ((unit ^ run_of_vector ^ ((v * (32 >> tile.vector_bits())) & 7)) << 2) + e;
  }
  /// Word at which a unit of a run begins.
  constexpr int run_word(int warp, int run, int unit) const {
    return ((warp * 32 + run) << (tile.vector_bits() + 2)) + ((unit ^ (run & 7)) << 2);
  }
  /// Word of number 32 `which` + lane of a run.
  constexpr int number_word(int warp, int run, int which, int lane) const {
    return ((warp * 32 + run) << (tile.vector_bits() + 2)) + which * 32 + (lane ^ ((run & 7) << 2));
  }
};

/// A warp whose row lies in such a buffer.
///   take_run(warp, unit, x), put_run(warp, unit, x)    four numbers of the lane's run, from there and back
///   take_number(warp, run, which, x), put_number(...)  one number of a run
///   sync()                                             what lanes put, other lanes of the warp may take
template <class Warp>
concept PassesMachine = rows::WarpMachine<Warp> &&
    requires(Warp& warp, const Warp& machine, typename Warp::Float& number, typename Warp::Float (&quad)[4],
             int i) {
  machine.take_run(i, i, quad);
  warp.put_run(i, i, quad);
  machine.take_number(i, i, i, number);
  warp.put_number(i, i, i, number);
  machine.sync();
};

/// The first two passes over the elements of warp `self` of the row, which are in the buffer and stay there.
template <Tile tile, PassesMachine Warp>
FWHT_WARP_CODE void passes_of_warp(Warp& warp, int self) {
  using Float = typename Warp::Float;
  constexpr int kUnits = tile.vectors, kNumbers = RunBuffer{tile}.numbers_of_lane();
  // x = H x over the low bits: the lane's run
  Float x[4 * kUnits];
  FWHT_UNROLL
  for (int unit = 0; unit < kUnits; ++unit) {
    Float quad[4];
    warp.take_run(self, unit, quad);
    FWHT_UNROLL
    for (int i = 0; i < 4; ++i)
      x[4 * unit + i] = quad[i];
  }
  rows::element_butterflies<2 + tile.vector_bits()>(x);
  FWHT_UNROLL
  for (int unit = 0; unit < kUnits; ++unit) {
    const Float quad[4] = {x[4 * unit], x[4 * unit + 1], x[4 * unit + 2], x[4 * unit + 3]};
    warp.put_run(self, unit, quad);
  }
  warp.sync();
  // y = H y over the five bits that count runs
  Float y[32][kNumbers];
  FWHT_UNROLL
  for (int run = 0; run < 32; ++run) {
    FWHT_UNROLL
    for (int which = 0; which < kNumbers; ++which)
      warp.take_number(self, run, which, y[run][which]);
  }
  rows::vector_butterflies<5>(y);
  FWHT_UNROLL
  for (int run = 0; run < 32; ++run) {
    FWHT_UNROLL
    for (int which = 0; which < kNumbers; ++which)
      warp.put_number(self, run, which, y[run][which]);
  }
}

}  // namespace fwht::butterflies
