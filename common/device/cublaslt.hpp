// cuBLASLt, loaded when first asked for: a dense product to compare with. Nothing here needs the library to
// build or to start; where it cannot be had, why_not() says so.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/contract/variant.hpp"

namespace fwht::cublaslt {

/// Empty, or one sentence: built without it, or the library is not found. Loads it on the first call.
const std::string& why_not();
/// The same where `device` is this machine's. One that is only described has no files to look for.
inline std::string why_not_on(const DeviceInfo& device) {
  const bool is_this_machine = device.driver_version > 0;
  return is_this_machine ? why_not() : std::string();
}

/// How the right operand lies in memory.
enum class Right { rows_of_k, rows_of_n };  ///< [k][n], or transposed: [n][k]

/// Distances of row starts in elements; 0: rows follow each other.
struct RowStrides {
  std::int64_t a = 0, d = 0;
};

/// d[m][n] = alpha a[m][k] b, all row-major, b contiguous, in one 16-bit storage type or in f32, fp32 sums.
/// The kernel is the first choice of the library's heuristic for pointers of kAlignment bytes; partial sums
/// are never rounded to 16 bits.
class Matmul {
 public:
  static constexpr std::size_t kAlignment = 16;

  /// Throws BadRequest where why_not() does or the library offers no kernel, std::runtime_error for its other
  /// errors.
  Matmul(Dtype dtype, std::int64_t m, std::int64_t n, std::int64_t k, Right right, float alpha = 1.0F,
         RowStrides strides = {});
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  /// Bytes at a multiple of 256 that a launch works in; launches that may overlap have their own.
  std::int64_t workspace_bytes() const;
  /// Enqueues only.
  void enqueue(const void* a, const void* b, void* d, void* workspace, Stream stream) const;

  /// Of the library, as it numbers itself: 130100.
  static std::int64_t version();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fwht::cublaslt
