// The passes of Walsh spectra on a device that no transform has. The first reads the values of Boolean
// functions, 1/32 or 1/4 of the bytes that int32 data would be. The last stores no sums where a summary or
// the largest are asked for.
#pragma once

#include <cstdint>

#include "common/contract/family.hpp"
#include "variants/library/walsh.hpp"
#include "variants/passes/schedule.hpp"

namespace fwht::walsh {

/// Index bits of the first pass; the others, 5 to 18, are those of passes along a dimension.
constexpr int function_row_bits(int variables) {
  return variables <= 20 ? 10 : variables == 23 ? 13 : 12;
}
constexpr passes::PassTile function_tile(int row_bits) {
  return {row_bits - 5, 5, true};
}

/// Enqueues it: int32 sums over the lowest function_row_bits of `functions` functions, one behind the other.
void launch_function_rows(FunctionForm form, const void* values, int variables, std::int64_t functions,
                          std::int32_t* sums, Stream stream);

/// Functions of fewer variables are rows that a block holds.
inline constexpr int kFewestVariablesInPasses = 15;
/// Enqueues all of them: spectra, or where those are null summaries.
void launch_short_functions(FunctionForm form, const void* values, int variables, std::int64_t functions,
                            std::int32_t* spectra, SpectrumSummary* summaries, const DeviceInfo& device,
                            Stream stream);

/// Of the last pass of a summary, over the highest bits. Ten of them are of vectors that the L2 holds, where
/// 64 bytes of neighbours cost nothing; a block of 1024 threads would spill.
constexpr passes::PassTile summed_tile(int bits) {
  return bits == passes::kMostAxisBits ? passes::column_tile(bits, 4)
                                       : passes::axis_passes(passes::Word::int32, bits).tiles[0];
}
/// How the bits above the first pass are divided: `middle` in place, 0 for none, and `last`.
struct SummaryPasses {
  int middle = 0, last = 0;
};
constexpr SummaryPasses summary_passes(int variables) {
  const passes::AxisPasses above =
      passes::axis_passes(passes::Word::int32, variables - function_row_bits(variables));
  if (above.count == 1) return {0, above.tiles[0].bits};
  return {above.tiles[0].bits, above.tiles[1].bits};
}
/// Functions whose sums are worked on together: as many as 16 MiB hold.
constexpr std::int64_t summed_together(int variables, std::int64_t functions) {
  return std::clamp<std::int64_t>(std::int64_t{1} << std::max(22 - variables, 0), 1,
                                  std::max<std::int64_t>(functions, 1));
}

/// The `bits` highest bits of sums over all others, into summaries that were cleared.
void launch_summed_pass(const std::int32_t* sums, int variables, int bits, std::int64_t functions,
                        SpectrumSummary* summaries, const DeviceInfo& device, Stream stream);
/// What the search of the largest coefficients of one function works in, besides its sums.
struct LargestRoom {
  unsigned long long *numbers, *kept, *candidates;
};
/// How many numbers each has; of up to 14 variables `numbers` has the whole spectrum.
constexpr std::int64_t largest_numbers(int variables) {
  if (variables < kFewestVariablesInPasses) return std::int64_t{1} << variables;
  return std::int64_t{1} << (variables - summed_tile(summary_passes(variables).last).log_elements());
}
constexpr std::int64_t largest_candidates(int variables, std::int64_t count) {
  return variables < kFewestVariablesInPasses ? 0 : std::min(largest_numbers(variables), count) * count;
}
/// Of sums over all but the `bits` highest bits; of a spectrum where bits is 0. At most kMostLargest.
void launch_largest(const std::int32_t* sums, int variables, int bits, const LargestRoom& room, int count,
                    std::int64_t* places, std::int32_t* values, const DeviceInfo& device, Stream stream);
void clear_summaries(SpectrumSummary* summaries, std::int64_t functions, Stream stream);
void launch_finish_summaries(SpectrumSummary* summaries, int variables, std::int64_t functions,
                             Stream stream);

}  // namespace fwht::walsh
