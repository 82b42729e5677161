#include "experiments/studies/probes/probes.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "reference/hadamard.hpp"
#include "reference/inputs.hpp"

namespace fwht::probes {

using harness::csv_number;
using harness::CsvRow;
using reference::Accumulator;
using reference::TensorCore;

std::string_view name_of(Instruction instruction) {
  switch (instruction) {
    case Instruction::mma_f16_f16:
    case Instruction::mma_f32_f16:
    case Instruction::mma_f32_bf16:
      return "mma.sync.m16n8k16";
    case Instruction::wgmma_f32_f16:
    case Instruction::wgmma_f32_bf16:
      return "wgmma.m64n64k16";
  }
  return "";
}

Dtype operand_of(Instruction instruction) {
  const bool bf16 = instruction == Instruction::mma_f32_bf16 || instruction == Instruction::wgmma_f32_bf16;
  return bf16 ? Dtype::bf16 : Dtype::f16;
}

Accumulator accumulator_of(Instruction instruction) {
  return instruction == Instruction::mma_f16_f16 ? Accumulator::f16 : Accumulator::f32;
}

bool has_instruction(Instruction instruction, const DeviceInfo& device) {
  const bool wgmma = instruction == Instruction::wgmma_f32_f16 || instruction == Instruction::wgmma_f32_bf16;
  return device.has_cuda() && (wgmma ? device.compute_capability() == 90 : device.compute_capability() >= 80);
}

Evaluate by_model(TensorCore core) {
  return [core](Instruction instruction, const std::vector<Dot>& dots) {
    std::vector<double> values;
    for (const Dot& dot : dots)
      values.push_back(reference::mma_sum(dot.a, dot.b, dot.c, operand_of(instruction),
                                          accumulator_of(instruction), core));
    return values;
  };
}

namespace {

constexpr int kMostBits = 30;

// 2^4 leaves room below: an f16 accumulator ends at 2^-24.
constexpr double kLarge = 16.0;

Dot empty_dot(int products) {
  return {std::vector<double>(static_cast<std::size_t>(products), 0.0),
          std::vector<double>(static_cast<std::size_t>(products), 0.0), 0.0};
}

/// kLarge 2^-j as a product of two numbers of any operand type.
void put_small(Dot& dot, std::size_t place, int j) {
  const int half = j / 2;
  dot.a[place] = std::ldexp(kLarge, -half);
  dot.b[place] = std::ldexp(1.0, half - j);
}

void put(Dot& dot, std::size_t place, double value) {
  dot.a[place] = value;
  dot.b[place] = 1.0;
}

/// The largest j up to `most` whose dot is not 0; 0 when none is.
template <class Make>
int largest_that_survives(const Evaluate& evaluate, Instruction instruction, int most, const Make& make) {
  std::vector<Dot> dots;
  for (int j = 1; j <= most; ++j)
    dots.push_back(make(j));
  const std::vector<double> values = evaluate(instruction, dots);
  int largest = 0;
  for (int j = 1; j <= most; ++j) {
    if (values[static_cast<std::size_t>(j - 1)] != 0.0) largest = j;
  }
  return largest;
}

}  // namespace

int surviving_bits(const Evaluate& evaluate, Instruction instruction) {
  return largest_that_survives(evaluate, instruction, kMostBits - 3, [](int j) {
    Dot dot = empty_dot(kStep);
    put(dot, 0, kLarge);
    put_small(dot, 1, j);
    put(dot, 2, -kLarge);
    return dot;
  });
}

int surviving_bits_below_addend(const Evaluate& evaluate, Instruction instruction) {
  return largest_that_survives(evaluate, instruction, kMostBits - 3, [](int j) {
    Dot dot = empty_dot(kStep);
    dot.c = kLarge;
    put_small(dot, 1, j);
    put(dot, 2, -kLarge);
    return dot;
  });
}

int fused_products(const Evaluate& evaluate, Instruction instruction) {
  // Between blocks a sum keeps at most 24 bits, so the last surviving one is lost there.
  const int bits = surviving_bits(evaluate, instruction);
  return 1 + largest_that_survives(evaluate, instruction, kStep - 1, [&](int distance) {
           Dot dot = empty_dot(kStep);
           put(dot, 0, kLarge);
           put_small(dot, distance == 1 ? 2 : 1, bits);
           put(dot, static_cast<std::size_t>(distance), -kLarge);
           return dot;
         });
}

namespace {

/// Words of the counter-based generator, one after the other.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : seed_(seed) {}
  std::uint32_t word() {
    if (left_ == 0) {
      words_ =
          reference::philox4x32({counter_++, 0, 0, 0x70726f62},
                                {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
      left_ = 4;
    }
    return words_[static_cast<std::size_t>(--left_)];
  }
  double sign() { return word() & 1U ? -1.0 : 1.0; }
  int below(int bound) {
    return static_cast<int>((std::uint64_t{word()} * static_cast<std::uint64_t>(bound)) >> 32);
  }
  /// Random significand, exponent in -spread .. spread.
  double number(Dtype dtype, int spread) {
    const double significand = 1.0 + static_cast<double>(word()) * 0x1p-32;
    return round_to(dtype, sign() * std::ldexp(significand, below(2 * spread + 1) - spread));
  }

 private:
  std::uint64_t seed_;
  std::uint32_t counter_ = 0;
  std::array<std::uint32_t, 4> words_{};
  int left_ = 0;
};

}  // namespace

std::vector<Dot> random_dots(Instruction instruction, int count, int products, std::uint64_t seed) {
  Draw draw(seed);
  const Dtype operand = operand_of(instruction);
  const Dtype accumulator = accumulator_of(instruction) == Accumulator::f16 ? Dtype::f16 : Dtype::f32;
  std::vector<Dot> dots;
  for (int d = 0; d < count; ++d) {
    Dot dot = empty_dot(products);
    // Narrow spreads exercise the rounding, wide ones the alignment. 2^3 2^3 64 stays inside fp16.
    const int spread = d % 2 == 0 ? 1 : 3 + draw.below(5);
    const double shrink = accumulator == Dtype::f16 ? std::ldexp(1.0, -spread) : 1.0;
    for (std::size_t i = 0; i < dot.a.size(); ++i) {
      dot.a[i] = draw.number(operand, spread) * shrink;
      dot.b[i] = draw.number(operand, spread) * shrink;
    }
    if (d % 3 == 0) {  // cancellation
      const auto i = static_cast<std::size_t>(draw.below(products)),
                 j = static_cast<std::size_t>(draw.below(products));
      if (i != j) {
        dot.a[j] = -dot.a[i];
        dot.b[j] = dot.b[i];
      }
    }
    if (d % 5 != 0) dot.c = draw.number(accumulator, spread) * shrink;
    dots.push_back(std::move(dot));
  }
  return dots;
}

std::vector<Dot> transform_dots(Instruction instruction, int count, int products, std::uint64_t seed) {
  const Dtype operand = operand_of(instruction);
  const reference::Matrix data =
      reference::generate(make_problem(operand, products, count), reference::InputClass::normal, seed);
  const reference::Matrix signs =
      reference::generate(make_problem(operand, products, count), reference::InputClass::sign_dense, seed);
  const reference::Matrix sums =
      reference::generate(make_problem(Dtype::f32, count, 1), reference::InputClass::normal, seed + 1);
  std::vector<Dot> dots;
  for (int d = 0; d < count; ++d) {
    Dot dot = empty_dot(products);
    for (int i = 0; i < products; ++i) {
      dot.a[static_cast<std::size_t>(i)] = signs(d, i);
      dot.b[static_cast<std::size_t>(i)] = data(d, i);
    }
    dot.c = round_to(Dtype::f32, std::sqrt(static_cast<double>(products)) * sums(0, d));
    dots.push_back(std::move(dot));
  }
  return dots;
}

int mismatches(const std::vector<double>& x, const std::vector<double>& y) {
  int count = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    count += std::bit_cast<std::uint64_t>(x[i]) != std::bit_cast<std::uint64_t>(y[i]);
  return count;
}

double truncation_gain(const std::vector<Dot>& dots, const std::vector<double>& values) {
  double cross = 0.0, squares = 0.0;
  for (std::size_t d = 0; d < dots.size(); ++d) {
    long double exact = dots[d].c;
    for (std::size_t i = 0; i < dots[d].a.size(); ++i)
      exact += static_cast<long double>(dots[d].a[i]) * dots[d].b[i];
    const auto truth = static_cast<double>(exact);
    cross += (values[d] - truth) * truth;
    squares += truth * truth;
  }
  return cross / squares;
}

std::vector<Dot> shifted(std::vector<Dot> dots, std::uint64_t seed) {
  Draw draw(seed);
  for (Dot& dot : dots) {
    const Dot before = dot;
    const auto a = static_cast<std::size_t>(1 + draw.below(kStep - 1));
    for (std::size_t i = 0; i < dot.a.size(); ++i) {
      dot.a[i] = before.a[i ^ a];
      dot.b[i] = before.b[i ^ a];
    }
  }
  return dots;
}

namespace {

constexpr int kDots = 8192;
constexpr std::uint64_t kSeed = 20;

std::string accumulator_name(Instruction instruction) {
  return accumulator_of(instruction) == Accumulator::f16 ? "f16" : "f32";
}

/// One row; `agrees` decides the status.
CsvRow result(const std::string& probe, int vectors, double value, double model, std::optional<int> differing,
              bool agrees) {
  return {{"probe", probe},
          {"vectors", std::to_string(vectors)},
          {"value", csv_number(value)},
          {"model_value", csv_number(model)},
          {"mismatches", differing ? std::to_string(*differing) : ""},
          {"status", agrees ? "ok" : "incorrect"},
          {"message", agrees ? "" : "the tensor core does not add as the model says"}};
}

class Probing {
 public:
  Probing(const Evaluate& evaluate, Instruction instruction, TensorCore core)
      : evaluate_(evaluate), instruction_(instruction), core_(core), model_(by_model(core)) {}

  std::vector<CsvRow> all() {
    count("fraction_bits", surviving_bits);
    count("fraction_bits_below_addend", surviving_bits_below_addend);
    count("fused_products", fused_products);
    const std::vector<Dot> dots = random_dots(instruction_, kDots, kStep, kSeed);
    const std::vector<double> values = evaluate_(instruction_, dots);
    compare("random", dots, values);
    const std::vector<Dot> chains = random_dots(instruction_, kDots / 4, 4 * kStep, kSeed + 1);
    compare("chain_of_4", chains, evaluate_(instruction_, chains));
    order(dots, values);
    bias();
    others(dots, values);
    return rows_;
  }

 private:
  void count(const char* probe, int (*measure)(const Evaluate&, Instruction)) {
    const int value = measure(evaluate_, instruction_), model = measure(model_, instruction_);
    rows_.push_back(result(probe, 1, value, model, std::nullopt, value == model));
  }

  void compare(const char* probe, const std::vector<Dot>& dots, const std::vector<double>& values) {
    const int differing = mismatches(values, model_(instruction_, dots));
    rows_.push_back(result(probe, static_cast<int>(dots.size()), differing, 0.0, differing, differing == 0));
  }

  /// A sum of products at once does not depend on their order; a chain of blocks does.
  void order(const std::vector<Dot>& dots, const std::vector<double>& values) {
    const std::vector<Dot> turned = shifted(dots, kSeed + 2);
    const int differing = mismatches(values, evaluate_(instruction_, turned));
    const int predicted = mismatches(model_(instruction_, dots), model_(instruction_, turned));
    rows_.push_back(result("xor_shift", static_cast<int>(dots.size()), differing, predicted, differing,
                           differing == predicted));
  }

  void bias() {
    if (accumulator_of(instruction_) == Accumulator::f16) return;
    const std::vector<Dot> dots = transform_dots(instruction_, 8 * kDots, kStep, kSeed + 3);
    const std::vector<double> values = evaluate_(instruction_, dots), model = model_(instruction_, dots);
    const int differing = mismatches(values, model);
    rows_.push_back(result("truncation_gain", static_cast<int>(dots.size()), truncation_gain(dots, values),
                           truncation_gain(dots, model), differing, differing == 0));
  }

  /// How well other widths and block lengths would explain the same values: only one may have no mismatch.
  void others(const std::vector<Dot>& dots, const std::vector<double>& values) {
    for (const int bits : {23, 24, 25, 26}) {
      for (const int products : {4, 8, 16}) {
        const TensorCore core{bits, products};
        const int differing = mismatches(values, by_model(core)(instruction_, dots));
        const bool the_model = bits == core_.fraction_bits && products == core_.fused_terms;
        // An f16 result hides fractional bits; that it hides some is no disagreement.
        const bool hidden = accumulator_of(instruction_) == Accumulator::f16;
        rows_.push_back(result(fmt::format("fit_{}_bits_{}_products", bits, products),
                               static_cast<int>(dots.size()), differing, the_model ? 0.0 : NAN, differing,
                               the_model ? differing == 0 : differing > 0 || hidden));
      }
    }
  }

  const Evaluate& evaluate_;
  Instruction instruction_;
  TensorCore core_;
  Evaluate model_;
  std::vector<CsvRow> rows_;
};

}  // namespace

std::vector<CsvRow> rows(const Evaluate& evaluate, Instruction instruction, TensorCore model) {
  return Probing(evaluate, instruction, model).all();
}

std::vector<harness::Task> tasks(const harness::StudySetup& setup) {
  std::vector<harness::Task> all;
  const auto add = [&](const char* source, Instruction instruction, const Evaluate& evaluate,
                       TensorCore core) {
    const int count = accumulator_of(instruction) == Accumulator::f16 ? 18 : 19;
    all.push_back({{{"source", source},
                    {"instruction", std::string(name_of(instruction))},
                    {"operand", std::string(fwht::name_of(operand_of(instruction)))},
                    {"accumulator", accumulator_name(instruction)}},
                   count,
                   [=] { return rows(evaluate, instruction, core); }});
  };
  for (const Instruction instruction : kInstructions) {
    if (has_instruction(instruction, setup.device)) {
      const TensorCore core = setup.device.compute_capability() >= 90 ? reference::kHopperTensorCore
                                                                      : reference::kAmpereTensorCore;
      add("measured", instruction, by_device(), core);
    } else {
      add("emulated", instruction, by_model(reference::kHopperTensorCore), reference::kHopperTensorCore);
    }
    if (name_of(instruction).starts_with("mma"))
      add("emulated_a100", instruction, by_model(reference::kAmpereTensorCore), reference::kAmpereTensorCore);
  }
  return all;
}

}  // namespace fwht::probes
