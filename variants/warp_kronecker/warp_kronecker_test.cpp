// The kernel on the host: its index maps through every lane, register and byte of the row, with the
// instructions it uses emulated from the PTX ISA's fragment layouts and the model of the tensor core's sums.
#include "variants/warp_kronecker/warp_kronecker.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reference/test_support.hpp"
#include "variants/kit/on_host/host_products.hpp"

namespace fwht::warp_kronecker {
namespace {

using reference::InputClass;
using rows::matrix_problem;
using rows::ProductTile;
using rows::Words;

/// Every warp of the rows that one holds: the steps of rows_in_registers.
class HostRows {
 public:
  HostRows(const Problem& problem, const Operands& operands, const reference::TensorCore& core,
           const WarpCut& cut, const WarpLaunch& launch)
      : problem_(problem),
        order_(cut.shape.order),
        launch_(launch),
        matrix_(rows::sign_table(cut.shape, cut.shape.order, cut.slow)),
        in_(static_cast<const std::uint16_t*>(operands.in)),
        out_(static_cast<std::uint16_t*>(operands.out)),
        flips_(static_cast<const std::uint8_t*>(operands.signs)),
        products_(problem.dtype(), core),
        exchange_(static_cast<std::size_t>(launch.exchange_words()), std::nanf("")) {}

  void run(std::int64_t first_row) {
    for (int team = 0; team < launch_.teams; ++team) {
      for (int round = team; round < launch_.rounds(); round += launch_.teams)
        make_blocks(first_row, round);
    }
  }

 private:
  using Sums = std::array<ProductTile, 8>;
  /// Of two parts.
  using BothSums = std::array<Sums, 2>;

  std::int64_t row_of(std::int64_t first_row, int slot) const {
    return first_row + row_of_slot(launch_.columns, slot);
  }
  /// An element of the vector at `byte` of a row, or zero behind the matrix and behind the last row.
  std::uint16_t loaded(std::int64_t row, int byte, int line, int e) const {
    if (line >= order_ || row >= problem_.rows) return 0;
    const int element = byte / 2 + e;
    return rows::flipped(in_[row * problem_.in.row_stride + element],
                         problem_.op.signs_come_last() ? nullptr : flips_, element);
  }
  /// Register r of operand B of column j: as HeldRow::arrange leaves it.
  Words operand(std::int64_t first_row, int part, int step, int j, int r) const {
    return Words::from([&](std::size_t at) {
      const int lane = static_cast<int>(at);
      const std::int64_t row = row_of(first_row, loaded_slot(launch_.columns, lane));
      std::uint32_t word = 0;
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        const int byte = loaded_byte(launch_.columns, step, i, part, lane);
        word |= std::uint32_t{loaded(row, byte, loaded_line(step, i, lane), j)} << (16 * (i % 2));
      }
      return word;
    });
  }

  Sums exact_stage(std::int64_t first_row, int part, int block) const {
    Sums d{};
    for (int step = 0; step < launch_.k_steps; ++step) {
      Words a[4];
      rows::signs_on_host(a, matrix_, problem_.dtype(), launch_.k_steps, block, step);
      for (int j = 0; j < 8; ++j) {
        products_.multiply_add(d[static_cast<std::size_t>(j)], a,
                               {operand(first_row, part, step, j, 0), operand(first_row, part, step, j, 1)});
      }
    }
    return d;
  }
  static void add_elements(Sums& d) {
    for (std::size_t distance = 1; distance < 8; distance *= 2) {
      for (std::size_t j = 0; j < 8; ++j)
        if (j / distance % 2 == 0) rows::butterfly(d[j], d[j + distance]);
    }
  }

  float& word_at(int word, std::size_t i) { return exchange_.at(static_cast<std::size_t>(word) + i); }

  /// exchange_parts, of both.
  void exchange_parts(BothSums& d, int round) {
    const auto word = [&](int part, int pair, std::size_t lane, std::size_t i) -> float& {
      return word_at(exchanged_word(round, part, pair, static_cast<int>(lane)), i);
    };
    for (std::size_t part = 0; part < 2; ++part) {
      for (int pair = 0; pair < 4; ++pair) {
        for (std::size_t lane = 0; lane < 32; ++lane) {
          for (std::size_t i = 0; i < 4; ++i)
            word(static_cast<int>(part), pair, lane, i) =
                d[part][2 * static_cast<std::size_t>(pair) + i / 2][(part == 0 ? 2 : 0) + i % 2].at[lane];
        }
      }
    }
    for (std::size_t part = 0; part < 2; ++part) {
      for (int pair = 0; pair < 4; ++pair) {
        for (std::size_t lane = 0; lane < 32; ++lane) {
          for (std::size_t i = 0; i < 4; ++i) {
            ProductTile& sums = d[part][2 * static_cast<std::size_t>(pair) + i / 2];
            const float kept = sums[(part == 0 ? 0 : 2) + i % 2].at[lane];
            const float other = word(1 - static_cast<int>(part), pair, lane, i);
            sums[i % 2].at[lane] = kept + other;
            sums[2 + i % 2].at[lane] = kept - other;
          }
        }
      }
    }
  }

  /// ManyParts::exchange_and_store, of every part and thread.
  void exchange_and_store(std::vector<std::vector<Sums>>& d, std::int64_t row, int round) {
    const int threads = launch_.threads();
    for (int part = 0; part < launch_.parts(); ++part) {
      for (int b = 0; b < launch_.together; ++b) {
        const Sums& sums = d[static_cast<std::size_t>(part)][static_cast<std::size_t>(b)];
        for (int lane = 0; lane < 32; ++lane) {
          for (int i = 0; i < 4; ++i) {
            for (int j = 0; j < 8; ++j) {
              const int word =
                  handed_word(launch_, round, part, handed_row(b, i, lane), handed_quad(i, lane) + j / 4);
              word_at(word, static_cast<std::size_t>(j % 4)) =
                  sums[static_cast<std::size_t>(j)][static_cast<std::size_t>(i)]
                      .at[static_cast<std::size_t>(lane)];
            }
          }
        }
      }
    }
    for (int take = 0; take < launch_.takes(); ++take) {
      for (int thread = 0; thread < threads; ++thread) {
        const int of_blocks = taken_row(launch_, take, thread), first = taken_column(launch_, thread);
        const int line = 16 * launch_.together * round + of_blocks;
        for (int column = first; line < order_ && column < first + launch_.taken_columns(); ++column) {
          std::vector<float> x(static_cast<std::size_t>(launch_.parts()));
          for (std::size_t part = 0; part < x.size(); ++part)
            x[part] = word_at(handed_word(launch_, round, static_cast<int>(part), of_blocks, column / 4),
                              static_cast<std::size_t>(column % 4));
          for (std::size_t distance = 1; distance < x.size(); distance *= 2) {
            for (std::size_t part = 0; part < x.size(); ++part) {
              if (part / distance % 2 != 0) continue;
              const float low = x[part], high = x[part + distance];
              x[part] = low + high;
              x[part + distance] = low - high;
            }
          }
          for (std::size_t part = 0; part < x.size(); ++part)
            put(row, line * launch_.columns + kColumns * static_cast<int>(part) + column, x[part], 1.0F);
        }
      }
    }
  }

  void make_blocks(std::int64_t first_row, int round) {
    if (launch_.hands_out()) {
      std::vector<std::vector<Sums>> d(static_cast<std::size_t>(launch_.parts()));
      for (int part = 0; part < launch_.parts(); ++part) {
        for (int b = 0; b < launch_.together; ++b) {
          Sums sums = exact_stage(first_row, part, round * launch_.together + b);
          add_elements(sums);
          add_vectors(sums);
          d[static_cast<std::size_t>(part)].push_back(sums);
        }
      }
      return exchange_and_store(d, first_row, round);
    }
    for (int b = 0; b < launch_.together; ++b) {
      const int block = round * launch_.together + b;
      BothSums d{};
      for (int part = 0; part < launch_.parts(); ++part) {
        Sums& sums = d[static_cast<std::size_t>(part)];
        sums = exact_stage(first_row, part, std::min(block, launch_.k_steps - 1));
        add_elements(sums);
      }
      if (launch_.parts() == 2) exchange_parts(d, round);
      for (int part = 0; part < launch_.parts(); ++part)
        finish_block(d[static_cast<std::size_t>(part)], first_row, block, part);
    }
  }

  void add_vectors(Sums& d) const {
    for (ProductTile& x : d) {
      if (launch_.rows_per_warp() == 1) {
        products_.eight_point_stage(x, lane_of_fragment);
        continue;
      }
      for (rows::Floats& sums : x) {
        const rows::Floats before = sums;
        for (std::size_t lane = 0; lane < 32; ++lane)
          sums.at[lane] = before.at[lane ^ 1] + (lane % 2 == 0 ? before.at[lane] : -before.at[lane]);
      }
      if (vectors_per_row(launch_.columns) != 4) continue;
      for (std::size_t i = 0; i < 4; i += 2) {
        const rows::Floats low = x[i], high = x[i + 1];
        x[i] = low + high;
        x[i + 1] = low - high;
      }
    }
  }

  void finish_block(Sums& d, std::int64_t first_row, int block, int part) {
    add_vectors(d);
    for (int i = 0; i < 4; ++i) {
      const float sign = launch_.parts() == 2 && part == 1 && i >= 2 ? -1.0F : 1.0F;
      for (int lane = 0; lane < 32; ++lane) {
        const std::int64_t row = row_of(first_row, stored_slot(launch_.columns, i, lane));
        if (stored_line(launch_.columns, block, i, part, lane) >= order_ || row >= problem_.rows) continue;
        const int byte = stored_byte(launch_.columns, block, i, part, lane);
        for (int j = 0; j < 8; ++j) {
          const float x =
              d[static_cast<std::size_t>(j)][static_cast<std::size_t>(i)].at[static_cast<std::size_t>(lane)];
          put(row, byte / 2 + j, x, sign);
        }
      }
    }
  }
  /// The scale, with a sign, and the one rounding.
  void put(std::int64_t row, int element, float x, float sign) const {
    const float scale = sign * static_cast<float>(problem_.scale);
    out_[row * problem_.out.row_stride + element] =
        rows::flipped(static_cast<std::uint16_t>(encode(problem_.dtype(), x * scale + 0.0F)),
                      problem_.op.signs_come_last() ? flips_ : nullptr, element);
  }

  Problem problem_;
  int order_;
  WarpLaunch launch_;
  std::vector<std::uint32_t> matrix_;
  const std::uint16_t* in_;
  std::uint16_t* out_;
  const std::uint8_t* flips_;
  rows::HostProducts products_;
  std::vector<float> exchange_;
};

/// The launches that serve the operator, whatever the number of rows, each with its cut.
std::vector<WarpChoice> choices_of(const Operator& op) {
  std::vector<WarpChoice> choices;
  for (const WarpLaunch& launch : kLaunches)
    if (const std::optional<WarpCut> cut = cut_for(op, launch)) choices.push_back({launch, *cut});
  return choices;
}

void run_all(const Problem& problem, const Operands& operands, const reference::TensorCore& core,
             const WarpChoice& choice) {
  HostRows rows(problem, operands, core, choice.cut, choice.launch);
  for (std::int64_t r = 0; r < problem.rows; r += choice.launch.rows_per_warp())
    rows.run(r);
}

void expect_right(const Problem& problem, InputClass input_class, const reference::TensorCore& core) {
  for (const WarpChoice& choice : choices_of(problem.op)) {
    rows::expect_right(
        problem, input_class, [&](const Operands& operands) { run_all(problem, operands, core, choice); },
        choice.launch.rows_per_warp() == 1);
  }
}

/// Every number of k steps of every number of columns; orders that are and are no multiple of 16; transposes,
/// signs.
std::vector<std::string> operators() {
  return {"12x64",         "12x128",        "20x64",         "28x64",         "36x64",        "20x128",
          "12x256",        "28x128",        "60x64",         "68x64",         "76x64",        "20x256",
          "84x64",         "44x128",        "12x512",        "100x64",        "108x64",       "28x256",
          "36x256",        "20x512",        "84x128",        "12x1024",       "100x128",      "108x128",
          "28x512",        "28tx128",       "12x64+signs",   "signs+28x128",  "28x512+signs", "signs+12x1024",
          "12x32",         "28x32",         "44x32",         "60x32",         "76x32",        "92x32",
          "108x32",        "12x16",         "20x16",         "36x16",         "52x16",        "68x16",
          "84x16",         "100x16",        "140x64",        "172x64",        "132x32",       "148x32",
          "180x32",        "148x16",        "132x16",        "180x16",        "28x32+signs",  "signs+44x16",
          "28tx32",        "140tx64+signs", "signs+180x16",  "20x1024",       "44x512",       "84x256",
          "100x256",       "28x1024",       "36x1024",       "68x512",        "84x512",       "100x512",
          "52x1024",       "60tx256",       "36tx512+signs", "signs+28x1024", "20x256+signs", "36x1024+signs",
          "signs+52x1024", "116x64",        "60x128",        "148x64",        "180x64",       "116x32",
          "116x16",        "140x32",        "164x16",        "164x32",        "132x64",       "140x128",
          "148x128",       "172x128",       "signs+172x128", "116x128",       "172x64+signs"};
}

/// Those of two warps side by side, and the last row alone in one.
std::int64_t rows_of(const std::string& op) {
  const int columns = choice_for(parse_operator(op), 1, 132).value().cut.shape.columns;
  return columns == kColumns / 4 ? 5 : columns == kColumns / 2 ? 3 : 1;
}

class WarpKronecker : public ::testing::TestWithParam<std::string> {};

TEST_P(WarpKronecker, IntegersAreExact) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
    expect_right(matrix_problem(dtype, GetParam(), rows_of(GetParam())), InputClass::integers,
                 reference::kAmpereTensorCore);
}

TEST_P(WarpKronecker, OneRoundingOfRandomRows) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    for (const reference::TensorCore& core : {reference::kAmpereTensorCore, reference::kHopperTensorCore})
      expect_right(matrix_problem(dtype, GetParam(), rows_of(GetParam())), InputClass::normal, core);
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, WarpKronecker, ::testing::ValuesIn(operators()), rows::name_of_operator);

TEST(WarpKroneckerPlan, RowStridesLeaveGaps) {
  for (const char* op : {"28x64", "12x1024", "28x32", "20x16", "140x64", "20x512", "52x1024"}) {
    Problem problem = matrix_problem(Dtype::f16, op, 3);
    problem.placement = Placement::out_of_place;
    problem.in.row_stride = problem.n() + 8;
    problem.out.row_stride = problem.n() + 64;
    expect_right(problem, InputClass::integers, reference::kAmpereTensorCore);
  }
}

// Rows that share a warp share no number: infinities and NaN of one leave the others bit for bit.
TEST(WarpKroneckerPlan, RowsSideBySideAreIsolated) {
  for (const char* op : {"28x32", "20x16", "180x16"}) {
    const Problem problem = matrix_problem(Dtype::f16, op, rows_of(op));
    for (const WarpChoice& choice : choices_of(problem.op)) {
      const auto result_of = [&](const reference::Storage& in) {
        reference::Storage out(problem);
        run_all(problem, {.in = in.data(), .out = out.data()}, reference::kAmpereTensorCore, choice);
        const auto* const numbers = reinterpret_cast<const std::uint16_t*>(out.data());
        return std::vector<std::uint16_t>(numbers, numbers + problem.rows * problem.n());
      };
      reference::Storage in(problem, InputClass::normal, 5);
      const std::vector<std::uint16_t> clean = result_of(in);
      auto* const numbers = reinterpret_cast<std::uint16_t*>(in.data());
      constexpr std::uint16_t kInfinity = 0x7C00, kNan = 0x7E00;
      numbers[problem.n() + 3] = kInfinity;
      numbers[2 * problem.n() + 70] = kNan;
      const std::vector<std::uint16_t> dirty = result_of(in);
      for (std::int64_t i = 0; i < problem.n(); ++i) {
        const auto at = [&](std::int64_t row) { return static_cast<std::size_t>(row * problem.n() + i); };
        EXPECT_EQ(dirty[at(1)] & 0x7FFF, kInfinity) << op << " " << i;
        EXPECT_GT(dirty[at(2)] & 0x7FFF, kInfinity) << op << " " << i;
        for (std::int64_t row = 0; row < problem.rows; ++row) {
          if (row == 1 || row == 2) continue;
          EXPECT_EQ(dirty[at(row)], clean[at(row)]) << op << " " << row << " " << i;
        }
      }
    }
  }
}

constexpr std::int64_t kMultiprocessors = 132;

/// The launch and the cut for so many rows.
std::string choice_text(const char* op, std::int64_t rows) {
  const std::optional<WarpChoice> choice = choice_for(parse_operator(op), rows, kMultiprocessors);
  if (!choice) return "none";
  const WarpLaunch& launch = choice->launch;
  const std::string order = std::to_string(choice->cut.shape.order);
  return order + " x " + std::to_string(launch.columns) + ", " + std::to_string(launch.warps_per_row()) +
         " warps of " + std::to_string(launch.together);
}

TEST(WarpKroneckerPlan, ManyRowsHaveTheLaunchesOfTheTable) {
  constexpr std::int64_t kMany = 1 << 20;
  EXPECT_EQ(choice_text("12x64", kMany), "12 x 64, 1 warps of 1");
  EXPECT_EQ(choice_text("12x128", kMany), "24 x 64, 1 warps of 2");
  EXPECT_EQ(choice_text("20x256", kMany), "80 x 64, 1 warps of 1");
  EXPECT_EQ(choice_text("28x256", kMany), "112 x 64, 1 warps of 1");
  EXPECT_EQ(choice_text("36x256", kMany), "72 x 128, 2 warps of 1");
  EXPECT_EQ(choice_text("12x1024", kMany), "48 x 256, 4 warps of 1");
  EXPECT_EQ(choice_text("28x512", kMany), "56 x 256, 4 warps of 1");
  EXPECT_EQ(choice_text("108x128", kMany), "108 x 128, 2 warps of 1");
  EXPECT_EQ(choice_text("36x512", kMany), "72 x 256, 4 warps of 1");
  EXPECT_EQ(choice_text("44x512", kMany), "44 x 512, 8 warps of 1");
  EXPECT_EQ(choice_text("28x1024", kMany), "56 x 512, 8 warps of 1");
  EXPECT_EQ(choice_text("52x1024", kMany), "52 x 1024, 16 warps of 1");
  EXPECT_EQ(choice_text("28tx128+signs", kMany), "56 x 64, 1 warps of 1");
  EXPECT_EQ(choice_text("28x32", kMany), "28 x 32, 1 warps of 2");
  EXPECT_EQ(choice_text("76x128", kMany), "76 x 128, 2 warps of 1") << "not 152 x 64";
  EXPECT_EQ(choice_text("180x16", kMany), "180 x 16, 2 warps of 1");
  EXPECT_EQ(choice_text("164x16", kMany), "164 x 16, 1 warps of 1");
  EXPECT_EQ(choice_text("172x64", kMany), "172 x 64, 1 warps of 1");
  EXPECT_EQ(choice_text("60x128", kMany), "120 x 64, 1 warps of 1");
  EXPECT_EQ(choice_text("172x128", kMany), "172 x 128, 2 warps of 1");
  // Fewer columns than two vectors, more rows than registers hold, and other operators.
  for (const char* op : {"28", "28x8", "180x128", "140x256", "28x4096", "76x2x36x2", "d28x64", "4096", "256r",
                         "4096+signs", "428x32"})
    EXPECT_EQ(choice_text(op, 1), "none") << op;
}

TEST(WarpKroneckerPlan, FewRowsAreSharedByWarps) {
  EXPECT_EQ(choice_text("12x64", 1), "12 x 64, 1 warps of 1") << "one block of the product";
  EXPECT_EQ(choice_text("12x128", 12 * kMultiprocessors), "24 x 64, 2 warps of 1");
  EXPECT_EQ(choice_text("12x128", 12 * kMultiprocessors + 1), "24 x 64, 1 warps of 2");
  EXPECT_EQ(choice_text("108x64", kMultiprocessors), "108 x 64, 4 warps of 1");
  EXPECT_EQ(choice_text("108x64", kMultiprocessors + 1), "108 x 64, 2 warps of 1");
  EXPECT_EQ(choice_text("108x64", 2 * kMultiprocessors), "108 x 64, 2 warps of 1");
  EXPECT_EQ(choice_text("108x64", 2 * kMultiprocessors + 1), "108 x 64, 1 warps of 1");
  EXPECT_EQ(choice_text("28x32", 24 * kMultiprocessors), "28 x 32, 2 warps of 1")
      << "twice as many rows, as many warps";
  EXPECT_EQ(choice_text("28x32", 24 * kMultiprocessors + 1), "28 x 32, 1 warps of 2");
  EXPECT_EQ(choice_text("20x16", 48 * kMultiprocessors), "20 x 16, 2 warps of 1");
  EXPECT_EQ(choice_text("20x16", 48 * kMultiprocessors + 1), "20 x 16, 1 warps of 2");
  EXPECT_EQ(choice_text("44x32", 2 * kMultiprocessors + 1), "44 x 32, 1 warps of 3");
  EXPECT_EQ(choice_text("108x128", 1), "108 x 128, 2 warps of 1") << "parts are not shared again";
  EXPECT_EQ(choice_text("140x64", kMultiprocessors), "140 x 64, 3 warps of 1");
  EXPECT_EQ(choice_text("172x64", kMultiprocessors), "172 x 64, 4 warps of 1");
  EXPECT_EQ(choice_text("172x64", 2 * kMultiprocessors), "172 x 64, 2 warps of 1");
  EXPECT_EQ(choice_text("180x16", 4 * kMultiprocessors), "180 x 16, 4 warps of 1");
  EXPECT_EQ(choice_text("180x16", 8 * kMultiprocessors), "180 x 16, 2 warps of 1");
  EXPECT_EQ(choice_text("20x256", 2 * kMultiprocessors), "20 x 256, 4 warps of 2");
  EXPECT_EQ(choice_text("20x256", 2 * kMultiprocessors + 1), "80 x 64, 1 warps of 1");
  EXPECT_EQ(choice_text("28x256", 32 * kMultiprocessors), "28 x 256, 4 warps of 2");
  EXPECT_EQ(choice_text("36x256", 8 * kMultiprocessors), "36 x 256, 4 warps of 1");
  EXPECT_EQ(choice_text("28x512", 8 * kMultiprocessors), "28 x 512, 8 warps of 2");
  EXPECT_EQ(choice_text("36x512", 4 * kMultiprocessors), "36 x 512, 8 warps of 1");
}

TEST(WarpKroneckerPlan, EveryLaunchFitsAMultiprocessor) {
  const auto check = [](const WarpLaunch& launch) {
    EXPECT_LE(launch.threads(), launch.hands_out() ? 32 * launch.parts() : 128);
    EXPECT_GE(launch.threads() * launch.resident_blocks(), 32);
    EXPECT_LE(4 * launch.exchange_words(), 99 * 1024) << "the least that a block may have";
    EXPECT_LE(launch.teams, launch.rounds()) << "no team without a block";
    EXPECT_EQ(launch.threads(),
              32 * launch.warps_per_row() * launch.rows_per_block() / launch.rows_per_warp());
    EXPECT_TRUE(launch.warps_per_row() == 1 || launch.rows_per_block() == launch.rows_per_warp())
        << "the block's barrier";
  };
  std::ranges::for_each(kLaunches, check);
  // What a refusal says of the orders that there are launches for.
  const auto orders = [](int columns) {
    int least = kMostOrder, most = 0;
    for (const WarpLaunch& launch : kLaunches) {
      if (launch.columns != columns) continue;
      least = std::min(least, 16 * launch.k_steps - 15);
      most = std::max(most, 16 * launch.k_steps);
    }
    return std::pair{least, most};
  };
  for (const int columns : {16, 32, kColumns})
    EXPECT_EQ(orders(columns), std::pair(1, kMostOrder)) << columns;
  EXPECT_EQ(orders(128), std::pair(65, kMostOrderOfTwo));
  EXPECT_EQ(orders(256), std::pair(17, 112));
  EXPECT_EQ(orders(512), std::pair(17, 112));
  EXPECT_EQ(orders(1024), std::pair(33, 64));
  for (const WarpLaunch& launch : kLaunches) {
    EXPECT_GE(part_of_object(launch), 0);
    EXPECT_LT(part_of_object(launch), kObjectParts);
  }
}

TEST(WarpKroneckerPlan, EveryLaunchIsTakenForSomeNumberOfRows) {
  for (const WarpLaunch& launch : kLaunches) {
    bool is_taken = false;
    for (const std::string& text : operators()) {
      const Operator op = parse_operator(text);
      const std::optional<WarpCut> cut = cut_for(op, launch);
      if (!cut) continue;
      const std::int64_t most = std::int64_t{launch.most_rows_per_multiprocessor(cut->shape.order)} * 132;
      is_taken = is_taken || choice_for(op, most, 132)->launch == launch;
    }
    EXPECT_TRUE(is_taken) << launch.k_steps << " steps, " << launch.columns << " columns";
  }
}

// Bits are promised to be those of any number of rows where no launch for fewer rows has another cut.
TEST(WarpKroneckerPlan, RowsOfOneCutHaveOneSetOfBits) {
  for (const char* op : {"12x64", "28x128", "108x64", "28x32", "140x64", "108x128", "12x1024", "44x256",
                         "52x256", "68x256", "44x512", "28x1024", "68x512", "36x1024", "52x1024"})
    EXPECT_TRUE(has_one_cut(parse_operator(op))) << op;
  for (const char* op : {"20x256", "28x256", "36x256", "20x512", "28x512", "36x512", "20x1024"})
    EXPECT_FALSE(has_one_cut(parse_operator(op))) << op;
}

TEST(WarpKroneckerPlan, EveryOperatorHasALaunchForManyRows) {
  for (const std::string& op : operators())
    EXPECT_NE(choice_text(op.c_str(), std::int64_t{1} << 31), "none") << op;
}

// What one round sends, and the next one while the slower warp still reads, lies in words of its own.
TEST(WarpKroneckerPlan, ExchangesOfTwoRoundsLieApart) {
  for (const WarpLaunch& launch : kLaunches) {
    if (launch.exchange_words() == 0 || launch.hands_out()) continue;
    std::set<int> words;
    for (int round = 0; round < 2; ++round) {
      for (int warp = 0; warp < 2; ++warp) {
        for (int lane = 0; lane < 32; ++lane) {
          for (int i = 0; i < 4; ++i) {
            for (int pair = 0; pair < 4; ++pair)
              words.insert(exchanged_word(round, warp, pair, lane) + i);
          }
        }
      }
    }
    EXPECT_EQ(words.size(), static_cast<std::size_t>(launch.exchange_words()));
    EXPECT_EQ(*words.begin(), 0);
    EXPECT_EQ(*words.rbegin(), launch.exchange_words() - 1);
  }
}

// Of many parts: what each warp hands out lies apart, and the threads take all of it, each number once.
TEST(WarpKroneckerPlan, ManyPartsTakeWhatIsHandedOut) {
  for (const WarpLaunch& launch : kLaunches) {
    if (!launch.hands_out()) continue;
    std::set<int> handed, taken;
    for (int round = 0; round < launch.exchange_buffers(); ++round) {
      for (int part = 0; part < launch.parts(); ++part) {
        for (int lane = 0; lane < 32; ++lane) {
          for (int at = 0; at < 8 * launch.together; ++at) {
            const int b = at / 8, i = at / 2 % 4, quad = handed_quad(i, lane) + at % 2;
            handed.insert(handed_word(launch, round, part, handed_row(b, i, lane), quad));
          }
        }
        for (int take = 0; take < launch.takes(); ++take) {
          for (int thread = 0; thread < launch.threads(); ++thread) {
            const int row = taken_row(launch, take, thread), first = taken_column(launch, thread);
            for (int column = first; column < first + launch.taken_columns(); ++column)
              taken.insert(handed_word(launch, round, part, row, column / 4) + column % 4);
          }
        }
      }
    }
    EXPECT_EQ(handed.size(),
              static_cast<std::size_t>(launch.exchange_buffers() * 4 * launch.together * launch.columns));
    EXPECT_EQ(taken.size(), 4 * handed.size());
    for (const int quad : handed) {
      EXPECT_EQ(quad % 4, 0);
      for (int i = 0; i < 4; ++i)
        EXPECT_TRUE(taken.contains(quad + i)) << quad;
    }
    EXPECT_LT(*taken.rbegin(), launch.exchange_words());
  }
}

// Eight lanes at a time hand out or take 16 bytes each, sixteen lanes 8 bytes: in all banks, none twice.
TEST(WarpKroneckerPlan, ManyPartsMeetInNoBank) {
  const auto expect_all_banks = [](int lanes, int words_of_lane, const auto& word_of) {
    for (int first = 0; first < 32; first += lanes) {
      std::set<int> banks;
      for (int lane = first; lane < first + lanes; ++lane)
        for (int i = 0; i < words_of_lane; ++i)
          banks.insert((word_of(lane) + i) % 32);
      EXPECT_EQ(banks.size(), 32U) << first;
    }
  };
  for (const WarpLaunch& launch : kLaunches) {
    if (!launch.hands_out()) continue;
    for (int i = 0; i < 4; ++i) {
      expect_all_banks(8, 4, [&](int lane) {
        return handed_word(launch, 0, 1, handed_row(0, i, lane), handed_quad(i, lane));
      });
    }
    const int at_once = std::min(4, launch.taken_columns());
    for (int warp = 0; warp < launch.parts(); ++warp) {
      expect_all_banks(32 / at_once, at_once, [&](int lane) {
        const int thread = 32 * warp + lane, column = taken_column(launch, thread);
        return handed_word(launch, 0, 1, taken_row(launch, 0, thread), column / 4) + column % 4;
      });
    }
  }
}

// A warp stores whole lines of 128 bytes: 64 columns of one part.
TEST(WarpKroneckerPlan, ManyPartsStoreWholeLines) {
  for (const WarpLaunch& launch : kLaunches) {
    if (!launch.hands_out()) continue;
    for (int thread = 0; thread < launch.threads(); thread += kColumns / launch.taken_columns()) {
      for (int i = 0; i < kColumns / launch.taken_columns(); ++i) {
        EXPECT_EQ(taken_row(launch, 0, thread + i), taken_row(launch, 0, thread));
        EXPECT_EQ(taken_column(launch, thread + i), launch.taken_columns() * i);
      }
    }
  }
}

// Every warp-wide load and store is of whole sectors: 64 consecutive bytes of a row of the problem at least,
// 32 with fewer than 64 columns.
TEST(WarpKroneckerPlan, LanesMeetInWholeSectors) {
  for (const int columns : {16, 32, 64, 128}) {
    const int pieces = columns < kColumns ? 2 : 4;
    for (int i = 0; i < 4; ++i) {
      std::set<int> loaded, stored;  // vectors of rows that lie 2^20 vectors apart
      const auto at = [&](int slot, int byte) { return (slot / vectors_per_row(columns) << 20) + byte / 16; };
      for (int lane = 0; lane < 32; ++lane) {
        loaded.insert(at(loaded_slot(columns, lane), loaded_byte(columns, 0, i, 0, lane)));
        stored.insert(at(stored_slot(columns, i, lane), stored_byte(columns, 0, i, 0, lane)));
      }
      EXPECT_EQ(loaded.size(), 32U);
      EXPECT_EQ(stored.size(), 32U);
      for (const std::set<int>& vectors : {loaded, stored}) {
        for (const int vector : vectors)
          for (int piece = 0; piece < pieces; ++piece)
            EXPECT_TRUE(vectors.contains(vector / pieces * pieces + piece)) << columns << " " << vector;
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
  EXPECT_EQ(refusal("f16/52x1024/r5", a100_description()), "");
  expect_named("f16/28x4096/r5", "as D x 16 to 64 (D to 192)");
  expect_named("f16/180x128/r5", "128 (65 to 176), 256 or 512 (17 to 112), 1024 (33 to 64)");
  expect_named("f32/28x512/r5", "dtype f32");
  expect_named("f16/28x512/r5>e4m3:row", "the encoding e4m3:row");
  expect_named("f16/28x512/r5/ld14340", "row_stride=14340");
  DeviceInfo none;
  EXPECT_EQ(refusal("f16/28x512/r5", none), none.why_no_cuda);
}

}  // namespace
}  // namespace fwht::warp_kronecker
