// The kernel's index algebra, proven on the host: the program of every n is run lane by lane through the same
// constexpr maps and compared with H x, and, with the rounding of a tensor core, with the reference's
// emulation.
#include "variants/hadacore/hadacore.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <sstream>

#include "reference/emulation.hpp"
#include "variants/registry.hpp"

namespace fwht::hadacore {
namespace {

void add_once(std::vector<Config>& configs, const Config& config) {
  if (std::find(configs.begin(), configs.end(), config) == configs.end()) configs.push_back(config);
}

std::vector<Config> tuned_configs(int log_n) {
  std::vector<Config> configs;
  for (int regime = 0; regime < kRegimes; ++regime) {
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
      add_once(configs, tuned_config(log_n, dtype, static_cast<Regime>(regime)));
  }
  return configs;
}

std::vector<Config> launched_configs(int log_n) {
  std::vector<Config> configs = tuned_configs(log_n);
  add_once(configs, published_config(log_n));
  return configs;
}

/// Everything that is launched somewhere, and shapes a tuner may try.
std::vector<Shape> shapes_of(int log_n) {
  std::vector<Config> configs = launched_configs(log_n);
  for (const int chunks : {1, 2, 4, 8, 16}) {
    for (const int warps : {1, 2, 4, 8, 16, 32})
      configs.push_back({chunks, warps, 1});
  }
  std::vector<Shape> shapes;
  for (const Config& config : configs) {
    const Shape shape = shape_of(log_n, config);
    if (fits(shape) && std::find(shapes.begin(), shapes.end(), shape) == shapes.end())
      shapes.push_back(shape);
  }
  return shapes;
}

bool is_tuned(Shape shape) {
  const std::vector<Config> configs = tuned_configs(shape.log_n);
  return std::any_of(configs.begin(), configs.end(),
                     [&](const Config& config) { return shape == shape_of(shape.log_n, config); });
}

// ---- The lane-by-lane machine

/// One product of a 16 x 16 matrix entry row and 16 data.
using Sum = std::function<double(const std::array<double, 16>& a, const std::array<double, 16>& b)>;

double exact_sum(const std::array<double, 16>& a, const std::array<double, 16>& b) {
  double sum = 0;
  for (std::size_t k = 0; k < 16; ++k)
    sum += a[k] * b[k];
  return sum;
}

using ptx::a_column, ptx::a_row, ptx::b_column, ptx::b_row, ptx::d_column, ptx::d_row;

/// The registers of one block. A word is two numbers.
class Block {
 public:
  Block(Shape shape, Sum sum) : program_(make_program(shape)), shape_(shape), sum_(std::move(sum)) {
    words_.resize(static_cast<std::size_t>(shape.threads() * shape.words()));
  }

  /// tile: the elements of the block in index order. constants: of the scaled stage and of the others.
  std::vector<double> run(const std::vector<double>& tile, double scaled, double plain) {
    for_each_element(0, [&](double& x, std::size_t index) { x = tile[index]; });
    for (int s = 0; s < program_.steps; ++s) {
      run_step(s, program_.step[s].carries_scale ? scaled : plain);
    }
    std::vector<double> result(tile.size());
    for_each_element(program_.steps, [&](double& x, std::size_t index) { result[index] = x; });
    return result;
  }

 private:
  using Word = std::array<double, 2>;
  using Matrix = std::array<std::array<double, 16>, 16>;

  Word& word(int thread, int i) { return words_[static_cast<std::size_t>(thread * shape_.words() + i)]; }

  template <class Visit>
  void for_each_element(int at, Visit&& visit) {
    for (int thread = 0; thread < shape_.threads(); ++thread) {
      for (int i = 0; i < shape_.words(); ++i) {
        for (int half = 0; half < 2; ++half) {
          visit(word(thread, i)[static_cast<std::size_t>(half)],
                static_cast<std::size_t>(index_of(shape_, program_.before[at], thread, i, half)));
        }
      }
    }
  }

  void run_step(int s, double constant) {
    const Step& step = program_.step[s];
    switch (step.action) {
      case Action::data_as_a:
      case Action::data_as_b:
        for (int warp = 0; warp < shape_.threads() / 32; ++warp)
          run_stage(step, 32 * warp, constant);
        return;
      case Action::swap_pack:
        return swap_pack(step.a);
      case Action::swap_lane_register:
        return swap_lane_register(step.a, step.b);
      case Action::permute_lanes:
        return permute_lanes(s);
      case Action::exchange:
        return exchange(s);
    }
  }

  // The matrix, read out of the registers that the lanes hold: as operand A, and column half j as operand B.
  static double entry_of(std::uint32_t fragment, int e, double constant) {
    const std::uint32_t half = fragment >> (16 * e) & 0xFFFFU;
    return half == 0 ? 0.0 : half == 0x8001U ? -constant : half == 1U ? constant : NAN;
  }
  static Matrix matrix_as_a(unsigned transformed, double constant) {
    Matrix m;
    for (auto& row : m)
      row.fill(NAN);
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        for (int e = 0; e < 2; ++e) {
          at(m, a_row(lane, i), a_column(lane, i, e)) =
              entry_of(stage_fragment(lane, i, transformed, 1), e, constant);
        }
      }
    }
    return m;
  }
  static Matrix matrix_as_b(unsigned transformed, double constant, int j) {  // 16 x 8
    Matrix m;
    for (auto& row : m)
      row.fill(NAN);
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 2; ++i) {
        for (int e = 0; e < 2; ++e) {
          at(m, b_row(lane, i, e), b_column(lane)) =
              entry_of(stage_fragment(lane, j + 2 * i, transformed, 1), e, constant);
        }
      }
    }
    return m;
  }
  static double& at(Matrix& m, int row, int column) {
    return m[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)];
  }
  double product(const Matrix& a, const Matrix& b, int row, int column) const {
    std::array<double, 16> of_b;
    for (std::size_t k = 0; k < 16; ++k)
      of_b[k] = b[k][static_cast<std::size_t>(column)];
    return sum_(a[static_cast<std::size_t>(row)], of_b);
  }

  void run_stage(const Step& step, int first_thread, double constant) {
    const int k_bit = 1 << step.a;
    for (int i = 0; i < shape_.words(); ++i) {
      if (i & k_bit) continue;
      if (step.action == Action::data_as_b) {
        multiply_columns(step, first_thread, i, i | k_bit, constant);
      } else if (!(i & (1 << step.b))) {
        const int row_bit = 1 << step.b;
        multiply_rows(step, first_thread, {i, i | row_bit, i | k_bit, i | k_bit | row_bit}, constant);
      }
    }
  }

  void multiply_columns(const Step& step, int first_thread, int low, int high, double constant) {
    const Matrix a = matrix_as_a(step.transformed, constant);
    Matrix b;
    for (int lane = 0; lane < 32; ++lane) {
      for (int e = 0; e < 2; ++e) {
        at(b, b_row(lane, 0, e), b_column(lane)) =
            word(first_thread + lane, low)[static_cast<std::size_t>(e)];
        at(b, b_row(lane, 1, e), b_column(lane)) =
            word(first_thread + lane, high)[static_cast<std::size_t>(e)];
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      for (int e = 0; e < 2; ++e) {
        word(first_thread + lane, low)[static_cast<std::size_t>(e)] =
            product(a, b, d_row(lane, e), d_column(lane, e));
        word(first_thread + lane, high)[static_cast<std::size_t>(e)] =
            product(a, b, d_row(lane, 2 + e), d_column(lane, 2 + e));
      }
    }
  }

  /// registers: operand A's register i. Where K bits tell rows apart, one product for each of their values,
  /// with the other data zero; a lane keeps the product of its own rows.
  void multiply_rows(const Step& step, int first_thread, const std::array<int, 4>& registers,
                     double constant) {
    const int lane_bits = static_cast<int>(step.separated >> 1) & 3;
    const bool register_bit = step.separated >> 3 & 1;
    std::vector<std::array<Word, 4>> result(32);
    for (int group = 0; group < 4; ++group) {
      if (group & ~lane_bits) continue;
      for (int j = 0; j < 2; ++j) {
        const Matrix b = matrix_as_b(step.transformed, constant, j);
        Matrix a;
        for (int lane = 0; lane < 32; ++lane) {
          for (int i = 0; i < 4; ++i) {
            for (int e = 0; e < 2; ++e) {
              const bool own = (lane & lane_bits) == group && (!register_bit || i >> 1 == j);
              const Word& data = word(first_thread + lane, registers[static_cast<std::size_t>(i)]);
              at(a, a_row(lane, i), a_column(lane, i, e)) = own ? data[static_cast<std::size_t>(e)] : 0.0;
            }
          }
        }
        for (int lane = 0; lane < 32; ++lane) {
          if ((lane & lane_bits) != group) continue;
          for (int i = 0; i < 2; ++i) {
            for (int e = 0; e < 2; ++e) {
              result[static_cast<std::size_t>(lane)][static_cast<std::size_t>(2 * j + i)]
                    [static_cast<std::size_t>(e)] =
                        product(a, b, d_row(lane, 2 * i + e), d_column(lane, 2 * i + e));
            }
          }
        }
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      for (std::size_t i = 0; i < 4; ++i) {
        word(first_thread + lane, registers[i]) = result[static_cast<std::size_t>(lane)][i];
      }
    }
  }

  void swap_pack(int a) {
    for (int thread = 0; thread < shape_.threads(); ++thread) {
      for (int i = 0; i < shape_.words(); ++i) {
        if (!(i >> a & 1)) std::swap(word(thread, i)[1], word(thread, i | 1 << a)[0]);
      }
    }
  }

  void swap_lane_register(int a, int b) {
    for (int thread = 0; thread < shape_.threads(); ++thread) {
      for (int i = 0; i < shape_.words(); ++i) {
        if (!(thread >> b & 1) && !(i >> a & 1))
          std::swap(word(thread, i | 1 << a), word(thread | 1 << b, i));
      }
    }
  }

  void permute_lanes(int s) {
    const std::vector<Word> old = words_;
    for (int thread = 0; thread < shape_.threads(); ++thread) {
      int source = thread & ~31;
      for (int i = 0; i < 5; ++i) {
        const int from = program_.before[s].position_of(shape_, program_.before[s + 1].lane(i)) - kFirstLane;
        source |= (thread >> i & 1) << from;
      }
      for (int i = 0; i < shape_.words(); ++i) {
        word(thread, i) = old[static_cast<std::size_t>(source * shape_.words() + i)];
      }
    }
  }

  void exchange(int s) {
    const Layout &write = program_.before[s], &read = program_.before[s + 1];
    std::vector<std::array<Word, 4>> slots(static_cast<std::size_t>(shape_.shared_bytes() / 16));
    for (const bool writing : {true, false}) {
      for (int thread = 0; thread < shape_.threads(); ++thread) {
        for (int v = 0; v < shape_.vectors(); ++v) {
          auto& slot = slots.at(slot_of(shape_, write, read, writing ? write : read, thread, v));
          for (int i = 0; i < 4; ++i) {
            Word& own = word(thread, (v << kFirstVectorBit) + i);
            if (writing) {
              slot[static_cast<std::size_t>(i)] = own;
            } else {
              own = slot[static_cast<std::size_t>(i)];
            }
          }
        }
      }
    }
  }

  Program program_;
  Shape shape_;
  Sum sum_;
  std::vector<Word> words_;
};

std::vector<double> transformed_rows(std::vector<double> x, int log_n) {
  for (std::size_t bit = 0; bit < static_cast<std::size_t>(log_n); ++bit) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (i >> bit & 1) continue;
      const double a = x[i], b = x[i | std::size_t{1} << bit];
      x[i] = a + b;
      x[i | std::size_t{1} << bit] = a - b;
    }
  }
  return x;
}

std::vector<double> random_integers(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int> distribution(-1000, 1000);
  std::vector<double> x(count);
  for (double& value : x)
    value = distribution(generator);
  return x;
}

std::string text_of(Shape shape) {
  return "n=" + std::to_string(1 << shape.log_n) + " chunks=" + std::to_string(shape.vectors()) +
         " warps=" + std::to_string(1 << shape.log_warps);
}

class HadacoreSizes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(LogN, HadacoreSizes, ::testing::Range(1, kLargestLogN + 1));

// ---- Maps

TEST(HadacoreFragments, MatrixHasTheSylvesterSigns) {
  for (unsigned transformed = 1; transformed < 16; ++transformed) {
    for (unsigned m = 0; m < 16; ++m) {
      for (unsigned k = 0; k < 16; ++k) {
        const bool same_block = (m & ~transformed) == (k & ~transformed);
        EXPECT_EQ(stage_entry(m, k, transformed), same_block ? hadamard_sign(m & transformed, k) : 0);
      }
    }
  }
}

TEST_P(HadacoreSizes, EveryLayoutIsABijection) {
  for (const Shape shape : shapes_of(GetParam())) {
    const Program program = make_program(shape);
    for (int at = 0; at <= program.steps; ++at) {
      std::vector<bool> seen(std::size_t{1} << shape.tile_bits());
      for (int thread = 0; thread < shape.threads(); ++thread) {
        for (int i = 0; i < 2 * shape.words(); ++i) {
          const auto index =
              static_cast<std::size_t>(index_of(shape, program.before[at], thread, i / 2, i % 2));
          ASSERT_LT(index, seen.size());
          ASSERT_FALSE(seen[index]) << text_of(shape) << " step " << at;
          seen[index] = true;
        }
      }
    }
  }
}

// A thread's four words are 8 neighbouring elements at a multiple of 8, two neighbouring lanes make a whole
// 32-byte sector, and a warp's access touches no more 128-byte lines than g and t bits above a line demand.
TEST_P(HadacoreSizes, LoadsAndStoresAreWholeSectorsOfAlignedVectors) {
  for (const Shape shape : shapes_of(GetParam())) {
    const Program program = make_program(shape);
    for (const Layout& layout : {program.at_load(), program.at_store()}) {
      ASSERT_EQ(layout.pack(), 0);
      ASSERT_EQ(layout.word(0), 1);
      ASSERT_EQ(layout.word(1), 2);
      const int lane_of_bit_3 = layout.position_of(shape, 3) - kFirstLane;
      EXPECT_TRUE(lane_of_bit_3 >= 0 && lane_of_bit_3 < 5) << text_of(shape);
    }
    EXPECT_EQ(program.at_load().position_of(shape, 4) / kFirstRegister, 0) << text_of(shape);
    if (is_tuned(shape)) {
      for (const int bit : {4, 5}) {  // whole 128-byte lines in a warp's store
        EXPECT_LT(program.at_store().position_of(shape, bit), kFirstRegister) << text_of(shape);
      }
    }
  }
}

TEST_P(HadacoreSizes, EightLanesOfTheExchangeHitEightBankGroups) {
  for (const Shape shape : shapes_of(GetParam())) {
    const Program program = make_program(shape);
    int exchanges = 0;
    for (int s = 0; s < program.steps; ++s) {
      if (program.step[s].action != Action::exchange) continue;
      ++exchanges;
      const Layout &write = program.before[s], &read = program.before[s + 1];
      for (const Layout& side : {write, read}) {
        std::set<unsigned> slots;
        for (int v = 0; v < shape.vectors(); ++v) {
          for (int first = 0; first < shape.threads(); first += 8) {
            std::set<unsigned> groups;
            for (int thread = first; thread < first + 8; ++thread) {
              const unsigned slot = slot_of(shape, write, read, side, thread, v);
              groups.insert(slot % 8);
              slots.insert(slot);
            }
            ASSERT_EQ(groups.size(), 8U) << text_of(shape);
          }
        }
        ASSERT_EQ(slots.size(), static_cast<std::size_t>(shape.shared_bytes() / 16)) << text_of(shape);
        ASSERT_EQ(*slots.rbegin(), slots.size() - 1) << text_of(shape);
      }
    }
    EXPECT_EQ(exchanges, shape.exchanges() ? 1 : 0);
  }
}

TEST_P(HadacoreSizes, EveryColumnBitIsTransformedOnceInTheFewestStages) {
  const int log_n = GetParam();
  for (const Shape shape : shapes_of(log_n)) {
    const Program program = make_program(shape);
    std::vector<int> times(static_cast<std::size_t>(log_n));
    int stages = 0, scaled = 0;
    for (int s = 0; s < program.steps; ++s) {
      const Step& step = program.step[s];
      if (!is_stage(step.action)) continue;
      ++stages;
      scaled += step.carries_scale;
      EXPECT_TRUE(step.carries_scale || step.transformed == 15) << text_of(shape);
      for (int k = 0; k < 4; ++k) {
        const int bit = k_index_bit(program.before[s], step, k);
        const bool of_row = bit >= log_n, separated = step.separated >> k & 1U,
                   transforms = step.transformed >> k & 1U;
        EXPECT_EQ(of_row, separated) << text_of(shape);
        EXPECT_FALSE(of_row && transforms);
        if (transforms) ++times.at(static_cast<std::size_t>(bit));
      }
      EXPECT_TRUE(log_n <= 3 || step.separated == 0) << "rows meet in a stage: " << text_of(shape);
    }
    EXPECT_EQ(stages, (log_n + 3) / 4);
    EXPECT_EQ(scaled, 1);
    EXPECT_EQ(std::count(times.begin(), times.end(), 1), log_n) << text_of(shape);
  }
}

// A plan may run one shape on aligned rows and another one elsewhere: they must agree bit for bit, as must
// the three variants' launch tables. They do when every shape transforms the same bits in the same stages.
TEST_P(HadacoreSizes, EveryShapeHasTheSameStages) {
  using Stages = std::vector<std::pair<std::set<int>, bool>>;
  std::set<Stages> all;
  for (const Shape shape : shapes_of(GetParam())) {
    const Program program = make_program(shape);
    Stages stages;
    for (int s = 0; s < program.steps; ++s) {
      const Step& step = program.step[s];
      if (!is_stage(step.action)) continue;
      std::set<int> bits;
      for (int k = 0; k < 4; ++k) {
        if (step.transformed >> k & 1U) bits.insert(k_index_bit(program.before[s], step, k));
      }
      stages.emplace_back(bits, step.carries_scale);
    }
    all.insert(stages);
  }
  EXPECT_EQ(all.size(), 1U);
}

// ---- The algorithm

TEST_P(HadacoreSizes, LaneByLaneItIsTheTransform) {
  const int log_n = GetParam();
  for (const Shape shape : shapes_of(log_n)) {
    const std::vector<double> tile = random_integers(std::size_t{1} << shape.tile_bits(), 7);
    // Integers times powers of two: exact.
    const std::vector<double> result = Block(shape, exact_sum).run(tile, 0.5, 0.25);
    std::vector<double> expected = transformed_rows(tile, log_n);
    const double factor = 0.5 * std::ldexp(1.0, -2 * ((log_n + 3) / 4 - 1));
    for (double& x : expected)
      x *= factor;
    ASSERT_EQ(result, expected) << text_of(shape);
  }
}

// In the lanes' arithmetic 0 * NaN is NaN, so whatever a zero of the matrix touches shows.
TEST_P(HadacoreSizes, NonFiniteValuesStayInTheirRow) {
  const int log_n = GetParam();
  for (const Config config : launched_configs(log_n)) {
    const Shape shape = shape_of(log_n, config);
    const std::size_t n = std::size_t{1} << log_n, rows = std::size_t{1} << shape.log_rows();
    const Promises promises =
        numerics_of(make_problem(Dtype::f16, std::int64_t{1} << log_n, 1), config, 90).promises;
    const std::vector<double> clean = random_integers(n * rows, 3);
    Block block(shape, exact_sum);
    const std::vector<double> undisturbed = block.run(clean, 1.0, 1.0);
    for (const std::size_t row : std::set<std::size_t>{0, rows / 2, rows - 1}) {
      for (const std::size_t column : std::set<std::size_t>{0, n / 2 + n / 4, n - 1}) {
        for (const double bad : {double(NAN), double(INFINITY)}) {
          std::vector<double> tile = clean;
          tile[row * n + column] = bad;
          const std::vector<double> result = block.run(tile, 1.0, 1.0);
          bool signs_of_h = true;
          for (std::size_t i = 0; i < result.size(); ++i) {
            if (i / n != row) {
              ASSERT_EQ(result[i], undisturbed[i]) << text_of(shape);
            } else if (std::isnan(bad)) {
              ASSERT_TRUE(std::isnan(result[i]));
            } else {
              signs_of_h = signs_of_h && result[i] == hadamard_sign(i % n, column) * bad;
            }
          }
          if (std::isinf(bad)) {
            EXPECT_EQ(signs_of_h, promises.infinity_exact) << text_of(shape);
          }
        }
      }
    }
  }
}

/// Random data; with `disturbed`, three of them are infinite or NaN.
void expect_emulated(Dtype dtype, int log_n, Config config, bool disturbed) {
  const Shape shape = shape_of(log_n, config);
  const std::size_t elements = std::size_t{1} << shape.tile_bits();
  const Problem problem = make_problem(dtype, std::int64_t{1} << log_n, std::int64_t{1} << shape.log_rows());
  const Numerics numerics = numerics_of(problem, config, 90);
  const auto sums = has_fp16_sums(dtype) ? reference::Accumulator::f16 : reference::Accumulator::f32;

  std::mt19937 generator(11);
  std::normal_distribution<double> normal;
  std::vector<std::uint16_t> stored(elements);
  for (std::uint16_t& x : stored)
    x = static_cast<std::uint16_t>(encode(dtype, normal(generator)));
  if (disturbed) {
    const double values[] = {double(INFINITY), -double(INFINITY), double(NAN)};
    for (const double value : values) {
      stored[generator() % elements] = static_cast<std::uint16_t>(encode(dtype, value));
    }
  }
  std::vector<double> tile(elements);
  std::transform(stored.begin(), stored.end(), tile.begin(),
                 [&](std::uint16_t x) { return decode(dtype, x); });
  const auto tensor_core = [&](const std::array<double, 16>& a, const std::array<double, 16>& b) {
    const double sum = reference::mma_sum(a, b, 0.0, dtype, sums, reference::kHopperTensorCore);
    return decode(dtype, encode(dtype, sum));
  };
  const std::vector<double> result = Block(shape, tensor_core).run(tile, scale_constant(problem), 0.25);
  std::vector<std::uint16_t> emulated(elements);
  reference::emulate(problem, numerics, stored.data(), emulated.data());
  for (std::size_t i = 0; i < elements; ++i) {
    const double expected = decode(dtype, emulated[i]);
    ASSERT_TRUE(std::isnan(expected) ? std::isnan(result[i]) : result[i] == expected)
        << text_of(shape) << " index " << i << ": " << result[i] << ", emulated " << expected;
  }
}

// What the steps say is all there is to know: the reference's emulation needs nothing
// else to give the bits that the lanes give.
TEST_P(HadacoreSizes, StepsReproduceTheLanesBitForBit) {
  for (const Config config : launched_configs(GetParam())) {
    for (const bool disturbed : {false, true}) {
      expect_emulated(Dtype::f16, GetParam(), config, disturbed);
      expect_emulated(Dtype::bf16, GetParam(), config, disturbed);
    }
  }
}

// ---- The launch table

TEST_P(HadacoreSizes, EveryLaunchedShapeHasAProgram) {
  for (const Config& config : launched_configs(GetParam()))
    EXPECT_TRUE(fits(shape_of(GetParam(), config)));
}

// ---- The model

TEST_P(HadacoreSizes, ModelStatesTheConstants) {
  const int log_n = GetParam();
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    const Problem problem = make_problem(dtype, std::int64_t{1} << log_n, 5);
    const Config config = tuned_config(log_n, dtype, Regime::dram);
    const Numerics numerics = numerics_of(problem, config, 90);
    EXPECT_EQ(numerics.roundings(), (log_n + 3) / 4);
    EXPECT_TRUE(numerics.promises.row_isolation);
    // 181/256 for 1/sqrt(2), which both formats round to.
    const double gain_error = log_n % 2 == 0 ? 0.0 : 181.0 / 256.0 * std::sqrt(2.0) - 1.0;
    EXPECT_NEAR(numerics.gain_error(problem.scale), gain_error, 1e-15);
    // Partial stages carry 2^(-bits/2).
    for (const fwht::Step& step : numerics.steps) {
      EXPECT_EQ(step.sums, dtype == Dtype::f16 ? Sums::tensor_f16 : Sums::tensor_f32);
      EXPECT_NEAR(step.constant, std::exp2(-0.5 * step.levels()), 1.1e-4 * step.constant);
    }
  }
}

TEST(HadacoreModel, AnyScaleIsRoundedToOneConstant) {
  Problem problem = make_problem(Dtype::f16, 8192, 5);
  problem.scale = 1.0;  // exact: no square root is left
  const auto gain_error = [&] {
    const Config config = tuned_config(13, Dtype::f16, Regime::dram);
    return numerics_of(problem, config, 90).gain_error(problem.scale);
  };
  EXPECT_EQ(gain_error(), 0.0);
  EXPECT_EQ(scale_constant(problem), 64.0);
  problem.scale = 0.1;
  EXPECT_NE(gain_error(), 0.0);
  EXPECT_LE(std::fabs(gain_error()), format_of(Dtype::f16).unit_roundoff());
}

TEST(HadacoreSupport, RefusesWithValueAndLimit) {
  const DeviceInfo device = h200_description();
  EXPECT_TRUE(variant.supports(make_problem(Dtype::bf16, 32768, 5), device));
  EXPECT_NE(variant.supports(make_problem(Dtype::f32, 64, 5), device).why_not.find("f32"), std::string::npos);
  EXPECT_NE(variant.supports(make_problem(Dtype::f16, 65536, 5), device).why_not.find("32768"),
            std::string::npos);
  Problem problem = make_problem(Dtype::f16, 32768, 5);
  for (const double scale : {0.0, 1e-8, 1e6}) {
    problem.scale = scale;
    EXPECT_NE(variant.supports(problem, device).why_not.find("scale="), std::string::npos) << scale;
  }
}

// Spurious overflow (docs/numerics.md, Range): 16 equal leading entries; the exact result stays below 1500.
TEST(HadacoreModel, PredictsOverflowOfIntermediates) {
  const Problem problem = make_problem(Dtype::f16, 32768, 1);
  const Numerics numerics = numerics_of(problem, published_config(15), 90);
  const Promises& promises = numerics.promises;
  for (const double value : {16000.0, 16400.0}) {
    std::vector<std::uint16_t> in(32768, 0), out(32768);
    std::fill_n(in.begin(), 16, static_cast<std::uint16_t>(encode(Dtype::f16, value)));
    reference::emulate(problem, numerics, in.data(), out.data());
    double largest = 0;
    for (const std::uint16_t x : out)
      largest = std::max(largest, std::fabs(decode(Dtype::f16, x)));
    EXPECT_LE(largest <= promises.intermediate_limit ? largest : 0.0, value * 16 / std::sqrt(32768.0) * 1.01);
    if (value * promises.intermediate_growth <= promises.intermediate_limit) {
      EXPECT_TRUE(std::isfinite(largest));
    }
  }
}

// The bit cards in the comment that opens hadacore.cu are what make_program decides.
TEST(HadacoreProgram, BitCardsOfTheKernelFileAreTrue) {
  const std::filesystem::path kernel_file = std::filesystem::path(__FILE__).parent_path() / "hadacore.cu";
  std::ifstream file(kernel_file);
  ASSERT_TRUE(file) << kernel_file;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const int log_n : {3, 6, 12, 15}) {
    std::string card = "// n = " + std::to_string(1 << log_n) + "\n";
    std::istringstream lines(bit_card(shape_of(log_n, tuned_config(log_n, Dtype::f16, Regime::dram))));
    for (std::string line; std::getline(lines, line);)
      card += "//   " + line + "\n";
    EXPECT_NE(text.find(card), std::string::npos) << "hadacore.cu lacks\n" << card;
  }
}

}  // namespace
}  // namespace fwht::hadacore
