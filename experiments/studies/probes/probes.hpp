// How the tensor cores at hand add: width, number of products that are added at once, order, truncation bias.
// Every answer is found by the values that come back, then compared with the model of reference/emulation
// (arXiv 2512.07004, 2511.10909).
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "experiments/harness/performer.hpp"
#include "experiments/harness/tasks.hpp"
#include "reference/emulation.hpp"

namespace fwht::probes {

enum class Instruction {
  mma_f16_f16,   ///< mma.sync.m16n8k16, f16 operands and accumulator
  mma_f32_f16,   ///< mma.sync.m16n8k16, f16 operands, f32 accumulator
  mma_f32_bf16,  ///< mma.sync.m16n8k16, bf16 operands, f32 accumulator
  wgmma_f32_f16,
  wgmma_f32_bf16  ///< wgmma.m64n64k16, f32 accumulator
};
inline constexpr Instruction kInstructions[] = {Instruction::mma_f16_f16, Instruction::mma_f32_f16,
                                                Instruction::mma_f32_bf16, Instruction::wgmma_f32_f16,
                                                Instruction::wgmma_f32_bf16};
std::string_view name_of(Instruction instruction);
Dtype operand_of(Instruction instruction);
reference::Accumulator accumulator_of(Instruction instruction);

inline constexpr int kStep = 16;  // products of one instruction

/// c + sum a_i b_i over a multiple of kStep products, by a chain of instructions in ascending order. The
/// values are numbers of the operand type; c of the accumulator type.
struct Dot {
  std::vector<double> a, b;
  double c = 0.0;
};

/// What the instruction gives for each of the dots, which have equal lengths.
using Evaluate = std::function<std::vector<double>(Instruction, const std::vector<Dot>&)>;

/// The tensor core as the model has it.
Evaluate by_model(reference::TensorCore core);
/// The device at hand. Throws std::runtime_error in a build without CUDA.
Evaluate by_device();
/// Whether the device at hand has the instruction.
bool has_instruction(Instruction instruction, const DeviceInfo& device);

/// Fractional bits of the sum below its largest product: the largest j for which 1 + 2^-j - 1 is not 0.
int surviving_bits(const Evaluate& evaluate, Instruction instruction);
/// The same below the addend c.
int surviving_bits_below_addend(const Evaluate& evaluate, Instruction instruction);
/// Products that are added without a rounding between them: how far apart two large ones that cancel may
/// stand while a small one next to the first survives.
int fused_products(const Evaluate& evaluate, Instruction instruction);

/// Dots with exponents far apart, random signs and cancellation: every mistake in width, order or rounding
/// shows.
std::vector<Dot> random_dots(Instruction instruction, int count, int products, std::uint64_t seed);
/// Normal data times +-1 added to a sum of 24 bits, as in the later passes of a transform of fp32 data.
std::vector<Dot> transform_dots(Instruction instruction, int count, int products, std::uint64_t seed);

/// Bitwise differences between the values of two evaluations.
int mismatches(const std::vector<double>& x, const std::vector<double>& y);
/// <d - exact, exact> / <exact, exact>: negative where sums are truncated.
double truncation_gain(const std::vector<Dot>& dots, const std::vector<double>& values);
/// The dots with product i at place i xor a, a in 1 .. 15 drawn for each.
std::vector<Dot> shifted(std::vector<Dot> dots, std::uint64_t seed);

/// All probes of one instruction as rows of probes.csv. `model` is what the values are compared with.
std::vector<harness::CsvRow> rows(const Evaluate& evaluate, Instruction instruction,
                                  reference::TensorCore model);

/// The device at hand where there is one, and the model of both generations.
std::vector<harness::Task> tasks(const harness::StudySetup& setup);

}  // namespace fwht::probes
