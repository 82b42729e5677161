// What rotation does for quantization, without weights: the error of quantized tokens with and without a
// randomised Hadamard transform before the cast, by each variant.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "experiments/harness/setup.hpp"
#include "experiments/harness/tasks.hpp"
#include "reference/hadamard.hpp"
#include "reference/inputs.hpp"

namespace fwht::quantization {

/// How one token (a row) is cast. Scales are fp32 unless the format says otherwise.
enum class Format {
  int8,   ///< symmetric, scale = max|x| / 127 a token
  int4,   ///< symmetric, scale = max|x| / 7 a token
  e4m3,   ///< scale = max|x| / 448 a token
  mxfp4,  ///< e2m1, blocks of 32 that share a power of two: 2^(floor(log2 max|x|) - 2) (OCP MX)
  nvfp4   ///< e2m1, blocks of 16 with an e4m3 scale, over an fp32 scale a token: max|x| / (448 * 6)
};
inline constexpr std::array kFormats = {Format::int8, Format::int4, Format::e4m3, Format::mxfp4,
                                        Format::nvfp4};
std::string_view name_of(Format format);

/// Writes the numbers that the quantized token stands for. Both spans have the token's length; they may be
/// equal.
void quantize(Format format, std::span<const float> token, std::span<float> quantized);

/// One kind of token, and what is done to it in FP64.
class Tokens {
 public:
  Tokens(Dtype dtype, std::int64_t n, reference::InputClass input, std::int64_t rows, std::uint64_t seed);

  const Problem& problem() const { return problem_; }
  /// The tokens times random signs, in the storage type: what a variant rotates.
  const std::vector<std::byte>& signed_raw() const { return signed_raw_; }

  /// What is cast.
  enum class Cast {
    plain,  ///< the tokens themselves
    exact,  ///< their rotation in FP64: what quantization alone costs
  };
  /// A row of quantization.csv for each format, without the columns of who rotated.
  std::vector<harness::CsvRow> rows(Cast cast) const;
  /// The same where `rotated` (storage of the problem) is what a variant made of signed_raw().
  std::vector<harness::CsvRow> rows(const std::vector<std::byte>& rotated) const;

 private:
  std::vector<harness::CsvRow> rows_for(const reference::Matrix& cast, const reference::Matrix& truth,
                                        bool rotated) const;

  Problem problem_;
  std::vector<std::byte> signed_raw_;
  reference::Matrix plain_, exact_;
};

/// Seven kinds of token at n = 128, 1024, 4096, 8192 in f16 and bf16: unrotated, rotated exactly, and by
/// every performer that supports them. Rows of quantization.csv.
std::vector<harness::Task> tasks(const harness::Setup& setup);

}  // namespace fwht::quantization
