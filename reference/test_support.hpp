// What the tests of reference/ share: storage of a problem, and numeric models of the arithmetics that are
// emulated.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "common/bits.hpp"
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

inline NumericModel butterfly_model(const Problem& problem) {
  return single_rounding(Arithmetic::fp32_ascending, problem.n());
}

/// HadaCore on Hopper: one rounding a 16-point stage, 1/sqrt2 stored as 181/256 where L is odd.
inline NumericModel hadacore_model(const Problem& problem) {
  NumericModel model;
  const int levels = log2_floor(problem.n());
  model.arithmetic = problem.dtype() == Dtype::f16 ? Arithmetic::mma_f16 : Arithmetic::mma_f32;
  model.roundings = (levels + 3) / 4;
  model.gain_error = levels % 2 == 0 ? 0.0 : 181.0 / 256.0 * std::sqrt(2.0) - 1.0;
  return model;
}

/// Every radix-2 level stored.
inline NumericModel radix2_model(const Problem& problem) {
  NumericModel model = single_rounding(Arithmetic::radix2_stored, problem.n());
  if (problem.dtype() == Dtype::f32) return model;
  model.roundings = log2_floor(problem.n());
  model.rounding_rms = 0.46;
  model.fp32_rms = 0.0;
  return model;
}

/// What a plan with this model makes of an input.
inline Storage emulated(const NumericModel& model, const Storage& input) {
  Storage output(input.problem);
  emulate(input.problem, model, input.data(), output.data(), 1);
  return output;
}

}  // namespace fwht::reference
