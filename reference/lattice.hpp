// Exact errors of stages that add two numbers. Sums of two bf16 numbers lie on a lattice that is coarse
// beside the spacing they are rounded to: few residues, ties among them, which the formulas for smooth
// densities (reference/tolerance) take for an even spread. Here the law of the rounded numbers is followed
// through the stages, pair by pair, for independent normal inputs. Nothing is sampled or fitted.
#pragma once

#include <vector>

#include "common/contract/numerics.hpp"
#include "common/contract/problem.hpp"

namespace fwht::reference {

/// The law of one bf16 number after some stages, and for each of its values what the exact results that
/// become this value are like. Magnitudes within [2^-12, 2^4) of a power of two near the RMS; both signs are
/// alike. A number is independent of the one it is added to, since the two stem from different inputs.
class RoundedLaw {
 public:
  /// N(0, 1) rounded to bf16, which is the exact input of the transform.
  static RoundedLaw normal();

  /// What one stage makes of it: factor (a + b) and factor (a - b) of independent a and b, each rounded once
  /// to nearest even. The exact result is factor times the exact sum or difference.
  RoundedLaw next(double factor) const;

  /// <yhat - y, y> / <y, y>.
  double gain() const;
  /// Relative L2 error.
  double rel_l2() const;

 private:
  struct Cell {
    double probability = 0.0;  // of the magnitude; the means below are weighted with it
    double exact = 0.0;        // mean of the exact result, with the sign of the rounded one
    double exact2 = 0.0;       // mean of its square
  };
  void normalise();

  std::vector<Cell> cells_;
};

/// measured_gain for standard normal data, with the exact covariance of value and error where bf16 stages of
/// two points round. That is for chains of them from the input on, and for single ones between larger
/// stages, whose inputs are normal numbers rounded to bf16. All other stages, and all other types, as
/// in measured_gain.
double normal_data_gain(const Numerics& numerics, const Problem& problem);

}  // namespace fwht::reference
