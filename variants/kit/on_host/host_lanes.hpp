// For tests: a warp on the host, all 32 lanes at once; the twin of DeviceLanes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/contract/dtype.hpp"
#include "variants/kit/tile.hpp"

namespace fwht::rows {

/// One register of 32 lanes.
template <class T>
struct Lanes {
  std::array<T, 32> at{};

  template <class F>
  static Lanes from(F&& f) {
    Lanes result;
    for (int lane = 0; lane < 32; ++lane)
      result.at[static_cast<std::size_t>(lane)] = f(static_cast<std::size_t>(lane));
    return result;
  }
};
using Floats = Lanes<float>;
using Words = Lanes<std::uint32_t>;
using Flags = Lanes<bool>;

Floats operator+(const Floats& a, const Floats& b);
Floats operator-(const Floats& a, const Floats& b);
Flags operator|(const Flags& a, const Flags& b);

/// Shared memory of a row.
using SharedRow = std::vector<float>;

/// See WarpMachine. Compiled once: nothing here depends on a template argument but the number of elements of
/// a piece, which HostLanesOf knows.
class HostLanes {
 public:
  using Float = Floats;
  using Word = Words;

  HostLanes(const Tile& tile, float shrink, SharedRow& row) : tile_(tile), shrink_(shrink), row_(row) {}

  static Floats shuffle(const Floats& x, int lane_mask);
  static Floats lane_sign(int bit);
  static Floats fma(const Floats& a, const Floats& b, const Floats& c);
  void widen(const Words (&words)[4], Floats* x) const;

 protected:
  float& word(int i) const { return row_.at(static_cast<std::size_t>(i)); }

  Tile tile_;
  float shrink_;
  SharedRow& row_;
};

/// @tparam tile    how the row is spread
/// @tparam Buffer  where the exchange keeps its elements, such as ExchangeBuffer
template <Tile tile, class Buffer = ExchangeBuffer>
class HostLanesOf : public HostLanes {
 public:
  static constexpr int kVectorElements = tile.vector_elements();
  static constexpr int kPiece = tile.piece();

  HostLanesOf(float shrink, SharedRow& row) : HostLanes(tile, shrink, row) {}

  void put(int from, int v, int quad, const Floats (&x)[4]) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i)
        word(kBuffer.word(from, v, lane, 4 * quad + i)) = x[i].at[static_cast<std::size_t>(lane)];
    }
  }
  void take(int from, int v, int quad, Floats (&x)[4]) const {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i)
        x[i].at[static_cast<std::size_t>(lane)] = word(kBuffer.word(from, v, lane, 4 * quad + i));
    }
  }
  void get(int from, int v, int part, Floats (&x)[kPiece]) const {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < kPiece; ++i) {
        const int element = tile.piece_begin(part, lane) + i;
        x[i].at[static_cast<std::size_t>(lane)] = word(word_of_element(kBuffer, from, v, element));
      }
    }
  }

 protected:
  static constexpr Buffer kBuffer{tile};
};

}  // namespace fwht::rows
