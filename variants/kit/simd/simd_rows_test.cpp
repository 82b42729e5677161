// Every instruction set that this processor has gives the bits of the plain loop.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/host/bits.hpp"
#include "variants/kit/simd/rows.hpp"

namespace fwht::simd {
namespace {

std::vector<const RowKernels*> levels() {
  std::vector<const RowKernels*> found{&baseline::kernels};
#if defined(__x86_64__)
  if (best_kernels().pack >= 8) found.push_back(&x86_64_v3::kernels);
  if (best_kernels().pack >= 16) found.push_back(&x86_64_v4::kernels);
#endif
  return found;
}

float number(Dtype dtype, const std::byte* data, std::int64_t index) {
  if (dtype == Dtype::f32) return reinterpret_cast<const float*>(data)[index];
  const auto bits = reinterpret_cast<const std::uint16_t*>(data)[index];
  return dtype == Dtype::f16 ? f16_to_float(bits) : bf16_to_float(bits);
}

void put(Dtype dtype, std::byte* data, std::int64_t index, float value) {
  if (dtype == Dtype::f32) {
    reinterpret_cast<float*>(data)[index] = value;
  } else {
    reinterpret_cast<std::uint16_t*>(data)[index] =
        dtype == Dtype::f16 ? float_to_f16(value) : float_to_bf16(value);
  }
}

/// Any bits that the type has, NaNs and infinities among them only where `special`.
std::vector<std::byte> random_numbers(Dtype dtype, std::int64_t count, bool special) {
  std::mt19937_64 random(static_cast<unsigned>(count));
  std::vector<std::byte> data(static_cast<std::size_t>(count * bytes_of(dtype)));
  for (std::int64_t i = 0; i < count; ++i) {
    float value = 0;
    do {
      const std::uint64_t bits = random();  // as many of them as an element has
      std::memcpy(data.data() + i * bytes_of(dtype), &bits, static_cast<std::size_t>(bytes_of(dtype)));
      value = number(dtype, data.data(), i);
    } while (!special && !(std::fabs(value) < 1e30F));
  }
  return data;
}

void expect_same(Dtype dtype, const std::vector<std::byte>& got, const std::vector<std::byte>& want,
                 std::string_view what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(got.size()) / bytes_of(dtype); ++i) {
    const float a = number(dtype, got.data(), i), b = number(dtype, want.data(), i);
    ASSERT_TRUE(std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
                (std::isnan(a) && std::isnan(b)))
        << what << " element " << i << ": " << a << ", not " << b;
  }
}

void plain_loop(const RowJob& job, Dtype dtype, const std::byte* in, std::byte* out, std::int64_t rows) {
  std::vector<float> row(static_cast<std::size_t>(job.n));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < job.n; ++i)
      row[static_cast<std::size_t>(i)] = number(dtype, in, r * job.in_stride + i);
    for (std::int64_t half = 1; half < job.n; half *= 2) {
      for (std::int64_t i = 0; i < job.n; ++i) {
        if ((i & half) != 0) continue;
        float& low = row[static_cast<std::size_t>(i)];
        float& high = row[static_cast<std::size_t>(i + half)];
        const float a = low, b = high;
        low = a + b;
        high = a - b;
      }
    }
    for (std::int64_t i = 0; i < job.n; ++i)
      put(dtype, out, r * job.out_stride + i, row[static_cast<std::size_t>(i)] * job.scale);
  }
}

class SimdRows : public testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, SimdRows, testing::ValuesIn(kAllDtypes),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

TEST_P(SimdRows, HaveTheBitsOfThePlainLoop) {
  const Dtype dtype = GetParam();
  for (const RowKernels* kernels : levels()) {
    for (std::int64_t n = 2; n <= 1 << 14; n *= 2) {
      for (const std::int64_t rows :
           {std::int64_t{1}, std::int64_t{7}, 2 * std::max<std::int64_t>(1, 256 / n)}) {
        for (const bool special : {false, true}) {
          for (const std::int64_t gap : {0, 3}) {
            RowJob job{n, n + gap, n + 2 * gap, log2_floor(n), 0.3F};
            const std::vector<std::byte> in = random_numbers(dtype, rows * job.in_stride, special);
            // Gaps between rows stay as they are.
            std::vector<std::byte> want(static_cast<std::size_t>(rows * job.out_stride * bytes_of(dtype)),
                                        std::byte{0x33});
            std::vector<std::byte> got = want;
            std::vector<float> scratch(static_cast<std::size_t>(scratch_floats(n)));
            plain_loop(job, dtype, in.data(), want.data(), rows);
            kernels->of(dtype)(job, in.data(), got.data(), rows, scratch.data());
            expect_same(dtype, got, want, kernels->instruction_set);
            job.out_stride = job.in_stride;  // in place
            want = got = in;
            plain_loop(job, dtype, in.data(), want.data(), rows);
            kernels->of(dtype)(job, got.data(), got.data(), rows, scratch.data());
            expect_same(dtype, got, want, kernels->instruction_set);
            ASSERT_FALSE(HasFatalFailure()) << "n=" << n << " rows=" << rows << " gap=" << gap;
          }
        }
      }
    }
  }
}

TEST_P(SimdRows, WidenAndNarrowAnyNumberOfElements) {
  const Dtype dtype = GetParam();
  for (const RowKernels* kernels : levels()) {
    for (std::int64_t count = 0; count < 70; ++count) {
      const std::vector<std::byte> in = random_numbers(dtype, count, true);
      std::vector<float> wide(static_cast<std::size_t>(count + 1), -77.0F);
      std::vector<std::byte> got((wide.size()) * static_cast<std::size_t>(bytes_of(dtype)), std::byte{0x33});
      std::vector<std::byte> want = got;
      kernels->widen(dtype, in.data(), wide.data(), count);
      kernels->narrow(dtype, wide.data(), got.data(), count, 0.7F);
      EXPECT_EQ(wide.back(), -77.0F) << "what lies behind the last element";
      for (std::int64_t i = 0; i < count; ++i) {
        const float value = number(dtype, in.data(), i);
        EXPECT_TRUE(value == wide[static_cast<std::size_t>(i)] || std::isnan(value));
        put(dtype, want.data(), i, value * 0.7F);
      }
      expect_same(dtype, got, want, kernels->instruction_set);
    }
  }
}

TEST(SimdRowsLevels, AreThoseOfTheProcessor) {
  EXPECT_EQ(levels().back(), &best_kernels());
  for (const RowKernels* kernels : levels()) {
    const std::string_view name = kernels->instruction_set;
    EXPECT_EQ(kernels->pack, name == "x86-64-v4" ? 16 : name == "x86-64-v3" ? 8 : 4) << name;
  }
}

}  // namespace
}  // namespace fwht::simd
