// Where to put the scale of an fp16 transform: which rows overflow although their exact result is finite, and
// what precision small data lose, against the 2-norm of the row.
#pragma once

#include <string_view>
#include <vector>

#include "experiments/harness/performer.hpp"
#include "experiments/harness/tasks.hpp"

namespace fwht::overflow {

/// The rows, all of one 2-norm.
enum class RowShape {
  normal,    ///< N(0, 1) times a factor
  constant,  ///< all equal: one output holds the whole norm
  block,     ///< min(256, n / 2) equal entries, aligned: two tensor-core stages gather them in one place
  one_hot    ///< everything in one column
};
inline constexpr Names<RowShape, 4> kShapes{"shape",
                                            {{RowShape::normal, "normal"},
                                             {RowShape::constant, "constant"},
                                             {RowShape::block, "block_of_256"},
                                             {RowShape::one_hot, "one_hot"}}};
constexpr std::string_view name_of(RowShape shape) {
  return kShapes.of(shape);
}

/// Rows of 2-norm `norm` as fp16 storage; empty when fp16 cannot hold an entry.
std::vector<std::byte> make_rows(const Problem& problem, RowShape shape, double norm);

/// Places of the scale that no variant uses, as host models: fp32 butterflies of x * scale rounded to fp16,
/// and fp16 butterflies with the scale after the last.
enum class ScalePlacement { before, after_in_storage };
std::string_view name_of(ScalePlacement placement);
std::vector<std::byte> transform(ScalePlacement placement, const Problem& problem,
                                 const std::vector<std::byte>& rows);

/// What came out of rows, beside FP64.
struct Count {
  int rows = 0, overflowing = 0, spurious = 0;  ///< rows; overflowing: whose exact result overflows
  std::int64_t spurious_values = 0;             ///< infinite or NaN in rows whose exact result is finite
  double rel_l2 = 0.0;                          ///< over rows with finite outputs; NaN when there is none
};
Count count(const Problem& problem, const std::vector<std::byte>& in, const std::vector<std::byte>& out);

/// Every performer and both host models on fp16 rows, n = 128, 1024, 32768, norms 2^-24 .. 2^8 times 65504.
/// Rows of overflow.csv.
std::vector<harness::Task> tasks(const harness::StudySetup& setup);

}  // namespace fwht::overflow
