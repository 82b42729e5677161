// fwht::transform: refusals on any machine; on a GPU the results of `auto`, from many threads and in graphs.
#include "variants/library/transform.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/contract/scratch.hpp"
#include "common/device/device_info.hpp"
#include "common/device/memory.hpp"
#include "common/device/stream_query.hpp"
#include "common/host/error.hpp"
#include "common/testing/refusal.hpp"
#include "reference/conformance/device_tools.hpp"
#include "reference/inputs.hpp"
#include "reference/tolerance.hpp"
#include "variants/library/rounded_codes_check.hpp"
#include "variants/library/rounded_rows.hpp"
#include "variants/library/walsh.hpp"
#include "variants/registry.hpp"

namespace fwht {
namespace {

/// A plan whose execution is a call of transform, so that the tools for plans can drive it.
class TransformPlan final : public Plan {
 public:
  explicit TransformPlan(const Problem& problem) : Plan(problem) {}
  Numerics numerics() const override { return {}; }
  Settings settings() const override { return {}; }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    transform(operands.in, operands.out, problem(), stream);
  }
};

struct Work {
  explicit Work(const Problem& p, std::uint64_t seed)
      : problem(p),
        raw(static_cast<std::size_t>(p.span_bytes())),
        in(Memory::device, raw.size()),
        out(Memory::device, raw.size()) {
    reference::write_input(problem, reference::InputClass::normal, seed, raw.data());
    in.upload(raw.data(), raw.size());
    synchronize(Memory::device);
  }

  void expect_right(const char* what) const {
    synchronize(Memory::device);
    std::vector<std::byte> got(raw.size());
    out.download(got.data(), got.size());
    const std::unique_ptr<Plan> model = plan(find_variant("auto"), problem, this_device());
    const reference::Checked checked =
        reference::check(problem, model->numerics(), reference::InputClass::normal, raw.data(), got.data());
    EXPECT_TRUE(checked.verdict) << what << ": " << to_string(problem) << ": " << checked.verdict.message;
  }

  Problem problem;
  std::vector<std::byte> raw;
  Buffer in, out;
};

Problem apart(Dtype dtype, std::int64_t n, std::int64_t rows) {
  return make_problem(dtype, n, rows, Placement::out_of_place);
}

TEST(Transform, RefusesBeforeAnythingElse) {
  Problem nonsense = make_problem(Dtype::f16, 64, 1);
  nonsense.set_row_stride(3);
  EXPECT_THROW(transform(nullptr, nullptr, nonsense), BadRequest);
  EXPECT_THROW(kept_plan(find_variant("auto"), nonsense), BadRequest);
  EXPECT_THROW(transform(find_variant("cpu"), {}, make_problem(Dtype::f16, 64, 1)), BadRequest);
}

TEST(Transform, NamesTheHostVariantOnAMachineWithoutADevice) {
  if (this_device().has_cuda()) GTEST_SKIP() << "this machine has a CUDA device";
  const auto refusal = [](const Problem& problem, int device) -> std::string {
    return bad_request_of([&] { transform(nullptr, nullptr, problem, nullptr, device); });
  };
  const Problem problem = make_problem(Dtype::f16, 64, 1);
  EXPECT_EQ(refusal(problem, kCurrentDevice),
            this_device().why_no_cuda +
                "; for rows in host memory use the variant cpu: plan(find_variant(\"cpu\"), problem, "
                "this_device())");
  EXPECT_EQ(refusal(problem, 3), refusal(problem, kCurrentDevice));
  EXPECT_EQ(bad_request_of([&] { kept_plan(find_variant("auto"), problem); }), refusal(problem, 3));
  EXPECT_EQ(refusal(parse_problem("f16/n64/r1/out/to-f32"), kCurrentDevice), this_device().why_no_cuda)
      << "no host variant takes it";
}

TEST(Transform, KnowsDevicesThatAreThere) {
  const int usual = this_device(kMostKnownDevices - 1).host_threads;
  for (const int ordinal : {kMostKnownDevices - 1, kMostKnownDevices, -5}) {
    EXPECT_EQ(known_device(ordinal).host_threads, usual);
    set_host_threads(1);
    EXPECT_EQ(known_device(ordinal).host_threads, 1) << "no such device: asked for again";
    set_host_threads(0);
  }
}

TEST(Transform, KeepsAtLeastOnePlan) {
  const std::size_t usual = transform_plan_limit();
  EXPECT_EQ(usual, 1024U);
  EXPECT_THROW(set_transform_plan_limit(0), BadRequest);
  set_transform_plan_limit(7);
  EXPECT_EQ(transform_plan_limit(), 7U);
  set_transform_plan_limit(usual);
}

class TransformGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const DeviceInfo device = this_device(); !device.has_cuda()) GTEST_SKIP() << device.why_no_cuda;
    clear_transform_plans();
  }
};
class SanitizeGpu : public TransformGpu {};  // small problems, for compute-sanitizer

TEST_F(TransformGpu, KeepsOnePlanForOneProblem) {
  Work work(apart(Dtype::f16, 1024, 9), 1);
  for (int i = 0; i < 3; ++i)
    transform(work.in.data(), work.out.data(), work.problem);
  work.expect_right("called three times");
  EXPECT_NE(kept_plan(find_variant("auto"), work.problem), nullptr) << "of the current device";
  EXPECT_EQ(clear_transform_plans(), 1U);
  EXPECT_EQ(clear_transform_plans(), 0U);
  EXPECT_THROW(transform(work.in.data(), work.in.data(), work.problem), BadRequest) << "overlap";
  EXPECT_THROW(transform(nullptr, work.out.data(), work.problem), BadRequest);
}

TEST_F(TransformGpu, LaunchesTheVariantThatIsNamed) {
  const DeviceInfo device = this_device();
  std::size_t plans = 0;
  for (const Variant* variant : registry()) {
    Work work(apart(Dtype::f16, 1024, 9), 1);
    if (variant->memory != Memory::device || !variant->supports(work.problem, device)) continue;
    ++plans;
    transform(*variant, {work.in.data(), work.out.data()}, work.problem);
    transform(*variant, {work.in.data(), work.out.data()}, work.problem);
    Buffer own(Memory::device, work.raw.size());
    plan(*variant, work.problem, device)->execute(work.in.data(), own.data());
    synchronize(Memory::device);
    std::vector<std::byte> kept(work.raw.size()), made(work.raw.size());
    work.out.download(kept.data(), kept.size());
    own.download(made.data(), made.size());
    EXPECT_EQ(kept, made) << variant->name;
  }
  EXPECT_GT(plans, 1U);
  EXPECT_EQ(clear_transform_plans(), plans);
}

// By `passes`: the bits of the host, and the gaps as they were. From one ordering into another sums are
// formed in another sequence, so there all of them are exact.
TEST_F(TransformGpu, PassesDoWhatTheHostDoes) {
  const Variant& passes = find_variant("passes");
  for (const char* text :
       {"f32/n32/r96/inner32", "f32/n64/r64/inner64/out", "f32/n128/r96/inner32/out/ld4100",
        "f32/n256/r64/inner32/pdl", "f32/n512/r32/inner32", "f32/n1024/r64/inner32/ld32771",
        "f32/n2048/r32/inner32/s1", "f32/n16384/r64/inner64/out", "f32/n2097152/r32/inner32",
        "f64/n32/r48/inner16", "f64/n64/r32/inner32/out", "f64/n1024/r16/inner16/ld16387",
        "f64/n65536/r16/inner16/out", "i32/n32/r96/inner32", "i32/n64/r32/inner32/out",
        "i32/n4096/r128/inner64", "i64/n32/r48/inner16/out", "i64/n64/r48/inner16",
        "i64/n2048/r32/inner16/ld32769", "f32/n65536/r5/out/sequency",
        "f32/n131072/r3/out/from-dyadic/ld131073", "f32/n262144/r2/out/dyadic/pdl",
        "f32/n524288/r1/out/from-sequency", "f32/n1048576/r2/out/from-dyadic/sequency/s1",
        "f64/n65536/r3/out/dyadic", "f64/n2097152/r1/out/sequency",
        "f64/n4194304/r1/out/from-sequency/dyadic", "f64/n8388608/r1/out/dyadic",
        "i32/n16777216/r2/out/sequency", "i32/n33554432/r1/out/from-dyadic",
        "i64/n67108864/r1/out/from-sequency",
        // whole rows, short ones many a block, the last block not full
        "f64/n2/r1537", "f64/n16/r129/out/pdl", "f64/n512/r5/ld515", "f64/n1024/r3/out",
        "f64/n2048/r3/ld2049", "f64/n4096/r67", "f64/n8192/r600/pdl", "f64/n16384/r300",
        "f64/n16384/r60/out/ld16390", "f64/n32768/r3", "i32/n4/r300/ld7", "i32/n256/r9/out",
        "i32/n1024/r1000", "i32/n32768/r300/out", "i64/n8/r131/out", "i64/n128/r17/ld129", "i64/n16384/r300",
        "i64/n32768/r3/out", "f32/n64/r17/out/ld66", "f32/n2048/r3", "f32/n32768/r300",
        "f32/n2/r600/out/sequency", "f32/n32/r40/out/dyadic", "f32/n64/r17/out/sequency/ld65",
        "f32/n256/r5/out/from-dyadic/pdl", "f32/n1024/r3/out/from-sequency/sequency",
        "f32/n4096/r5/out/from-dyadic/sequency/s1", "f32/n32768/r140/out/sequency",
        "f64/n16/r65/out/from-sequency", "f64/n512/r7/out/from-sequency/dyadic", "f64/n1024/r3/out/sequency",
        "f64/n8192/r140/out/dyadic", "f64/n16384/r140/out/from-dyadic/sequency", "f64/n32768/r3/out/sequency",
        "i32/n128/r17/out/dyadic", "i32/n16384/r3/out/from-sequency", "i64/n64/r33/out/sequency",
        "i64/n16384/r3/out/from-dyadic",
        // a few of the longest, in two passes
        "f32/n32768/r5/pdl", "i32/n32768/r3/out", "f64/n16384/r5/out/ld16390", "i64/n16384/r7",
        // of 16 bits: more vectors than the workspace takes at once, gaps, every length of two passes
        "f16/n65536/r67", "bf16/n65536/r67/out/ld65539", "bf16/n131072/r33/pdl", "f16/n262144/r3/out",
        "bf16/n524288/r9/ld524289", "f16/n1048576/r5/out", "bf16/n2097152/r3", "f16/n4194304/r2/out/pdl",
        "f16/n8388608/r2/ld8388610", "bf16/n16777216/r1/out", "f16/n33554432/r1",
        // three passes in parts, in pairs of results and one by one
        "bf16/n67108864/r1", "f16/n134217728/r1/out/pdl", "f16/n67108864/r2/ld67108865",
        // orderings, other axes
        "f16/n65536/r5/out/sequency", "bf16/n131072/r70/out/from-dyadic/ld131073",
        "f16/n1048576/r2/out/from-sequency/dyadic/pdl", "bf16/n8388608/r1/out/dyadic",
        "f16/n16777216/r2/out/sequency", "f16/n32/r96/inner32", "bf16/n64/r192/inner64/out/ld4100",
        "f16/n1024/r64/inner32/ld32771/pdl", "bf16/n2048/r2208/inner32", "f16/n65536/r64/inner64/out",
        "bf16/n2097152/r64/inner32/out"}) {
    const Problem problem = parse_problem(text);
    ASSERT_TRUE(passes.supports(problem, this_device()))
        << text << ": " << passes.supports(problem, this_device()).why_not;
    const auto elements = problem.span_elements();
    std::vector<std::byte> in(static_cast<std::size_t>(problem.span_bytes())),
        start(in.size(), std::byte{0x3A}), want, got(in.size());
    const bool exact = problem.inner == 1 && !problem.is_arranged_plainly();
    for (std::int64_t i = 0; i < elements; ++i) {
      const std::int64_t whole = problem.n() > 1 << 20 ? i * i % 3 - 1 : i * i % 15 - 7;
      double value = static_cast<double>(exact ? whole : i * 7919 % 2003 - 1001);
      if (!exact && !is_integer(problem.dtype())) value /= 3;  // a full mantissa, or one that is rounded
      store_element(problem.dtype(), in.data(), i, value);
    }
    const bool in_place = problem.placement == Placement::in_place;
    want = in_place ? in : start;
    Problem on_host = problem;
    on_host.programmatic_launch = false;
    plan(find_variant("cpu"), on_host, this_device())
        ->execute(in_place ? want.data() : in.data(), want.data());
    Buffer from(Memory::device, in.size()), to(Memory::device, in.size());
    from.upload(in.data(), in.size());
    to.upload(start.data(), start.size());
    synchronize(Memory::device);
    Buffer& result = in_place ? from : to;
    plan(passes, problem, this_device())->execute(from.data(), result.data());
    synchronize(Memory::device);
    result.download(got.data(), got.size());
    EXPECT_EQ(got, want) << text;
  }
}

void expect_summaries(walsh::FunctionForm form, const void* on_device, const void* on_host, int variables,
                      std::int64_t functions) {
  const auto count = static_cast<std::size_t>(functions);
  std::vector<walsh::SpectrumSummary> want(count), got(count);
  walsh::summarize(form, on_host, variables, functions, want.data());
  const std::int64_t needed = walsh::summary_workspace_bytes(variables, functions);
  Buffer summaries(Memory::device, count * sizeof got[0]),
      workspace(Memory::device, static_cast<std::size_t>(std::max<std::int64_t>(needed, 16)));
  walsh::summarize_on_device(form, on_device, variables, functions,
                             static_cast<walsh::SpectrumSummary*>(summaries.data()), workspace.data(), needed,
                             nullptr, current_device());
  synchronize(Memory::device);
  summaries.download(got.data(), summaries.bytes());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), summaries.bytes()), 0)
      << variables << " variables, form " << static_cast<int>(form) << ", first: " << got[0].largest << " at "
      << got[0].place << " in place of " << want[0].largest << " at " << want[0].place;
}

void expect_largest(const void* on_device, const void* packed, int variables) {
  const auto form = walsh::FunctionForm::packed;
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{7}, std::int64_t{walsh::kMostLargest}}) {
    if (count > std::int64_t{1} << variables) continue;
    const std::vector<walsh::Coefficient> want = walsh::largest(form, packed, variables, count);
    const std::int64_t needed = walsh::largest_workspace_bytes(variables, count);
    const auto kept = static_cast<std::size_t>(count);
    Buffer places(Memory::device, 8 * kept), sums(Memory::device, 4 * kept),
        workspace(Memory::device, static_cast<std::size_t>(needed));
    walsh::largest_on_device(form, on_device, variables, count, static_cast<std::int64_t*>(places.data()),
                             static_cast<std::int32_t*>(sums.data()), workspace.data(), needed, nullptr,
                             current_device());
    synchronize(Memory::device);
    std::vector<std::int64_t> at(kept);
    std::vector<std::int32_t> value(kept);
    places.download(at.data(), places.bytes());
    sums.download(value.data(), sums.bytes());
    for (std::size_t i = 0; i < kept; ++i)
      ASSERT_EQ((walsh::Coefficient{at[i], value[i]}), want[i])
          << variables << " variables, " << i << " of " << count;
  }
}

/// Of every form: exactly the host's. Summaries without spectra too.
void expect_spectra_and_summaries(int variables, std::int64_t functions) {
  using walsh::FunctionForm;
  const std::int64_t values = functions << variables;
  std::vector<std::uint8_t> packed(static_cast<std::size_t>(values / 8)), bits, signs;
  std::uint64_t state = 1;
  for (std::uint8_t& byte : packed)
    byte = static_cast<std::uint8_t>((state = state * 6364136223846793005U + 1442695040888963407U) >> 56);
  for (std::int64_t i = 0; i < values; ++i) {
    bits.push_back(packed[static_cast<std::size_t>(i / 8)] >> i % 8 & 1);
    signs.push_back(static_cast<std::uint8_t>(1 - 2 * bits.back()));
  }
  std::vector<std::int32_t> want(static_cast<std::size_t>(values)), got(want.size());
  walsh::spectrum(FunctionForm::packed, packed.data(), variables, functions, want.data());
  const std::pair<FunctionForm, const std::vector<std::uint8_t>&> forms[] = {
      {FunctionForm::packed, packed}, {FunctionForm::bits, bits}, {FunctionForm::signs, signs}};
  for (const auto& [form, given] : forms) {
    Buffer in(Memory::device, given.size()), out(Memory::device, want.size() * sizeof want[0]);
    in.upload(given.data(), given.size());
    walsh::spectrum_on_device(form, in.data(), variables, functions, static_cast<std::int32_t*>(out.data()),
                              nullptr, current_device());
    synchronize(Memory::device);
    out.download(got.data(), out.bytes());
    EXPECT_TRUE(got == want) << variables << " variables, form " << static_cast<int>(form);
    expect_summaries(form, in.data(), given.data(), variables, functions);
    if (form == FunctionForm::packed) expect_largest(in.data(), given.data(), variables);
  }
}

// The lengths of one, of two and of three passes.
TEST_F(TransformGpu, WalshSpectraAndSummariesAreTheHosts) {
  for (const int variables : {3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 17, 20, 21, 22, 23, 24, 25})
    expect_spectra_and_summaries(variables, variables < 11    ? 301
                                            : variables < 15  ? 5
                                            : variables == 15 ? 131
                                            : variables < 20  ? 3
                                                              : 1);
}
TEST_F(SanitizeGpu, WalshSpectra) {
  for (const int variables : {3, 7, 11, 14, 15, 20, 21})
    expect_spectra_and_summaries(variables, variables < 11 ? 21 : 1);
}

/// a, b and the result in memory of the device; `into`: 0 a buffer of its own, 1 a, 2 b, 3 the same as b = a.
std::vector<std::byte> convolved_on_device(Dtype dtype, std::int64_t n, std::int64_t rows, const void* a,
                                           const void* b, int into, std::int64_t offset = 0) {
  const int device = current_device();
  const auto bytes = static_cast<std::size_t>(n * rows * bytes_of(dtype));
  const std::size_t room = bytes + static_cast<std::size_t>(offset);
  Buffer x(Memory::device, room), y(Memory::device, room), z(Memory::device, room);
  const auto at = [&](Buffer& buffer) { return static_cast<std::byte*>(buffer.data()) + offset; };
  std::vector<std::byte> with_offset(room);
  for (const auto& [buffer, from] : {std::pair{&x, a}, std::pair{&y, b}}) {
    std::memcpy(with_offset.data() + offset, from, bytes);
    buffer->upload(with_offset.data(), room);
  }
  synchronize(Memory::device);
  const bool own = into == 3;
  const std::int64_t needed = walsh::convolution_workspace_bytes(dtype, n, rows, own, device);
  Buffer workspace(Memory::device, static_cast<std::size_t>(std::max<std::int64_t>(needed, 16)));
  Buffer& out = into == 1 ? x : into == 2 ? y : z;
  walsh::dyadic_convolution_on_device(dtype, n, rows, at(x), own ? at(x) : at(y), at(out), workspace.data(),
                                      needed, nullptr, device);
  synchronize(Memory::device);
  out.download(with_offset.data(), room);
  return {with_offset.begin() + offset, with_offset.end()};
}

/// Integers exactly, whatever of a and b the result replaces.
template <class Number>
void expect_convolution_of_integers(Dtype dtype, int log_n, std::int64_t rows) {
  const std::int64_t n = std::int64_t{1} << log_n;
  std::vector<Number> a(static_cast<std::size_t>(n * rows)), b(a.size()), want(a.size()), own(a.size());
  std::uint64_t state = static_cast<std::uint64_t>(log_n);
  // n |a| |b| below 2^31: few elements that are not 0.
  const std::int64_t apart = dtype == Dtype::i64 ? 1 : std::max<std::int64_t>(n * n >> 26, 1);
  for (std::size_t i = 0; i < a.size(); ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const auto at = static_cast<std::int64_t>(i);
    a[i] = at % apart == 0 ? static_cast<Number>(state >> 61) - 3 : 0;
    b[i] = (at + 1) % apart == 0 ? static_cast<Number>(state >> 40 & 7) - 4 : 0;
  }
  walsh::dyadic_convolution(dtype, n, rows, a.data(), b.data(), want.data());
  walsh::dyadic_convolution(dtype, n, rows, a.data(), a.data(), own.data());
  for (const int into : {0, 1, 2, 3}) {
    const auto got = convolved_on_device(dtype, n, rows, a.data(), b.data(), into);
    EXPECT_EQ(std::memcmp(got.data(), (into == 3 ? own : want).data(), got.size()), 0)
        << name_of(dtype) << " 2^" << log_n << " x " << rows << " into " << into;
  }
  const auto odd = convolved_on_device(dtype, n, rows, a.data(), b.data(), 0, bytes_of(dtype));
  EXPECT_EQ(std::memcmp(odd.data(), want.data(), odd.size()), 0) << "at an odd address, 2^" << log_n;
}

// One kernel, three passes and five.
TEST_F(TransformGpu, DyadicConvolutionsOfIntegersAreTheHosts) {
  for (const int log_n : {1, 2, 5, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 24})
    expect_convolution_of_integers<std::int64_t>(Dtype::i64, log_n,
                                                 log_n < 12 || log_n == 16 ? 37
                                                 : log_n < 20              ? 3
                                                                           : 1);
  for (const int log_n : {3, 10, 12, 14, 15, 17, 19})
    expect_convolution_of_integers<std::int32_t>(Dtype::i32, log_n, log_n < 12 ? 37 : 3);
}
TEST_F(SanitizeGpu, DyadicConvolutions) {
  for (const int log_n : {2, 9, 12, 14, 15, 20})
    expect_convolution_of_integers<std::int64_t>(Dtype::i64, log_n, log_n < 12 ? 5 : 1);
  for (const int log_n : {3, 10, 13, 15, 19})
    expect_convolution_of_integers<std::int32_t>(Dtype::i32, log_n, log_n < 12 ? 5 : 1);
}

// With u the rounding of the type, L = log2 n: |error| <= (3 L + 2) u |a| |b|. Each of the L levels of a
// transform rounds to u of its values' length. So the product of spectra is wrong by (2 L + 1) u n |a| |b| in
// its sum of sizes, and no level of the way back rounds more than u of that sum. 1 + 2^-10 for terms of
// second order.
TEST_F(TransformGpu, DyadicConvolutionsOfNumbersAreTheHostsInFp64) {
  const auto check = [&]<class Number>(Dtype dtype, int log_n, std::int64_t rows, Number, int exponent_a = 0,
                                       int exponent_b = 0) {
    const std::int64_t n = std::int64_t{1} << log_n;
    std::vector<Number> a(static_cast<std::size_t>(n * rows)), b(a.size());
    std::uint64_t state = static_cast<std::uint64_t>(log_n);
    const auto draw = [&] {
      state = state * 6364136223846793005U + 1442695040888963407U;
      return static_cast<double>(static_cast<std::int64_t>(state)) * 0x1p-63;
    };
    for (std::size_t i = 0; i < a.size(); ++i)
      a[i] = static_cast<Number>(std::ldexp(draw(), exponent_a)),
      b[i] = static_cast<Number>(std::ldexp(draw(), exponent_b));
    const std::vector<double> wide_a(a.begin(), a.end()), wide_b(b.begin(), b.end());
    std::vector<double> want(a.size());
    walsh::dyadic_convolution(Dtype::f64, n, rows, wide_a.data(), wide_b.data(), want.data());
    // The host's own rounding is of the same size where the type is f64.
    const double u = dtype == Dtype::f32 ? 0x1p-24 : 2 * 0x1p-53;
    const auto got = convolved_on_device(dtype, n, rows, a.data(), b.data(), 0);
    const auto* const found = reinterpret_cast<const Number*>(got.data());
    double most = 0, largest = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      double squares_a = 0, squares_b = 0;
      for (std::int64_t i = r * n; i < (r + 1) * n; ++i) {
        const auto at = static_cast<std::size_t>(i);
        squares_a += wide_a[at] * wide_a[at], squares_b += wide_b[at] * wide_b[at];
      }
      const double bound = (3 * log_n + 2) * u * std::sqrt(squares_a * squares_b) * (1 + 0x1p-10);
      for (std::int64_t i = r * n; i < (r + 1) * n; ++i) {
        most = std::max(most,
                        std::abs(static_cast<double>(found[i]) - want[static_cast<std::size_t>(i)]) / bound);
        largest = std::max(largest, std::abs(want[static_cast<std::size_t>(i)]) / bound);
      }
    }
    EXPECT_LE(most, 1.0) << name_of(dtype) << " 2^" << log_n;
    EXPECT_GT(largest, 8.0) << "else zeros would do";
  };
  for (const int log_n : {1, 4, 9, 10, 11, 12, 13, 14, 15, 17, 20, 22, 23, 24, 25}) {
    check(Dtype::f32, log_n, log_n < 12 ? 37 : log_n < 18 ? 5 : 1, float{});
    if (log_n < 25) check(Dtype::f64, log_n, log_n < 12 ? 37 : log_n < 18 ? 5 : 1, double{});
    if (log_n > 22) continue;
    const int half = (124 - log_n) / 2;  // |a| |b| just fits, and sums of products of spectra do not
    check(Dtype::f32, log_n, 3, float{}, half, half);
    check(Dtype::f32, log_n, 3, float{}, -100, 100);
    check(Dtype::f32, log_n, 3, float{}, 100, -100);
  }
}

TEST_F(TransformGpu, DyadicConvolutionsRefuseWhatTheyCannotUse) {
  Buffer x(Memory::device, std::size_t{4} << 21), workspace(Memory::device, std::size_t{4} << 20);
  auto* const a = static_cast<float*>(x.data());
  const auto said = [&](const void* b, void* out, void* room, std::int64_t bytes) -> std::string {
    return bad_request_of(
        [&] {
          walsh::dyadic_convolution_on_device(Dtype::f32, 1 << 20, 1, a, b, out, room, bytes, nullptr,
                                              current_device());
        },
        "nothing");
  };
  EXPECT_EQ(said(a + (1 << 20), a, workspace.data(), 4 << 20), "nothing");
  EXPECT_EQ(said(a, a, nullptr, 0), "nothing") << "an autocorrelation needs none";
  EXPECT_EQ(said(a + (1 << 20), a, nullptr, 0), "workspace is a null pointer");
  EXPECT_EQ(said(a + (1 << 20), a, workspace.data(), 1000), "workspace_bytes=1000 must be at least 4194304");
  EXPECT_TRUE(said(a + (1 << 20), a + 4, workspace.data(), 4 << 20).ends_with("overlap"));
  EXPECT_TRUE(said(a + (1 << 20), a, a, 4 << 20).ends_with("overlap"));
  synchronize(Memory::device);
}

/// All sums are integers that both types hold.
template <class Number>
void expect_sketch(Dtype dtype, std::int64_t length, std::int64_t rows, std::int64_t vectors) {
  const int device = current_device();
  const walsh::Sketch asked{length, rows, 11};
  const std::int64_t n = asked.padded();
  const std::vector<std::uint32_t> words = walsh::sketch_table(asked);
  const std::vector<std::uint32_t> signs = walsh::random_signs(n, 11);
  const std::vector<std::int64_t> chosen = walsh::random_rows(n, rows, 11);
  const auto sign = [&](std::int64_t j) {
    return Number((signs[static_cast<std::size_t>(j / 32)] >> j % 32 & 1) != 0 ? -1 : 1);
  };
  const auto scale = static_cast<Number>(1 / std::sqrt(static_cast<double>(rows)));
  for (const bool transposed : {false, true}) {
    const std::int64_t from = transposed ? rows : length, to = transposed ? length : rows;
    std::vector<Number> x(static_cast<std::size_t>(vectors * from)),
        want(static_cast<std::size_t>(vectors * to)), got(want.size() + 4, Number(77));
    std::uint64_t state = static_cast<std::uint64_t>(length);
    for (Number& each : x) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      each = static_cast<Number>(static_cast<int>(state >> 62) - 2);
    }
    std::vector<std::int64_t> padded(static_cast<std::size_t>(n));
    for (std::int64_t v = 0; v < vectors; ++v) {
      std::fill(padded.begin(), padded.end(), 0);
      for (std::int64_t i = 0; i < from; ++i) {
        const std::int64_t j = transposed ? chosen[static_cast<std::size_t>(i)] : i;
        padded[static_cast<std::size_t>(j)] = static_cast<std::int64_t>(
            x[static_cast<std::size_t>(v * from + i)] * (transposed ? Number(1) : sign(j)));
      }
      Problem exact = make_problem(Dtype::i64, n, 1);
      exact.scale = 1.0;
      plan(cpu::variant, exact, this_device())->execute({padded.data(), padded.data()});
      for (std::int64_t i = 0; i < to; ++i) {
        const std::int64_t j = transposed ? i : chosen[static_cast<std::size_t>(i)];
        want[static_cast<std::size_t>(v * to + i)] =
            static_cast<Number>(padded[static_cast<std::size_t>(j)]) * (transposed ? sign(j) : Number(1)) *
            scale;
      }
    }
    Buffer table(Memory::device, 4 * words.size()), in(Memory::device, sizeof(Number) * x.size()),
        out(Memory::device, sizeof(Number) * got.size());
    table.upload(words.data(), 4 * words.size());
    in.upload(x.data(), sizeof(Number) * x.size());
    out.upload(got.data(), sizeof(Number) * got.size());
    synchronize(Memory::device);
    const std::int64_t needed = walsh::sketch_workspace_bytes(asked, dtype, vectors, device);
    Buffer workspace(Memory::device, static_cast<std::size_t>(std::max<std::int64_t>(needed, 16)));
    walsh::sketch_on_device(asked, transposed, dtype, vectors, table.data(), in.data(), out.data(),
                            workspace.data(), needed, nullptr, device);
    synchronize(Memory::device);
    out.download(got.data(), sizeof(Number) * got.size());
    EXPECT_TRUE(std::equal(want.begin(), want.end(), got.begin()))
        << name_of(dtype) << ", " << vectors << " of " << length << ", " << rows << " rows"
        << (transposed ? ", transposed" : "");
    for (std::size_t i = want.size(); i < got.size(); ++i)
      EXPECT_EQ(got[i], Number(77)) << "behind the end";
    if (needed == 0) continue;
    EXPECT_THROW(walsh::sketch_on_device(asked, transposed, dtype, vectors, table.data(), in.data(),
                                         out.data(), workspace.data(), needed - 1, nullptr, device),
                 BadRequest);
    EXPECT_THROW(walsh::sketch_on_device(asked, transposed, dtype, vectors, table.data(), in.data(),
                                         out.data(), nullptr, needed, nullptr, device),
                 BadRequest);
    EXPECT_THROW(walsh::sketch_on_device(asked, transposed, dtype, vectors, table.data(), in.data(),
                                         in.data(), workspace.data(), needed, nullptr, device),
                 BadRequest);
  }
}

// One kernel, two passes and three, with and without vectors behind the first group.
TEST_F(TransformGpu, SketchesAndTheirTransposesAreTheHosts) {
  expect_sketch<float>(Dtype::f32, 1, 1, 3);
  expect_sketch<double>(Dtype::f64, 1, 2, 3);
  for (int log_n = 2; log_n <= 23; ++log_n) {
    const std::int64_t n = std::int64_t{1} << log_n, vectors = log_n < 12 ? 37 : log_n == 16 ? 70 : 2;
    for (const std::int64_t rows : {std::int64_t{1}, n / 3, n}) {
      if (rows < 1 || (log_n > 18 && rows != n / 3)) continue;
      expect_sketch<float>(Dtype::f32, n - 1, rows, vectors);
      expect_sketch<double>(Dtype::f64, n / 2 + 1, rows, vectors);
    }
  }
}
TEST_F(SanitizeGpu, Sketches) {
  for (const int log_n : {2, 9, 12, 14, 15, 20, 23}) {
    const std::int64_t n = std::int64_t{1} << log_n, vectors = log_n < 12 ? 5 : 1;
    expect_sketch<float>(Dtype::f32, n - 1, std::max<std::int64_t>(n / 3, 1), vectors);
    if (log_n < 23) expect_sketch<double>(Dtype::f64, n / 2 + 1, std::max<std::int64_t>(n / 3, 1), vectors);
  }
}

/// Signs of `count` rounds, one round behind the other, and where each begins.
struct SignsOfRounds {
  SignsOfRounds(std::int64_t n, int count) {
    for (int round = 0; round < count; ++round) {
      const std::vector<std::uint32_t> more = walsh::random_signs(n, static_cast<std::uint64_t>(round));
      words.insert(words.end(), more.begin(), more.end());
    }
    for (int round = 0; round < count; ++round)
      of_round.push_back(words.data() + round * n / 32);
  }
  std::vector<std::uint32_t> words;
  std::vector<const void*> of_round;
};

Buffer on_device(const void* data, std::size_t bytes) {
  Buffer buffer(Memory::device, bytes);
  buffer.upload(data, bytes);
  return buffer;
}

/// All that the buffer holds; nothing was written beside it.
void take(const Buffer& buffer, void* to) {
  synchronize(Memory::device);
  EXPECT_TRUE(buffer.guards_intact());
  buffer.download(to, buffer.bytes());
}

// Each of log2 n levels rounds by at most 2^-24 of the row's length, as do the scale and the product with it,
// in every round; the sums of a matrix of order m count as m levels. 1 + 2^-10 for terms of second order.
void expect_rounds(Dtype dtype, std::int64_t n, std::int64_t rows, int count, bool transposed,
                   bool in_place) {
  const auto size = static_cast<std::size_t>(rows * n);
  const std::size_t bytes = size * static_cast<std::size_t>(bytes_of(dtype));
  const SignsOfRounds signs(n, count);
  std::vector<std::byte> raw(bytes);
  reference::write_input(make_problem(dtype, operator_for(n), rows), reference::InputClass::normal,
                         static_cast<std::uint64_t>(count), raw.data());
  std::vector<double> x(size), want(size);
  for (std::size_t i = 0; i < size; ++i)
    x[i] = load_element(dtype, raw.data(), static_cast<std::int64_t>(i));
  if (transposed) {  // D_1 H ... D_k H x = D_1 (H D_2 ... H D_k H) x, for H is symmetric
    const std::vector<std::uint32_t> none(static_cast<std::size_t>(n / 32));
    std::vector<const void*> back(signs.of_round.rbegin(), signs.of_round.rend() - 1);
    back.insert(back.begin(), none.data());
    walsh::rounds(Dtype::f64, n, rows, back, x.data(), want.data());
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t j = i % static_cast<std::size_t>(n);
      if ((signs.words[j / 32] >> j % 32 & 1) != 0) want[i] = -want[i];
    }
  } else {
    walsh::rounds(Dtype::f64, n, rows, signs.of_round, x.data(), want.data());
  }
  const Buffer packed = on_device(signs.words.data(), 4 * signs.words.size());
  Buffer in = on_device(raw.data(), bytes), apart(Memory::device, bytes);
  Buffer& out = in_place ? in : apart;
  walsh::rounds_on_device(dtype, n, rows, transposed, count, packed.data(), in.data(), out.data(), nullptr,
                          current_device());
  std::vector<std::byte> got(bytes);
  take(out, got.data());
  const walsh::RoundsTile tile = *walsh::find_rounds_tile(dtype, n);
  const int levels = tile.log_columns() + (tile.order == 1 ? 0 : tile.order);
  const double u = dtype == Dtype::f32 ? 0 : dtype == Dtype::f16 ? 0x1p-11 : 0x1p-8;
  for (std::int64_t r = 0; r < rows; ++r) {
    double square = 0;
    for (std::int64_t j = 0; j < n; ++j)
      square += x[static_cast<std::size_t>(r * n + j)] * x[static_cast<std::size_t>(r * n + j)];
    const double inside = count * (levels + 2) * 0x1p-24 * std::sqrt(square) * (1 + 0x1p-10);
    for (std::int64_t j = 0; j < n; ++j) {
      const double expected = want[static_cast<std::size_t>(r * n + j)];
      const double bound = inside + u * (std::abs(expected) + inside) + (u == 0 ? 0 : 0x1p-25);
      ASSERT_NEAR(load_element(dtype, got.data(), r * n + j), expected, bound)
          << name_of(dtype) << ", n=" << n << ", rows=" << rows << ", count=" << count
          << (transposed ? ", transposed" : "") << (in_place ? ", in place" : "") << ", row " << r
          << ", element " << j;
    }
  }
}

/// Those of the results that the kernel of numbers has.
void expect_codes_of_rounds(std::int64_t n, std::int64_t rows, int count, int bits) {
  const auto size = static_cast<std::size_t>(rows * n);
  const SignsOfRounds signs(n, count);
  std::vector<float> x(size), y(size), scales(static_cast<std::size_t>(rows));
  reference::write_input(make_problem(Dtype::f32, operator_for(n), rows), reference::InputClass::normal, 1,
                         x.data());
  std::fill_n(x.begin(), n, 0.0F);
  std::vector<std::uint8_t> codes(size * static_cast<std::size_t>(bits) / 8);
  const Buffer packed = on_device(signs.words.data(), 4 * signs.words.size()),
               in = on_device(x.data(), 4 * size);
  Buffer plain(Memory::device, 4 * size), coded(Memory::device, codes.size()),
      of_rows(Memory::device, 4 * scales.size());
  const int device = current_device();
  walsh::rounds_on_device(Dtype::f32, n, rows, false, count, packed.data(), in.data(), plain.data(), nullptr,
                          device);
  walsh::rounds_to_codes_on_device(n, rows, count, packed.data(), in.data(), bits, coded.data(),
                                   static_cast<float*>(of_rows.data()), nullptr, device);
  take(plain, y.data());
  take(coded, codes.data());
  take(of_rows, scales.data());
  walsh::expect_codes(y.data(), n, rows, bits, codes.data(), scales.data());
}

std::vector<std::int64_t> lengths_of_rounds() {
  std::vector<std::int64_t> lengths;
  for (std::int64_t n = 64; n <= 4096; n += 32) {
    if (walsh::find_rounds_tile(Dtype::f32, n)) lengths.push_back(n);
  }
  return lengths;
}

TEST_F(TransformGpu, RoundsAreTheirDefinition) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const std::int64_t n : lengths_of_rounds()) {
      for (const int count : {1, 3, walsh::kMostRounds}) {
        for (const bool transposed : {false, true}) {
          expect_rounds(dtype, n, 1, count, transposed, false);
          expect_rounds(dtype, n, 37, count, transposed, count % 2 == 0);
        }
      }
      expect_rounds(dtype, n, (std::int64_t{1} << 21) / n + 3, 3, false, true);  // a warp has several tiles
    }
  }
}
TEST_F(TransformGpu, CodesOfRoundsAreThoseOfTheirResults) {
  for (const std::int64_t n : lengths_of_rounds()) {
    for (const int bits : {1, 4, 8}) {
      expect_codes_of_rounds(n, 1, 1, bits);
      expect_codes_of_rounds(n, 37, 3, bits);
    }
    expect_codes_of_rounds(n, (std::int64_t{1} << 20) / n + 3, 2, n % 3 == 0 ? 8 : n % 5 == 0 ? 4 : 1);
  }
}
TEST_F(SanitizeGpu, Rounds) {
  for (const std::int64_t n : {64, 96, 512, 1024, 2304, 3072, 3584}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      expect_rounds(dtype, n, 21, 2, dtype == Dtype::bf16, false);
    for (const int bits : {1, 4, 8})
      expect_codes_of_rounds(n, 21, 2, bits);
  }
}

TEST_F(TransformGpu, KeepsNoMorePlansThanItsLimit) {
  const std::size_t usual = transform_plan_limit();
  set_transform_plan_limit(3);
  std::vector<std::unique_ptr<Work>> works;
  works.reserve(8);
  for (std::int64_t rows = 1; rows <= 8; ++rows)
    works.push_back(std::make_unique<Work>(apart(Dtype::f16, 2048, rows), 3));
  for (int round = 0; round < 2; ++round) {
    for (const auto& work : works)
      transform(work->in.data(), work->out.data(), work->problem);
  }
  for (const auto& work : works)
    work->expect_right("by a plan that was evicted and made again");
  set_transform_plan_limit(usual);
  EXPECT_EQ(clear_transform_plans(), 3U);
}

TEST_F(TransformGpu, RefusesMemoryOutOfReachAndUnknownDevices) {
  Work work(apart(Dtype::f16, 1024, 9), 1);
  std::vector<std::byte> host(work.raw.size());
  const int current = current_device();
  EXPECT_THROW(transform(work.in.data(), work.out.data(), work.problem, nullptr, 1000), BadRequest);
  EXPECT_THROW(transform(work.in.data(), work.out.data(), work.problem, nullptr, -2), BadRequest);
  EXPECT_EQ(current_device(), current);
  EXPECT_EQ(clear_transform_plans(), 0U);
  try {
    transform(work.in.data(), host.data(), work.problem);
    std::cout << "the device reaches all host memory\n";
    synchronize(Memory::device);
  } catch (const BadRequest& error) {
    EXPECT_NE(std::string(error.what()).find("host memory"), std::string::npos) << error.what();
    EXPECT_EQ(clear_transform_plans(), 0U) << "a refused call leaves no plan behind";
  }
}

TEST_F(TransformGpu, RunsOnTheDeviceThatItIsGivenAndLeavesTheCurrentOne) {
  if (!this_device(1).has_cuda()) GTEST_SKIP() << this_device(1).why_no_cuda;
  const int current = current_device();
  for (const std::int64_t n : {1024, 32768}) {  // the longer one's plan owns memory of its device
    std::unique_ptr<Work> there;
    {
      const DeviceScope scope(1);
      there = std::make_unique<Work>(apart(Dtype::f16, n, (std::int64_t{1} << 25) / n), 5);
    }
    EXPECT_EQ(current_device(), current);
    transform(there->in.data(), there->out.data(), there->problem, nullptr, 1);
    EXPECT_EQ(current_device(), current);
    const DeviceScope scope(1);
    there->expect_right("on the second device");
    const DeviceScope back(0);
    try {
      clear_transform_plans();
      transform(there->in.data(), there->out.data(), there->problem);
      FAIL() << "memory of device 1 was taken on device 0";
    } catch (const BadRequest& error) {
      EXPECT_NE(std::string(error.what()).find("memory of CUDA device 1"), std::string::npos) << error.what();
    }
  }
}

TEST_F(TransformGpu, AnswersManyThreadsAtOnce) {
  std::vector<std::unique_ptr<Work>> works;
  for (const std::int64_t n : {64, 4096, 16384, 32768}) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      // Long enough for plans that count rows while they run.
      works.push_back(std::make_unique<Work>(apart(Dtype::bf16, n, (std::int64_t{1} << 25) / n), seed));
    }
  }
  std::vector<std::thread> threads;
  threads.reserve(works.size());
  for (const auto& work : works) {
    threads.emplace_back([&work = *work] {
      const TransformPlan call(work.problem);
      for (int i = 0; i < 5; ++i)  // on a stream of its own
        conformance::execute_on_new_stream(call, work.in.data(), work.out.data());
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const auto& work : works)
    work->expect_right("from many threads");
}

// Of 16 bits with fp32 between the passes, in a workspace of the plan; and of fp32 in pairs of passes.
TEST_F(TransformGpu, AnswersManyThreadsOnOneStream) {
  const auto contents = [](const Work& work) {
    synchronize(Memory::device);
    std::vector<std::byte> got(work.raw.size());
    work.out.download(got.data(), got.size());
    return got;
  };
  for (const auto& [dtype, log_n] : {std::pair{Dtype::bf16, 17}, {Dtype::f32, 20}}) {
    std::vector<std::unique_ptr<Work>> works;
    std::vector<std::vector<std::byte>> alone;
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      Work& work =
          *works.emplace_back(std::make_unique<Work>(apart(dtype, std::int64_t{1} << log_n, 16), seed));
      transform(work.in.data(), work.out.data(), work.problem);
      alone.push_back(contents(work));
      work.out.poison(kPoisonByte);
    }
    std::vector<std::thread> threads;
    threads.reserve(works.size());
    for (const auto& work : works) {
      threads.emplace_back([&work = *work] {
        for (int i = 0; i < 50; ++i)
          transform(work.in.data(), work.out.data(), work.problem);
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    for (std::size_t i = 0; i < works.size(); ++i)
      EXPECT_EQ(contents(*works[i]), alone[i]) << name_of(dtype) << ", thread " << i;
  }
}

// They share a kernel, whose shared memory is that of the longest row.
TEST_F(TransformGpu, PlansOfLongAndShortRowsRunInAnyOrder) {
  const Variant& factors = find_variant("factors");
  const auto rows_of = [](const char* op) {
    return make_problem(Dtype::f32, parse_operator(op), 4, Placement::out_of_place);
  };
  Work longer(rows_of("28x1024"), 1), shorter(rows_of("28x512"), 2);
  const std::unique_ptr<Plan> first = plan(factors, longer.problem, this_device()),
                              second = plan(factors, shorter.problem, this_device());
  second->execute(shorter.in.data(), shorter.out.data());
  first->execute(longer.in.data(), longer.out.data());
  longer.expect_right("planned before shorter rows");
  shorter.expect_right("planned behind longer rows");
}

// The warps of mma_split exchange their sums in more rounds there.
TEST_F(TransformGpu, LongRowsAreTheSameInBlocksOfLessSharedMemory) {
  const Variant& variant = find_variant("mma_split");
  int served = 0;
  for (const auto& [n, kib] : {std::pair{1 << 15, 99}, {1 << 16, 163}}) {
    DeviceInfo less = this_device();
    less.shared_bytes_per_block = std::min<std::int64_t>(less.shared_bytes_per_block, kib << 10);
    if (!variant.supports(apart(Dtype::f16, n, 300), less)) continue;  // a block holds no such row
    ++served;
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
      Work here(apart(dtype, n, 300), 3), there(apart(dtype, n, 300), 3);
      plan(variant, here.problem, this_device())->execute(here.in.data(), here.out.data());
      plan(variant, there.problem, less)->execute(there.in.data(), there.out.data());
      there.expect_right("in blocks of less shared memory");
      std::vector<std::byte> want(here.raw.size()), got(there.raw.size());
      here.out.download(want.data(), want.size());
      there.out.download(got.data(), got.size());
      EXPECT_TRUE(got == want) << to_string(here.problem) << ": other bits in blocks of " << kib << " KB";
    }
  }
  EXPECT_GT(served, 0);
}

TEST_F(TransformGpu, ClustersShareLongRows) {
  if (this_device().compute_capability() != 90 || !require_programmatic_launch(this_device()))
    GTEST_SKIP() << "no clusters, or no code for them";
  const std::pair<const char*, std::int64_t> shared[] = {
      {"f32/n8192/r1", 8},   {"i32/n16384/r3", 8},    {"f64/n8192/r1", 8},        {"i64/n4096/r2", 8},
      {"f32/n32768/r1", 16}, {"f32/n65536/r200", 16}, {"bf16/n65536/r1/out", 16}, {"f32/n65536/r1/pdl", 16}};
  for (const auto& [text, blocks] : shared) {
    const auto made = plan(find_variant("passes"), parse_problem(text), this_device());
    std::string lowest;
    std::int64_t blocks_per_row = 0;
    for (const auto& [name, value] : made->settings()) {
      if (name == "lowest") lowest = std::get<std::string>(value);
      if (name == "blocks_per_row") blocks_per_row = std::get<std::int64_t>(value);
    }
    EXPECT_EQ(lowest, "clusters") << text;
    EXPECT_EQ(blocks_per_row, blocks) << text;
    EXPECT_EQ(made->scratch_bytes(), 0) << text;
  }
}

// Dense factors need fragments, rings and passes counters, two launches the rows between them. The second
// execution finds scratch that the first one has used.
TEST_F(TransformGpu, PlansOwnNoScratchOfCallers) {
  std::set<std::string> served;
  for (const char* text :
       {"bf16/d28x512/r9/out", "bf16/d28x512/r9>e4m3:row", "f16/36x1024/r300>e4m3:row",
        "bf16/32768/r1200/out", "f16/16384/r3000/out", "f16/65536/r300/out", "bf16/131072/r2/out",
        "f32/131072/r2/out", "f16/4096/r9>e4m3:tensor", "bf16/28x1024/r9>int8:tensor"}) {
    for (const char* name : {"kronecker", "mma_kronecker", "factors", "wgmma", "passes", "mma_split",
                             "rotate_then_quantize", "auto"}) {
      const Problem problem = parse_problem(text);
      if (!find_variant(name).supports(problem, this_device())) continue;
      SCOPED_TRACE(concat(name, " ", text));
      const auto own = plan(find_variant(name), problem, this_device());
      std::unique_ptr<Plan> made;
      {
        const ScratchOfCallers none;
        made = plan(find_variant(name), problem, this_device());
      }
      EXPECT_FALSE(made->one_stream_at_a_time());
      EXPECT_EQ(own->scratch_bytes(), made->scratch_bytes());
      if (own->one_stream_at_a_time()) {
        EXPECT_GT(made->scratch_bytes(), 0);
      }
      if (made->scratch_bytes() == 0) continue;
      served.insert(concat(name, problem.encoding.is_plain() ? "" : " codes"));
      const auto in_bytes = static_cast<std::size_t>(problem.span_bytes());
      const std::int64_t out_bytes = problem.span_bytes_out(), scale_bytes = problem.scale_bytes_out();
      Buffer in(Memory::device, in_bytes), dense(Memory::device, 28 * 28 * 2),
          scratch(Memory::device, static_cast<std::size_t>(made->scratch_bytes()));
      const Problem entries = make_problem(problem.dtype(), 28, 28);
      std::vector<std::byte> input(in_bytes), matrix(static_cast<std::size_t>(entries.span_bytes()));
      reference::write_input(problem, reference::InputClass::normal, 5, input.data());
      reference::write_input(entries, reference::InputClass::normal, 6, matrix.data());
      in.upload(input.data(), input.size());
      dense.upload(matrix.data(), matrix.size());
      const auto outcome = [&](const Plan& by, void* scratch_of_caller) {
        Buffer out(Memory::device, static_cast<std::size_t>(out_bytes)),
            scales(Memory::device, static_cast<std::size_t>(std::max<std::int64_t>(scale_bytes, 1)));
        out.poison(kPoisonByte);
        scales.poison(kPoisonByte);
        Operands operands{in.data(), out.data()};
        if (problem.op.has_dense()) operands.dense = dense.data();
        if (scale_bytes > 0) operands.scales = scales.data();
        operands.scratch = scratch_of_caller;
        synchronize(Memory::device);
        by.execute(operands);
        synchronize(Memory::device);
        std::vector<std::byte> bytes(static_cast<std::size_t>(out_bytes + scale_bytes));
        out.download(bytes.data(), static_cast<std::size_t>(out_bytes));
        if (scale_bytes > 0) scales.download(bytes.data() + out_bytes, static_cast<std::size_t>(scale_bytes));
        EXPECT_TRUE(out.guards_intact() && scales.guards_intact());
        return bytes;
      };
      EXPECT_THROW(outcome(*made, nullptr), BadRequest);
      scratch.poison(kPoisonByte);
      const std::vector<std::byte> expected = outcome(*own, nullptr);
      for (int time = 0; time < 2; ++time) {
        EXPECT_TRUE(outcome(*made, scratch.data()) == expected) << "execution " << time;
        EXPECT_TRUE(outcome(*own, scratch.data()) == expected) << "in place of its own, execution " << time;
        EXPECT_TRUE(scratch.guards_intact());
      }
    }
  }
  EXPECT_TRUE(served.count("factors") == 1 || served.count("auto") == 1);
  if (this_device().compute_capability() == 90) {
    for (const char* who : {"kronecker", "mma_kronecker", "factors", "wgmma", "passes", "auto",
                            "mma_split codes", "rotate_then_quantize codes", "auto codes"})
      EXPECT_EQ(served.count(who), 1U) << who;
  }
}

// Values that are none of the form have sums of what they are: here 1024 of -2^31, one of which is asked for.
TEST_F(TransformGpu, TheLargestOfSumsThatWrapStayInTheirWorkspace) {
  constexpr int kVariables = 30;
  constexpr std::int64_t kCount = 1;
  Buffer values(Memory::device, std::size_t{1} << kVariables);
  std::vector<std::int8_t> part(std::size_t{1} << 21);
  for (std::size_t high = 0; high < 512; ++high) {
    for (std::size_t low = 0; low < 2; ++low) {
      const std::size_t x = high << 1 | low;  // a bent function of these ten bits
      const std::size_t products = x & x >> 5 & 31;
      for (std::size_t i = low; i < part.size(); i += 2)
        part[i] = (std::popcount(products) & 1) != 0 ? -64 : 64;
    }
    values.upload(part.data(), part.size(), high << 21);
  }
  const std::int64_t needed = walsh::largest_workspace_bytes(kVariables, kCount);
  Buffer place(Memory::device, 8), sum(Memory::device, 4),
      workspace(Memory::device, static_cast<std::size_t>(needed));
  walsh::largest_on_device(walsh::FunctionForm::signs, values.data(), kVariables, kCount,
                           static_cast<std::int64_t*>(place.data()), static_cast<std::int32_t*>(sum.data()),
                           workspace.data(), needed, nullptr, current_device());
  synchronize(Memory::device);
  std::int32_t found = 0;
  sum.download(&found, sizeof found);
  EXPECT_EQ(found, std::numeric_limits<std::int32_t>::min());
  EXPECT_TRUE(place.guards_intact() && sum.guards_intact() && workspace.guards_intact());
}

TEST_F(TransformGpu, MakesItsPlanWhileAStreamIsCaptured) {
  for (const std::int64_t n : {256, 8192, 32768}) {
    Work work(apart(Dtype::f16, n, (std::int64_t{1} << 25) / n), 7);
    conformance::execute_captured(TransformPlan(work.problem), work.in.data(), work.out.data(), 2);
    work.expect_right("first call inside a capture");
    work.out.poison(kPoisonByte);
    synchronize(Memory::device);  // the new stream does not wait for the default one
    conformance::execute_on_new_stream(TransformPlan(work.problem), work.in.data(), work.out.data());
    work.expect_right("after the capture");
  }
}

TEST_F(TransformGpu, KeepsThePlanOfAGraphWhateverTheLimit) {
  const std::size_t usual = transform_plan_limit();
  set_transform_plan_limit(1);
  Work work(apart(Dtype::f16, 32768, 1024), 7), other(apart(Dtype::f16, 64, 3), 8);
  conformance::execute_captured(TransformPlan(work.problem), work.in.data(), work.out.data(), 1, [&] {
    for (int i = 0; i < 3; ++i) {  // evicts whatever may go between the capture and the replay
      other.problem.rows = 3 - i;
      transform(other.in.data(), other.out.data(), other.problem);
    }
    synchronize(Memory::device);
  });
  work.expect_right("replayed after other plans were made");
  set_transform_plan_limit(usual);
}

}  // namespace
}  // namespace fwht
