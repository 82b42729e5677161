// The golden support table: what every variant says it can do on three described machines. The table is the
// guard against "skip everything, stay green": the conformance test skips what a variant refuses, so a
// refusal that is new must be written down here first.
#include "variants/registry.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <vector>

#include "common/host/bits.hpp"
#include "common/host/error.hpp"

namespace fwht {
namespace {

/// Powers of two, smallest to largest; {0, 0} where nothing is supported.
struct Sizes {
  std::int64_t smallest = 0, largest = 0;
  bool contains(std::int64_t n) const { return is_power_of_two(n) && n >= smallest && n <= largest; }
};
constexpr Sizes kNone{};
constexpr std::int64_t k2To15 = std::int64_t{1} << 15, k2To16 = std::int64_t{1} << 16,
                       k2To22 = std::int64_t{1} << 22, k2To30 = std::int64_t{1} << 30,
                       k2To31 = std::int64_t{1} << 31;

/// Rows of more than `any_stride_up_to` elements must start at multiples of `stride_multiple` elements. Where
/// `optional_backend` is named, the variant may answer "built without <name> ..." to everything instead.
struct Golden {
  std::string_view variant;
  std::vector<Dtype> dtypes;
  Sizes h200, a100, no_cuda;
  std::int64_t stride_multiple = 1;
  bool in_place = true, out_of_place = true;
  std::string_view optional_backend = {};
  Sizes programmatic = {};  // dependent launch, on the H200
  std::int64_t any_stride_up_to = 0;

  bool takes_stride(const Problem& problem) const {
    return problem.n() <= any_stride_up_to || problem.row_stride() % stride_multiple == 0;
  }
};

constexpr auto& kAskedDtypes = kEveryDtype;
const std::vector<Dtype> kF16Bf16{Dtype::f16, Dtype::bf16};
const std::vector<Dtype> kF16Bf16F32{Dtype::f16, Dtype::bf16, Dtype::f32};
const std::vector<Dtype> kAndF64{Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64};
const std::vector<Dtype> kEvery{std::begin(kEveryDtype), std::end(kEveryDtype)};
const std::vector<Dtype> kF32AndWider{Dtype::f32, Dtype::f64, Dtype::i32, Dtype::i64};

// clang-format off
const std::vector<Golden> kGolden = {
  // variant        dtypes          H200          A100          no CUDA       stride multiple
  {"cpu",           kEvery,        {2, k2To30},  {2, k2To30},  {2, k2To30},  1},
  {"cpu_f64",       kAndF64,        {2, k2To30},  {2, k2To30},  {2, k2To30},  1},
  {"naive",         kF16Bf16F32,    {2, k2To30},  {2, k2To30},  kNone,        1},
  {"warp_shuffle",  kF16Bf16F32,    {2, k2To15},  {2, k2To15},  kNone,        1},
  {"butterflies",   kF16Bf16,       {2, 32},      {2, 32},      kNone,        1, true, true, {}, {2, 32}},
  {"butterflies",   {Dtype::f32},   {2, k2To15},  {2, k2To15},  kNone,        1, true, true, {}, {2, k2To15}},
  {"hadacore",      kF16Bf16,       {2, k2To15},  {2, k2To15},  kNone,        1},
  {"hadacore_published", kF16Bf16,  {2, k2To15},  {2, k2To15},  kNone,        1},
  {"mma_split",     kF16Bf16,       {64, k2To16}, {64, k2To16}, kNone,        8, true, true, {}, {64, k2To16}, 16384},
  {"wgmma",         kF16Bf16,       {4096, k2To16}, kNone,      kNone,        8, true, true, "sm_90a", {4096, k2To16}},
  {"passes",        kF32AndWider,   {2, k2To31},  {2, k2To31},  kNone,        1, true, true, {}, {2, k2To31}},
  {"passes",        kF16Bf16,       {k2To16, k2To31}, {k2To16, k2To31}, kNone, 1, true, true, {}, {k2To16, k2To31}},
  {"factors",       kF16Bf16F32,    kNone,        kNone,        kNone,        1},
  {"kronecker",     kF16Bf16,       {k2To15, k2To15}, kNone,    kNone,        8, true, true, "sm_90a", {k2To15, k2To15}},
  {"mma_kronecker", kF16Bf16,      {16384, k2To16}, {16384, k2To16}, kNone,   8, true, true, {}, {16384, k2To16}},
  {"warp_kronecker", kF16Bf16,      kNone,        kNone,        kNone,        8},
  {"matmul",        kF16Bf16,       {8, 16384},   {8, 16384},   kNone,        8},
  {"kokkos_serial", kF16Bf16F32,    {2, k2To22},  {2, k2To22},  {2, k2To22},  1, true, true, "Kokkos"},
  {"kokkos_openmp", kF16Bf16F32,    {2, k2To22},  {2, k2To22},  {2, k2To22},  1, true, true, "Kokkos"},
  {"kokkos_cuda",   kF16Bf16F32,    {2, k2To15},  {2, k2To15},  kNone,        1, true, true, "Kokkos"},
  {"auto",          kF16Bf16,       {2, k2To31},  {2, k2To31},  kNone,        1, true, true, {}, {2, k2To31}},
  {"rotate_then_quantize", kF16Bf16F32, {2, k2To31}, {2, k2To31},  kNone,        1, true, true, {}, {}},
  {"auto",          {Dtype::f32},   {2, k2To31},  {2, k2To31},  kNone,        1, true, true, {}, {2, k2To31}},
  {"auto",          {Dtype::f64, Dtype::i32, Dtype::i64}, {2, k2To31}, {2, k2To31}, kNone, 1, true, true, {}, {2, k2To31}},
};

/// What only some variants offer: every other one refuses it in a sentence that contains `named`.
struct Extra {
  std::string_view what;
  const char* problem;
  std::string_view named;
  std::vector<std::string_view> offered_by;
};

const std::vector<Extra> kExtras = {
  // what                        problem                             named         offered by
  {"a Hadamard factor",          "f16/28x512/r5",                    "28x512", {"cpu", "cpu_f64", "factors", "kronecker", "mma_kronecker", "warp_kronecker", "matmul", "kokkos_serial", "kokkos_openmp", "kokkos_cuda"}},
  {"a Hadamard matrix alone",    "f16/428/r5",                       "428", {"cpu", "cpu_f64", "factors", "kokkos_serial", "kokkos_openmp", "kokkos_cuda"}},
  {"a transposed factor",        "bf16/428tx32/r5",                  "428tx32", {"cpu", "cpu_f64", "factors", "kronecker", "mma_kronecker", "matmul", "kokkos_serial", "kokkos_openmp", "kokkos_cuda"}},
  {"two Sylvester factors",      "f16/64x64/r5",                     "64x64", {"cpu", "cpu_f64", "factors", "matmul", "kokkos_serial", "kokkos_openmp", "kokkos_cuda"}},
  {"a dense factor",             "f16/d53x256/r5",                   "d53x256", {"cpu", "cpu_f64", "factors", "kronecker", "mma_kronecker", "kokkos_serial", "kokkos_openmp", "kokkos_cuda"}},
  {"signs first",                "f16/4096+signs/r5",                "4096+signs", {"cpu", "cpu_f64", "factors", "kronecker", "mma_kronecker", "mma_split", "kokkos_serial", "kokkos_openmp", "kokkos_cuda"}},
  {"signs last",                 "f16/signs+4096/r5",                "signs+4096", {"cpu", "cpu_f64", "factors", "kronecker", "mma_kronecker", "mma_split", "kokkos_serial", "kokkos_openmp", "kokkos_cuda"}},
  {"fp8, one scale a row",       "bf16/n4096/r5>e4m3:row",           "e4m3:row",   {"cpu", "cpu_f64", "mma_split", "rotate_then_quantize"}},
  {"fp8, one scale a tensor",    "f16/n4096/r5>e4m3:tensor",         "e4m3:tensor", {"cpu", "cpu_f64", "mma_split", "rotate_then_quantize"}},
  {"fp8, a scale of many rows",  "bf16/n4096/r8>e4m3:row,t16384",    "t16384",     {"cpu", "cpu_f64", "rotate_then_quantize"}},
  {"int4 in fp16",               "f16/n4096/r5>int4:row,quarot",     "quarot",     {"cpu", "cpu_f64", "mma_split", "rotate_then_quantize"}},
  {"fp8 of the fp32 result",     "bf16/n4096/r5>e4m3:row/f32",       "e4m3:row/f32", {"cpu", "cpu_f64", "mma_split"}},
  {"int8",                       "bf16/n4096/r5>int8:row",           "int8:row",   {"cpu", "cpu_f64", "mma_split", "rotate_then_quantize"}},
  {"int8 in groups",             "f16/n4096/r5>int8:128",            "int8:128",   {"cpu", "cpu_f64", "mma_split", "rotate_then_quantize"}},
  {"int4",                       "f16/n4096/r5>int4:128",            "int4:128",   {"cpu", "cpu_f64", "mma_split", "rotate_then_quantize"}},
  {"MXFP8",                      "bf16/n4096/r5>mxfp8",              "mxfp8",      {"cpu", "cpu_f64", "mma_split", "rotate_then_quantize"}},
  {"MXFP4",                      "bf16/n4096/r5>mxfp4",              "mxfp4",      {"cpu", "cpu_f64", "mma_split", "rotate_then_quantize"}},
  {"NVFP4",                      "bf16/n4096/r5>nvfp4",              "nvfp4",      {"cpu", "cpu_f64", "mma_split", "rotate_then_quantize"}},
  {"any length, fp8",            "bf16/28x512/r5>e4m3:row",          "e4m3:row",   {"cpu", "cpu_f64", "kronecker", "mma_kronecker", "rotate_then_quantize"}},
  {"any length, many rows",      "f16/28x1024/r5000>int8:128,mn",    "int8:128",   {"cpu", "cpu_f64", "kronecker", "mma_kronecker", "rotate_then_quantize"}},
  {"any length, given scale",    "bf16/172x64/r5>e4m3:tensor,vllm_static", "vllm_static", {"cpu", "cpu_f64", "kronecker", "mma_kronecker", "rotate_then_quantize"}},
  {"any length, short groups",   "bf16/56x64/r5>nvfp4:128x4",        "nvfp4:128x4", {"cpu", "cpu_f64", "kronecker", "mma_kronecker", "rotate_then_quantize"}},
  {"any length, signs",          "f16/108x128+signs/r500>mxfp4",     "mxfp4",      {"cpu", "cpu_f64", "kronecker", "mma_kronecker", "rotate_then_quantize"}},
  {"fp8 of long rows",           "bf16/n32768/r5>e4m3:row",          "e4m3:row",   {"cpu", "cpu_f64", "kronecker", "mma_kronecker", "rotate_then_quantize"}},
  {"codes of fp32 rows",         "f32/n1024/r5>int4:row",            "int4:row",   {"cpu", "cpu_f64", "rotate_then_quantize"}},
  {"the same by another name",   "f32/n1024/r5>e4m3:128/f32",        "e4m3:128/f32", {"cpu", "cpu_f64", "rotate_then_quantize"}},
  {"codes of a dense factor",    "f16/d56x64/r5>e4m3:row",           "e4m3:row",   {"cpu", "cpu_f64", "mma_kronecker", "rotate_then_quantize"}},
  {"any length, short rows",     "bf16/12x64/r5>e4m3:row",           "e4m3:row",   {"cpu", "cpu_f64", "mma_kronecker", "rotate_then_quantize"}},
  {"any length, two matrices",   "bf16/76x2x36x2/r5>e4m3:row",        "e4m3:row",   {"cpu", "cpu_f64", "mma_kronecker", "rotate_then_quantize"}},
  {"two matrices, signs, groups", "f16/60x4x28x2+signs/r500>nvfp4:128x4", "nvfp4:128x4", {"cpu", "cpu_f64", "mma_kronecker", "rotate_then_quantize"}},
  {"any length, the tensor's scale", "bf16/28x512/r5>e4m3:tensor",   "e4m3:tensor", {"cpu", "cpu_f64", "rotate_then_quantize"}},
  {"any length, int4 in fp16",   "f16/28x512/r5>int4:row,quarot",    "quarot",     {"cpu", "cpu_f64", "rotate_then_quantize"}},
  {"any length, of fp32",        "bf16/28x512/r5>e4m3:row/f32",      "e4m3:row/f32", {"cpu", "cpu_f64"}},
  {"a norm in front of codes",   "bf16/n4096/r5/rms>e4m3:row",       "rms",        {"cpu", "cpu_f64", "mma_split"}},
  {"a norm in front of rows",    "bf16/n4096/r5/out/rms",            "rms",        {"cpu", "cpu_f64"}},
  {"turned pairs, then codes",   "bf16/n4096/r5/rope64>mxfp4",       "rope64",     {"cpu", "cpu_f64", "mma_split"}},
  {"pages of codes",             "bf16/n4096/r5/page64x9>e4m3:row",  "pages of 64", {"cpu", "cpu_f64", "mma_split"}},
  {"a norm in front of int8",    "bf16/n4096/r5/rms>int8:row",       "rms",        {"cpu", "cpu_f64"}},
  {"pages of nvfp4",             "bf16/n4096/r5/page64x9>nvfp4",     "pages of 64", {"cpu", "cpu_f64"}},
  {"signs, then int8",           "bf16/4096+signs/r5>int8:row",      "offered",    {"cpu", "cpu_f64", "kronecker", "mma_kronecker", "rotate_then_quantize"}},
  {"a wider output",             "f16/n4096/r5/out/to-f32",          "f32",        {}},
  {"a narrower output",          "f32/n4096/r5/out/to-bf16",         "bf16",       {}},
  {"a wider row stride out",     "f16/n4096/r5/out/ldo8192",         "8192",       {"cpu", "cpu_f64", "wgmma", "matmul"}},
  {"a narrower row stride out",  "f32/n4096/r5/out/ld8192/ldo4096",  "8192",       {"cpu", "cpu_f64"}},
};
// clang-format on

DeviceInfo no_cuda_description() {
  DeviceInfo device;
  device.why_no_cuda = "no CUDA device: described without one";
  return device;
}

struct Machine {
  std::string_view name;
  DeviceInfo device;
  Sizes Golden::*sizes;
};

std::vector<Machine> machines() {
  return {{"H200", h200_description(), &Golden::h200},
          {"A100", a100_description(), &Golden::a100},
          {"no CUDA", no_cuda_description(), &Golden::no_cuda}};
}

std::vector<std::int64_t> sizes_to_ask() {
  std::vector<std::int64_t> sizes{3,   5,    6,    7,    12,    20,    24,    28,   96,
                                  768, 1000, 1023, 1025, 11008, 14336, 32760, 40000};
  for (int log_n = 0; log_n <= 32; ++log_n)
    sizes.push_back(std::int64_t{1} << log_n);
  return sizes;
}

const Golden* golden_row(const Variant& variant, Dtype dtype) {
  for (const Golden& row : kGolden) {
    if (row.variant != variant.name) continue;
    if (std::find(row.dtypes.begin(), row.dtypes.end(), dtype) != row.dtypes.end()) return &row;
  }
  return nullptr;
}

bool missing_backend(const Golden* row, const Support& answer) {
  return row != nullptr && !row->optional_backend.empty() &&
         answer.why_not.starts_with(fmt::format("built without {}", row->optional_backend));
}

/// Whether its plain plans are those of other variants.
bool forwards(const Variant& variant) {
  return variant.name == "auto" || variant.name == "rotate_then_quantize";
}

bool expected_support(const Golden* row, const Machine& machine, const Problem& problem) {
  if (row == nullptr || !(row->*machine.sizes).contains(problem.n())) return false;
  if (!row->takes_stride(problem) && !problem.contiguous()) return false;
  return problem.placement == Placement::in_place ? row->in_place : row->out_of_place;
}

std::set<std::string> numbers_in(std::string_view text) {
  std::set<std::string> numbers;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0)
      ++end;
    if (end > i) numbers.emplace(text.substr(i, end - i));
    i = std::max(end, i + 1);
  }
  return numbers;
}

/// One sentence: not empty, one line, no full stop in the middle, starts and ends with something readable.
::testing::AssertionResult is_one_sentence(const std::string& text) {
  if (text.size() < 8) return ::testing::AssertionFailure() << "too short: '" << text << "'";
  if (text.find('\n') != std::string::npos) return ::testing::AssertionFailure() << "several lines: " << text;
  if (text.find(". ") != std::string::npos)
    return ::testing::AssertionFailure() << "several sentences: " << text;
  return ::testing::AssertionSuccess();
}

// What the refusal must name: the value that is to blame, and a limit to compare it with.
void expect_reason(const Golden* row, const Machine& machine, const Problem& problem,
                   const std::string& why_not) {
  EXPECT_TRUE(is_one_sentence(why_not));
  if (row == nullptr) {
    // The machine or the build may be refused before the dtype is looked at.
    if (why_not == machine.device.why_no_cuda || why_not.find("compute capability") != std::string::npos ||
        why_not.starts_with("built without"))
      return;
    EXPECT_NE(why_not.find(name_of(problem.dtype())), std::string::npos)
        << why_not << " does not name the dtype";
    return;
  }
  const Sizes sizes = row->*machine.sizes;
  if (sizes.largest == 0) {
    // The whole machine is refused: by its missing CUDA device, or by its compute capability and the one
    // needed.
    const bool cuda_is_missing = !machine.device.has_cuda();
    EXPECT_EQ(cuda_is_missing, why_not == machine.device.why_no_cuda) << why_not;
    if (!cuda_is_missing) {
      // Or no Sylvester operator is taken at all.
      const bool names_operator =
          why_not.find(fmt::format("the operator {} ", problem.n())) != std::string::npos;
      EXPECT_TRUE(names_operator || why_not.find("compute capability") != std::string::npos) << why_not;
    }
    return;
  }
  std::set<std::string> numbers = numbers_in(why_not);
  const bool n_is_to_blame = !sizes.contains(problem.n());
  const bool stride_is_to_blame = !row->takes_stride(problem) && !problem.contiguous();
  if (!n_is_to_blame && !stride_is_to_blame) {
    EXPECT_NE(why_not.find("place"), std::string::npos) << why_not << " does not name the placement";
    return;
  }
  const std::string blamed_n = std::to_string(problem.n()),
                    blamed_stride = std::to_string(problem.row_stride());
  const bool names_value = (n_is_to_blame && numbers.contains(blamed_n)) ||
                           (stride_is_to_blame && numbers.contains(blamed_stride));
  EXPECT_TRUE(names_value) << "'" << why_not << "' does not name the value that is refused";
  EXPECT_GE(numbers.size(), 2U) << "'" << why_not << "' names no limit beside the value";
}

void expect_golden(const Variant& variant, const Machine& machine, const Problem& problem) {
  const Golden* row = golden_row(variant, problem.dtype());
  const Support answer = variant.supports(problem, machine.device);
  if (missing_backend(row, answer)) return;
  const bool expected = expected_support(row, machine, problem);
  EXPECT_EQ(static_cast<bool>(answer), expected)
      << variant.name << " on " << machine.name << ": " << to_string(problem) << ": " << answer.why_not;
  if (!answer && !expected) expect_reason(row, machine, problem, answer.why_not);
}

TEST(Registry, SupportIsWhatTheGoldenTableSays) {
  for (const Variant* variant : registry()) {
    for (const Machine& machine : machines()) {
      for (const Dtype dtype : kAskedDtypes) {
        for (const std::int64_t n : sizes_to_ask()) {
          for (const Placement placement : {Placement::in_place, Placement::out_of_place}) {
            for (const std::int64_t gap : {0, 1, 2, 4, 8, 16, 128}) {
              Problem problem = make_problem(dtype, n, 5, placement);
              problem.set_row_stride(n + gap);
              expect_golden(*variant, machine, problem);
            }
          }
          if (HasFailure()) return;  // the first problem that disagrees says enough
        }
      }
    }
  }
}

TEST(Registry, WhatOnlySomeVariantsOfferIsRefusedByNameByTheOthers) {
  for (const Extra& extra : kExtras) {
    const Problem problem = parse_problem(extra.problem);
    for (const Variant* variant : registry()) {
      const auto offered_by = [&](std::string_view name) {
        return std::find(extra.offered_by.begin(), extra.offered_by.end(), name) != extra.offered_by.end();
      };
      for (const Machine& machine : machines()) {
        const std::string where =
            fmt::format("{} on {}: {}, {}", variant->name, machine.name, extra.what, extra.problem);
        const Support plain = variant->supports(make_problem(problem.dtype(), 4096, 5), machine.device);
        const Support answer = variant->supports(problem, machine.device);
        // auto offers what another device variant offers on that machine, two launches among them.
        const bool encoded = !problem.encoding.is_plain();
        const bool offered =
            !forwards(*variant) || (variant->name != "auto" && encoded)
                ? offered_by(variant->name)
                : std::any_of(registry().begin(), registry().end(), [&](const Variant* other) {
                    // It does not fall back to matmul where there is a fast transform.
                    const bool asked = other->name != "matmul" || !problem.op.is_sylvester();
                    return asked && other->memory == Memory::device && other->name != "auto" &&
                           (encoded || !forwards(*other)) && offered_by(other->name) &&
                           other->supports(problem, machine.device);
                  });
        // These take no plain Sylvester operator, so that their machine tells what the others' plain answer
        // does.
        const bool runs_there = variant->name == "kronecker" ? machine.name == "H200"
                                : variant->name == "factors" || variant->name == "mma_kronecker" ||
                                        variant->name == "warp_kronecker"
                                    ? machine.name != "no CUDA"
                                    : static_cast<bool>(plain);
        if (missing_backend(golden_row(*variant, problem.dtype()), answer)) continue;
        EXPECT_EQ(static_cast<bool>(answer), offered && runs_there) << where << ": " << answer.why_not;
        if (!answer) {
          EXPECT_TRUE(is_one_sentence(answer.why_not)) << where;
        }
        if (!answer && plain) {
          // Where another machine offers it, the machine may be to blame instead.
          // Whoever refuses the operator or the row length too says that.
          const auto names = [&](std::string_view words) {
            return answer.why_not.find(words) != std::string::npos;
          };
          const bool names_it = names(extra.named) ||
                                (!problem.op.is_sylvester() && names(to_string(problem.op))) ||
                                names(fmt::format("n={} ", problem.n()));
          EXPECT_TRUE(names_it || answer.why_not.find("compute capability") != std::string::npos)
              << where << ": " << answer.why_not;
        }
      }
    }
  }
}

TEST(Registry, EveryOfferOfTheTableIsAVariantsOwn) {
  for (const Extra& extra : kExtras) {
    for (const std::string_view name : extra.offered_by)
      EXPECT_NO_THROW(find_variant(name)) << extra.what;
  }
}

// Operators of several factors, or with signs: who takes them, on every machine, for every dtype of its
// golden row. The others name the operator.
TEST(Registry, OperatorsAreTakenByWhomTheGoldenTableSays) {
  const std::set<std::string_view> kTakesEveryOperator{"cpu", "cpu_f64", "kokkos_serial", "kokkos_openmp"};
  // A matrix times 2^k where a launch fits, with or without signs, on an H200.
  const std::set<std::string_view> kTakenByKronecker{"12x64",      "28x512",       "428x32",   "428tx32",
                                                     "76x2x36x2",  "d53x256",      "d53tx256", "4096+signs",
                                                     "signs+4096", "28x128+signs", "44x32",    "140x64"};
  // The same on every tensor core.
  const std::set<std::string_view>& kTakenByMmaKronecker = kTakenByKronecker;
  // One named matrix times 2^k from 16 on, rows to 14336.
  const std::set<std::string_view> kTakenByWarpKronecker{"12x64", "28x512", "28x128+signs", "44x32",
                                                         "140x64"};
  const std::set<std::string_view> kTakenByMmaSplit{"4096+signs", "signs+4096"};
  // Matrices known by name, rows of a multiple of 8 elements up to 16384.
  const std::set<std::string_view> kTakenByMatmul{"12x64", "28x512", "428x32", "428tx32", "76x2x36x2",
                                                  "4x12",  "128x32", "44x32",  "140x64"};
  // Orders up to 32, in f32, without signs.
  const std::set<std::string_view> kTakenByNaive{"12x64", "28x512", "4x12", "128x32"};
  for (const Variant* variant : registry()) {
    for (const Machine& machine : machines()) {
      for (const Dtype dtype : kAllDtypes) {
        const Golden* row = golden_row(*variant, dtype);
        for (const std::string_view text :
             {"12x64", "28x512", "428x32", "428tx32", "76x2x36x2", "4x12", "d53x256", "d53tx256",
              "4096+signs", "signs+4096", "28x128+signs", "128x32", "44x32", "140x64"}) {
          for (const std::int64_t gap : {0, 8}) {
            Problem problem = make_problem(dtype, parse_operator(text), 5, Placement::out_of_place);
            problem.set_row_stride(problem.n() + gap);
            const Support answer = variant->supports(problem, machine.device);
            if (answer.why_not.starts_with("built without") || missing_backend(row, answer)) continue;
            const bool by_kronecker = machine.name == "H200" && dtype != Dtype::f32 &&
                                      kTakenByKronecker.contains(text) &&
                                      (variant->name == "kronecker" || forwards(*variant));
            const bool by_mma_kronecker = machine.name != "no CUDA" && dtype != Dtype::f32 &&
                                          kTakenByMmaKronecker.contains(text) &&
                                          variant->name == "mma_kronecker";
            const bool by_warp_kronecker = machine.name != "no CUDA" && dtype != Dtype::f32 &&
                                           kTakenByWarpKronecker.contains(text) &&
                                           variant->name == "warp_kronecker";
            const bool by_mma_split = machine.name != "no CUDA" && dtype != Dtype::f32 &&
                                      kTakenByMmaSplit.contains(text) && variant->name == "mma_split";
            const bool by_factors =
                machine.name != "no CUDA" && (variant->name == "factors" || forwards(*variant));
            const bool by_matmul = machine.name != "no CUDA" && dtype != Dtype::f32 &&
                                   kTakenByMatmul.contains(text) && variant->name == "matmul";
            const bool by_naive = machine.name != "no CUDA" && dtype == Dtype::f32 &&
                                  kTakenByNaive.contains(text) && variant->name == "naive";
            const bool by_kokkos_cuda = machine.name != "no CUDA" && variant->name == "kokkos_cuda";
            const bool expected =
                row != nullptr &&
                (kTakesEveryOperator.contains(variant->name) || by_kronecker || by_mma_kronecker ||
                 by_warp_kronecker || by_mma_split || by_naive || by_factors || by_matmul || by_kokkos_cuda);
            EXPECT_EQ(static_cast<bool>(answer), expected) << variant->name << " on " << machine.name << ": "
                                                           << to_string(problem) << ": " << answer.why_not;
            if (answer) continue;
            EXPECT_TRUE(is_one_sentence(answer.why_not));
            if (row == nullptr || (row->*machine.sizes).largest == 0 || missing_backend(row, answer) ||
                answer.why_not.find("compute capability") != std::string::npos ||
                answer.why_not.starts_with("dtype f32 "))
              continue;
            EXPECT_NE(answer.why_not.find(fmt::format("the operator {} is not offered", text)),
                      std::string::npos)
                << variant->name << ": " << answer.why_not;
          }
        }
      }
    }
  }
}

TEST(Registry, SupportDoesNotDependOnTheNumberOfRowsOrTheScale) {
  for (const Variant* variant : registry()) {
    for (const Machine& machine : machines()) {
      for (const Dtype dtype : kAskedDtypes) {
        for (const std::int64_t n : {2, 128, 4096, 32768, 65536}) {
          for (const std::int64_t rows :
               {std::int64_t{0}, std::int64_t{1}, std::int64_t{8193}, (std::int64_t{1} << 33) / n}) {
            expect_golden(*variant, machine, make_problem(dtype, n, rows));
          }
          Problem unscaled = make_problem(dtype, n, 3);
          unscaled.scale = 1.0;  // as it is for integers
          expect_golden(*variant, machine, unscaled);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// Code of sm_90a is refused on newer devices too. Nothing else tells a device of 10.0 from one of 9.0, which
// has as much shared memory, but programmatic launches.
TEST(Registry, ANewerDeviceIsServedLikeAnH200ButForSm90a) {
  int served = 0;
  for (const DeviceInfo& device : described_devices()) {
    if (device.compute_capability() < 100 || device.shared_bytes_per_block < (227U << 10)) continue;
    for (const Variant* variant : registry()) {
      for (const Dtype dtype : kAskedDtypes) {
        for (const std::int64_t n : sizes_to_ask()) {
          const Problem problem = make_problem(dtype, n, 5);
          const Support there = variant->supports(problem, h200_description());
          const Support here = variant->supports(problem, device);
          if (variant->name == "wgmma" || variant->name == "kronecker") {
            EXPECT_FALSE(here) << variant->name;
          } else if (!forwards(*variant)) {
            EXPECT_EQ(here.why_not, there.why_not) << variant->name << ": " << to_string(problem);
            served += static_cast<int>(there.why_not.empty());
          }
        }
      }
    }
  }
  EXPECT_GT(served, 0);
}

TEST(Registry, NoRowsAreServedAtEveryLengthThatOneRowIs) {
  constexpr Dtype kDtypes[] = {Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64, Dtype::i32, Dtype::i64};
  int served = 0;
  for (const DeviceInfo& device : described_devices()) {
    for (const Variant* variant : registry()) {
      for (const Dtype dtype : kDtypes) {
        for (int log_n = 1; log_n <= 31; ++log_n) {
          const std::int64_t n = std::int64_t{1} << log_n;
          if (!variant->supports(make_problem(dtype, n, 1), device)) continue;
          EXPECT_TRUE(variant->supports(make_problem(dtype, n, 0), device))
              << variant->name << ", " << name_of(dtype) << ", 2^" << log_n << " on " << device.name;
          ++served;
        }
      }
    }
  }
  EXPECT_GT(served, 0);
}

TEST(Registry, ProgrammaticLaunchIsOfferedOrRefusedByName) {
  for (const Variant* variant : registry()) {
    for (const Machine& machine : machines()) {
      for (const Dtype dtype : kAskedDtypes) {
        const Golden* row = golden_row(*variant, dtype);
        if (row == nullptr) continue;
        for (const std::int64_t n : {2, 128, 16384, 32768, 65536}) {
          Problem problem = make_problem(dtype, n, 3);
          if (!variant->supports(problem, machine.device)) continue;
          problem.programmatic_launch = true;
          const Support answer = variant->supports(problem, machine.device);
          EXPECT_EQ(static_cast<bool>(answer), row->programmatic.contains(n) && machine.name == "H200")
              << variant->name << " on " << machine.name << ": " << to_string(problem);
          if (!answer) {
            EXPECT_NE(answer.why_not.find("programmatic dependent launch"), std::string::npos)
                << answer.why_not;
          }
        }
      }
    }
  }
}

TEST(Registry, EveryVariantHasAGoldenRowAndEveryRowAVariant) {
  std::set<std::string_view> in_registry, in_table;
  for (const Variant* variant : registry())
    in_registry.insert(variant->name);
  for (const Golden& row : kGolden)
    in_table.insert(row.variant);
  EXPECT_EQ(in_registry, in_table) << "a new variant needs its row in the golden table of registry_test.cpp";
  for (const Golden& row : kGolden) {
    EXPECT_FALSE(row.dtypes.empty()) << row.variant;
    const bool offers_extra = std::any_of(kExtras.begin(), kExtras.end(), [&](const Extra& extra) {
      return std::find(extra.offered_by.begin(), extra.offered_by.end(), row.variant) !=
             extra.offered_by.end();
    });
    EXPECT_TRUE(offers_extra || row.h200.largest > 0 || row.a100.largest > 0 || row.no_cuda.largest > 0)
        << row.variant << " supports nothing anywhere";
  }
}

TEST(Registry, NoDtypeHasTwoGoldenRows) {
  std::set<std::pair<std::string_view, Dtype>> seen;
  for (const Golden& row : kGolden) {
    for (const Dtype dtype : row.dtypes)
      EXPECT_TRUE(seen.emplace(row.variant, dtype).second) << row.variant;
  }
}

TEST(Registry, NamesAreUniqueStemsAndFound) {
  std::set<std::string_view> names;
  ASSERT_FALSE(registry().empty());
  for (const Variant* variant : registry()) {
    EXPECT_TRUE(names.insert(variant->name).second) << variant->name;
    EXPECT_EQ(&find_variant(variant->name), variant);
    EXPECT_FALSE(variant->summary.empty());
    ASSERT_NE(variant->supports, nullptr);
    ASSERT_NE(variant->make_plan, nullptr);
    // One stem names folder, symbol, test, benchmark and result column.
    EXPECT_TRUE(std::all_of(variant->name.begin(), variant->name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    })) << variant->name;
  }
}

TEST(Registry, UnknownNameListsTheKnownOnes) {
  for (const std::string_view unknown : {"", "Cpu", "cpu ", "no_such_variant"}) {
    try {
      find_variant(unknown);
      FAIL() << "'" << unknown << "' was found";
    } catch (const BadRequest& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(fmt::format("'{}'", unknown)), std::string::npos) << message;
      for (const Variant* variant : registry()) {
        EXPECT_NE(message.find(variant->name), std::string::npos) << message;
      }
    }
  }
}

// The reason travels unchanged into the exception.
TEST(Registry, AnUnsupportedProblemGetsNoPlanButTheReason) {
  for (const Variant* variant : registry()) {
    const Problem problem = make_problem(Dtype::f16, 12, 1);
    const Support support = variant->supports(problem, h200_description());
    ASSERT_FALSE(support) << variant->name << " supports n=12: choose another size here";
    try {
      plan(*variant, problem, h200_description());
      FAIL() << variant->name;
    } catch (const BadRequest& error) {
      EXPECT_EQ(error.what(), fmt::format("{}: {}", variant->name, support.why_not));
    }
  }
}

TEST(Registry, WhatNoLaunchCanDoIsRefusedBeforeOne) {
  EXPECT_EQ(find_variant("rotate_then_quantize")
                .supports(parse_problem("bf16/n1/r8192/out/s2>e4m3:row,t128"), h200_description())
                .why_not,
            "scale=2 must be 1 for rows of n=1, which no launch multiplies");
  EXPECT_TRUE(find_variant("rotate_then_quantize")
                  .supports(parse_problem("bf16/n1/r8192/out>e4m3:row,t128"), h200_description()));
  const std::string too_far =
      find_variant("matmul").supports(parse_problem("f16/n8/r2/ld1073741832"), h200_description()).why_not;
  EXPECT_TRUE(too_far.ends_with("exceeds the limit of 2147483647 bytes in place")) << too_far;
}

// What works on a device says no to orderings and inner dimensions, in one sentence; but for passes, and for
// auto, which takes it.
TEST(SupportTable, OrderingsAndInnerDimensionsAreTheHostsAndOfPasses) {
  for (const Variant* variant : registry()) {
    const bool on_host = variant->name == "cpu" || variant->name == "cpu_f64";
    for (const char* text :
         {"f16/n1024/r4/out/sequency", "bf16/n1024/r4/out/from-sequency", "f16/n1024/r4/inner2",
          "f32/n131072/r4/inner4", "f64/n1024/r4/inner4", "f16/28x512/r4/inner2", "bf16/4096+signs/r4/inner2",
          "f16/12x64/r4/inner4", "f16/d4x4/r4/inner4", "i32/n65536/r2/inner2"}) {
      const Problem problem = parse_problem(text);
      const Support support = variant->supports(problem, h200_description());
      EXPECT_EQ(static_cast<bool>(support),
                on_host && (variant->name == "cpu" || !is_integer(problem.dtype())))
          << variant->name << " " << text << " " << support.why_not;
    }
  }
  for (const char* text :
       {"f32/n1024/r64/inner32", "f32/n32/r96/inner32/out", "f64/n2048/r64/inner16",
        "i32/n1048576/r64/inner64", "i64/n64/r32/inner16/ld1040/pdl", "f32/n65536/r4/out/dyadic",
        "f64/n16777216/r1/out/from-sequency/pdl", "i32/n2147483648/r1/out/from-dyadic/sequency",
        "i64/n131072/r3/out/sequency/ld131080", "f32/n1024/r4/out/sequency", "f64/n2/r3/out/from-dyadic",
        "f64/n32768/r3/out/sequency", "i32/n32768/r3/out/dyadic/pdl",
        "i64/n64/r99/out/from-sequency/sequency"}) {
    EXPECT_TRUE(find_variant("passes").supports(parse_problem(text), h200_description())) << text;
    EXPECT_TRUE(find_variant("auto").supports(parse_problem(text), h200_description())) << text;
  }
  for (const char* text : {"f16/n65536/r4/out/dyadic", "bf16/n2147483648/r1/out/from-sequency/pdl",
                           "f16/n64/r32/inner32", "bf16/n1048576/r64/inner64/out/ld67108872"}) {
    EXPECT_TRUE(find_variant("passes").supports(parse_problem(text), h200_description())) << text;
    EXPECT_TRUE(find_variant("auto").supports(parse_problem(text), h200_description())) << text;
  }
  EXPECT_EQ(find_variant("passes").supports(parse_problem("f32/n16/r32/inner32"), h200_description()).why_not,
            "rows of n=16 elements that lie inner=32 apart: for f32 data H_n takes a power of two from 32, "
            "inner one from "
            "32, together up to 2147483648");
  EXPECT_EQ(find_variant("passes").supports(parse_problem("f16/n64/r16/inner16"), h200_description()).why_not,
            "rows of n=64 elements that lie inner=16 apart: for f16 data H_n takes a power of two from 32, "
            "inner one from 32, together up to 2147483648");
  for (const char* text :
       {"f32/n64/r16/inner16", "f32/n64/r48/inner48", "f64/n64/r8/inner8", "f32/n1024/r4194304/inner4194304",
        "f32/n64/r32/inner32/out/dyadic", "f32/12x4/r32/inner32"})
    EXPECT_FALSE(find_variant("passes").supports(parse_problem(text), h200_description())) << text;
  for (const char* text : {"f32/n1024/r4/inner2", "i32/n65536/r2/inner2"}) {
    EXPECT_EQ(find_variant("auto").supports(parse_problem(text), h200_description()).why_not,
              find_variant("passes").supports(parse_problem(text), h200_description()).why_not);
  }
}

}  // namespace
}  // namespace fwht
