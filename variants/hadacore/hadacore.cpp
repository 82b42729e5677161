// hadacore, host part: what is supported, the numerics, the bit card. The kernel's idea is told in
// hadacore.cu.
#include "variants/hadacore/hadacore.hpp"

#include <algorithm>
#include <cmath>

#include "common/host/text.hpp"

namespace fwht::hadacore {
namespace {

int stage_count(int log_n) {
  return (log_n + 3) / 4;
}

/// The constant before it is rounded to the storage type.
double exact_scale_constant(const Problem& problem) {
  return std::ldexp(problem.scale, 2 * (stage_count(log2_floor(problem.n())) - 1));
}

bool is_power_of_two_number(double x) {
  int exponent = 0;
  return std::fabs(std::frexp(x, &exponent)) == 0.5;
}

Support supports(const Problem& problem, const DeviceInfo& device) {
  if (problem.dtype() == Dtype::f32) {
    return {"dtype f32 does not fit the 16-bit operands of mma.sync.m16n8k16, f16 and bf16 do"};
  }
  if (Support cuda = require_cuda(device); !cuda) return cuda;
  if (Support launch = require_ordinary_launch(problem); !launch) return launch;
  if (Support strides = require_one_row_stride(problem); !strides) return strides;
  if (Support n = require_sylvester(problem, 2, std::int64_t{1} << kLargestLogN); !n) return n;
  const Format format = format_of(problem.dtype());
  const double constant = std::fabs(exact_scale_constant(problem));
  const double smallest = std::ldexp(1.0, format.min_exponent);
  if (!(constant >= smallest && constant <= format.max_finite)) {
    return {concat("scale=", problem.scale, " asks for a stage constant of ", constant, " at n=", problem.n(),
                   ", ", format.name, " holds ", smallest, " to ", format.max_finite,
                   " with full precision")};
  }
  return {};
}

/// Largest value stored between stages over max |x|: a stage of b bits with constant c grows it by 2^b c at
/// most.
double intermediate_growth(const std::vector<fwht::Step>& steps) {
  double growth = 1.0, largest = 1.0;
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    growth *= std::ldexp(std::fabs(steps[i].constant), steps[i].levels());
    largest = std::max(largest, growth);
  }
  return largest;
}

std::string bits_text(Shape shape, const std::vector<int>& bits) {
  std::string text;
  for (int bit : bits) {
    text += bit < shape.log_n ? concat(" b", bit) : concat(" r", bit - shape.log_n);
  }
  return text;
}

std::string layout_text(Shape shape, const Layout& layout) {
  std::vector<int> vectors, lanes, warps;
  for (int i = kFirstVectorBit; i < shape.register_bits(); ++i)
    vectors.push_back(layout.word(i));
  for (int i = 0; i < 5; ++i)
    lanes.push_back(layout.lane(i));
  for (int i = 0; i < shape.log_warps; ++i)
    warps.push_back(layout.warp(shape, i));
  return concat("pack", bits_text(shape, {layout.pack()}), " | word",
                bits_text(shape, {layout.word(0), layout.word(1)}), " | vector", bits_text(shape, vectors),
                " | lane", bits_text(shape, lanes), " | warp", bits_text(shape, warps));
}

std::string step_text(Shape shape, const Layout& before, const Step& step) {
  const auto register_name = [&] {
    return step.a < kFirstVectorBit ? concat("word ", step.a) : concat("vector ", step.a - kFirstVectorBit);
  };
  switch (step.action) {
    case Action::data_as_a:
    case Action::data_as_b: {
      std::vector<int> bits;
      for (int k = 0; k < 4; ++k) {
        if (step.transformed >> k & 1U) bits.push_back(k_index_bit(before, step, k));
      }
      std::sort(bits.begin(), bits.end());
      return concat("mma ", step.action == Action::data_as_a ? "A" : "B", ":", bits_text(shape, bits));
    }
    case Action::swap_pack:
      return concat("PRMT pack <-> ", register_name());
    case Action::swap_lane_register:
      return concat("SHFL lane ", step.b, " <-> ", register_name());
    case Action::permute_lanes:
      return "SHFL lanes";
    case Action::exchange:
      return "shared memory";
  }
  return "";
}

}  // namespace

double scale_constant(const Problem& problem) {
  return decode(problem.dtype(), encode(problem.dtype(), exact_scale_constant(problem)));
}

std::vector<fwht::Step> steps_of(const Problem& problem, Config config) {
  const bool fp16_sums = has_fp16_sums(problem.dtype());
  const Program program = make_program(shape_of(log2_floor(problem.n()), config));
  std::vector<fwht::Step> steps;
  for (int i = 0; i < program.steps; ++i) {
    const Step& stage = program.step[i];
    if (!is_stage(stage.action)) continue;
    fwht::Step step;
    step.sums = fp16_sums ? Sums::tensor_f16 : Sums::tensor_f32;
    for (int k = 0; k < 4; ++k) {
      const bool transformed = stage.transformed >> k & 1U;
      (transformed ? step.bits : step.block_bits).push_back(k_index_bit(program.before[i], stage, k));
    }
    step.constant = stage.carries_scale ? scale_constant(problem) : 0.25;
    step.other_blocks_zeroed = stage.separated != 0;
    if (!fp16_sums) {
      step.sum_rms = butterfly_rms(step.levels());
      step.sum_bias = kTruncationBias;  // below 16 bits of storage it does not show
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

Numerics numerics_of(const Problem& problem, Config config, int compute_capability) {
  const int log_n = log2_floor(problem.n());
  const bool fp16_sums = has_fp16_sums(problem.dtype());
  Numerics numerics;
  numerics.steps = steps_of(problem, config);
  if (fp16_sums && compute_capability < 90) {
    // Before sm_90 an mma chains two blocks of eight products: the first half of a 16-point sum is rounded to
    // fp16 as well, at 1/sqrt2 of its size. Every stage is given the mean over the stages.
    double squares = 0.0;
    for (const fwht::Step& step : numerics.steps)
      squares += step.levels() == 4 ? 1.5 : 1.0;
    for (fwht::Step& step : numerics.steps)
      step.rounding_rms *= std::sqrt(squares / static_cast<double>(numerics.steps.size()));
  }
  Promises& promises = numerics.promises;
  // The zeros of a block-diagonal matrix meet data of the row itself where a stage has fewer than 4 bits and
  // n > 8.
  promises.infinity_exact = log_n <= 4 || log_n % 4 == 0;
  // sm_90 sums 16 products at once; before, two blocks of 8 were chained, whose results depend on the order.
  // Newer devices were not probed.
  promises.xor_shift_exact = compute_capability == 90;
  promises.integer_exact = is_power_of_two_number(scale_constant(problem));
  promises.intermediate_growth = intermediate_growth(numerics.steps);
  promises.intermediate_limit = format_of(problem.dtype()).max_finite;
  return numerics;
}

std::string bit_card(Shape shape) {
  const Program program = make_program(shape);
  std::string text;
  for (int i = 0; i <= program.steps; ++i) {
    std::string action = i < program.steps ? step_text(shape, program.before[i], program.step[i]) : "store";
    action.resize(std::max<std::size_t>(action.size(), 25), ' ');
    text += concat(action, " ", layout_text(shape, program.before[i]), "\n");
  }
  return text;
}

const Variant variant{"hadacore",
                      "16-point mma.sync stages on 16-bit registers, rounded after each; launch table tuned",
                      Memory::device, supports, make_plan};

const Variant published_variant{"hadacore_published",
                                "hadacore with the launch configurations of the published kernel",
                                Memory::device, supports, make_published_plan};

}  // namespace fwht::hadacore
