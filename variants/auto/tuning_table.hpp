// Which variant was fastest where: a table measured on one device, and the rule for all others.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/problem.hpp"
#include "variants/auto/device_class.hpp"

namespace fwht::automatic {

/// One measured point: `variant` was the fastest of its candidates on `elements` elements in rows of n, which
/// were multiplied by operator_for(n); `programmatic`: by launches that the next one may overlap.
struct FastestVariant {
  Dtype dtype;
  std::int64_t n, elements;
  Placement placement;
  bool programmatic;
  std::string variant;
};

/// Text form, as `./testbed tune` writes it:
///
///   # fwht tuning table 2
///   # device: NVIDIA H200
///   # compute_capability: 90
///   # sm_count: 132
///   # source: the results folder that it was made from; or several, with blanks between them
///   dtype,n,elements,placement,launch,variant
///   f16,4096,8388608,in,ordinary,mma_split
///   f16,4096,65536,in,programmatic,mma_split
struct TuningTable : MeasuredOn {
  std::string source;
  std::vector<FastestVariant> choices;

  /// The choice for this dtype and n whose number of elements is nearest on a logarithmic scale (the larger
  /// of two). Of the problem's placement where the table has it, else in place. Programmatic launches have
  /// choices of their own for few rows, and the ordinary ones for others. nullptr when there is none, for
  /// rows of 2^k elements whose operator is not Sylvester's alone, and for codes, orders and other axes.
  const FastestVariant* nearest(const Problem& problem) const;

  /// The names that problems of this dtype and n meet.
  std::set<std::string_view> variants_for(Dtype dtype, std::int64_t n) const;
};

/// Throws BadRequest with `name` and the line.
TuningTable parse_tuning_table(std::string_view text, const std::string& name);

/// The tables that ship: every .csv in this folder, in the order of their names. A device takes the one
/// of_class() of its own that has the row length.
std::span<const TuningTable> shipped_tables();

/// Variants in the order in which a device whose class has no table prefers them: the longest rows to wgmma,
/// then to the tensor cores of every device, then additions alone, of which `butterflies` is the faster. fp32
/// rows beyond 32768: `passes`, and 16-bit rows beyond 65536, or of 65536 where no other serves. Operators of
/// several factors, or with signs: tensor cores, rows in registers or in shared memory first by their length
/// and number; then fp32 arithmetic. Encoded results: one kernel where there is one, else two launches. Of
/// mma_kronecker only where that was measured to be sooner.
std::vector<std::string_view> preferred_variants(const Problem& problem, const DeviceInfo& device);

}  // namespace fwht::automatic
