// Codes and scales on the host: one token at a time, plainly.
#pragma once

#include <cstdint>

#include "common/contract/variant.hpp"

namespace fwht::cpu {

/// Writes what Problem::encoding asks for. Tokens may be written by several threads at once.
class Encoder {
 public:
  Encoder(const Problem& problem, const Operands& operands);

  /// Elements and rows of one token.
  std::int64_t token_elements() const { return token_; }
  std::int64_t token_rows() const { return token_ / problem_.n(); }
  std::int64_t tokens() const { return problem_.elements() / token_; }
  /// One scale for all tokens that follows from the data: take_tensor() comes before the first token.
  bool needs_tensor() const;
  /// `largest`: of all elements, as largest_of has it.
  void take_tensor(float largest);

  /// `values`: the token's elements, rounded already where the intermediate is storage.
  void write(std::int64_t token, const float* values) const;

  /// Largest |value|; NaN ignored.
  static float largest_of(const float* values, std::int64_t count);

 private:
  /// What values are multiplied or divided by, and the scale as it is stored.
  struct AppliedScale {
    float factor = 0.0F;
    bool divides = false;
    std::uint32_t stored = 0;
  };
  AppliedScale scale_of(float largest) const;
  AppliedScale scale_in_fp32(float largest) const;
  AppliedScale scale_as_exponent(float largest) const;
  std::uint32_t code_of(const AppliedScale& scale, float value) const;

  const Problem& problem_;
  Operands operands_;
  std::int64_t token_, group_;
  ScaleShape shape_;
  AppliedScale tensor_;
};

}  // namespace fwht::cpu
