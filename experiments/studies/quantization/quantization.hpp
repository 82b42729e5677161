// What rotation does for quantization, without weights: the error of quantized tokens with and without a
// randomised Hadamard transform before the cast, by each variant.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "experiments/harness/performer.hpp"
#include "experiments/harness/tasks.hpp"
#include "reference/hadamard.hpp"
#include "reference/inputs.hpp"

namespace fwht::quantization {

/// How tokens (rows) are cast: an encoding under the name that tables know it by. NVFP4 has the largest
/// number of all tokens for its tensor.
struct StudiedFormat {
  std::string_view name, encoding;
};
inline constexpr std::array kFormats = {
    StudiedFormat{"int8", "int8:row"},     StudiedFormat{"int4", "int4:row"},
    StudiedFormat{"int4:128", "int4:128"}, StudiedFormat{"e4m3", "e4m3:row,sglang_token"},
    StudiedFormat{"e4m3:128", "e4m3:128"}, StudiedFormat{"mxfp8", "mxfp8"},
    StudiedFormat{"mxfp4", "mxfp4"},       StudiedFormat{"mxfp4:rceil", "mxfp4:rceil"},
    StudiedFormat{"nvfp4", "nvfp4"}};

/// What the codes of `values` (tokens x length, quantized from fp32) stand for, by the reference quantizer.
reference::Matrix quantized(const StudiedFormat& format, const reference::Matrix& values);

/// One kind of token, and what is done to it in FP64.
class StudiedTokens {
 public:
  StudiedTokens(Dtype dtype, std::int64_t n, reference::InputClass input, std::int64_t rows,
                std::uint64_t seed);

  const Problem& problem() const { return problem_; }
  /// The tokens times random signs, in the storage type: what a variant rotates.
  const std::vector<std::byte>& signed_raw() const { return signed_raw_; }

  /// What is cast.
  enum class Rotated {
    plain,  ///< the tokens themselves
    exact,  ///< their rotation in FP64: what quantization alone costs
  };
  /// A row of quantization.csv for each format, without the columns of who rotated.
  std::vector<harness::CsvRow> rows(Rotated cast) const;
  /// The same by a variant. Where it runs here and takes the format's encoding, the codes are its own,
  /// written by the kernel that rotates (column quantizer); elsewhere the reference quantizes the rows that
  /// it rotated.
  std::vector<harness::CsvRow> rows(const harness::Performer& performer, harness::Workspace& workspace) const;

 private:
  /// What the codes of a format stand for, and who made them.
  struct Numbers {
    reference::Matrix values;
    std::string_view quantizer;
  };
  template <class Quantize>
  std::vector<harness::CsvRow> rows_for(const reference::Matrix& cast, const reference::Matrix& truth,
                                        bool rotated, const Quantize& quantize) const;

  Problem problem_;
  std::vector<std::byte> signed_raw_;
  reference::Matrix plain_, exact_;
};

/// Seven kinds of token at n = 128, 1024, 4096, 8192 in f16 and bf16: unrotated, rotated exactly, and by
/// every performer that supports them. Rows of quantization.csv.
std::vector<harness::Task> tasks(const harness::StudySetup& setup);

}  // namespace fwht::quantization
