#include "reference/conformance/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/host/error.hpp"
#include "reference/compare.hpp"
#include "reference/emulation.hpp"
#include "reference/prologue.hpp"

namespace fwht::conformance {

/// The longest row that is checked in full.
constexpr std::int64_t kLongest = std::int64_t{1} << 16;

ConformanceRun::ConformanceRun(const Variant& variant, Dtype dtype, const DeviceInfo& device,
                               std::span<const std::int64_t> sizes,
                               std::span<const std::string_view> operators)
    : FamilyRun(variant, dtype, device) {
  for (const std::int64_t n : sizes) {
    if (const Support support = variant.supports(make_problem(dtype, n, 1), device); support) {
      (n <= kLongest ? sizes_ : large_sizes_).push_back(n);
    } else if (n <= kLongest) {
      skip(support.why_not);
    }
  }
  for (const std::string_view text : operators) {
    const Operator op = parse_operator(text);
    asked_operators_.push_back(op);
    if (offers(make_problem(dtype, op, 1))) operators_.push_back(op);
  }
}

void ConformanceRun::expect_same(const Bytes& before, const Bytes& after, std::int64_t begin,
                                 std::int64_t end, const std::string& what) {
  if (std::equal(before.begin() + begin, before.begin() + end, after.begin() + begin)) return;
  std::int64_t at = begin;
  while (before[static_cast<std::size_t>(at)] == after[static_cast<std::size_t>(at)])
    ++at;
  fail(fmt::format("{}: byte {} changed from {:#04x} to {:#04x}", what, at,
                   static_cast<int>(before[static_cast<std::size_t>(at)]),
                   static_cast<int>(after[static_cast<std::size_t>(at)])));
}

void ConformanceRun::expect_untouched(const Problem& problem, const Bytes& before, const Bytes& after) {
  if (problem.paging) return;  // judged as a whole
  const std::int64_t bits =
      problem.encoding.is_plain() ? 8 * bytes_of(problem.out.dtype) : code_bits(problem.encoding.format);
  if (problem.out.row_stride != problem.n()) {
    for (std::int64_t row = 0; row + 1 < problem.rows; ++row) {
      const std::int64_t start = row * problem.out.row_stride;
      expect_same(before, after, (start + problem.n()) * bits / 8,
                  (start + problem.out.row_stride) * bits / 8,
                  fmt::format("{}: the gap behind row {} was written", to_string(problem), row));
    }
  }
  expect_same(before, after, problem.span_bytes_out(), static_cast<std::int64_t>(before.size()),
              fmt::format("{}: memory behind the last row was written", to_string(problem)));
}

Bytes ConformanceRun::execute(const Plan& plan, const Bytes& input, const Execution& how) {
  Bytes none;
  return run(plan, input, how, 1.0F, none);
}

EncodedBytes ConformanceRun::execute_encoded(const Plan& plan, const Bytes& input, float tensor_scale,
                                             const Execution& how) {
  EncodedBytes result;
  result.codes = run(plan, input, how, tensor_scale, result.scales);
  if (needs_tensor_scale(plan.problem().encoding)) {
    Execution again = how;
    again.scale_in_memory = true;
    Bytes scales;
    if (run(plan, input, again, tensor_scale, scales) != result.codes || scales != result.scales) {
      fail(fmt::format("{}: tensor_scale {} in memory gives other codes or scales", to_string(plan.problem()),
                       tensor_scale));
    }
  }
  return result;
}

Bytes ConformanceRun::run(const Plan& plan, const Bytes& input, const Execution& how, float tensor_scale,
                          Bytes& scales) {
  const Problem& problem = plan.problem();
  const bool in_place = problem.placement == Placement::in_place;
  const auto offset_bytes = [&](std::int64_t elements) {
    return static_cast<std::size_t>(elements * bytes_of(problem.dtype()));
  };
  Buffer in(variant().memory, input.size(), offset_bytes(how.in_offset));
  in.upload(input.data(), input.size());
  Buffer apart;
  // As many bytes behind the last row as the input has there.
  const std::size_t output_bytes = input.size() + static_cast<std::size_t>(problem.span_bytes_out()) -
                                   static_cast<std::size_t>(problem.span_bytes());
  if (!in_place) {
    apart = Buffer(variant().memory, output_bytes, offset_bytes(how.out_offset));
    apart.poison(how.poison);
  }
  Buffer& out = in_place ? in : apart;
  const OperatorData data(problem.op, problem.dtype(), variant().memory);
  Operands operands = data.operands(in.data(), out.data());
  const reference::PreparedData prepared(problem, variant().memory);
  operands.prepared = prepared.operands();
  Buffer scale_buffer;
  if (writes_scales(problem.encoding) && !problem.paging) {
    scales.resize(static_cast<std::size_t>(problem.scale_bytes_out()));
    scale_buffer = Buffer(variant().memory, scales.size());
    scale_buffer.poison(how.poison);
    operands.scales = scale_buffer.data();
    operands.scales_bytes = problem.scale_bytes_out();
  }
  Buffer number;
  if (how.scale_in_memory) {
    number = Buffer(variant().memory, sizeof tensor_scale);
    number.upload(&tensor_scale, sizeof tensor_scale);
    operands.tensor_scale_at = static_cast<const float*>(number.data());
  } else if (needs_tensor_scale(problem.encoding)) {
    operands.tensor_scale = tensor_scale;
  }
  plan.execute(operands);
  synchronize(variant().memory);
  count_case();

  if (!scales.empty()) {
    scale_buffer.download(scales.data(), scales.size());
    if (!scale_buffer.guards_intact())
      fail(fmt::format("{}: a guard of the scales was overwritten", to_string(problem)));
  }
  Bytes output(output_bytes);
  out.download(output.data(), output.size());
  expect_untouched(problem, in_place ? input : Bytes(output_bytes, std::byte{how.poison}), output);
  if (!out.guards_intact())
    fail(fmt::format("{}: a guard of the output was overwritten", to_string(problem)));
  if (!in_place) {
    Bytes input_after(input.size());
    in.download(input_after.data(), input_after.size());
    expect_same(input, input_after, 0, static_cast<std::int64_t>(input.size()),
                fmt::format("{}: the input was changed", to_string(problem)));
    if (!in.guards_intact())
      fail(fmt::format("{}: a guard of the input was overwritten", to_string(problem)));
  }
  return output;
}

void ConformanceRun::expect_exact(const Problem& problem, const Bytes& want, const Bytes& got,
                                  const std::string& what) {
  if (want == got) return;
  const reference::Verdict verdict = reference::compare_exact(problem, want.data(), got.data());
  if (!verdict) fail(fmt::format("{}: {}: {}", to_string(problem), what, verdict.message));
}

void ConformanceRun::expect_same_row(const Problem& want_problem, const Bytes& want, std::int64_t want_row,
                                     const Problem& got_problem, const Bytes& got, std::int64_t got_row,
                                     const std::string& what) {
  const auto wanted = row_of(want_problem, want, want_row), found = row_of(got_problem, got, got_row);
  if (std::equal(wanted.begin(), wanted.end(), found.begin(), found.end())) return;
  std::int64_t column = 0;
  while (bits_at(dtype(), wanted.data(), column) == bits_at(dtype(), found.data(), column))
    ++column;
  fail(fmt::format("{}: {}: row {} column {}: {} (bits {:#x}), not {} (bits {:#x})", to_string(got_problem),
                   what, got_row, column, load_element(dtype(), found.data(), column),
                   bits_at(dtype(), found.data(), column), load_element(dtype(), wanted.data(), column),
                   bits_at(dtype(), wanted.data(), column)));
}

void ConformanceRun::expect_same_rows(const Problem& want_problem, const Bytes& want,
                                      const Problem& got_problem, const Bytes& got, const std::string& what) {
  for (std::int64_t row = 0; row < got_problem.rows; ++row) {
    expect_same_row(want_problem, want, row % want_problem.rows, got_problem, got, row, what);
  }
}

Bytes ConformanceRun::execute_and_judge(const Problem& problem, reference::InputClass input_class,
                                        const Bytes& input, const std::string& what, const Execution& how) {
  const std::unique_ptr<Plan> made = plan(problem);
  Bytes output = execute(*made, input, how);
  const bool wide = problem.dtype() == Dtype::f64 || is_integer(problem.dtype());
  if (wide && problem.op.is_sylvester()) {  // FP64 is no truth for these
    Bytes want = output;
    reference::emulate(problem, made->numerics(), input.data(), want.data());
    expect_exact(problem, want, output, what);
    return output;
  }
  const OperatorData data(problem.op, problem.dtype());
  const reference::Checked checked =
      reference::check(problem, made->numerics(), input_class, data.operands(input.data(), output.data()));
  if (!checked.verdict) fail(fmt::format("{}: {}: {}", to_string(problem), what, checked.verdict.message));
  return output;
}

JudgedRows ConformanceRun::judged_rows(const Problem& problem, std::uint64_t seed) {
  JudgedRows rows{problem, make_input(problem, reference::InputClass::normal, seed), {}, seed};
  rows.output = execute_and_judge(problem, reference::InputClass::normal, rows.input,
                                  fmt::format("normal input with seed {}", seed));
  return rows;
}

void ConformanceRun::expect_repeated(const JudgedRows& rows, const Problem& problem, const std::string& what,
                                     const Execution& how) {
  const Promises promises = plan(problem)->numerics().promises;
  const bool same_layout = problem.placement == rows.problem.placement && problem.contiguous() &&
                           how.in_offset == 0 && how.out_offset == 0;
  if ((problem.rows == rows.problem.rows || promises.batch_invariant) &&
      (same_layout || promises.layout_invariant)) {
    const Bytes got = execute(problem, repeat_rows(rows.problem, rows.input, problem), how);
    expect_same_rows(rows.problem, rows.output, with_stride(problem, problem.out.row_stride), got, what);
  } else {  // rows of their own: the statistics count every element once
    const Bytes input = make_input(problem, reference::InputClass::normal, rows.seed);
    execute_and_judge(problem, reference::InputClass::normal, input, what, how);
  }
}

std::vector<std::int64_t> all_sizes() {
  std::vector<std::int64_t> sizes;
  for (int log_n = 1; log_n <= 16; ++log_n)
    sizes.push_back(std::int64_t{1} << log_n);
  sizes.push_back(std::int64_t{1} << 20);
  return sizes;
}

std::span<const std::string_view> all_operators() {
  static constexpr std::string_view kOperators[] = {
      "12x8",        "28x16",         "44",           "4x12",          "116x4",
      "116tx4",      "428x2",         "428tx2",       "4x116",         "12x2x20x2",
      "d5x16",       "d5tx16",        "16xd6",        "12xd5tx2",      "128+signs",
      "signs+128",   "28x4+signs",    "signs+116tx2", "d5x16+signs",   "28x512",
      "428x32",      "signs+428tx32", "76x2x36x2",    "172x64+signs",  "12x256",
      "116x128",     "116tx128",      "172x64",       "12x64",         "44x32",
      "180x16",      "20x16",         "28x32+signs",  "172x32",        "140x64",
      "d28tx64",     "4096+signs",    "signs+12x512", "60x4x28x2",     "signs+60x4x28x2",
      "116tx4x28x2", "132x4x28x2",    "36x1024",      "52x1024+signs", "12x1024",
      "28x256",      "28x1024",       "68x256+signs", "108x256",       "148x128",
      "428x16",      "428x64+signs",  "4r",           "16r",           "64r",
      "256r",        "256r+signs",    "28x64r",       "1024r",         "64+signs",
      "signs+512",   "1024+signs",    "signs+8192",   "16384+signs"};
  return kOperators;
}

std::span<const std::string_view> all_encodings() {
  static constexpr std::string_view kEncodings[] = {"e4m3:row",
                                                    "e4m3:row,sglang_token",
                                                    "e4m3:tensor",
                                                    "e4m3:tensor,vllm_static",
                                                    "e4m3:128",
                                                    "e4m3:128,sglang_group",
                                                    "e4m3:128,deepgemm",
                                                    "e4m3:128,deepseek_v32",
                                                    "e4m3:128,mn",
                                                    "e4m3:32",
                                                    "e4m3:row,ue8m0,vllm_group",
                                                    "e4m3:128,ue8m0",
                                                    "e4m3:128,ue8m0,mn,deepgemm",
                                                    "e4m3:128,ue8m0,packed,deepseek_v32",
                                                    "int8:row",
                                                    "int8:128",
                                                    "int8:128,mn",
                                                    "int8:tensor",
                                                    "int4:row",
                                                    "int4:32",
                                                    "int4:128",
                                                    "int4:row,quarot",
                                                    "int4:64,quarot",
                                                    "mxfp8",
                                                    "mxfp8:rceil",
                                                    "mxfp8:128x4",
                                                    "mxfp8:packed,rceil",
                                                    "mxfp4",
                                                    "mxfp4:rceil",
                                                    "mxfp4:even",
                                                    "mxfp4:128x4",
                                                    "mxfp4:packed,even",
                                                    "nvfp4",
                                                    "nvfp4:128x4"};
  return kEncodings;
}

std::optional<Problem> encoded(Problem problem, std::string_view encoding) {
  problem.placement = Placement::out_of_place;
  problem.encoding = parse_encoding(encoding);
  try {
    validate(problem);
  } catch (const BadRequest&) {
    return std::nullopt;
  }
  return problem;
}

Bytes blank(const Problem& problem, std::int64_t rows_behind) {
  const std::int64_t bytes =
      problem.span_bytes() + rows_behind * problem.row_stride() * bytes_of(problem.dtype());
  return Bytes(static_cast<std::size_t>(bytes), std::byte{kPoisonByte});
}

Bytes make_input(const Problem& problem, reference::InputClass input_class, std::uint64_t seed) {
  Bytes bytes = blank(problem);
  reference::write_input(problem, input_class, seed, bytes.data());
  return bytes;
}

Bytes repeat_rows(const Problem& from, const Bytes& rows, const Problem& to) {
  Bytes bytes = blank(to);
  for (std::int64_t row = 0; row < to.rows; ++row) {
    const auto source = row_of(from, rows, row % from.rows);
    std::copy(source.begin(), source.end(), row_of(to, bytes, row).begin());
  }
  return bytes;
}

std::span<const std::byte> row_of(const Problem& problem, const Bytes& bytes, std::int64_t row) {
  const std::int64_t element = bytes_of(problem.dtype());
  return std::span(bytes).subspan(static_cast<std::size_t>(row * problem.row_stride() * element),
                                  static_cast<std::size_t>(problem.n() * element));
}

std::span<std::byte> row_of(const Problem& problem, Bytes& bytes, std::int64_t row) {
  const std::int64_t element = bytes_of(problem.dtype());
  return std::span(bytes).subspan(static_cast<std::size_t>(row * problem.row_stride() * element),
                                  static_cast<std::size_t>(problem.n() * element));
}

std::uint64_t bits_at(Dtype dtype, const void* data, std::int64_t index) {
  std::uint64_t bits = 0;  // little endian, as every machine with CUDA
  std::memcpy(&bits, static_cast<const std::byte*>(data) + index * bytes_of(dtype),
              static_cast<std::size_t>(bytes_of(dtype)));
  return bits;
}

std::uint64_t bits_of(Dtype dtype, double value) {
  std::uint64_t bits = 0;
  store_element(dtype, &bits, 0, value);
  return bits;
}

std::uint64_t negated(Dtype dtype, std::uint64_t bits) {
  const int unused = 64 - 8 * static_cast<int>(bytes_of(dtype));
  if (is_integer(dtype)) return (~bits + 1) << unused >> unused;
  return bits ^ std::uint64_t{1} << (63 - unused);
}

void set_bits(Dtype dtype, void* data, std::int64_t index, std::uint64_t bits) {
  std::memcpy(static_cast<std::byte*>(data) + index * bytes_of(dtype), &bits,
              static_cast<std::size_t>(bytes_of(dtype)));
}

std::uint32_t sign_bit(Dtype dtype) {
  return std::uint32_t{1} << (8 * bytes_of(dtype) - 1);
}

bool is_nan(Dtype dtype, std::uint32_t bits) {
  return std::isnan(decode(dtype, bits));
}

double exact_result(const Numerics& numerics, const Problem& problem, double sum) {
  const auto in_fp32 = [](const Step& step) {
    return step.sums != Sums::fp64 && step.sums != Sums::integer && !step.is_tensor_block();
  };
  if (std::none_of(numerics.steps.begin(), numerics.steps.end(), in_fp32)) {
    // Constants in double precision, or in 16 bits in the matrices (181/256 for 1/sqrt2 in f16 and in bf16
    // alike). Their product with the exact sum has few enough bits to be exact, and is rounded once.
    return round_to(problem.dtype(), sum * numerics.constant());
  }
  const float scaled = static_cast<float>(sum) * static_cast<float>(numerics.constant());
  return round_to(problem.dtype(), static_cast<double>(scaled));
}

Problem out_of_place(Problem problem) {
  problem.placement = Placement::out_of_place;
  return problem;
}

Problem with_stride(Problem problem, std::int64_t row_stride) {
  problem.set_row_stride(row_stride);
  return problem;
}

Problem with_scale(Problem problem, double scale) {
  problem.scale = scale;
  return problem;
}

}  // namespace fwht::conformance
