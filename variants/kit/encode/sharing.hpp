// Which lane of a warp works out which scale. A lane has elements of several groups, and so have the lanes
// beside it: they find the largest |y| of all of them together (spread_maxima, maxima_of_lanes), and each
// goes on with some.
//
//   before   a lane's maxima of vectors (or rows) 0 .. 2^k - 1, over its own elements
//   step i   of a pair of vectors a lane keeps the one that bit i of its number says, and gives away the
//            other
//   after    maximum s is that of group (s << steps) + lane % 2^steps, over 2^steps lanes; then over the rest
//            of the group
#pragma once

#include <cstdint>

#include "common/host/bits.hpp"
#include "variants/kit/encode/scales.hpp"

namespace fwht::encoder {

/// @tparam Form            what the kernel is compiled for
/// @tparam vectors         of eight elements that a lane has, a power of two
/// @tparam vectors_of_row  how many of them belong to one row
template <class Form, int vectors, int vectors_of_row>
struct Sharing {
  static constexpr int kVectorsOfScale = Form::whole_row ? vectors_of_row : 1;
  static constexpr int kGroups = vectors / kVectorsOfScale;  // that a lane has elements of
  /// Of no fewer groups than a group has lanes.
  static constexpr int kMostSteps = !Form::whole_row ? log2_floor(Form::group / 8) : Form::rounded ? 5 : 0;
  static constexpr int kSteps = log2_floor(kGroups) < kMostSteps ? log2_floor(kGroups) : kMostSteps;
  static constexpr int kScales = kGroups >> kSteps;  // that a lane works out
  static constexpr int kOwners = 1 << kSteps;        // lanes, of which each has one scale in so many

  /// The first vector of the lane's scale number s, counted from that of its first scale.
  FWHT_WARP_CODE static constexpr int vector_of(int s) { return (s << kSteps) * kVectorsOfScale; }
  /// The first vector of its first scale.
  FWHT_WARP_CODE static constexpr int first_vector(int lane) {
    return (lane & (kOwners - 1)) * kVectorsOfScale;
  }
  /// Which of a lane's scales is that of vector v, and which lane of each kOwners has it.
  FWHT_WARP_CODE static constexpr int scale_of(int v) { return v / kVectorsOfScale >> kSteps; }
  FWHT_WARP_CODE static constexpr int owner_of(int v, int lane) {
    return (lane & ~(kOwners - 1)) | (v / kVectorsOfScale & (kOwners - 1));
  }
  /// All those lanes of a warp, one bit each.
  FWHT_WARP_CODE static constexpr std::uint32_t owners_of(int v) {
    std::uint32_t lanes = 0;
    for (int lane = v / kVectorsOfScale & (kOwners - 1); lane < 32; lane += kOwners)
      lanes |= 1U << lane;
    return lanes;
  }
};

}  // namespace fwht::encoder
