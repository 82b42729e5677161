// What a conformance check of transforms works with: a ConformanceRun makes plans, runs them in guarded
// memory, and collects what is wrong. Checks take any Variant, so that broken ones can be fed to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/variant.hpp"
#include "common/device/memory.hpp"
#include "reference/conformance/family_run.hpp"
#include "reference/inputs.hpp"
#include "reference/operator_data.hpp"
#include "reference/tolerance.hpp"

namespace fwht::conformance {

using reference::OperatorData;

/// What an encoded problem leaves behind.
struct EncodedBytes {
  Bytes codes, scales;  ///< pages lie in `codes`
};

/// How a plan is executed beyond what its problem says. Offsets are in elements from a 256-byte boundary.
struct Execution {
  unsigned char poison = kPoisonByte;
  std::int64_t in_offset = 0, out_offset = 0;
  bool scale_in_memory = false;  // Operands::tensor_scale_at
};

/// Powers of two 2 .. 2^16, and 2^20.
std::vector<std::int64_t> all_sizes();
/// Operators of every kind: a symmetric and a nonsymmetric base, transposed, on the slow and on the fast
/// index, two bases, dense factors, signs first and last; short rows, and rows as long as those of models.
std::span<const std::string_view> all_operators();
/// Encodings with every element, recipe, granularity, scale type and layout, for tokens of one row.
std::span<const std::string_view> all_encodings();

/// The out-of-place problem with this encoding; nothing where the encoding does not fit n or the dtype.
std::optional<Problem> encoded(Problem problem, std::string_view encoding);

/// Few rows and their results: what larger problems made of the same rows are compared with, bit for bit.
struct JudgedRows {
  Problem problem;
  Bytes input, output;
  std::uint64_t seed = 0;
};

class ConformanceRun : public FamilyRun<Transforms> {
 public:
  /// `sizes` are the row lengths to look at, and `operators` the texts of operators beside them: those that
  /// the variant supports here.
  ConformanceRun(const Variant& variant, Dtype dtype, const DeviceInfo& device,
                 std::span<const std::int64_t> sizes,
                 std::span<const std::string_view> operators = all_operators());

  /// Supported row lengths up to 2^16, and those beyond, which are checked more lightly.
  const std::vector<std::int64_t>& sizes() const { return sizes_; }
  const std::vector<std::int64_t>& large_sizes() const { return large_sizes_; }

  /// Supported operators of several factors, or with signs.
  const std::vector<Operator>& operators() const { return operators_; }
  /// All of them, because encoded results may have more.
  const std::vector<Operator>& asked_operators() const { return asked_operators_; }

  /// Runs the plan on `input` (at least span_bytes; what lies behind the last row is there to be left alone)
  /// and returns the output buffer. Fails the session when a guard, an element between rows or behind the
  /// last one, or the input of an out-of-place plan was changed. BadRequest travels on. Signs and dense
  /// factors are those of OperatorData.
  Bytes execute(const Plan& plan, const Bytes& input, const Execution& how = {});
  Bytes execute(const Problem& problem, const Bytes& input, const Execution& how = {}) {
    return execute(*plan(problem), input, how);
  }

  /// Rows that are in the variant's memory already.
  void execute_in_place(const Plan& plan, void* rows) const { plan.execute(rows, rows); }
  /// What that takes of it.
  std::int64_t bytes_on_device(const Problem& problem) const { return problem.span_bytes(); }

  /// The same for an encoded problem; the buffer of scales starts as full of `how.poison` as that of the
  /// codes. Where the encoding needs a number of the tensor, the bytes must be the same with it in memory.
  EncodedBytes execute_encoded(const Plan& plan, const Bytes& input, float tensor_scale = 1.0F,
                               const Execution& how = {});

  /// Fails unless `got` equals `want` in every element by value (-0 equals +0, NaN is compared by class).
  void expect_exact(const Problem& problem, const Bytes& want, const Bytes& got, const std::string& what);
  /// Fails unless row `got_row` of `got` has the very bits of row `want_row` of `want`.
  void expect_same_row(const Problem& want_problem, const Bytes& want, std::int64_t want_row,
                       const Problem& got_problem, const Bytes& got, std::int64_t got_row,
                       const std::string& what);
  /// The same for all rows, row r of `got` against row r mod want_problem.rows of `want`.
  void expect_same_rows(const Problem& want_problem, const Bytes& want, const Problem& got_problem,
                        const Bytes& got, const std::string& what);
  /// Random rows of the problem, judged by its plan's tolerances.
  JudgedRows judged_rows(const Problem& problem, std::uint64_t seed);
  /// Repeats the rows over the problem, runs it, and compares every row. Rows in another number or layout for
  /// which the plan does not promise the same bits are judged against FP64 instead.
  void expect_repeated(const JudgedRows& rows, const Problem& problem, const std::string& what,
                       const Execution& how = {});
  /// Runs the problem on the input and judges the result by the tolerances of the plan's steps.
  Bytes execute_and_judge(const Problem& problem, reference::InputClass input_class, const Bytes& input,
                          const std::string& what, const Execution& how = {});

 private:
  Bytes run(const Plan& plan, const Bytes& input, const Execution& how, float tensor_scale, Bytes& scales);
  void expect_untouched(const Problem& problem, const Bytes& before, const Bytes& after);
  void expect_same(const Bytes& before, const Bytes& after, std::int64_t begin, std::int64_t end,
                   const std::string& what);

  std::vector<std::int64_t> sizes_, large_sizes_;
  std::vector<Operator> operators_, asked_operators_;
};

/// Storage for the problem, every byte 0xFF: a NaN wherever no input is written.
Bytes blank(const Problem& problem, std::int64_t rows_behind = 0);
Bytes make_input(const Problem& problem, reference::InputClass input_class, std::uint64_t seed);
/// Storage for `to` whose row r is row r mod from.rows of `rows`; the same n, any strides.
Bytes repeat_rows(const Problem& from, const Bytes& rows, const Problem& to);

std::span<const std::byte> row_of(const Problem& problem, const Bytes& bytes, std::int64_t row);
std::span<std::byte> row_of(const Problem& problem, Bytes& bytes, std::int64_t row);

/// Bit pattern of one element, and of a number that the dtype holds.
std::uint64_t bits_at(Dtype dtype, const void* data, std::int64_t index);
std::uint64_t bits_of(Dtype dtype, double value);
void set_bits(Dtype dtype, void* data, std::int64_t index, std::uint64_t bits);
/// That of the number with the other sign.
std::uint64_t negated(Dtype dtype, std::uint64_t bits);
/// Of f16, bf16 and f32.
std::uint32_t sign_bit(Dtype dtype);
bool is_nan(Dtype dtype, std::uint32_t bits);

/// What a variant with these steps must store for the exact, unscaled result `sum` when every partial sum was
/// exact: its own constant, and one rounding.
double exact_result(const Numerics& numerics, const Problem& problem, double sum);

/// The problem with another placement, row stride or scale.
Problem out_of_place(Problem problem);
Problem with_stride(Problem problem, std::int64_t row_stride);
Problem with_scale(Problem problem, double scale);

}  // namespace fwht::conformance
