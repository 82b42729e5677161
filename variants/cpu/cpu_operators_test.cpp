// What the conformance suite does not ask of operators on cpu and cpu_f64: f64 data, rows at two distances, a
// matrix that the user brings, and what is refused.
#include "variants/cpu/kronecker.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "common/contract/hadamard_matrices.hpp"
#include "common/contract/operator_data.hpp"
#include "common/host/error.hpp"
#include "common/testing/refusal.hpp"
#include "reference/hadamard.hpp"
#include "variants/cpu/cpu.hpp"

namespace fwht::cpu {
namespace {

const Variant* const kBoth[] = {&variant, &f64_variant};

DeviceInfo two_threads() {
  DeviceInfo device;
  device.host_threads = 2;
  return device;
}

std::vector<double> random_numbers(std::int64_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> numbers(static_cast<std::size_t>(count));
  for (double& number : numbers)
    number = normal(random);
  return numbers;
}

std::string refusal(const Problem& problem) {
  return bad_request_of([&] { plan(variant, problem, two_threads()); });
}

TEST(CpuOperators, F64DataAreSummedInDoublePrecision) {
  for (const char* text : {"28x16", "116tx4", "12x4x20", "4x12", "256r"}) {
    for (const Variant* by : kBoth) {
      const Problem problem = make_problem(Dtype::f64, parse_operator(text), 3, Placement::out_of_place);
      const std::vector<double> in = random_numbers(problem.elements(), 1);
      std::vector<double> out(in.size());
      plan(*by, problem, two_threads())->execute(in.data(), out.data());
      const reference::Matrix want = reference::expected(problem, in.data());
      for (std::int64_t i = 0; i < problem.elements(); ++i)
        ASSERT_NEAR(out[static_cast<std::size_t>(i)], want.data()[i], 1e-13) << text << ' ' << by->name;
    }
  }
}

TEST(CpuOperators, InputAndOutputRowsLieAtTheirOwnDistances) {
  for (const Variant* by : kBoth) {
    Problem problem = make_problem(Dtype::f32, parse_operator("12x4"), 5, Placement::out_of_place);
    const Problem contiguous = problem;
    problem.in.row_stride = 51;
    problem.out.row_stride = 60;
    const std::vector<double> values = random_numbers(5 * 48, 2);
    std::vector<float> in(5 * 51, NAN), out(5 * 60, -7.0F), packed(5 * 48), want(5 * 48);
    for (std::size_t i = 0; i < values.size(); ++i)
      in[i / 48 * 51 + i % 48] = packed[i] = static_cast<float>(values[i]);
    plan(*by, problem, two_threads())->execute(in.data(), out.data());
    plan(*by, contiguous, two_threads())->execute(packed.data(), want.data());
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], i % 60 < 48 ? want[i / 60 * 48 + i % 60] : -7.0F) << i;
  }
}

// "d28x16" with the entries of the table is "28x16", to the bit; and transposed with those of a matrix that
// is not symmetric.
TEST(CpuOperators, AMatrixOfTheUsersIsExecutedAsOneOfTheTable) {
  for (const auto& [theirs, ours] :
       {std::pair{"d28x16", "28x16"}, {"d116tx4", "116tx4"}, {"4xd12", "4x12"}}) {
    const Problem by_table = make_problem(Dtype::bf16, parse_operator(ours), 4, Placement::out_of_place),
                  by_user = make_problem(Dtype::bf16, parse_operator(theirs), 4, Placement::out_of_place);
    std::int64_t order = 0;
    for (const Factor& factor : by_user.op.factors())
      order = factor.basis == Basis::dense ? factor.order : order;
    std::string text;
    for (int i = 0; i < order; ++i) {
      for (int j = 0; j < order; ++j)
        text += hadamard_entry(order, i, j) < 0 ? '-' : '+';
      text += '\n';
    }
    const std::vector<std::byte> dense = dense_entries(parse_sign_matrix(text), Dtype::bf16);
    std::vector<std::uint16_t> in, want(static_cast<std::size_t>(by_table.elements())), got(want.size());
    for (const double value : random_numbers(by_table.elements(), 3))
      in.push_back(float_to_bf16(static_cast<float>(value)));
    plan(variant, by_table, two_threads())->execute(in.data(), want.data());
    Operands operands{in.data(), got.data()};
    operands.dense = dense.data();
    plan(variant, by_user, two_threads())->execute(operands);
    EXPECT_EQ(got, want) << theirs;
  }
}

// Reading 256 x 256 entries and asking whether they are orthogonal takes as long as hundreds of rows.
TEST(CpuOperators, AMatrixOfTheUsersIsReadOnceForRowsBetweenEachOther) {
  const auto fastest = [](std::int64_t inner) {
    Problem problem = make_problem(Dtype::f32, parse_operator("d256"), 64);
    problem.inner = inner;
    problem.set_row_stride(problem.block_elements());
    const std::vector<std::byte> entries = dense_entries(hadamard_matrix(256), Dtype::f32);
    std::vector<float> x(static_cast<std::size_t>(problem.elements()), 1.0F);
    Operands operands{x.data(), x.data()};
    operands.dense = entries.data();
    const auto plan_of = plan(variant, problem, two_threads());
    auto best = std::chrono::steady_clock::duration::max();
    for (int i = 0; i < 3; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      plan_of->execute(operands);
      best = std::min(best, std::chrono::steady_clock::now() - begin);
    }
    return best;
  };
  EXPECT_LT(fastest(8), 8 * fastest(1));
}

TEST(CpuOperators, ADenseFactorThatIsNotOrthogonalIsRefusedBeforeAnythingIsWritten) {
  const Problem problem = make_problem(Dtype::f32, parse_operator("d2x4"), 2, Placement::out_of_place);
  const std::vector<float> in(16, 1.0F), good{0.8F, 0.6F, -0.6F, 0.8F}, bad{0.8F, 0.6F, -0.6F, 0.7F};
  std::vector<float> out(16, -7.0F);
  Operands operands{in.data(), out.data()};
  operands.dense = bad.data();
  const std::unique_ptr<Plan> made = plan(variant, problem, two_threads());
  EXPECT_THROW(made->execute(operands), BadRequest);
  EXPECT_EQ(out, std::vector<float>(16, -7.0F));
  operands.dense = good.data();
  made->execute(operands);
  EXPECT_NE(out[0], -7.0F);
}

TEST(CpuOperators, RefusalsNameTheValueAndTheLimit) {
  const auto f16 = [](std::string_view op) { return make_problem(Dtype::f16, parse_operator(op), 2); };
  EXPECT_EQ(refusal(f16("d256x4")), "");
  EXPECT_EQ(refusal(f16("d257x4")),
            "cpu: operator d257x4: the dense factor of order 257 exceeds the limit of 256");
  EXPECT_EQ(refusal(f16("428x4194304")), "cpu: n=1795162112 must be between 2 and 1073741824");
  EXPECT_EQ(refusal(make_problem(Dtype::f16, Operator::sylvester(768).with_signs(), 2)),
            "cpu: operator 768+signs: order 768 of a Sylvester factor must be a power of two");
  Problem mixed = f16("28x4");
  mixed.placement = Placement::out_of_place;
  mixed.out.dtype = Dtype::f32;
  EXPECT_EQ(refusal(mixed), "cpu: input in f16 and output in f32 are not offered by this variant");
  Problem programmatic = f16("28x4");
  programmatic.programmatic_launch = true;
  EXPECT_NE(refusal(programmatic).find("programmatic dependent launch"), std::string::npos);
}

}  // namespace
}  // namespace fwht::cpu
