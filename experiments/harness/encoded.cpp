#include "experiments/harness/encoded.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <thread>
#include <vector>

#include "common/device/device_info.hpp"
#include "reference/prologue.hpp"
#include "reference/quantize.hpp"

namespace fwht::harness {
namespace {

using Bytes = std::vector<std::byte>;
using reference::Verdict;

constexpr std::int64_t kBlockAlignment = 256;

int threads() {
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

Problem plain_of(Problem problem) {
  problem.encoding = {};
  problem.prologue = {};
  problem.paging = {};
  problem.out.row_stride = problem.n();
  problem.programmatic_launch = false;
  return problem;
}

/// All rows, the period again and again, behind the prologue, and multiplied by the signs if `with_signs`.
Bytes prepared_rows(const Problem& problem, const Bytes& period, bool with_signs) {
  Bytes rows(static_cast<std::size_t>(problem.span_bytes()));
  for (std::size_t at = 0; at < rows.size(); at += period.size())
    std::copy_n(period.begin(), std::min(period.size(), rows.size() - at),
                rows.begin() + static_cast<std::ptrdiff_t>(at));
  const reference::PreparedData data(problem, Memory::host);
  reference::apply_prologue(problem, data.operands(), rows.data());
  if (with_signs) {
    const reference::OperatorData signs = operator_data(problem, Memory::host);
    reference::apply_signs(problem, signs.operands(nullptr, nullptr).signs, rows.data());
  }
  return rows;
}

/// Codes of all rows; what lies between rows is not looked at.
Verdict compare_codes(const Problem& problem, const Bytes& want, const Bytes& got) {
  const std::int64_t bits = code_bits(problem.encoding.format);
  const std::int64_t row_bytes = problem.n() * bits / 8, stride_bytes = problem.out.row_stride * bits / 8;
  // Contiguous rows are compared as one: of rows of one element two may share a byte.
  const bool contiguous = problem.out.row_stride == problem.n();
  const std::int64_t pieces = contiguous ? 1 : problem.rows;
  const std::int64_t length = contiguous ? static_cast<std::int64_t>(want.size()) : row_bytes;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const auto begin = want.begin() + piece * stride_bytes;
    const auto [wanted, found] = std::mismatch(begin, begin + length, got.begin() + piece * stride_bytes);
    if (wanted == begin + length) continue;
    const std::int64_t element = (wanted - want.begin()) * 8 / bits;
    return reference::incorrect(
        fmt::format("codes of row {} column {}: {:#04x}, not {:#04x}", element / problem.out.row_stride,
                    element % problem.out.row_stride, static_cast<int>(*found), static_cast<int>(*wanted)));
  }
  return reference::passed();
}

/// Scales, and padding where it must be zero.
Verdict compare_scales(const Problem& problem, const Bytes& want, const std::byte* got) {
  const Encoding& encoding = problem.encoding;
  if (!writes_scales(encoding)) return reference::passed();
  const auto differ = [&](std::int64_t at) {
    return reference::incorrect(fmt::format("byte {} of the scales: {:#04x}, not {:#04x}", at,
                                            static_cast<int>(got[at]),
                                            static_cast<int>(want[static_cast<std::size_t>(at)])));
  };
  if (encoding.layout != ScaleLayout::mn_major) {
    const auto wanted = std::mismatch(want.begin(), want.end(), got).first;
    return wanted == want.end() ? reference::passed() : differ(wanted - want.begin());
  }
  const ScaleShape shape = scale_shape(encoding, problem.rows, problem.n());
  const std::int64_t bytes = scale_bytes(encoding);
  for (std::int64_t column = 0; column < shape.columns; ++column) {
    const std::int64_t begin = bytes * scale_position(encoding.layout, 0, column, shape.rows, shape.columns);
    for (std::int64_t at = begin; at < begin + shape.rows * bytes; ++at) {
      if (got[at] != want[static_cast<std::size_t>(at)]) return differ(at);
    }
  }
  return reference::passed();
}

/// The plan whose bits an encoded plan has to have: with signs where the variant takes them, since it may
/// choose another kernel for them. Otherwise those that come first are left to the rows.
std::unique_ptr<Plan> plain_plan(const Variant& variant, const Problem& asked, const DeviceInfo& device) {
  Problem plain = plain_of(asked);
  const bool has_first_signs = asked.op.has_signs() && !asked.op.signs_come_last();
  if (has_first_signs && !variant.supports(plain, device)) plain.op = Operator(asked.op.factors());
  return fwht::plan(variant, plain, device);
}

/// The plain result of all rows as the encoded plan prepares them, and whether the variant's are right.
Verdict plain_result(const Variant& variant, const Problem& asked, const DeviceInfo& device,
                     TruthCache& truths, reference::InputClass input, std::uint64_t seed, Bytes& values) {
  const Problem problem = plain_of(asked);
  values.resize(static_cast<std::size_t>(problem.span_bytes_out()));
  if (problem.n() == 1) {
    const Bytes rows = prepared_rows(asked, truths.input_of(problem, input, seed), asked.op.has_signs());
    for (std::int64_t row = 0; row < problem.rows; ++row) {
      const double x = load_element(problem.dtype(), rows.data(), row * problem.row_stride());
      store_element(problem.dtype(), values.data(), row, problem.scale * x);
    }
    return reference::passed();
  }
  const auto plan = plain_plan(variant, asked, device);
  const bool signs_in_rows = asked.op.has_signs() && !plan->problem().op.has_signs();
  Slices own({variant.memory, Placement::out_of_place, problem.span_bytes(), problem.span_bytes_out()}, 1);
  const reference::Checked checked = check_plan(*plan, truths.of(plan->problem(), input, seed), own);
  if (asked.prologue || signs_in_rows) {
    own.fill(prepared_rows(asked, truths.input_of(problem, input, seed), signs_in_rows));
    const reference::OperatorData data = operator_data(plan->problem(), variant.memory);
    plan->execute(data.operands(own.in(0), own.out(0)));
    synchronize(variant.memory);
  }
  own.output().download(values.data(), values.size());
  return checked.verdict;
}

/// The fp32 results of all rows where the truth's are integers whose sums are exact, as plans of these steps
/// must have them; empty where they are not exact.
Bytes exact_values(const Problem& problem, const Numerics& numerics, const Truth& truth) {
  Problem wide = make_problem(Dtype::f32, problem.op, truth.period.rows);
  wide.scale = problem.scale;
  Bytes input(static_cast<std::size_t>(wide.span_bytes())), period(input.size());
  for (std::int64_t row = 0; row < wide.rows; ++row) {
    for (std::int64_t i = 0; i < wide.n(); ++i) {
      const double value =
          load_element(problem.dtype(), truth.raw.data(), row * truth.period.row_stride() + i);
      store_element(Dtype::f32, input.data(), row * wide.n() + i, value);
    }
  }
  if (!reference::exact_result(numerics, wide, input.data(), period.data())) return {};
  Bytes all(static_cast<std::size_t>(problem.elements() * bytes_of(Dtype::f32)));
  for (std::size_t at = 0; at < all.size(); at += period.size())
    std::copy_n(period.begin(), std::min(period.size(), all.size() - at),
                all.begin() + static_cast<std::ptrdiff_t>(at));
  return all;
}

/// Relative L2 error of the codes of the truth's rows.
double error_of_codes(Problem problem, const reference::Matrix& all, const Array& array,
                      const Bytes& values) {
  problem.paging = {};
  const std::int64_t token_rows = token_length(problem.encoding, problem.n()) / problem.n();
  problem.rows = std::min<std::int64_t>(all.rows(), problem.rows) / token_rows * token_rows;
  if (problem.rows == 0) return std::nan("");
  const float tensor_scale = encoded_operands(problem, nullptr, nullptr).tensor_scale;
  const reference::Encoded encoded =
      reference::quantize(problem, array, values.data(), tensor_scale, threads());
  const reference::Matrix numbers =
      reference::dequantize(problem, encoded.codes.data(), encoded.scales.data(), tensor_scale, threads());
  const auto expected = all.topRows(problem.rows);
  return (numbers - expected).norm() / expected.norm();
}

}  // namespace

EncodedBlock encoded_block(const Problem& problem) {
  const std::int64_t scales_at = round_up(problem.span_bytes_out(), kBlockAlignment);
  return {scales_at, scales_at + problem.scale_bytes_out()};
}

Operands encoded_operands(const Problem& problem, const void* in, void* out) {
  Operands operands{in, out};
  if (writes_scales(problem.encoding) && !problem.paging) {
    operands.scales = static_cast<std::byte*>(out) + encoded_block(problem).scales_at;
    operands.scales_bytes = problem.scale_bytes_out();
  }
  constexpr float kLargestOfMany = 6.0F;  // sigma: of 2^26 normal numbers one or none is larger
  if (problem.encoding.recipe == Recipe::vllm_static) operands.tensor_scale = kLargestOfMany / 448.0F;
  if (problem.encoding.recipe == Recipe::te) operands.tensor_scale = 448.0F * 6.0F / kLargestOfMany;
  return operands;
}

Preparation::Preparation(const Problem& problem, Memory memory)
    : problem_(problem),
      operator_(operator_data(problem, memory)),
      prepared_(problem, memory, reference::PreparedData::Slots::by_page) {}

Operands Preparation::operands(const void* in, void* out) const {
  Operands operands = encoded_operands(problem_, in, out);
  const Operands beside_rows = operator_.operands(in, out);
  operands.signs = beside_rows.signs;
  operands.dense = beside_rows.dense;
  operands.prepared = prepared_.operands();
  return operands;
}

namespace {

/// The output block as the problem without pages has it; rows without a place are as `want` has them.
Bytes without_pages(const Problem& problem, const reference::Encoded& want, const Bytes& got) {
  Problem apart = problem;
  apart.paging = {};
  const PageLayout pages = problem.page_layout();
  const reference::PreparedData data(problem, Memory::host, reference::PreparedData::Slots::by_page);
  Bytes block(static_cast<std::size_t>(encoded_block(apart).bytes));
  auto* const codes = block.data();
  auto* const scales = block.data() + encoded_block(apart).scales_at;
  for (std::int64_t row = 0; row < problem.rows; ++row) {
    const std::int64_t slot = data.operands().slots[row];
    const bool placed = pages.has(slot);
    const auto copy = [&](std::byte* to, const Bytes& wanted, std::int64_t at, std::int64_t bytes) {
      std::copy_n(placed ? got.data() + at : wanted.data() + row * bytes, bytes, to + row * bytes);
    };
    copy(codes, want.codes, placed ? pages.codes_at(slot) : 0, pages.code_bytes);
    copy(scales, want.scales, placed ? pages.scales_at(slot) : 0, pages.scale_bytes);
  }
  return block;
}

/// What one execution on the rows leaves in the output block.
Bytes executed(const Plan& plan, const Bytes& rows, Slices& slices) {
  slices.fill(rows);
  const Preparation preparation(plan.problem(), slices.memory());
  plan.execute(preparation.operands(slices.in(0), slices.out(0)));
  synchronize(slices.memory());
  Bytes got(static_cast<std::size_t>(encoded_block(plan.problem()).bytes));
  slices.output().download(got.data(), got.size());
  return got;
}

Verdict compare(const Problem& problem, const reference::Encoded& want, const Bytes& got) {
  Verdict verdict = compare_scales(problem, want.scales, got.data() + encoded_block(problem).scales_at);
  return verdict ? compare_codes(problem, want.codes, got) : verdict;
}

/// Codes of the fp32 result itself, which nobody stores: bit for bit on integer rows, whose fp32 result
/// follows from the plan's steps; the error on rows of `input`, from the plan's own codes.
EncodedChecked check_of_fp32(const Plan& plan, TruthCache& truths, reference::InputClass input,
                             std::uint64_t seed, Slices& slices) {
  const Problem& problem = plan.problem();
  const Problem plain = plain_of(problem);
  const float tensor_scale = encoded_operands(problem, nullptr, nullptr).tensor_scale;
  EncodedChecked checked;
  const Truth& integers = truths.of(plain, reference::InputClass::integers, seed);
  const Bytes values = exact_values(plain, plan.numerics(), integers);
  if (values.empty()) {
    checked.verdict = reference::incorrect("integer rows have no exact fp32 result by the plan's steps");
    return checked;
  }
  const Bytes of_integers = executed(plan, integers.raw, slices);
  const reference::Encoded want =
      reference::quantize(problem, {Dtype::f32, problem.n()}, values.data(), tensor_scale, threads());
  checked.verdict = compare(problem, want, of_integers);
  if (!checked.verdict) {
    checked.verdict.message = "integer rows: " + checked.verdict.message;
    return checked;
  }
  const Truth& truth = truths.of(plain, input, seed);
  const Bytes got = executed(plan, truth.raw, slices);
  const reference::Matrix numbers = reference::dequantize(
      problem, got.data(), got.data() + encoded_block(problem).scales_at, tensor_scale, threads());
  const Eigen::Index rows = std::min(truth.period.rows, problem.rows);
  const auto expected = truth.expected.topRows(rows);
  checked.rel_l2 = (numbers.topRows(rows) - expected).norm() / expected.norm();
  return checked;
}

}  // namespace

EncodedChecked check_encoded(const Variant& variant, const Plan& plan, const DeviceInfo& device,
                             TruthCache& truths, reference::InputClass input, std::uint64_t seed,
                             Slices& slices) {
  const Problem& problem = plan.problem();
  if (problem.encoding.intermediate == Intermediate::f32 && problem.dtype() != Dtype::f32) {
    EncodedChecked checked = check_of_fp32(plan, truths, input, seed, slices);
    if (!slices.output().guards_intact() || !slices.input().guards_intact())
      checked.verdict = reference::incorrect("memory in front of or behind the data was written");
    return checked;
  }
  const Problem plain = plain_of(problem);
  const float tensor_scale = encoded_operands(problem, nullptr, nullptr).tensor_scale;
  Bytes got = executed(plan, truths.input_of(plain, input, seed), slices);
  EncodedChecked checked;
  if (!slices.output().guards_intact() || !slices.input().guards_intact()) {
    checked.verdict = reference::incorrect("memory in front of or behind the data was written");
    return checked;
  }

  Bytes values;
  checked.verdict = plain_result(variant, problem, device, truths, input, seed, values);
  if (!checked.verdict) {
    checked.verdict.message = "the plain result: " + checked.verdict.message;
    return checked;
  }
  Problem apart = problem;
  apart.paging = {};
  const reference::Encoded want =
      reference::quantize(apart, plain.out, values.data(), tensor_scale, threads());
  if (problem.paging) got = without_pages(problem, want, got);
  checked.verdict = compare(apart, want, got);
  const Truth& truth = truths.of(plain, input, seed);
  reference::Matrix expected = truth.expected;
  if (problem.prologue) {
    const reference::OperatorData data = operator_data(truth.period, Memory::host);
    const Bytes rows = prepared_rows(problem, truth.raw, false);
    expected = reference::expected(truth.period, data.operands(rows.data(), nullptr));
  }
  checked.rel_l2 = error_of_codes(problem, expected, plain.out, values);
  return checked;
}

}  // namespace fwht::harness
