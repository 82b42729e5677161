// Which lane works out which scale: the maps that kernels go by, against the exchange of maxima as
// sharing.hpp states it, on all 32 lanes of a warp.
#include "variants/kit/encode/sharing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <utility>

namespace fwht::encoder {
namespace {

using Lanes = std::array<int, 32>;

Lanes larger_across(const Lanes& kept, const Lanes& given, int mask) {
  Lanes larger{};
  for (std::size_t lane = 0; lane < 32; ++lane)
    larger[lane] = std::max(kept[lane], given[lane ^ static_cast<std::size_t>(mask)]);
  return larger;
}

/// What spread_maxima and maxima_of_lanes do (row_encoder.cuh): of a pair a lane keeps the vector that the
/// bit of its number says and gives away the other; then the rest of the group's lanes.
template <class Shared, std::size_t groups>
void find_maxima(int lanes, Lanes (&maximum)[groups]) {
  for (int step = 0; step < Shared::kSteps; ++step) {
    for (std::size_t i = 0; i < groups >> (step + 1); ++i) {
      Lanes kept{}, given{};
      for (std::size_t lane = 0; lane < 32; ++lane) {
        const std::size_t upper = lane >> step & 1;
        kept[lane] = maximum[2 * i + upper][lane];
        given[lane] = maximum[2 * i + 1 - upper][lane];
      }
      maximum[i] = larger_across(kept, given, 1 << step);
    }
  }
  for (int step = Shared::kOwners; step < lanes; step *= 2) {
    for (int s = 0; s < Shared::kScales; ++s)
      maximum[s] = larger_across(maximum[s], maximum[s], step);
  }
}

/// @param lanes  of a group
template <class Form, int vectors, int vectors_of_row = 1>
void check(int lanes) {
  using Shared = Sharing<Form, vectors, vectors_of_row>;
  SCOPED_TRACE(std::to_string(vectors) + " vectors, groups of " + std::to_string(lanes) + " lanes");
  ASSERT_GE(lanes, Shared::kOwners) << "a lane would work out the scale of another group";

  std::mt19937 random(7);
  Lanes maximum[Shared::kGroups];
  std::map<std::pair<int, int>, int> of_group;  // which lanes, which of their groups
  for (int group = 0; group < Shared::kGroups; ++group) {
    for (int lane = 0; lane < 32; ++lane) {
      const int number = static_cast<int>(random() >> 1);
      maximum[group][static_cast<std::size_t>(lane)] = number;
      int& largest = of_group[{lane / lanes, group}];
      largest = std::max(largest, number);
    }
  }
  find_maxima<Shared>(lanes, maximum);

  for (int lane = 0; lane < 32; ++lane) {
    for (int v = 0; v < vectors; ++v) {
      const int owner = Shared::owner_of(v, lane);
      EXPECT_EQ(owner / lanes, lane / lanes) << lane << ", " << v;
      EXPECT_TRUE(Shared::owners_of(v) >> owner & 1U) << lane << ", " << v;
      const auto found = maximum[Shared::scale_of(v)][static_cast<std::size_t>(owner)];
      EXPECT_EQ(found, of_group.at({lane / lanes, v / Shared::kVectorsOfScale})) << lane << ", " << v;
    }
  }

  std::map<std::pair<int, int>, int> stored;  // as store_scales() does
  for (int lane = 0; lane < 32; ++lane) {
    for (int s = 0; lane % lanes < Shared::kOwners && s < Shared::kScales; ++s) {
      const int vector = Shared::first_vector(lane) + Shared::vector_of(s);
      EXPECT_EQ(maximum[s][static_cast<std::size_t>(lane)],
                of_group.at({lane / lanes, vector / Shared::kVectorsOfScale}));
      ++stored[{lane / lanes, vector}];
    }
  }
  EXPECT_EQ(stored.size(), of_group.size());
  for (const auto& [group, times] : stored)
    EXPECT_EQ(times, 1) << group.first << ", " << group.second;
}

template <int group>
using Groups = Form<Element::e4m3, Family::f32, false, true, group>;
using MxGroups = Form<Element::e2m1, Family::e8m0, false, true>;
using NvGroups = Form<Element::e2m1, Family::e4m3, false, true>;
using Rows = Form<Element::int8, Family::f32, true, true>;
using AnyRows = Form<Element::int8, Family::f32, true>;

TEST(Sharing, GroupsWithFp32Scales) {
  for (const int lanes : {4, 8, 16, 32}) {
    check<Groups<32>, 1>(lanes);
    check<Groups<32>, 2>(lanes);
    check<Groups<32>, 4>(lanes);
    check<Groups<32>, 8>(lanes);
  }
  for (const int lanes : {8, 16, 32})
    check<Groups<64>, 8>(lanes);
  for (const int lanes : {16, 32}) {
    check<Groups<128>, 8>(lanes);
    check<Groups<128>, 16>(lanes);
  }
}

TEST(Sharing, GroupsOfKnownLength) {
  check<MxGroups, 1>(4);
  check<MxGroups, 8>(4);
  check<MxGroups, 16>(4);
  check<NvGroups, 1>(2);
  check<NvGroups, 4>(2);
  check<NvGroups, 16>(2);
}

TEST(Sharing, RowsOfAWarp) {
  check<Rows, 8, 2>(32);
  check<Rows, 8, 4>(32);
  check<Rows, 8, 8>(32);
  check<Rows, 16, 16>(32);
  check<Rows, 2, 2>(32);
  check<AnyRows, 4, 2>(32);
}

TEST(Sharing, ALaneWorksOutAsFewScalesAsGroupsAllow) {
  EXPECT_EQ((Sharing<Groups<64>, 8, 8>::kScales), 1);
  EXPECT_EQ((Sharing<Groups<128>, 16, 16>::kScales), 1);
  EXPECT_EQ((Sharing<Groups<64>, 16, 16>::kScales), 2);
  EXPECT_EQ((Sharing<MxGroups, 8, 8>::kScales), 2);
  EXPECT_EQ((Sharing<NvGroups, 8, 8>::kScales), 4);
  EXPECT_EQ((Sharing<Rows, 8, 2>::kScales), 1);
  EXPECT_EQ((Sharing<AnyRows, 8, 2>::kScales), 4);
}

}  // namespace
}  // namespace fwht::encoder
