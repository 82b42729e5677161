// What is asked of a linear layer with 4-bit weights: y[m][n] = x[m][k] W[k][n] for m tokens, x rotated
// before where the problem says so. W = s (q - z), with a scale s and a zero point z for every column and
// every group of rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/contract/dtype.hpp"
#include "common/contract/operator.hpp"

namespace fwht {

/// Of the parts of packed weights, and of a workspace, in bytes.
inline constexpr std::int64_t kPartAlignment = 256;

/// How zero points are stored: version 1 files hold z - 1 (so z = 1 .. 16), version 2 files z itself;
/// symmetric weights store none, z = 8.
enum class ZeroPoints { v1, v2, symmetric };

struct LinearProblem {
  /// As group: all rows.
  static constexpr std::int64_t kWhole = -1;

  std::int64_t m = 0;        ///< tokens; 0 is a valid problem that does nothing
  std::int64_t n = 0;        ///< outputs: a multiple of 8
  std::int64_t k = 0;        ///< inputs: a multiple of 8 and of the group
  Dtype dtype = Dtype::f16;  ///< of x and y: f16 or bf16; scales are always f16
  std::int64_t group = 128;  ///< rows that share scale and zero point: a multiple of 32, or kWhole
  ZeroPoints zero_points = ZeroPoints::v1;
  /// The rows of W belong to groups in any order (g_idx); x comes in the order of the rows.
  bool act_order = false;
  /// x is multiplied by it first, over the square root of its order: by blocks I (x) Op where the order
  /// divides k. No factors: not at all. Its signs and dense factors are parts of the weights.
  Operator rotation;
  /// As Problem::programmatic_launch: the layer may start while the stream's previous kernel still runs.
  /// Weights may be read before that one has ended, x not.
  bool programmatic_launch = false;

  bool operator==(const LinearProblem&) const = default;

  std::int64_t group_rows() const { return group == kWhole ? k : group; }
  std::int64_t groups() const { return k / group_rows(); }
  bool symmetric() const { return zero_points == ZeroPoints::symmetric; }
  bool rotates() const { return !rotation.factors().empty(); }
  /// Of what blocks of x are multiplied by; 1 for none.
  std::int64_t rotation_order() const { return std::max<std::int64_t>(rotation.n(), 1); }
  /// Fewest bytes of weights, scales, zero points, order and rotation that must be read.
  std::int64_t weight_bytes() const;
  std::int64_t bytes_read() const { return m == 0 ? 0 : weight_bytes() + m * k * bytes_of(dtype); }
  std::int64_t bytes_written() const { return m * n * bytes_of(dtype); }
  std::int64_t useful_bytes() const { return bytes_read() + bytes_written(); }
};

/// Of everything that operator== compares: equal problems have equal hashes.
std::size_t hash_of(const LinearProblem& problem);

/// Throws BadRequest, with the value and the limit, for anything that the comments above rule out, and for
/// sizes whose products do not fit 63 bits.
void validate(const LinearProblem& problem);

/// "f16/m16/n8192/k4096/w4g128" plus "/v2" or "/sym", "/act", "/rot" (H_k) or "/rot128" or the text of any
/// operator, "/rot28x512+signs", "/pdl".
std::string to_string(const LinearProblem& problem);
/// Inverse of to_string; also validates. Throws BadRequest.
LinearProblem parse_linear_problem(std::string_view text);

}  // namespace fwht
