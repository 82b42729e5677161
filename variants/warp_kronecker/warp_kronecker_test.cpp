// The kernel on the host: its index maps through every lane, register and byte of the row, with the
// instructions it uses emulated from the PTX ISA's fragment layouts and the model of the tensor core's sums.
#include "variants/warp_kronecker/warp_kronecker.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "reference/test_support.hpp"
#include "variants/kit/on_host/host_products.hpp"

namespace fwht::warp_kronecker {
namespace {

using reference::InputClass;
using rows::matrix_problem;
using rows::ProductTile;
using rows::Words;

/// Every warp of one row: the steps of rows_in_registers.
class HostRow {
 public:
  HostRow(const Problem& problem, const Operands& operands, const reference::TensorCore& core,
          const WarpCut& cut, const WarpLaunch& launch)
      : problem_(problem),
        cut_(cut),
        launch_(launch),
        matrix_(rows::sign_table(cut.shape(), cut.order, cut.slow)),
        in_(static_cast<const std::uint16_t*>(operands.in)),
        out_(static_cast<std::uint16_t*>(operands.out)),
        flips_(static_cast<const std::uint8_t*>(operands.signs)),
        products_(problem.dtype(), core),
        exchange_(static_cast<std::size_t>(launch.exchange_words()), std::nanf("")) {}

  void run(std::int64_t row) {
    for (int team = 0; team < launch_.teams; ++team) {
      for (int round = team; round < launch_.rounds(); round += launch_.teams) {
        for (int b = 0; b < launch_.together; ++b)
          make_block(row, round, round * launch_.together + b);
      }
    }
  }

 private:
  using Sums = std::array<ProductTile, 8>;

  /// Words of the vector at `byte` of a row, or zeros behind the matrix.
  std::uint16_t loaded(std::int64_t row, int byte, int line, int e) const {
    if (line >= cut_.order) return 0;
    const int element = byte / 2 + e;
    return rows::flipped(in_[row * problem_.in.row_stride + element],
                         problem_.op.signs_come_last() ? nullptr : flips_, element);
  }
  /// Register r of operand B of column j: as HeldRow::arrange leaves it.
  Words operand(std::int64_t row, int half, int step, int j, int r) const {
    return Words::from([&](std::size_t at) {
      const int lane = static_cast<int>(at);
      std::uint32_t word = 0;
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        const int byte = loaded_byte(launch_.halves, step, i, half, lane);
        word |= std::uint32_t{loaded(row, byte, loaded_line(step, i, lane), j)} << (16 * (i % 2));
      }
      return word;
    });
  }

  Sums exact_stage(std::int64_t row, int half, int block) const {
    Sums d{};
    for (int step = 0; step < launch_.k_steps; ++step) {
      Words a[4];
      rows::signs_on_host(a, matrix_, problem_.dtype(), launch_.k_steps, block, step);
      for (int j = 0; j < 8; ++j) {
        products_.multiply_add(d[static_cast<std::size_t>(j)], a,
                               {operand(row, half, step, j, 0), operand(row, half, step, j, 1)});
      }
    }
    for (std::size_t distance = 1; distance < 8; distance *= 2) {
      for (std::size_t j = 0; j < 8; ++j)
        if (j / distance % 2 == 0) rows::butterfly(d[j], d[j + distance]);
    }
    return d;
  }

  /// exchange_halves, of both halves.
  void exchange_halves(std::array<Sums, 2>& d, int round) {
    const auto word = [&](int half, int pair, std::size_t lane, std::size_t i) -> float& {
      return exchange_.at(
          static_cast<std::size_t>(exchanged_word(round, half, pair, static_cast<int>(lane))) + i);
    };
    for (std::size_t half = 0; half < 2; ++half) {
      for (int pair = 0; pair < 4; ++pair) {
        for (std::size_t lane = 0; lane < 32; ++lane) {
          for (std::size_t i = 0; i < 4; ++i)
            word(static_cast<int>(half), pair, lane, i) =
                d[half][2 * static_cast<std::size_t>(pair) + i / 2][(half == 0 ? 2 : 0) + i % 2].at[lane];
        }
      }
    }
    for (std::size_t half = 0; half < 2; ++half) {
      for (int pair = 0; pair < 4; ++pair) {
        for (std::size_t lane = 0; lane < 32; ++lane) {
          for (std::size_t i = 0; i < 4; ++i) {
            ProductTile& sums = d[half][2 * static_cast<std::size_t>(pair) + i / 2];
            const float kept = sums[(half == 0 ? 0 : 2) + i % 2].at[lane];
            const float other = word(1 - static_cast<int>(half), pair, lane, i);
            sums[i % 2].at[lane] = kept + other;
            sums[2 + i % 2].at[lane] = kept - other;
          }
        }
      }
    }
  }

  void make_block(std::int64_t row, int round, int block) {
    std::array<Sums, 2> d{};
    for (int half = 0; half < launch_.halves; ++half)
      d[static_cast<std::size_t>(half)] = exact_stage(row, half, std::min(block, launch_.k_steps - 1));
    if (launch_.halves == 2) exchange_halves(d, round);
    for (int half = 0; half < launch_.halves; ++half)
      finish_block(d[static_cast<std::size_t>(half)], row, block, half);
  }

  void finish_block(Sums& d, std::int64_t row, int block, int half) {
    for (ProductTile& x : d)
      products_.eight_point_stage(x, lane_of_fragment);
    for (int i = 0; i < 4; ++i) {
      const float scale =
          static_cast<float>(problem_.scale) * (launch_.halves == 2 && half == 1 && i >= 2 ? -1.0F : 1.0F);
      for (int lane = 0; lane < 32; ++lane) {
        if (stored_line(launch_.halves, block, i, half, lane) >= cut_.order) continue;
        const int byte = stored_byte(launch_.halves, block, i, half, lane);
        for (int j = 0; j < 8; ++j) {
          const float x =
              d[static_cast<std::size_t>(j)][static_cast<std::size_t>(i)].at[static_cast<std::size_t>(lane)];
          const int element = byte / 2 + j;
          out_[row * problem_.out.row_stride + element] =
              rows::flipped(static_cast<std::uint16_t>(encode(problem_.dtype(), x * scale + 0.0F)),
                            problem_.op.signs_come_last() ? flips_ : nullptr, element);
        }
      }
    }
  }

  Problem problem_;
  WarpCut cut_;
  WarpLaunch launch_;
  std::vector<std::uint32_t> matrix_;
  const std::uint16_t* in_;
  std::uint16_t* out_;
  const std::uint8_t* flips_;
  rows::HostProducts products_;
  std::vector<float> exchange_;
};

/// The launches that serve the cut, whatever the number of rows.
std::vector<WarpLaunch> launches_of(const WarpCut& cut) {
  std::vector<WarpLaunch> launches;
  std::ranges::copy_if(kLaunches, std::back_inserter(launches),
                       [&](const WarpLaunch& launch) { return launch.serves(cut); });
  return launches;
}

void expect_right(const Problem& problem, InputClass input_class, const reference::TensorCore& core) {
  const WarpCut cut = cut_for(problem.op).value();
  for (const WarpLaunch& launch : launches_of(cut)) {
    rows::expect_right(problem, input_class, [&](const Operands& operands) {
      HostRow row(problem, operands, core, cut, launch);
      for (std::int64_t r = 0; r < problem.rows; ++r)
        row.run(r);
    });
  }
}

/// Every number of k steps, with one half and two; orders that are and are no multiple of 16; transposes,
/// signs.
std::vector<std::string> operators() {
  return {"12x64",  "12x128",  "20x64",       "28x64",        "36x64",        "20x128",
          "12x256", "28x128",  "60x64",       "68x64",        "76x64",        "20x256",
          "84x64",  "44x128",  "12x512",      "100x64",       "108x64",       "28x256",
          "36x256", "20x512",  "84x128",      "12x1024",      "100x128",      "108x128",
          "28x512", "28tx128", "12x64+signs", "signs+28x128", "28x512+signs", "signs+12x1024"};
}

class WarpKronecker : public ::testing::TestWithParam<std::string> {};

TEST_P(WarpKronecker, IntegersAreExact) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
    expect_right(matrix_problem(dtype, GetParam(), 1), InputClass::integers, reference::kAmpereTensorCore);
}

TEST_P(WarpKronecker, OneRoundingOfRandomRows) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    for (const reference::TensorCore& core : {reference::kAmpereTensorCore, reference::kHopperTensorCore})
      expect_right(matrix_problem(dtype, GetParam(), 1), InputClass::normal, core);
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, WarpKronecker, ::testing::ValuesIn(operators()), rows::name_of_operator);

TEST(WarpKroneckerPlan, RowStridesLeaveGaps) {
  for (const char* op : {"28x64", "12x1024"}) {
    Problem problem = matrix_problem(Dtype::f16, op, 3);
    problem.placement = Placement::out_of_place;
    problem.in.row_stride = problem.n() + 8;
    problem.out.row_stride = problem.n() + 64;
    expect_right(problem, InputClass::integers, reference::kAmpereTensorCore);
  }
}

TEST(WarpKroneckerPlan, CutsAreThoseOfTheTable) {
  const auto text_of_cut = [](const char* op) {
    const std::optional<WarpCut> cut = cut_for(parse_operator(op));
    return cut ? std::to_string(cut->order) + " x " + std::to_string(cut->shape().columns) : "none";
  };
  EXPECT_EQ(text_of_cut("12x64"), "12 x 64");
  EXPECT_EQ(text_of_cut("12x128"), "24 x 64");
  EXPECT_EQ(text_of_cut("20x256"), "80 x 64");
  EXPECT_EQ(text_of_cut("28x256"), "112 x 64");
  EXPECT_EQ(text_of_cut("36x256"), "72 x 128");
  EXPECT_EQ(text_of_cut("12x1024"), "96 x 128");
  EXPECT_EQ(text_of_cut("28x512"), "112 x 128");
  EXPECT_EQ(text_of_cut("28tx128+signs"), "56 x 64");
  // Fewer columns than a warp holds, more rows than registers do, and other operators.
  for (const char* op : {"28", "28x32", "116x64", "60x128", "28x1024", "76x2x36x2", "d28x64", "4096", "256r",
                         "4096+signs", "428x32"})
    EXPECT_EQ(text_of_cut(op), "none") << op;
}

TEST(WarpKroneckerPlan, FewRowsAreSharedByWarps) {
  const auto launch = [](const char* op, std::int64_t rows) {
    return launch_for(cut_for(parse_operator(op)).value(), rows, 132);
  };
  EXPECT_EQ(launch("12x64", 1), (WarpLaunch{1, 1, 1, 1})) << "one block of the product";
  EXPECT_EQ(launch("12x128", 12 * 132), (WarpLaunch{2, 1, 2, 1}));
  EXPECT_EQ(launch("12x128", 12 * 132 + 1), (WarpLaunch{2, 1, 1, 2}));
  EXPECT_EQ(launch("28x256", 132), (WarpLaunch{7, 1, 4, 1}));
  EXPECT_EQ(launch("28x256", 133), (WarpLaunch{7, 1, 2, 1}));
  EXPECT_EQ(launch("28x256", 264), (WarpLaunch{7, 1, 2, 1}));
  EXPECT_EQ(launch("28x256", 265), (WarpLaunch{7, 1, 1, 1}));
  EXPECT_EQ(launch("28x512", 1), (WarpLaunch{7, 2, 1, 1})) << "halves are not shared again";
}

TEST(WarpKroneckerPlan, EveryLaunchFitsAMultiprocessor) {
  const auto check = [](const WarpLaunch& launch) {
    EXPECT_LE(launch.threads(), 128);
    EXPECT_GE(launch.threads() * launch.resident_blocks(), 32);
    EXPECT_LE(launch.teams, launch.rounds()) << "no team without a block";
    EXPECT_TRUE(launch.warps_per_row() == 1 || launch.rows_per_block() == 1) << "the block's barrier";
  };
  std::ranges::for_each(kLaunches, check);
}

TEST(WarpKroneckerPlan, EveryLaunchIsTakenForSomeNumberOfRows) {
  for (const WarpLaunch& launch : kLaunches) {
    const WarpCut cut{16 * launch.k_steps, launch.halves, {}};
    const std::int64_t most = std::int64_t{launch.most_rows_per_multiprocessor()} * 132;
    EXPECT_EQ(launch_for(cut, most, 132), launch) << launch.k_steps << ' ' << launch.teams;
  }
}

// Every warp-wide load and store is of whole sectors: 64 consecutive bytes at least.
TEST(WarpKroneckerPlan, LanesMeetInWholeSectors) {
  for (const int halves : {1, 2}) {
    for (int i = 0; i < 4; ++i) {
      std::set<int> loaded, stored;
      for (int lane = 0; lane < 32; ++lane) {
        loaded.insert(loaded_byte(halves, 0, i, 0, lane) / 16);
        stored.insert(stored_byte(halves, 0, i, 0, lane) / 16);
      }
      EXPECT_EQ(loaded.size(), 32U);
      EXPECT_EQ(stored.size(), 32U);
      for (const std::set<int>& vectors : {loaded, stored}) {
        for (const int vector : vectors)
          for (int piece = 0; piece < 4; ++piece)
            EXPECT_TRUE(vectors.contains(vector / 4 * 4 + piece)) << halves << " " << i << " " << vector;
      }
    }
  }
}

TEST(WarpKroneckerPlan, SaysWhatItDoesNotTake) {
  const auto refusal = [](const char* text, const DeviceInfo& device) {
    return variant.supports(parse_problem(text), device).why_not;
  };
  EXPECT_EQ(refusal("f16/28x512/r5", a100_description()), "");
  EXPECT_EQ(refusal("bf16/12x64+signs/r5", a100_description()), "");
  const auto expect_named = [&](const char* text, const char* words) {
    EXPECT_NE(refusal(text, a100_description()).find(words), std::string::npos)
        << refusal(text, a100_description());
  };
  expect_named("f16/28x1024/r5", "up to n = 14336");
  expect_named("f16/140x64/r5", "64 or more up to n = 7168, 128 or more up to n = 14336");
  expect_named("f32/28x512/r5", "dtype f32");
  expect_named("f16/28x512/r5>e4m3:row", "the encoding e4m3:row");
  expect_named("f16/28x512/r5/ld14340", "row_stride=14340");
  DeviceInfo none;
  EXPECT_EQ(refusal("f16/28x512/r5", none), none.why_no_cuda);
}

}  // namespace
}  // namespace fwht::warp_kronecker
