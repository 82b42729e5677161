// What the tests of reference/ share: storage of a problem, and programs of steps to try.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/contract/variant.hpp"
#include "common/host/bits.hpp"
#include "reference/emulation.hpp"
#include "reference/inputs.hpp"
#include "reference/tolerance.hpp"

namespace fwht::reference {

/// Raw storage of a problem's span, zero or with the given input.
struct Storage {
  Problem problem;
  std::vector<std::uint32_t> words;

  explicit Storage(const Problem& shape)
      : problem(shape), words(static_cast<std::size_t>(shape.span_bytes() / 4 + 1), 0U) {}
  Storage(const Problem& shape, InputClass input, std::uint64_t seed) : Storage(shape) {
    write_input(problem, input, seed, words.data(), 1);
  }
  void* data() { return words.data(); }
  const void* data() const { return words.data(); }
  double get(std::int64_t row, std::int64_t column) const {
    return load_element(problem.dtype(), data(), row * problem.row_stride() + column);
  }
  void set(std::int64_t row, std::int64_t column, double value) {
    store_element(problem.dtype(), data(), row * problem.row_stride() + column, value);
  }
};

/// Fills the storage with 0xFF, which is NaN in every storage type: what a kernel does not write shows.
inline void poison(Storage& storage) {
  std::fill(storage.words.begin(), storage.words.end(), ~0U);
}

/// fp32 butterflies in ascending order, one rounding.
inline Numerics butterflies(const Problem& problem) {
  return single_rounding(Sums::fp32, problem);
}

/// 2^(-bits/2) as a 16-bit format stores it: exact for even bits, 181/256 for 1/sqrt2 in f16 and in bf16.
inline double stored_constant(int bits) {
  return (bits % 2 == 0 ? 1.0 : 181.0 / 128.0) * std::ldexp(1.0, -(bits + 1) / 2);
}

/// Tensor-core blocks of four index bits in ascending order, the bits left over in the last one, each
/// orthonormal and rounded, as the HadaCore paper describes (arXiv 2412.08832); f16 accumulator for f16 data,
/// f32 for bf16. Short last blocks are padded to 16 points by the bits that follow within an aligned chunk of
/// 16 (n <= 8) or 256 elements (n = 32 .. 128), and by the low bits of the same row above.
inline Numerics tensor_blocks(const Problem& problem) {
  Numerics numerics;
  const int levels = log2_floor(problem.n());
  for (int first = 0; first < levels; first += 4) {
    Step step;
    step.bits = index_bits(first, std::min(4, levels - first));
    step.block_bits = index_bits(levels < 8 ? levels : 0, 4 - step.levels());
    step.sums = problem.dtype() == Dtype::f16 ? Sums::tensor_f16 : Sums::tensor_f32;
    step.constant = stored_constant(step.levels());
    numerics.steps.push_back(std::move(step));
  }
  return numerics;
}

/// One index bit a step, each rounded; an exact 1/2 after every second one, which keeps stored values near
/// the size of the data, and what is left of the scale after the last.
inline Numerics stored_levels(const Problem& problem) {
  Numerics numerics;
  const int levels = log2_floor(problem.n());
  double left = problem.scale;
  for (int level = 0; level < levels; ++level) {
    Step step;
    step.bits = {level};
    step.constant = level % 2 == 1 ? 0.5 : 1.0;
    left /= step.constant;
    if (level + 1 == levels) step.constant = static_cast<float>(left * step.constant);
    // Storing f32 rounds nothing more: its fp32 addition is the rounding.
    if (problem.dtype() == Dtype::f32) step.sum_rms = butterfly_rms(1);
    numerics.steps.push_back(std::move(step));
  }
  return numerics;
}

/// What a plan with these steps makes of an input.
inline Storage emulated(const Numerics& numerics, const Storage& input) {
  Storage output(input.problem);
  emulate(input.problem, numerics, input.data(), output.data(), 1);
  return output;
}

}  // namespace fwht::reference
