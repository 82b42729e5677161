// THE interface. A variant is plain data; a plan is what it decided for one problem on one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/contract/numerics.hpp"
#include "common/contract/problem.hpp"
#include "common/device/device_info.hpp"

struct CUstream_st;  // what cudaStream_t points to; declared here so that no CUDA header is needed

namespace fwht {

using Stream = CUstream_st*;  // nullptr is the default stream; host variants ignore it

enum class Memory { host, device };

/// What a plan is executed on. Which of them a plan needs follows from its problem.
struct Operands {
  const void* in = nullptr;
  void* out = nullptr;  ///< rows, or codes where the problem has an encoding, or pages
  /// Of the encoding, where writes_scales(), unless pages hold them; Problem::scale_bytes_out() bytes.
  void* scales = nullptr;
  /// Where the operator has signs: one bit an element of a row, set for -1 (pack_signs in
  /// common/operator_data).
  const void* signs = nullptr;
  /// Where it has dense factors: their entries in the input's dtype, row-major, one factor after another,
  /// none transposed (the operator says that). check_dense in common/operator_data is for the caller to ask.
  const void* dense = nullptr;
  /// Prologue rms: n weights in the input's dtype, and the number that is added to the mean square, on the
  /// host.
  const void* weight = nullptr;
  float epsilon = 0.0F;
  /// Prologue rope: fp32 [positions, width], per position width / 2 cosines, then as many sines; and the
  /// position of each group of Prologue::heads rows, which the caller answers for.
  const float* cos_sin = nullptr;
  const std::int64_t* positions = nullptr;
  /// Where Problem::paging: the place of each row; no two rows have one place.
  const std::int64_t* slots = nullptr;
  /// Where needs_tensor_scale(): the one fp32 number of the tensor that the recipe asks for, on the host. The
  /// scale itself (vllm_static), or the factor g = 448 * 6 / largest of the tensor (nvfp4).
  float tensor_scale = 1.0F;
  /// Bytes behind `scales`, so that a buffer without room for padding is refused; -1: not said.
  std::int64_t scales_bytes = -1;
};

/// Empty when supported, else one sentence with the value and the limit.
struct Support {
  std::string why_not;
  explicit operator bool() const { return why_not.empty(); }
};

/// What a plan decided (grid, threads, registers, shared bytes, tile ...), in display order: result columns.
using Setting = std::pair<std::string, std::variant<std::int64_t, double, std::string>>;
using Settings = std::vector<Setting>;

/// Decisions taken and workspace owned; data pointers not bound. As with cuFFT and FFTW, set-up is never
/// timed.
class Plan {
 public:
  virtual ~Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const Problem& problem() const { return problem_; }

  /// Checks the pointers, then only enqueues: no allocation, no synchronisation, no attribute call, so it can
  /// be captured in a CUDA graph. Host variants have finished when it returns. rows = 0 does nothing. Throws
  /// BadRequest before anything is launched for a null pointer among the operands that the problem needs, an
  /// operand that it does not need. Also for a pointer that misses `alignment()` (scales: kScaleAlignment), a
  /// scale of the tensor that is not positive and finite, a negative epsilon, too few bytes for the scales.
  /// Or for in != out for an in-place plan, or overlapping spans for an out-of-place one.
  void execute(const Operands& operands, Stream stream = nullptr) const;
  /// Short form for problems without scales, signs and dense factors.
  void execute(const void* in, void* out, Stream stream = nullptr) const { execute({in, out}, stream); }

  /// Required alignment of both pointers in bytes; at least the element size.
  virtual std::size_t alignment() const { return static_cast<std::size_t>(bytes_of(problem_.in.dtype)); }
  virtual Numerics numerics() const = 0;
  /// The plan owns state that an execution changes: the next one must be ordered behind it, as by one stream.
  virtual bool one_stream_at_a_time() const { return false; }
  virtual Settings settings() const = 0;

 protected:
  explicit Plan(const Problem& problem) : problem_(problem) {}

 private:
  virtual void enqueue(const Operands& operands, Stream stream) const = 0;  // rows >= 1, pointers checked
  Problem problem_;
};

struct Variant {
  std::string_view name, summary;
  Memory memory;                                                          // where in and out live
  Support (*supports)(const Problem&, const DeviceInfo&);                 // pure: no CUDA call
  std::unique_ptr<Plan> (*make_plan)(const Problem&, const DeviceInfo&);  // reached only when supported
};

/// validate, supports, make_plan: the way to a plan. Throws BadRequest with the reason when unsupported.
std::unique_ptr<Plan> plan(const Variant& variant, const Problem& problem, const DeviceInfo& device);

/// "no CUDA device ..." when there is none or it is older than `compute_capability` (80 for sm_80). The first
/// check of every CUDA variant.
Support require_cuda(const DeviceInfo& device, int compute_capability = 80);

/// A sentence for problems that ask for programmatic dependent launch: for variants that have none.
Support require_ordinary_launch(const Problem& problem);

/// Programmatic dependent launch is offered where code compiled for 9.0 runs: PTX of an older architecture,
/// which a newer device would compile for itself, does not wait.
Support require_programmatic_launch(const DeviceInfo& device);

/// A sentence for problems with a prologue, or with pages: for variants that have none.
Support require_no_prologue(const Problem& problem);
Support require_no_pages(const Problem& problem);

/// No prologue, no pages, no encoding, and one of `dtypes` for input and output. Otherwise a sentence that
/// names what is not offered.
Support require_plain_rows(const Problem& problem, std::span<const Dtype> dtypes = kAllDtypes);

/// What the variants of the ladder take: H_n in natural order for a power of two between the limits, no
/// signs, no prologue, no encoding, one of `dtypes` for input and output. Otherwise a sentence that names the
/// first part that is not offered.
Support require_sylvester(const Problem& problem, std::int64_t smallest, std::int64_t largest,
                          std::span<const Dtype> dtypes = kAllDtypes);

/// A sentence for problems whose output rows lie at another distance than the input's.
Support require_one_row_stride(const Problem& problem);

}  // namespace fwht
