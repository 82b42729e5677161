// For tests: codes and scales of rounds, held to the reference's quantizer.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "reference/quantize.hpp"

namespace fwht::walsh {

/// `codes` and `scales` are those of the rows y.
inline void expect_codes(const float* y, std::int64_t n, std::int64_t rows, int bits,
                         const std::uint8_t* codes, const float* scales) {
  const Encoding encoding =
      make_encoding(bits == 8 ? CodeFormat::int8 : CodeFormat::int4, {.kind = ScaleGranularity::Kind::row});
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* const of_row = y + row * n;
    double sum = 0;
    float largest = 0;
    for (std::int64_t i = 0; i < n; ++i)
      sum += std::abs(of_row[i]), largest = std::max(largest, std::abs(of_row[i]));
    const reference::GroupScale scale = reference::scale_of(encoding, largest);
    float stored = 0;
    std::memcpy(&stored, &scale.stored, 4);
    if (bits == 1) {  // sums of n terms, in any order
      const double mean = sum / static_cast<double>(n);
      EXPECT_NEAR(scales[row], mean, static_cast<double>(n) * 0x1p-24 * mean);
    } else {
      EXPECT_EQ(scales[row], stored);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t bit = (row * n + i) * bits;
      const int code = codes[bit / 8] >> bit % 8 & ((1 << bits) - 1);
      const int wanted = bits == 1 ? (of_row[i] < 0 ? 1 : 0) : reference::code_of(encoding, scale, of_row[i]);
      ASSERT_EQ(code, wanted & ((1 << bits) - 1))
          << bits << " bits, n=" << n << ", row " << row << ", element " << i;
    }
  }
}

}  // namespace fwht::walsh
