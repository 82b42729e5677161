#include "common/contract/variant.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <tuple>

#include "common/contract/operator_data.hpp"
#include "common/contract/scratch.hpp"
#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/overlap.hpp"
#include "common/host/text.hpp"

namespace fwht {

thread_local int ScratchOfCallers::depth_ = 0;

namespace {

constexpr std::uintptr_t kScratchAlignment = 256;

std::uintptr_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

/// An operand beside `in` and `out` is there when, and only when, the problem needs it.
void check_extra(const char* name, const void* pointer, bool needed, const Problem& problem) {
  if ((pointer != nullptr) == needed) return;
  throw BadRequest(needed ? concat(name, " is a null pointer, which ", to_string(problem), " needs")
                          : concat(name, " is given, but ", to_string(problem), " has none"));
}

/// Bytes from `address` on, for a sentence.
struct Span {
  const char* name;
  std::uintptr_t address;
  std::int64_t bytes;
};

void refuse_overlap(const Span& a, const Span& b, const Problem& problem) {
  if (!overlap(a.address, a.bytes, b.address, b.bytes)) return;
  throw BadRequest(concat(a.name, "=", hex(a.address), " and ", b.name, "=", hex(b.address), " overlap: of ",
                          to_string(problem), " they span ", a.bytes, " and ", b.bytes, " bytes"));
}

/// Those that have bytes.
class Spans {
 public:
  void add(const char* name, const void* pointer, std::int64_t bytes) {
    if (bytes > 0) all_[count_++] = {name, address_of(pointer), bytes};
  }
  std::span<const Span> all() const { return std::span(all_).first(count_); }

 private:
  std::array<Span, 8> all_;  // as few are needed as are given
  std::size_t count_ = 0;
};

/// Whether the rows of two arrays at one distance lie between each other, as columns of one matrix do.
bool rows_interleave(const Problem& problem, std::uintptr_t in, std::uintptr_t out) {
  if (!problem.encoding.is_plain() || problem.paging || problem.inner != 1) return false;
  const std::int64_t size_in = bytes_of(problem.in.dtype), size_out = bytes_of(problem.out.dtype);
  const std::int64_t stride = problem.in.row_stride * size_in;
  if (stride != problem.out.row_stride * size_out) return false;
  const auto distance = static_cast<std::int64_t>(out - in);
  const std::int64_t behind = (distance % stride + stride) % stride;  // of a row of `in`, to one of `out`
  return behind >= problem.n() * size_in && behind + problem.n() * size_out <= stride;
}

void check_scales(const Operands& operands, const Problem& problem) {
  check_extra("scales", operands.scales, writes_scales(problem.encoding) && !problem.paging, problem);
  const float given = operands.tensor_scale;
  if (const std::uintptr_t at = address_of(operands.tensor_scale_at); at != 0) {
    check_extra("tensor_scale_at", operands.tensor_scale_at, needs_tensor_scale(problem.encoding), problem);
    if (given != 0.0F) {
      throw BadRequest(concat("tensor_scale=", static_cast<double>(given), " and tensor_scale_at=", hex(at),
                              " are both given for ", to_string(problem)));
    }
    if (at % sizeof(float) != 0) {
      throw BadRequest(concat("tensor_scale_at=", hex(at), " must be aligned to ", sizeof(float),
                              " bytes for ", to_string(problem)));
    }
    return;
  }
  if (!needs_tensor_scale(problem.encoding)) {
    if (given == 0.0F) return;
    throw BadRequest(concat("tensor_scale=", static_cast<double>(given), " is given, but ",
                            to_string(problem), " has none"));
  }
  if (given == 0.0F) {
    throw BadRequest(concat(to_string(problem),
                            " needs a number of the whole tensor: give tensor_scale or tensor_scale_at"));
  }
  constexpr float kMost = std::numeric_limits<float>::max();
  if (given > 0.0F && given <= kMost && 1.0F / given <= kMost) return;
  throw BadRequest(concat("tensor_scale=", static_cast<double>(given),
                          " must be positive and finite, and so must its reciprocal, for ",
                          to_string(problem)));
}

void check_scale_buffer(const Operands& operands, const Problem& problem) {
  if (operands.scales_bytes < -1) {
    throw BadRequest(
        concat("scales_bytes=", operands.scales_bytes, " must be -1 (not said) or the bytes behind scales"));
  }
  if (operands.scales == nullptr) return;
  const std::int64_t needed = problem.scale_bytes_out();
  if (address_of(operands.scales) % kScaleAlignment != 0) {
    throw BadRequest(concat("scales=", hex(address_of(operands.scales)), " must be aligned to ",
                            kScaleAlignment, " bytes for ", to_string(problem)));
  }
  if (operands.scales_bytes >= 0 && operands.scales_bytes < needed) {
    throw BadRequest(concat("scales has ", operands.scales_bytes, " bytes, but ", to_string(problem),
                            " needs ", needed, ", padding included"));
  }
}

void check_prepared(const PreparedOperands& operands, const Problem& problem) {
  const auto asks = [&](Prologue::Kind kind) { return problem.prologue && problem.prologue->kind == kind; };
  const bool norm = asks(Prologue::Kind::rms_norm), rope = asks(Prologue::Kind::rope);
  check_extra("weight", operands.weight, norm, problem);
  check_extra("cos_sin", operands.cos_sin, rope, problem);
  check_extra("positions", operands.positions, rope, problem);
  check_extra("slots", operands.slots, problem.paging.has_value(), problem);
  constexpr std::size_t kPlaces = sizeof(std::int64_t);  // which kernels load whole
  using Aligned = std::tuple<const char*, const void*, std::size_t>;
  for (const auto& [name, pointer, alignment] : {Aligned{"weight", operands.weight, kScaleAlignment},
                                                 {"cos_sin", operands.cos_sin, kScaleAlignment},
                                                 {"positions", operands.positions, kPlaces},
                                                 {"slots", operands.slots, kPlaces}}) {
    if (address_of(pointer) % alignment == 0) continue;
    throw BadRequest(concat(name, "=", hex(address_of(pointer)), " must be aligned to ", alignment,
                            " bytes for ", to_string(problem)));
  }
  const float epsilon = operands.epsilon;
  const float most = norm ? std::numeric_limits<float>::max() : 0.0F;
  if (epsilon >= 0.0F && epsilon <= most) return;
  throw BadRequest(norm ? concat("epsilon=", static_cast<double>(epsilon),
                                 " must be finite and not negative for ", to_string(problem))
                        : concat("epsilon=", static_cast<double>(epsilon), " is given, but ",
                                 to_string(problem), " has none"));
}

void check_placement(const Problem& problem, std::uintptr_t in, std::uintptr_t out) {
  if (problem.placement == Placement::in_place) {
    if (in == out) return;
    throw BadRequest(concat("in=", hex(in), " and out=", hex(out), " must be equal for the in-place problem ",
                            to_string(problem)));
  }
  if (rows_interleave(problem, in, out)) return;
  refuse_overlap({"in", in, problem.span_bytes()}, {"out", out, problem.span_bytes_out()}, problem);
}

/// Of what the operator reads: signs are words of 32 bits.
void check_operator_alignment(const Operands& operands, const Problem& problem) {
  for (const auto& [name, operand, size] :
       {std::tuple{"signs", operands.signs, std::int64_t{4}},
        std::tuple{"dense", operands.dense, bytes_of(problem.in.dtype)}}) {
    if (address_of(operand) % static_cast<std::uintptr_t>(size) == 0) continue;
    throw BadRequest(concat(name, "=", hex(address_of(operand)), " must be aligned to ", size, " bytes for ",
                            to_string(problem)));
  }
}

/// What is written lies apart from what is read, and from what else is written; check_placement knows about
/// `in` and `out`.
void check_apart(const Plan& plan, const Operands& operands) {
  const Problem& problem = plan.problem();
  const PreparedOperands& prepared = operands.prepared;
  const std::int64_t size = bytes_of(problem.in.dtype), places = sizeof(std::int64_t);
  Spans read;
  if (operands.signs != nullptr) read.add("signs", operands.signs, ceil_div(problem.n(), 32) * 4);
  if (operands.dense != nullptr) read.add("dense", operands.dense, dense_entry_count(problem.op) * size);
  if (prepared.weight != nullptr) read.add("weight", prepared.weight, problem.n() * size);
  if (prepared.cos_sin != nullptr)  // of its rows, which only positions know, the first one
    read.add("cos_sin", prepared.cos_sin, problem.prologue->width * std::int64_t{sizeof(float)});
  if (prepared.positions != nullptr)
    read.add("positions", prepared.positions, problem.rows / problem.prologue->heads * places);
  if (prepared.slots != nullptr) read.add("slots", prepared.slots, problem.rows * places);
  if (operands.tensor_scale_at != nullptr)
    read.add("tensor_scale_at", operands.tensor_scale_at, sizeof(float));
  if (read.all().empty() && operands.scales == nullptr && operands.scratch == nullptr) return;

  Spans written;
  written.add("out", operands.out, problem.span_bytes_out());
  if (operands.scales != nullptr) written.add("scales", operands.scales, problem.scale_bytes_out());
  if (operands.scratch != nullptr) written.add("scratch", operands.scratch, plan.scratch_bytes());
  const Span in{"in", address_of(operands.in), problem.span_bytes()};
  const std::span<const Span> all = written.all();
  for (std::size_t w = 0; w < all.size(); ++w) {
    for (const Span& each : read.all())
      refuse_overlap(each, all[w], problem);
    for (const Span& each : all.first(w))
      refuse_overlap(each, all[w], problem);
    if (w > 0) refuse_overlap(in, all[w], problem);
  }
}

}  // namespace

Support Transforms::is_judged(const fwht::Problem& problem) {
  if (problem.prologue && problem.encoding.is_plain())
    return {"rows behind a prologue are timed with an encoding, not plain"};
  const bool reads_more =
      problem.prologue || problem.paging || problem.op.has_signs() || problem.op.has_dense();
  if (problem.encoding.intermediate == Intermediate::f32 && problem.dtype() != Dtype::f32 && reads_more)
    return {"codes of the fp32 result are timed without prologue, pages, signs and dense factors"};
  return {};
}

std::string Transforms::grid_block(const fwht::Problem& problem, Memory memory) {
  const char* mode = memory == Memory::host ? "host" : problem.programmatic_launch ? "replay_pdl" : "replay";
  const std::string text = to_string(problem);
  // One such problem would have the whole grid refused.
  if (problem.rows == 0 || !is_judged(problem)) return concat("# not timed by fwht_sweep: ", text, "\n");
  return concat("[", text, "]\nproblem = ", text, "\nmode = ", mode, "\n");
}

void Transforms::check(const fwht::Plan& plan, const fwht::Operands& operands) {
  const fwht::Problem& problem = plan.problem();
  const std::uintptr_t in = address_of(operands.in), out = address_of(operands.out);
  for (const auto& [name, address] : {std::pair{"in", in}, std::pair{"out", out}}) {
    if (address == 0) throw BadRequest(concat(name, " is a null pointer"));
    if (address % plan.alignment() != 0) {
      throw BadRequest(concat(name, "=", hex(address), " must be aligned to ", plan.alignment(),
                              " bytes for ", to_string(problem)));
    }
  }
  check_scales(operands, problem);
  check_extra("signs", operands.signs, problem.op.has_signs(), problem);
  check_extra("dense", operands.dense, problem.op.has_dense(), problem);
  check_prepared(operands.prepared, problem);
  if (address_of(operands.scratch) % kScratchAlignment != 0) {
    throw BadRequest(concat("scratch=", hex(address_of(operands.scratch)), " must be aligned to ",
                            kScratchAlignment, " bytes for ", to_string(problem)));
  }
  check_placement(problem, in, out);
  check_operator_alignment(operands, problem);
  check_scale_buffer(operands, problem);
  check_apart(plan, operands);
}

Support require_no_preparation(const Problem& problem) {
  if (problem.paging)
    return {concat("pages of ", problem.paging->tokens, " rows are not offered by this variant")};
  if (!problem.prologue) return {};
  return {concat("the prologue ", to_string(*problem.prologue), " is not offered by this variant")};
}

Support require_plain_rows(const Problem& problem, std::span<const Dtype> dtypes) {
  if (Support preparation = require_no_preparation(problem); !preparation) return preparation;
  if (!problem.encoding.is_plain()) {
    return {concat("the encoding ", to_string(problem.encoding), " is not offered by this variant")};
  }
  for (const auto& [name, ordering] :
       {std::pair{"input", problem.in_ordering}, std::pair{"output", problem.out_ordering}}) {
    if (ordering != Ordering::natural)
      return {
          concat("the ", name_of(ordering), " ordering of the ", name, " is not offered by this variant")};
  }
  if (problem.inner != 1) {
    return {
        concat("rows whose elements lie inner=", problem.inner, " apart are not offered by this variant")};
  }
  if (problem.in.dtype != problem.out.dtype) {
    return {concat("input in ", name_of(problem.in.dtype), " and output in ", name_of(problem.out.dtype),
                   " are not offered by this variant")};
  }
  if (std::find(dtypes.begin(), dtypes.end(), problem.in.dtype) == dtypes.end()) {
    return {concat(name_of(problem.in.dtype), " data are not offered by this variant")};
  }
  return {};
}

Support require_sylvester(const Problem& problem, std::int64_t smallest, std::int64_t largest,
                          std::span<const Dtype> dtypes) {
  if (!problem.op.is_sylvester()) {
    return {concat("the operator ", to_string(problem.op),
                   " is not offered by this variant, which takes n = 2^k from ", smallest, " to ", largest)};
  }
  if (Support rows = require_plain_rows(problem, dtypes); !rows) return rows;
  const std::int64_t n = problem.n();
  if (is_power_of_two(n) && n >= smallest && n <= largest) return {};
  return {concat("n=", n, " must be a power of two between ", smallest, " and ", largest)};
}

Support require_one_row_stride(const Problem& problem) {
  if (problem.in.row_stride == problem.out.row_stride) return {};
  return {concat("row_stride=", problem.in.row_stride, " of the input and ", problem.out.row_stride,
                 " of the output must be equal for this variant")};
}

Support require_rows_on_16_byte_grid(const Problem& problem) {
  for (const std::int64_t stride : {problem.in.row_stride, problem.out.row_stride}) {
    if (stride % 8 != 0) {
      return {concat("row_stride=", stride,
                     " must be a multiple of 8 elements: rows are copied in units of 16 bytes")};
    }
  }
  return {};
}

Support require_rows_in_32_bits(const Problem& problem) {
  constexpr std::int64_t kMostRows = std::numeric_limits<std::int32_t>::max() / 2;
  if (problem.rows <= kMostRows) return {};
  return {concat("rows=", problem.rows, " exceeds the limit of ", kMostRows)};
}

Support require_shared_bytes(const Problem& problem, std::int64_t bytes, const DeviceInfo& device) {
  if (bytes <= device.shared_bytes_per_block) return {};
  return {concat("n=", problem.n(), " needs ", bytes,
                 " bytes of shared memory per block, this device allows ", device.shared_bytes_per_block)};
}

}  // namespace fwht
