// The kernel on the host: its index maps through every byte of shared memory, every lane and register, with
// the instructions it uses emulated from the PTX ISA's fragment layouts and the model of the tensor core's
// sums.
#include "variants/mma_kronecker/mma_kronecker.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <vector>

#include "common/host/bits.hpp"
#include "variants/kit/box_vectors.hpp"
#include "variants/kit/dense_fragments.hpp"
#include "variants/kit/on_host/host_products.hpp"

namespace fwht::mma_kronecker {
namespace {

using reference::InputClass;
using rows::flipped;
using rows::HiLo;
using rows::matrix_problem;
using rows::ProductTile;
using rows::Words;

using Shared = std::vector<std::uint16_t>;

/// The lanes that shared memory serves together, 128 bytes, in different banks.
void expect_no_conflicts(const Words& addresses, int bytes) {
  const int together = 128 / bytes;
  for (int first = 0; first < 32; first += together) {
    std::uint32_t banks = 0;
    for (int lane = first; lane < first + together; ++lane) {
      const std::uint32_t address = addresses.at[static_cast<std::size_t>(lane)];
      ASSERT_EQ(address % static_cast<unsigned>(bytes), 0U);
      banks |= 1U << (address % 128 / static_cast<unsigned>(bytes));
    }
    ASSERT_EQ(std::popcount(banks), together);
  }
}

/// Thread blocks on a multiprocessor of `kilobytes` of shared memory, 65536 registers and kernels of 128
/// registers a thread, or of as many as leave room for so many warps.
Resident resident_on(int kilobytes, int most = 16) {
  return [=](int warps, int bytes) {
    return bytes > kilobytes * 1024 ? 0 : std::min((kilobytes + 1) * 1024 / (bytes + 1024), most / warps);
  };
}
Resident resident_on(int kilobytes, const Cut& cut) {
  return resident_on(kilobytes, std::max(16, most_warps(cut.columns_at_once())));
}

Cut cut_of(const Operator& op, Results results = Results::rows) {
  Cut cut = cut_for(op).value();
  cut.results = results;
  return cut;
}

/// One block of the kernel: the plan's choices, and the steps of rows_by_mma, or those of codes_by_mma up to
/// the rounded numbers that codes are worked out of.
class HostBlock {
 public:
  HostBlock(const Problem& problem, const Operands& operands, const reference::TensorCore& core,
            const Cut& cut)
      : problem_(problem),
        cut_(cut),
        shape_(cut_.shape),
        columns_(shape_.columns),
        matrix_(cut_.is_dense() ? fragments_of(cut_, operands.dense)
                                : rows::sign_table(shape_, shape_.order, cut_.slow)),
        second_(rows::second_table(shape_.second, cut_.second)),
        in_(static_cast<const std::uint16_t*>(operands.in)),
        out_(static_cast<std::uint16_t*>(operands.out)),
        flips_(static_cast<const std::uint8_t*>(operands.signs)),
        products_(problem.dtype(), core),
        team_(team_for(cut_, resident_on(227, cut_), 1000, 132)),
        shared_(static_cast<std::size_t>(cut_.shared_bytes(team_.warps, 1) / 2), 0xFFFFU) {
    clear_behind_matrix();
  }

  void run(int tile) {
    load(tile);
    const int passes = cut_.passes(team_.warps);
    for (int pass = 0; pass < passes; ++pass) {
      const int first = pass * team_.warps * cut_.blocks_at_once,
                end = std::min(first + team_.warps * cut_.blocks_at_once, shape_.k_steps());
      std::vector<Accumulators> of_warps;  // all have read the tile before the first stages its box
      for (int block = first; block < end; ++block)
        of_warps.push_back(products(block));
      for (int block = first; block < end; ++block) {
        const Accumulators& d = of_warps[static_cast<std::size_t>(block - first)];
        if (cut_.results == Results::rows) {
          store(tile, block, (block - first) / cut_.blocks_at_once, d);
        } else {
          stage_box(staged_box(block), d);
        }
        if (cut_.results == Results::codes_of_groups) read_box(tile, block);
      }
    }
    if (cut_.results == Results::codes_of_rows) {
      for (int block = 0; block < shape_.k_steps(); ++block)
        read_box(tile, block);
    }
    if (cut_.results != Results::rows && passes == 1) clear_behind_matrix();
  }

 private:
  using Accumulators = std::vector<ProductTile>;  // of the column tiles

  static std::vector<std::uint32_t> fragments_of(const Cut& cut, const void* entries) {
    const rows::DenseFactor factor{static_cast<const std::uint16_t*>(entries),
                                   static_cast<int>(cut.slow.order), cut.shape.order, cut.slow.transposed};
    std::vector<std::uint32_t> words;
    for (int i = 0; i < cut.fragment_words(); ++i)
      words.push_back(rows::fragment_word(factor, cut.shape.k_steps(), i));
    return words;
  }

  int box(int step) const { return step * shape_.box_bytes(); }
  bool exists(int tile, int row, int line) const {
    return line < shape_.order && tile * shape_.rows + row < problem_.rows;
  }
  std::int64_t element(const Array& array, int tile, int row) const {
    return (std::int64_t{tile} * shape_.rows + row) * array.row_stride;
  }
  std::uint16_t& at(int byte) { return shared_.at(static_cast<std::size_t>(byte / 2)); }
  const std::uint8_t* flips_first() const { return problem_.op.signs_come_last() ? nullptr : flips_; }
  const std::uint8_t* flips_last() const { return problem_.op.signs_come_last() ? flips_ : nullptr; }

  void clear_behind_matrix() {
    for (int i = 0; i < shape_.box_bytes() / 16; i += 32) {
      for (int lane = 0; lane < 32; ++lane) {
        const int last = shape_.k_steps() - 1;
        if (16 * last + loaded_line(columns_, i, lane) < shape_.order) continue;
        for (int e = 0; e < 8; ++e)
          at(box(last) + loaded_place(columns_, i).from(loaded_first(columns_, lane)) + 2 * e) = 0;
      }
    }
  }

  void load(int tile) {
    for (int step = 0; step < shape_.k_steps(); ++step) {
      for (int i = 0; i < shape_.box_bytes() / 16; i += 32) {
        Words to;
        for (int lane = 0; lane < 32; ++lane) {
          const int row = loaded_row(columns_, i), line = 16 * step + loaded_line(columns_, i, lane);
          const int byte = box(step) + loaded_place(columns_, i).from(loaded_first(columns_, lane));
          to.at[static_cast<std::size_t>(lane)] = static_cast<std::uint32_t>(byte);
          if (!exists(tile, row, line)) continue;
          const int first =
              16 * columns_ * step + (loaded_from(columns_, lane) + loaded_bytes(columns_, i)) / 2;
          for (int e = 0; e < 8; ++e) {
            at(byte + 2 * e) =
                flipped(in_[element(problem_.in, tile, row) + first + e], flips_first(), first + e);
          }
        }
        expect_no_conflicts(to, 16);
      }
    }
  }

  Accumulators products(int block) {
    const int tiles = shape_.tile_columns() / 8;
    Accumulators d(static_cast<std::size_t>(tiles));
    for (int step = 0; step < shape_.k_steps(); ++step) {
      Words a[4];
      operand_a(a, block, step);
      for (int tile = 0; tile < tiles; tile += 2) {
        const Words addresses = Words::from([&](std::size_t lane) {
          return static_cast<std::uint32_t>(
              box(step) +
              operand_place(columns_, tile).from(operand_first(columns_, static_cast<int>(lane))));
        });
        expect_no_conflicts(addresses, 16);
        Words b[4];
        for (int q = 0; q < 4; ++q)
          b[q] = rows::ldmatrix_trans_on_host(shared_, addresses, q);
        const auto first = static_cast<std::size_t>(tile);
        products_.multiply_add(d[first], a, {b[0], b[1]});
        products_.multiply_add(d[first + 1], a, {b[2], b[3]});
      }
    }
    butterflies(d);
    if (shape_.second > 1) {
      multiply_by_second(d);
    } else {
      for (ProductTile& x : d)
        products_.eight_point_stage(x, [](int lane) { return lane; });
    }
    return d;
  }

  void operand_a(Words (&a)[4], int block, int step) const {
    const int k_steps = shape_.k_steps();
    if (!cut_.is_dense()) return rows::signs_on_host(a, matrix_, problem_.dtype(), k_steps, block, step);
    for (int r = 0; r < 4; ++r) {
      a[r] = Words::from([&](std::size_t lane) {
        const int index = rows::fragment_index(k_steps, block, step, static_cast<int>(lane)) + r;
        return matrix_.at(static_cast<std::size_t>(index));
      });
    }
  }

  /// register_butterflies<4 or second / 2, columns / 2>, column tile by column tile.
  void butterflies(Accumulators& d) const {
    for (int half = shape_.second == 1 ? 1 : shape_.second / 8; half < columns_ / 8; half *= 2) {
      for (std::size_t tile = 0; tile < d.size(); ++tile) {
        const auto other = tile + static_cast<std::size_t>(half);
        if (tile / static_cast<std::size_t>(half) % 2 != 0) continue;
        rows::butterfly(d[tile], d.at(other));
      }
    }
  }

  /// rows::finish_by_second.
  void multiply_by_second(Accumulators& d) const {
    const auto tiles = static_cast<std::size_t>(shape_.second / 8);
    for (std::size_t first = 0; first < d.size(); first += tiles) {
      std::vector<HiLo> halves;
      for (std::size_t from = 0; from < tiles; ++from)
        halves.push_back(products_.split(d[first + from]));
      for (std::size_t to = 0; to < tiles; ++to) {
        ProductTile& x = d[first + to];
        x = {};
        for (std::size_t from = 0; from < tiles; ++from) {
          const Words b = Words::from([&](std::size_t lane) {
            return second_.at(static_cast<std::size_t>(rows::second_word_index(
                shape_.second, static_cast<int>(to), static_cast<int>(from), static_cast<int>(lane))));
          });
          products_.multiply_halves(x, halves[from], b);
        }
      }
    }
  }

  /// Results of a tile of 16 x 8 on their way: byte_of(half, lane) is where two of them go.
  template <class ByteOf>
  void stage(const ProductTile& d, const ByteOf& byte_of) {
    const auto scale = static_cast<float>(problem_.scale);
    for (int half = 0; half < 2; ++half) {
      Words to;
      for (int lane = 0; lane < 32; ++lane) {
        const int byte = byte_of(half, lane);
        to.at[static_cast<std::size_t>(lane)] = static_cast<std::uint32_t>(byte);
        for (std::size_t i = 0; i < 2; ++i) {
          const float x = d[2 * static_cast<std::size_t>(half) + i].at[static_cast<std::size_t>(lane)];
          at(byte + 2 * static_cast<int>(i)) =
              static_cast<std::uint16_t>(encode(problem_.dtype(), x * scale));
        }
      }
      expect_no_conflicts(to, 4);
    }
  }

  void store(int tile, int block, int warp, const Accumulators& d) {
    const int staging = shape_.tile_bytes() + warp * staging_bytes(shape_), chunk = chunk_of(shape_),
              tiles = chunk / 8;
    for (int t = 0; t < static_cast<int>(d.size()); ++t) {
      stage(d[static_cast<std::size_t>(t)], [&](int half, int lane) {
        return staging + staged_place(columns_, t % tiles, half).from(staged_first(columns_, lane));
      });
      if (t % tiles == tiles - 1) send(tile, block, staging, t / tiles * chunk);
    }
  }

  void send(int tile, int block, int staging, int first) {
    for (int i = 0; i < staging_bytes(shape_) / 16; i += 32) {
      for (int lane = 0; lane < 32; ++lane) {
        const int row = sent_row(columns_, first, i), line = 16 * block + sent_line(columns_, i, lane);
        if (!exists(tile, row, line)) continue;
        const int begin =
            16 * columns_ * block + sent_place(columns_, first, i).from(sent_first(columns_, lane)) / 2;
        for (int e = 0; e < 8; ++e) {
          out_[element(problem_.out, tile, row) + begin + e] =
              flipped(at(staging + 16 * (i + lane) + 2 * e), flips_last(), begin + e);
        }
      }
    }
  }

  /// Where codes_by_mma stages the box of a block.
  int staged_box(int block) const {
    if (cut_.staged_boxes(team_.warps) == 0) return box(block);
    const int place = cut_.results == Results::codes_of_rows ? block : block % team_.warps;
    EXPECT_LT(place, cut_.staged_boxes(team_.warps));
    return shape_.tile_bytes() + box(place);
  }

  void stage_box(int staging, const Accumulators& d) {
    for (int t = 0; t < static_cast<int>(d.size()); ++t) {
      stage(d[static_cast<std::size_t>(t)], [&](int half, int lane) {
        return boxed_place(columns_, t, half).from(staging + boxed_first(columns_, lane));
      });
    }
  }

  /// BoxEncoder::read, and its Places: what a lane has of each vector, and where its codes go.
  void read_box(int tile, int block) {
    const int left = std::min(shape_.order - 16 * block, 16) * columns_, line = shape_.line();
    const bool in_lines = rows::lies_in_lines(columns_);
    const int vectors = columns_ / 16, read = in_lines ? vectors : (vectors + 3) / 4 * 4;  // four in a chunk
    for (int row = 0; row < shape_.rows; ++row) {
      for (int v = 0; v < read; ++v) {
        Words from;
        for (int lane = 0; lane < 32; ++lane) {
          const int first = staged_box(block) + rows::vector_byte(columns_, line, 0, 0, lane);
          const int byte = in_lines ? (first ^ rows::vector_flip(columns_, line, v)) +
                                          rows::vector_offset(columns_, line, row, v)
                                    : staged_box(block) + rows::vector_byte(columns_, line, 0,
                                                                            std::min(v, vectors - 1), lane);
          from.at[static_cast<std::size_t>(lane)] = static_cast<std::uint32_t>(byte);
          const int in_box = 256 * v + 8 * lane, column = 16 * columns_ * block + in_box;
          if (in_box >= left || tile * shape_.rows + row >= problem_.rows) continue;
          for (int e = 0; e < 8; ++e) {
            out_[element(problem_.out, tile, row) + column + e] =
                flipped(at(byte + 2 * e), flips_last(), column + e);
          }
        }
        expect_no_conflicts(from, 16);
      }
    }
  }

  Problem problem_;
  Cut cut_;
  Shape shape_;
  int columns_;
  std::vector<std::uint32_t> matrix_, second_;
  const std::uint16_t* in_;
  std::uint16_t* out_;
  const std::uint8_t* flips_;
  rows::HostProducts products_;
  Team team_;
  Shared shared_;
};

/// In all tiles that the rows may come in.
void expect_right(const Problem& problem, InputClass input_class, const reference::TensorCore& core,
                  Results results = Results::rows) {
  for (const Cut& cut : tilings_of(cut_of(problem.op, results))) {
    rows::expect_right(problem, input_class, [&](const Operands& operands) {
      HostBlock block(problem, operands, core, cut);
      for (int tile = 0; tile * std::int64_t{cut.shape.rows} < problem.rows; ++tile)
        block.run(tile);
    });
  }
}

/// Every named order that the variant takes, with as short rows as it takes, and as long.
std::vector<std::string> operators() {
  return {"12x64", "12x128", "12x512", "12x1024", "12x2048", "20x64", "20x128", "20x256", "20x1024", "28x32",
          "28x64", "28x128", "28x256", "28x512", "28x1024", "36x64", "44x32", "52x64", "60x32", "68x16",
          "76x64", "84x64", "100x32", "108x128", "116x64", "116tx64", "124x16", "132x16", "140x64", "148x16",
          "156x16", "164x16", "172x64", "180x16", "428x32", "428tx16", "428x64", "36x1024", "52x1024",
          "4096+signs", "signs+28x128", "28x128+signs", "16384", "32768", "65536",
          // Two matrices, dense factors; orders that are no multiple of 16, transposes, signs.
          "76x2x36x2", "60x4x28x2", "132x4x28x2", "116tx4x28x2", "28x8x28tx2", "12x4x36tx2+signs", "d28x64",
          "d5tx256", "d53x256", "d53tx16", "d20x512+signs", "d256x16"};
}

class MmaKronecker : public ::testing::TestWithParam<std::string> {};

TEST_P(MmaKronecker, IntegersAreExact) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    const std::int64_t rows = cut_for(parse_operator(GetParam()))->shape.rows;
    // Not a multiple of the rows in a tile, so that the last tile lacks some.
    expect_right(matrix_problem(dtype, GetParam(), rows + 1), InputClass::integers,
                 reference::kAmpereTensorCore);
  }
}

TEST_P(MmaKronecker, OneRoundingOfRandomRows) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    for (const reference::TensorCore& core : {reference::kAmpereTensorCore, reference::kHopperTensorCore})
      expect_right(matrix_problem(dtype, GetParam(), 2), InputClass::normal, core);
  }
}

// Tile after tile in the same shared memory, so that what one leaves there meets the next.
TEST_P(MmaKronecker, CodesAreMadeOfTheSameNumbers) {
  const Cut cut = cut_of(parse_operator(GetParam()));
  for (const Results results : {Results::codes_of_groups, Results::codes_of_rows}) {
    const Cut of_codes = cut_of(parse_operator(GetParam()), results);
    if (team_for(of_codes, resident_on(227), 1000, 132).blocks_per_sm == 0) continue;
    expect_right(matrix_problem(Dtype::f16, GetParam(), cut.shape.rows + 1), InputClass::integers,
                 reference::kAmpereTensorCore, results);
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, MmaKronecker, ::testing::ValuesIn(operators()), rows::name_of_operator);

TEST(MmaKroneckerPlan, RowStridesLeaveGaps) {
  Problem problem = matrix_problem(Dtype::f16, "28x128", 3);
  problem.placement = Placement::out_of_place;
  problem.in.row_stride = 3584 + 8;
  problem.out.row_stride = 3584 + 64;
  expect_right(problem, InputClass::integers, reference::kAmpereTensorCore);
}

TEST(MmaKroneckerPlan, OperatorsAreCutForTheLeastWork) {
  const auto text_of_cut = [](const char* op) {
    const std::optional<Cut> cut = cut_for(parse_operator(op));
    return cut ? std::to_string(cut->shape.order) + " x " + std::to_string(cut->shape.columns) : "none";
  };
  EXPECT_EQ(text_of_cut("12x128"), "48 x 32");
  EXPECT_EQ(text_of_cut("12x1024"), "96 x 128");
  EXPECT_EQ(text_of_cut("20x256"), "80 x 64");
  EXPECT_EQ(text_of_cut("28x512"), "112 x 128");
  EXPECT_EQ(text_of_cut("28x1024"), "112 x 256");
  EXPECT_EQ(text_of_cut("180x16"), "180 x 16");
  EXPECT_EQ(text_of_cut("428x32"), "428 x 32");
  EXPECT_EQ(text_of_cut("32768"), "128 x 256");
  EXPECT_EQ(text_of_cut("65536"), "256 x 256");
  EXPECT_EQ(text_of_cut("76x2x36x2"), "76 x 144");
  EXPECT_EQ(text_of_cut("60x4x28x2"), "60 x 224");
  EXPECT_EQ(text_of_cut("132x4x28x2"), "132 x 224");
  EXPECT_EQ(text_of_cut("d53x256"), "106 x 128");
  for (const char* op : {"28x8", "76x2x20x2", "d28x28x2", "28xd16", "131072"})
    EXPECT_EQ(text_of_cut(op), "none") << op;
}

TEST(MmaKroneckerPlan, SharedMemoryDecidesNotTheName) {
  DeviceInfo ada = a100_description();
  ada.name = "NVIDIA L40S (described)";
  ada.compute_minor = 9;
  ada.shared_bytes_per_block = std::int64_t{99} * 1024;
  const auto takes = [](const std::string& op, const DeviceInfo& device) {
    return variant.supports(matrix_problem(Dtype::f16, op, 5), device);
  };
  for (const char* op :
       {"28x1024", "32768", "36x1024", "172x64", "180x16", "428x64", "76x2x36x2", "132x4x28x2", "d53x256"}) {
    EXPECT_TRUE(takes(op, ada)) << op;
    EXPECT_TRUE(takes(op, a100_description())) << op;
  }
  for (const char* op : {"65536", "428x128", "52x1024"}) {
    const Support answer = takes(op, ada);
    EXPECT_NE(answer.why_not.find("bytes of shared memory per block, this device allows 101376"),
              std::string::npos)
        << op << ": " << answer.why_not;
    EXPECT_TRUE(takes(op, a100_description())) << op;
  }
  DeviceInfo turing = ada;
  turing.compute_major = 7, turing.compute_minor = 5;
  EXPECT_NE(takes("28x512", turing).why_not.find("at least 8.0 is needed"), std::string::npos);
  DeviceInfo none;
  EXPECT_EQ(takes("28x512", none).why_not, none.why_no_cuda);
}

TEST(MmaKroneckerPlan, CodesFitSmallDevices) {
  DeviceInfo ada = a100_description();
  ada.compute_minor = 9;
  ada.shared_bytes_per_block = std::int64_t{99} * 1024;
  const auto takes = [](const std::string& op, const char* encoding, const DeviceInfo& device) {
    const Problem rows = matrix_problem(Dtype::f16, op, 5);
    return variant.supports(parse_problem(to_string(rows) + ">" + encoding), device);
  };
  for (const char* op : {"12x64", "180x16", "172x64", "28x512", "28x1024", "signs+28x128", "32768",
                         "76x2x36x2", "60x4x28x2+signs", "d53x256", "d5tx256"}) {
    for (const char* encoding :
         {"e4m3:row", "e4m3:64,mn", "int8:row", "int4:32", "mxfp8", "mxfp4:128x4", "nvfp4:128x4"}) {
      EXPECT_TRUE(takes(op, encoding, ada)) << op << " " << encoding;
      EXPECT_TRUE(takes(op, encoding, h200_description())) << op << " " << encoding;
    }
  }
  // Nine blocks of 256 columns take two passes, so that all boxes of a row lie beside its tile.
  EXPECT_TRUE(takes("36x1024", "int8:128", ada));
  EXPECT_NE(takes("36x1024", "int8:row", ada).why_not.find("n=36864 needs 147492 bytes"), std::string::npos)
      << takes("36x1024", "int8:row", ada).why_not;
  EXPECT_TRUE(takes("36x1024", "int8:row", a100_description()));
  EXPECT_TRUE(takes("132x4x28x2", "e4m3:128", ada));
  EXPECT_NE(takes("132x4x28x2", "e4m3:row", ada).why_not.find("n=29568 needs 136228 bytes"),
            std::string::npos)
      << takes("132x4x28x2", "e4m3:row", ada).why_not;
  EXPECT_TRUE(takes("132x4x28x2", "e4m3:row", a100_description()));
  for (const char* encoding : {"e4m3:row/f32", "e4m3:tensor", "int4:row,quarot"}) {
    EXPECT_NE(takes("28x512", encoding, ada).why_not.find("rows are rounded to f16 first"), std::string::npos)
        << takes("28x512", encoding, ada).why_not;
  }
}

TEST(MmaKroneckerPlan, BoxesOfCodesLieWhereNothingElseDoes) {
  const auto shape = [](const char* op, Results results) {
    const Cut cut = cut_of(parse_operator(op), results);
    const Team team = team_for(cut, resident_on(227), 4681, 132);
    return std::array{team.warps, cut.passes(team.warps), cut.staged_boxes(team.warps)};
  };
  EXPECT_EQ(shape("28x512", Results::codes_of_groups), (std::array{4, 2, 4})) << "a box for each warp";
  EXPECT_EQ(shape("28x512", Results::codes_of_rows), (std::array{7, 1, 0})) << "in place of the tile";
  EXPECT_EQ(shape("36x1024", Results::codes_of_rows), (std::array{5, 2, 9})) << "all boxes of a row";
  EXPECT_EQ(shape("180x16", Results::codes_of_rows), (std::array{6, 2, 12}))
      << "two blocks, not one of 12 warps";
}

// flip_signs_of_rows takes the elements from 8 i on as vector_byte has them, for all i of a box.
TEST(MmaKroneckerPlan, BoxesOfTwoMatricesLieRowAfterRow) {
  for (const TwoMatrices& two : kTwoMatrices) {
    const int columns = two.columns, line = line_of(columns);
    std::vector<int> written;
    for (int tile = 0; tile < columns / 8; ++tile) {
      for (int half = 0; half < 2; ++half) {
        for (int lane = 0; lane < 32; ++lane) {
          const int row = lane / 4 + 8 * half, pieces_before = (row * columns + 8 * tile) / 8;
          const int byte = boxed_place(columns, tile, half).from(boxed_first(columns, lane));
          EXPECT_EQ(byte, rows::vector_byte(columns, line, 0, 0, pieces_before) + lane % 4 * 4);
          written.push_back(byte);
        }
      }
    }
    std::ranges::sort(written);
    for (int word = 0; word < 8 * columns; ++word)
      ASSERT_EQ(written.at(static_cast<std::size_t>(word)), 4 * word) << "of " << columns << " columns";
  }
}

TEST(MmaKroneckerPlan, BlocksFitTheirBounds) {
  for (const std::string& op : operators()) {
    for (const Results results : {Results::rows, Results::codes_of_groups, Results::codes_of_rows}) {
      const Cut cut = cut_of(parse_operator(op), results);
      if (cut.fewest_shared_bytes() > 227 * 1024) continue;
      for (const Cut& tiling : tilings_of(cut)) {
        const Resident resident = resident_on(227, tiling);
        for (const std::int64_t tiles : {1, 1000}) {
          const Team team = team_for(tiling, resident, tiles, 132);
          EXPECT_LE(team.warps, most_warps(tiling.columns_at_once())) << op;
          EXPECT_GE(team.warps * tiling.passes(team.warps) * tiling.blocks_at_once, tiling.blocks()) << op;
          EXPECT_GE(team.blocks_per_sm, 1) << op;
          EXPECT_EQ(team.blocks_per_sm, resident(team.warps, tiling.shared_bytes(team.warps, team.slots)))
              << op;
        }
        EXPECT_EQ(tiling.shape.box_bytes() % 128, 0) << "the swizzle exchanges address bits 4 to 6";
      }
      EXPECT_LE(cut.shape.k_steps(), 32) << "a lane looks at the maxima of a box";
    }
  }
}

TEST(MmaKroneckerPlan, TeamsKeepMostWarpsAtWork) {
  const auto team = [](const char* op, std::int64_t tiles, int kilobytes) {
    return team_for(cut_for(parse_operator(op)).value(), resident_on(kilobytes), tiles, 132);
  };
  // 112 x 128 is seven blocks of 16 rows: four times four warps in two passes do not wait for each other as
  // two times seven do.
  EXPECT_EQ(team("28x512", 4681, 227), (Team{4, 1, 4}));
  EXPECT_EQ(team("28x512", 132, 227), (Team{7, 1, 2})) << "a tile for each multiprocessor: the fewest passes";
  EXPECT_EQ(team("28x512", 4681, 99), (Team{7, 1, 2})) << "99 KB hold two tiles";
  // 144 x 128, nine blocks: five warps in two passes, one of them idle in the second.
  EXPECT_EQ(team("36x512", 3640, 227), (Team{5, 1, 3}));
  EXPECT_EQ(team("12x512", 10922, 227), (Team{3, 1, 5}));
  EXPECT_EQ(team("52x1024", 1260, 227).slots, 1);
  EXPECT_EQ(team("52x1024", 1260, 64), (Team{1, 1, 0})) << "a tile has 104 KB";
}

// A block of 16 rows of the product would read signs of rows behind the matrix: the table has them.
TEST(MmaKroneckerPlan, LargeOrdersComeInNarrowTiles) {
  const auto tiling = [](const char* op, std::int64_t rows) {
    const Cut cut = tiling_for(cut_for(parse_operator(op)).value(), rows, 132);
    const Team team = team_for(cut, resident_on(227, cut), ceil_div(rows, std::int64_t{cut.shape.rows}), 132);
    EXPECT_GE(4 * cut.shape.warpgroups(), cut.shares() * cut.blocks_at_once);
    return std::array{cut.shape.rows, cut.blocks_at_once, team.warps, team.slots};
  };
  using Tiling = std::array<int, 4>;
  EXPECT_EQ(tiling("428x32", 1), (Tiling{1, 2, 14, 1}));
  EXPECT_EQ(tiling("428x32", 132), (Tiling{1, 2, 14, 1})) << "a row for each multiprocessor";
  EXPECT_EQ(tiling("428x32", 133), (Tiling{2, 1, 27, 2})) << "two, not two one after the other";
  EXPECT_EQ(tiling("428x32", 300), (Tiling{1, 2, 14, 1})) << "three turns of one, not two of two";
  EXPECT_EQ(tiling("428x32", 4899), (Tiling{2, 1, 27, 2}));
  EXPECT_EQ(tiling("428x16", 4899), (Tiling{4, 1, 27, 2}));
  EXPECT_EQ(tiling("428x64", 1), (Tiling{1, 1, 27, 2}));
  EXPECT_EQ(tiling("172x64", 1)[0], 2) << "others come in wide tiles";
}

}  // namespace
}  // namespace fwht::mma_kronecker
