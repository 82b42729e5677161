// The host spaces run for real, and their results are compared bit for bit with the ascending loop nest of
// `cpu`; what the registry answers is checked for all three.
#include "variants/kokkos/kokkos.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/contract/operator_data.hpp"
#include "common/device/device_info.hpp"
#include "common/device/memory.hpp"
#include "common/host/error.hpp"
#include "kokkos_config.hpp"
#include "variants/cpu/cpu.hpp"
#include "variants/kit/simd/rows.hpp"
#include "variants/kokkos/module.hpp"

namespace fwht::kokkos {
namespace {

DeviceInfo host_only() {
  DeviceInfo device;
  device.host_threads = usable_threads();
  return device;
}

std::vector<std::byte> random_rows(const Problem& problem) {
  std::mt19937 random(static_cast<unsigned>(problem.n() + problem.rows));
  std::normal_distribution<double> normal;
  std::vector<std::byte> bytes(static_cast<std::size_t>(problem.span_bytes()));
  for (std::int64_t i = 0; i < problem.span_elements(); ++i)
    store_element(problem.dtype(), bytes.data(), i, normal(random));
  return bytes;
}

// Runs `variant` on data that start `misalign` bytes past a 256-byte boundary; what it leaves between rows is
// kept.
std::vector<std::byte> result_of(const Variant& variant, const Problem& problem,
                                 const std::vector<std::byte>& input, std::size_t misalign = 0) {
  const DeviceInfo device = host_only();
  Buffer in(Memory::host, input.size(), misalign), out(Memory::host, input.size(), misalign);
  in.upload(input.data(), input.size());
  out.upload(input.data(), input.size());
  const bool in_place = problem.placement == Placement::in_place;
  Operands operands{in_place ? out.data() : in.data(), out.data()};
  std::vector<double> signs(static_cast<std::size_t>(problem.n()));
  for (std::size_t i = 0; i < signs.size(); ++i)
    signs[i] = i % 3 == 0 ? -1.0 : 1.0;
  const std::vector<std::uint32_t> packed = pack_signs(signs);
  if (problem.op.has_signs()) operands.signs = packed.data();
  plan(variant, problem, device)->execute(operands);
  EXPECT_TRUE(out.guards_intact()) << to_string(problem);
  std::vector<std::byte> result(input.size());
  out.download(result.data(), result.size());
  return result;
}

// The first case that asks for a space fails or skips with the registry's own reason.
class KokkosHost : public testing::TestWithParam<const Variant*> {
 protected:
  void SetUp() override {
    const Support support = GetParam()->supports(make_problem(Dtype::f32, 2, 1), host_only());
    if (!support) GTEST_SKIP() << support.why_not;
  }
  void expect_same_as_cpu(const Problem& problem, std::size_t misalign = 0) {
    const std::vector<std::byte> input = random_rows(problem);
    const auto expected = result_of(cpu::variant, problem, input);
    const auto actual = result_of(*GetParam(), problem, input, misalign);
    ASSERT_EQ(std::memcmp(expected.data(), actual.data(), expected.size()), 0)
        << GetParam()->name << " " << to_string(problem) << " differs from the ascending loop nest";
  }
};
INSTANTIATE_TEST_SUITE_P(Spaces, KokkosHost, testing::Values(&serial_variant, &openmp_variant),
                         [](const auto& space) { return std::string(space.param->name); });

TEST_P(KokkosHost, EverySizeIsBitForBitTheLoopNest) {
  for (const Dtype dtype : kAllDtypes) {
    for (int levels = 1; levels <= 16; ++levels) {
      const std::int64_t n = std::int64_t{1} << levels;
      const std::int64_t rows = n >= 4096 ? 3 : 2 * (4096 / n) + 3;
      expect_same_as_cpu(
          make_problem(dtype, n, rows, levels % 2 == 0 ? Placement::in_place : Placement::out_of_place));
    }
  }
}

TEST_P(KokkosHost, FewRowsStridesAndMisalignment) {
  for (const Dtype dtype : kAllDtypes) {
    for (const std::int64_t n : {2, 16, 64, 128, 256, 512, 4096}) {
      for (const std::int64_t rows : {1, 5, 300}) {
        for (const std::int64_t gap : {1, 24}) {
          Problem problem = make_problem(dtype, n, rows, Placement::out_of_place);
          problem.set_row_stride(n + gap);
          expect_same_as_cpu(problem);
          problem.placement = Placement::in_place;
          expect_same_as_cpu(problem, static_cast<std::size_t>(bytes_of(dtype)));
        }
        expect_same_as_cpu(make_problem(dtype, n, rows), static_cast<std::size_t>(bytes_of(dtype)));
      }
    }
  }
}

// Matrices and butterflies in the order of `cpu`, signs before or after, long and short rows, odd strides.
TEST_P(KokkosHost, OperatorsAreBitForBitThoseOfTheLoops) {
  for (const Dtype dtype : kAllDtypes) {
    for (const char* text : {"28x16", "428tx2", "116x4", "116tx4", "4x12", "76x2x36x2", "64r", "12x64+signs",
                             "signs+20x8", "64+signs", "signs+4096", "8x16", "12"}) {
      for (const Placement placement : {Placement::in_place, Placement::out_of_place}) {
        Problem problem = make_problem(dtype, parse_operator(text), 7, placement);
        expect_same_as_cpu(problem);
        problem.set_row_stride(problem.n() + 5);
        expect_same_as_cpu(problem, static_cast<std::size_t>(bytes_of(dtype)));
      }
    }
  }
  expect_same_as_cpu(make_problem(Dtype::f16, parse_operator("28x512"), 0));
  expect_same_as_cpu(make_problem(Dtype::f32, parse_operator("12x524288"), 1));
}

// A matrix of the user's, forward and transposed; one that is not orthogonal is refused, and nothing is
// written.
TEST_P(KokkosHost, ADenseFactorIsExecutedOrRefused) {
  for (const char* text : {"d2x4", "d2tx4", "4xd2"}) {
    const Problem problem = make_problem(Dtype::f32, parse_operator(text), 3, Placement::out_of_place);
    const std::vector<std::byte> input = random_rows(problem);
    const float good[] = {0.8F, 0.6F, -0.6F, 0.8F}, bad[] = {0.8F, 0.6F, -0.6F, 0.7F};
    std::vector<std::byte> expected(input.size()), actual(input.size());
    Operands operands{input.data(), expected.data()};
    operands.dense = good;
    plan(cpu::variant, problem, host_only())->execute(operands);
    operands.out = actual.data();
    const auto by_kokkos = plan(*GetParam(), problem, host_only());
    operands.dense = bad;
    EXPECT_THROW(by_kokkos->execute(operands), BadRequest);
    EXPECT_EQ(actual, std::vector<std::byte>(input.size()));
    operands.dense = good;
    by_kokkos->execute(operands);
    for (std::int64_t i = 0; i < problem.elements(); ++i)  // the compiler may fuse products with sums
      ASSERT_NEAR(load_element(Dtype::f32, actual.data(), i), load_element(Dtype::f32, expected.data(), i),
                  1e-6);
  }
}

TEST_P(KokkosHost, InputAndOutputOfAnOperatorLieAtTheirOwnDistances) {
  Problem problem = make_problem(Dtype::f32, parse_operator("12x4"), 5, Placement::out_of_place);
  const Problem contiguous = problem;
  problem.in.row_stride = 51;
  problem.out.row_stride = 60;
  std::vector<float> in(255, NAN), out(300, -7.0F), packed, want(240);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < want.size(); ++i)
    packed.push_back(in[i / 48 * 51 + i % 48] = normal(random));
  plan(*GetParam(), problem, host_only())->execute(in.data(), out.data());
  plan(cpu::variant, contiguous, host_only())->execute(packed.data(), want.data());
  for (std::size_t i = 0; i < out.size(); ++i)
    ASSERT_EQ(out[i], i % 60 < 48 ? want[i / 60 * 48 + i % 60] : -7.0F) << i;
}

TEST(Kokkos, OperatorsThatNobodyTakesAreRefusedByName) {
  if (!config::kWhyNoHost.empty()) GTEST_SKIP() << config::kWhyNoHost;
  const auto refusal = [](std::string_view text) {
    return serial_variant.supports(make_problem(Dtype::f16, parse_operator(text), 2), host_only()).why_not;
  };
  EXPECT_EQ(refusal("d257x4"), "operator d257x4: the dense factor of order 257 exceeds the limit of 256");
  EXPECT_EQ(refusal("428x4194304"), "n=1795162112 must be between 2 and 1073741824");
}

TEST_P(KokkosHost, TheLongestRowFitsItsScratch) {
  expect_same_as_cpu(make_problem(Dtype::f32, kLargestHostN, 1));
  EXPECT_FALSE(GetParam()->supports(make_problem(Dtype::f32, 2 * kLargestHostN, 1), host_only()));
}

TEST_P(KokkosHost, NoRowsDoNothing) {
  expect_same_as_cpu(make_problem(Dtype::f16, 64, 0));
}

TEST_P(KokkosHost, NanAndInfinityStayInTheirRow) {
  for (const Dtype dtype : kAllDtypes) {
    for (const std::int64_t n : {4, 64, 2048}) {
      const Problem problem = make_problem(dtype, n, 9);
      std::vector<std::byte> input = random_rows(problem);
      const auto clean = result_of(*GetParam(), problem, input);
      store_element(dtype, input.data(), 4 * n + 1, std::numeric_limits<double>::quiet_NaN());
      store_element(dtype, input.data(), 6 * n + n / 2, std::numeric_limits<double>::infinity());
      const auto marked = result_of(*GetParam(), problem, input);
      for (std::int64_t i = 0; i < problem.elements(); ++i) {
        const double value = load_element(dtype, marked.data(), i);
        if (i / n == 4) {
          ASSERT_TRUE(std::isnan(value)) << to_string(problem) << " element " << i;
        } else if (i / n == 6) {
          ASSERT_TRUE(std::isinf(value)) << to_string(problem) << " element " << i;
          ASSERT_EQ(std::signbit(value), (i & (n / 2)) != 0) << i;
        } else {
          ASSERT_EQ(value, load_element(dtype, clean.data(), i));
        }
      }
    }
  }
}

TEST_P(KokkosHost, PlansOutliveEachOtherAndNameTheirSpace) {
  const DeviceInfo device = host_only();
  auto first = plan(*GetParam(), make_problem(Dtype::f32, 1024, 64), device);
  { const auto second = plan(*GetParam(), make_problem(Dtype::f16, 64, 64), device); }
  const Problem problem = first->problem();
  std::vector<std::byte> data = random_rows(problem);
  const auto expected = result_of(cpu::variant, problem, data);
  first->execute(data.data(), data.data());
  EXPECT_EQ(data, expected);
  const Settings settings = first->settings();
  EXPECT_EQ(std::get<std::string>(settings[0].second), GetParam() == &openmp_variant ? "OpenMP" : "Serial");
  const auto threads = std::get<std::int64_t>(settings[1].second);
  EXPECT_EQ(threads, GetParam() == &openmp_variant ? device.host_threads : 1);
}

TEST_P(KokkosHost, PlansTakeTheThreadsOfTheirOwn) {
  const DeviceInfo all = host_only();
  DeviceInfo one = all;
  one.host_threads = 1;
  for (const DeviceInfo& device : {one, all, one}) {
    for (const char* text : {"f32/n1024/r64", "f32/12x64/r64", "f32/n1024/r0"}) {
      const Problem problem = parse_problem(text);
      const auto made = plan(*GetParam(), problem, device);
      EXPECT_EQ(std::get<std::int64_t>(made->settings()[1].second),
                GetParam() == &openmp_variant ? device.host_threads : 1)
          << text;
      std::vector<std::byte> data = random_rows(problem);
      const auto expected = result_of(cpu::variant, problem, data);
      made->execute(data.data(), data.data());
      EXPECT_EQ(data, expected) << text;
    }
  }
}

TEST(Kokkos, WhatIsNotBuiltSaysWhy) {
  const Problem problem = make_problem(Dtype::f16, 1024, 4);
  const struct {
    const Variant* variant;
    std::string_view why;
  } spaces[] = {{&serial_variant, config::kWhyNoHost},
                {&openmp_variant, config::kWhyNoOpenmp},
                {&cuda_variant, config::kWhyNoCuda}};
  for (const auto& [variant, why] : spaces) {
    const Support support = variant->supports(problem, h200_description());
    if (why.empty() && config::kWhyNoHost.empty()) {
      EXPECT_TRUE(support) << support.why_not;
    } else {
      EXPECT_TRUE(support.why_not.starts_with("built without Kokkos")) << support.why_not;
      EXPECT_NE(support.why_not.find(why.empty() ? config::kWhyNoHost : why), std::string::npos)
          << support.why_not;
    }
  }
}

TEST(Kokkos, CudaLimitsAndOlderDevices) {
  if (!config::kWhyNoCuda.empty()) GTEST_SKIP() << config::kWhyNoCuda;
  EXPECT_TRUE(cuda_variant.supports(make_problem(Dtype::f16, kLargestTiledN, 1), h200_description()));
  const Support too_long = cuda_variant.supports(make_problem(Dtype::f16, 65536, 1), h200_description());
  EXPECT_EQ(too_long.why_not, "n=65536 must be a power of two between 2 and 32768");
  EXPECT_EQ(cuda_variant.supports(make_problem(Dtype::f16, 64, 1), DeviceInfo{}).why_not, "no CUDA device");
  const bool fits_a100 = config::kCudaArchitecture <= 80;
  EXPECT_EQ(static_cast<bool>(cuda_variant.supports(make_problem(Dtype::f16, 64, 1), a100_description())),
            fits_a100);
}

TEST(Kokkos, AModuleThatIsNotThereIsNamed) {
  try {
    load_module("libfwht_kokkos_nowhere.so");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("libfwht_kokkos_nowhere.so was not found"), std::string::npos);
  }
}

// A second Kokkos in the process (the caller's own, the CUDA module's) must not find this one's symbols.
TEST(Kokkos, AModuleShowsItsEntryPointOnly) {
  if (!config::kWhyNoHost.empty()) GTEST_SKIP() << config::kWhyNoHost;
  load_module(config::kHostModule);
  const std::string path = std::string(config::kBuiltModules) + "/" + config::kHostModule;
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(module, nullptr) << dlerror();
  EXPECT_NE(dlsym(module, kEntryPoint), nullptr);
  EXPECT_EQ(dlsym(module, "_ZN6Kokkos8finalizeEv"), nullptr);
  EXPECT_EQ(dlsym(RTLD_DEFAULT, kEntryPoint), nullptr);
  dlclose(module);
}

// 16 rows of a radix-16 pass over a row of 2^15 would meet in one set of a cache of 64-byte lines and 64
// sets.
TEST(KokkosRows, PaddingSpreadsPowerOfTwoDistancesOverTheCache) {
  for (const std::int64_t step : {256, 1024, 2048, 4096, 65536}) {
    int most = 0;
    std::vector<int> lines(64);
    for (int r = 0; r < 16; ++r)
      most = std::max(most, ++lines[simd::row_padded(r * step) * 4 / 64 % 64]);
    EXPECT_LE(most, 4) << "step " << step;
  }
  for (std::int64_t e = 0; e < 4096; ++e)
    ASSERT_LT(simd::row_padded(e), simd::row_padded(e + 1));
  EXPECT_EQ(simd::scratch_floats(1024), 1024 + 64);
}

}  // namespace
}  // namespace fwht::kokkos
