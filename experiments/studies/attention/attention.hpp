// FlashAttention-3's FP8 table (arXiv 2407.08608, Table 3) without weights: Q, K, V ~ N(0, 1) + N(0, 100)
// Bernoulli(0.001), the error of 16-bit and FP8 attention against FP64, with Q and K rotated by each variant.
//
// What the paper leaves open, and what is done here unless a row's `choice` says otherwise. Each on grounds
// that are written somewhere, none by what comes out:
// - weights, the softmax output P, of the baseline: the paper gives its baseline "per-tensor scaling". Both
//   products of an FP8 attention take FP8 tensors, P is one of them, and libraries that scale per tensor
//   scale it too (cuDNN's operation has Scale_S and Descale_S for it). P <= 1, so the scale is 448, e4m3's
//   largest number (choices p_unscaled: cast as it is; p_fp16: kept in fp16, which the paper says of
//   "intermediate softmax results", though FP8 tensor cores cannot multiply it);
// - weights of FlashAttention-3: its published kernels subtract 8 from the maximum in the exponent for FP8, a
//   scale of 2^8 (flash-attention, hopper/softmax.h, since July 2024; choices p_unscaled and p_scaled: times
//   448);
// - reference: FP64 attention of the inputs before they are rounded to fp16 (choice reference_rounded:
//   after);
// - shape: `heads` independent heads, no mask, scores scaled by 1/sqrt(d);
// - casts of Q, K, V: absmax / 448 to e4m3; a tensor is one head, a block 128 rows of it;
// - baseline: scores and normalised softmax in fp16 (choice softmax_fp32: in fp32);
// - flash: scores and softmax in fp32, exp(s - running max) cast, divided by the sum at the end;
// - rotation: random signs of the d columns, then the transform in fp16 by a variant;
// - sums: fp32; Hopper's FP8 tensor cores keep about 14 bits, which is not modelled.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/dtype.hpp"
#include "experiments/harness/performer.hpp"
#include "experiments/harness/tasks.hpp"
#include "experiments/studies/attention/rounding.hpp"

namespace fwht::attention {

/// How scores become the weights that multiply V. The output is rounded to fp16.
struct Arithmetic {
  bool flash = true;          ///< running maximum, normalised at the end; else softmax first
  bool half_softmax = false;  ///< scores and normalised weights rounded to fp16
  Rounding weights = Rounding::none;
  float weight_scale = 1.0F;  ///< before they are rounded
};

enum class Slot { q, k, v };
enum class Cast { none, per_tensor, per_block };
inline constexpr int kBlockRows = 128;

struct HeadError {
  double error2 = 0.0, reference2 = 0.0;  ///< mean squares over the compared elements
};

/// Holds heads of `rows` rows of length d, and an FP64 reference for every n that was asked for. All methods
/// see the first n rows of each head; n is a multiple of kBlockRows.
class Engine {
 public:
  virtual ~Engine() = default;
  /// `raw`: f16 or f32 values, head after head. The operand is what the cast leaves of them.
  virtual void load(Slot slot, const std::vector<std::byte>& raw, Dtype dtype, Cast cast, int n) = 0;
  /// FP64 attention of the loaded operands becomes the reference for n.
  virtual void make_reference(int n) = 0;
  /// One entry a head.
  virtual std::vector<HeadError> errors(const Arithmetic& arithmetic, int n) = 0;
  /// Rows of a head that are compared.
  virtual int compared_rows(int n) const = 0;
};

struct AttentionShape {
  int heads, rows, d;
  std::int64_t elements() const { return std::int64_t{heads} * rows * d; }
};

/// Compares `sampled` rows of every head, evenly spread.
std::unique_ptr<Engine> make_host_engine(AttentionShape layout, int sampled);
/// Compares all rows. Throws std::runtime_error in a build without CUDA.
std::unique_ptr<Engine> make_device_engine(AttentionShape layout);

/// What the paper's Table 3 says for a method; 0 where it says nothing.
double published_rmse(std::string_view method, std::string_view choice);

/// The data of all heads for one d, and the rows of attention.csv that they give.
class Experiment {
 public:
  Experiment(AttentionShape layout, std::unique_ptr<Engine> engine, std::uint64_t seed);
  ~Experiment();

  /// `name`: of a method; `performer`: rotates Q and K of methods that rotate; null for the others.
  harness::CsvRow row(std::string_view name, std::string_view choice, int n,
                      const harness::Performer* performer, harness::Workspace& workspace);

 private:
  struct Data;
  std::unique_ptr<Data> data_;
};

/// Whether a method rotates.
bool rotates(std::string_view method);

/// d = 64, 128, 256, n = 2048, 4096, 8448, 32 heads on the device; on the host d = 128 at n = 2048 and 8448,
/// the other d at n = 2048.
std::vector<harness::Task> tasks(const harness::StudySetup& setup);

}  // namespace fwht::attention
