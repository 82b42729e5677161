// cpu: the plain host transform, so that a machine with neither CUDA nor Kokkos runs the whole testbed.
//
// Idea: a row is widened to fp32 once, transformed by butterflies with ascending strides in a scratch row
// that stays in the cache, scaled, and rounded once on the way out. Rows are shared out over the host's
// threads: DeviceInfo::host_threads of them at most, and one for every 64 Ki elements, so that small problems
// start none. Plain rows go by SIMD packs of the processor's widest instruction set (kit/simd), which form
// the same sums; what has an operator, a prologue or an encoding goes through the loops below.
//
// cpu_f64 does the same in double precision: what the FP64 reference of the tests costs, as a yardstick of
// host variants, and the error that no fp32 arithmetic can undercut. f64 data are summed in double precision
// by both, integers by `cpu` in their own type, unsigned, so that sums wrap.
//
// Operators of several factors, or with signs: cpu/kronecker, in the same scratch row. Prologues:
// cpu/prologue, on the widened row. Encoded results: cpu/encoder, token by token.
//
// Orderings, and rows that lie between each other: a row, or as many as fill a line of the cache, is gathered
// into a buffer of the storage type, transformed there as a row alone, and stored at its places.
//
// Bit card: every index bit is a stride of the scratch row: bit s is done by pass s, in ascending order.
#include "variants/cpu/cpu.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "common/host/bits.hpp"
#include "common/host/parallel_for.hpp"
#include "common/host/text.hpp"
#include "variants/cpu/encoder.hpp"
#include "variants/cpu/kronecker.hpp"
#include "variants/cpu/prologue.hpp"
#include "variants/kit/simd/rows.hpp"

namespace fwht::cpu {
namespace {

constexpr std::int64_t kLargestN = std::int64_t{1} << 30;
constexpr Dtype kDtypes[] = {Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64};
constexpr Dtype kIntegers[] = {Dtype::i32, Dtype::i64};

/// A thread costs tens of microseconds, which is what a core takes for about so many elements.
constexpr std::int64_t kElementsPerThread = std::int64_t{64} * 1024;

int threads_for(const Problem& problem, int most) {
  const std::int64_t wanted = std::min(problem.elements() / kElementsPerThread, problem.rows);
  return static_cast<int>(std::clamp<std::int64_t>(wanted, 1, std::max(most, 1)));
}

template <Dtype dtype, class Real>
void widen(const void* from, Real* to, std::int64_t n) {
  if constexpr (std::is_same_v<Real, float>) return simd::best_kernels().widen(dtype, from, to, n);
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (dtype == Dtype::f64 || is_integer(dtype)) {
      to[i] = static_cast<const Real*>(from)[i];
    } else if constexpr (dtype == Dtype::f32) {
      to[i] = static_cast<const float*>(from)[i];
    } else if constexpr (dtype == Dtype::bf16) {
      to[i] = bf16_to_float(static_cast<const std::uint16_t*>(from)[i]);
    } else {
      to[i] = f16_to_float(static_cast<const std::uint16_t*>(from)[i]);
    }
  }
}

template <Dtype dtype, class Real>
void scale_and_narrow(const Real* from, void* to, std::int64_t n, Real scale) {
  if constexpr (is_integer(dtype)) return void(std::copy_n(from, n, static_cast<Real*>(to)));
  if constexpr (std::is_same_v<Real, float>) return simd::best_kernels().narrow(dtype, from, to, n, scale);
  for (std::int64_t i = 0; i < n; ++i) {
    const Real value = from[i] * scale;
    if constexpr (dtype == Dtype::f64) {
      static_cast<double*>(to)[i] = value;
    } else if constexpr (dtype == Dtype::f32) {
      static_cast<float*>(to)[i] = static_cast<float>(value);
    } else {  // by way of fp32 it would be rounded twice
      static_cast<std::uint16_t*>(to)[i] = static_cast<std::uint16_t>(encode(dtype, value));
    }
  }
}

/// One row in the type of its sums, and as much again for operators of several factors.
template <class Sum>
struct Scratch {
  explicit Scratch(const Problem& problem)
      : row(static_cast<std::size_t>(problem.n())), sums(problem.op.is_sylvester() ? 0 : row.size()) {}
  std::vector<Sum> row, sums;
};

/// Transforms in `Real`, f64 data always in double.
template <class Real>
class CpuPlan final : public Plan {
 public:
  CpuPlan(const Problem& problem, int threads) : Plan(problem), threads_(threads_for(problem, threads)) {}

  Numerics numerics() const override {
    if (is_integer(problem().dtype())) return single_rounding_by_dtype(problem());
    const bool in_double = std::is_same_v<Real, double> || problem().dtype() == Dtype::f64;
    const Sums sums = in_double ? Sums::fp64 : Sums::fp32;
    Numerics numerics = problem().op.is_sylvester() ? single_rounding(sums, problem())
                                                    : single_rounding_by_factors(sums, problem());
    if (problem().dtype() == Dtype::f64) {
      for (Step& step : numerics.steps)
        step.sum_rms *= 0x1p-29;  // 2^-53 for 2^-24
    }
    if (in_double) numerics.promises.intermediate_limit = std::numeric_limits<double>::max();
    return numerics;
  }

  Settings settings() const override {
    Settings settings = {
        {"threads", std::int64_t{threads_}},
        {"scratch_bytes_per_thread",
         is_packed() ? simd::scratch_floats(problem().n()) * bytes_of(Dtype::f32)
                     : problem().n() * std::max<std::int64_t>(sizeof(Real), bytes_of(problem().dtype())) *
                           (problem().op.is_sylvester() ? 1 : 2)}};
    if (is_packed()) settings.emplace_back("instruction_set", std::string(kernels_.instruction_set));
    return settings;
  }

  /// The same in place on rows that come one by one, for a plan of one row; any thread may call. What an
  /// execution makes of the operands' matrices is made once.
  std::function<void(void* row)> on_rows_one_by_one(const Operands& operands) const {
    if (is_packed()) return [this](void* row) { transform_packed({row, row}); };
    std::function<void(void* row)> on_row;
    by_dtype([&]<Dtype dtype, class Sum>() {
      on_row = [this, operands, product = product_of<dtype, Sum>(operands)](void* row) {
        Operands one = operands;
        one.in = one.out = row;
        transform<dtype, Sum>(one, product);
      };
    });
    return on_row;
  }

 private:
  /// None where the operator is one Sylvester factor.
  template <Dtype dtype, class Sum>
  using Product = std::optional<KroneckerProduct<std::conditional_t<is_integer(dtype), double, Sum>>>;

  template <Dtype dtype, class Sum>
  Product<dtype, Sum> product_of(const Operands& operands) const {
    Product<dtype, Sum> product;
    if (!problem().op.is_sylvester()) product.emplace(problem(), operands);
    return product;
  }

  /// Plain rows in fp32.
  bool is_packed() const {
    const bool in_fp32 = problem().dtype() != Dtype::f64 && !is_integer(problem().dtype());
    return std::is_same_v<Real, float> && in_fp32 && problem().op.is_sylvester() &&
           problem().encoding.is_plain() && !problem().prologue;
  }

  void transform_packed(const Operands& operands) const {
    const std::int64_t bytes = bytes_of(problem().dtype());
    const simd::RowJob job{problem().n(), problem().in.row_stride, problem().out.row_stride,
                           log2_floor(problem().n()), static_cast<float>(problem().scale)};
    parallel_for(problem().rows, threads_, [&](std::int64_t begin, std::int64_t end) {
      const auto scratch = std::make_unique_for_overwrite<float[]>(
          static_cast<std::size_t>(simd::scratch_floats(problem().n())));
      kernels_.of(problem().dtype())(
          job, static_cast<const char*>(operands.in) + begin * job.in_stride * bytes,
          static_cast<char*>(operands.out) + begin * job.out_stride * bytes, end - begin, scratch.get());
    });
  }

  void enqueue(const Operands& operands, Stream) const override {
    if (is_packed()) return transform_packed(operands);
    check_positions(problem(), operands.prepared);
    by_dtype(
        [&]<Dtype dtype, class Sum>() { transform<dtype, Sum>(operands, product_of<dtype, Sum>(operands)); });
  }

  /// body<dtype, Sum>() for the problem's dtype and the type of its sums.
  template <class Body>
  void by_dtype(const Body& body) const {
    switch (problem().dtype()) {
      case Dtype::f16:
        return body.template operator()<Dtype::f16, Real>();
      case Dtype::bf16:
        return body.template operator()<Dtype::bf16, Real>();
      case Dtype::f32:
        return body.template operator()<Dtype::f32, Real>();
      case Dtype::f64:
        return body.template operator()<Dtype::f64, double>();
      case Dtype::i32:
        return body.template operator()<Dtype::i32, std::uint32_t>();
      case Dtype::i64:
        return body.template operator()<Dtype::i64, std::uint64_t>();
    }
  }

  template <Dtype dtype, class Sum>
  void transform(const Operands& operands, const Product<dtype, Sum>& product) const {
    constexpr bool kEncodes = dtype != Dtype::f64 && !is_integer(dtype);
    const std::int64_t in_bytes = problem().in.row_stride * bytes_of(dtype);
    const std::int64_t out_bytes = problem().out.row_stride * bytes_of(dtype);
    const auto sums_of = [&](std::int64_t row, Scratch<Sum>& scratch) {
      widen<dtype>(static_cast<const char*>(operands.in) + row * in_bytes, scratch.row.data(), problem().n());
      if constexpr (kEncodes) put_through_prologue(operands, row, scratch.row.data());
      if constexpr (!is_integer(dtype)) {
        if (product) return product->apply(scratch.row.data(), scratch.sums.data());
      }
      butterflies(scratch.row.data(), problem().n(), 1, problem().n());
    };
    if constexpr (kEncodes) {
      if (!problem().encoding.is_plain()) return encode_tokens<dtype, Sum>(operands, sums_of);
    }
    parallel_for(problem().rows, threads_, [&](std::int64_t begin, std::int64_t end) {
      Scratch<Sum> scratch(problem());
      for (std::int64_t row = begin; row < end; ++row) {
        sums_of(row, scratch);
        scale_and_narrow<dtype>(scratch.row.data(), static_cast<char*>(operands.out) + row * out_bytes,
                                problem().n(), static_cast<Sum>(problem().scale));
      }
    });
  }

  template <class Sum>
  void put_through_prologue(const Operands& operands, std::int64_t number, Sum* row) const {
    if (!problem().prologue) return;
    std::vector<float> numbers(row, row + problem().n());  // exact: they are of the storage type
    apply_prologue(problem(), operands, number, numbers.data());
    std::copy(numbers.begin(), numbers.end(), row);
  }

  /// Rows of whole tokens, in fp32 as they are to be quantized.
  template <Dtype dtype, class Sum, class SumsOf>
  void encode_tokens(const Operands& operands, const SumsOf& sums_of) const {
    Encoder encoder(problem(), operands);
    const std::int64_t n = problem().n();
    const auto scale = static_cast<Sum>(problem().scale);
    const bool rounds_first = problem().encoding.intermediate == Intermediate::storage;
    const auto for_each_token = [&](const auto& use) {
      parallel_for(encoder.tokens(), threads_, [&](std::int64_t begin, std::int64_t end) {
        Scratch<Sum> scratch(problem());
        std::vector<std::byte> stored(static_cast<std::size_t>(n * bytes_of(dtype)));
        std::vector<float> values(static_cast<std::size_t>(encoder.token_elements()));
        for (std::int64_t token = begin; token < end; ++token) {
          for (std::int64_t row = 0; row < encoder.token_rows(); ++row) {
            sums_of(token * encoder.token_rows() + row, scratch);
            if (rounds_first) {
              scale_and_narrow<dtype>(scratch.row.data(), stored.data(), n, scale);
              widen<dtype>(stored.data(), values.data() + row * n, n);
            } else {
              scale_and_narrow<Dtype::f32>(scratch.row.data(), values.data() + row * n, n, scale);
            }
          }
          use(token, values);
        }
      });
    };
    if (encoder.needs_tensor()) {
      std::vector<float> largest(static_cast<std::size_t>(encoder.tokens()));
      for_each_token([&](std::int64_t token, const std::vector<float>& values) {
        largest[static_cast<std::size_t>(token)] =
            Encoder::largest_of(values.data(), encoder.token_elements());
      });
      encoder.take_tensor(*std::max_element(largest.begin(), largest.end()));
    }
    for_each_token(
        [&](std::int64_t token, const std::vector<float>& values) { encoder.write(token, values.data()); });
  }

  int threads_;
  const simd::RowKernels& kernels_ = simd::best_kernels();
};

/// Rows in another order, or that lie between each other, by a plan for one row of a buffer.
template <class Real>
class ArrangedPlan final : public Plan {
 public:
  ArrangedPlan(const Problem& problem, int threads)
      : Plan(problem),
        one_row_(of_one_row(problem), 1),
        log_n_(is_power_of_two(problem.n()) ? log2_floor(problem.n()) : 0),
        rows_at_once_(std::min<std::int64_t>(problem.inner, 64 / bytes_of(problem.dtype()))),
        threads_(threads_for(problem, threads)) {}

  Numerics numerics() const override { return one_row_.numerics(); }
  Settings settings() const override {
    return {{"threads", std::int64_t{threads_}}, {"rows_at_once", rows_at_once_}};
  }

 private:
  static Problem of_one_row(const Problem& problem) {
    Problem one = problem;
    one.rows = one.inner = 1;
    one.in_ordering = one.out_ordering = Ordering::natural;
    one.placement = Placement::in_place;
    one.set_row_stride(one.n());
    return one;
  }

  void enqueue(const Operands& operands, Stream) const override {
    switch (bytes_of(problem().dtype())) {
      case 2:
        return arrange<std::uint16_t>(operands);
      case 4:
        return arrange<std::uint32_t>(operands);
      default:
        return arrange<std::uint64_t>(operands);
    }
  }

  template <class Word>
  void arrange(const Operands& operands) const {
    const Problem& p = problem();
    const std::int64_t n = p.n(), groups = ceil_div(p.inner, rows_at_once_);
    const auto transform = one_row_.on_rows_one_by_one(operands);
    parallel_for(p.rows / p.inner * groups, threads_, [&](std::int64_t begin, std::int64_t end) {
      const auto buffer = std::make_unique_for_overwrite<Word[]>(static_cast<std::size_t>(n * rows_at_once_));
      for (std::int64_t group = begin; group < end; ++group) {
        const std::int64_t beside = group % groups * rows_at_once_;
        const std::int64_t row = group / groups * p.inner + beside;
        const std::int64_t count = std::min(rows_at_once_, p.inner - beside);
        const Word* const in = static_cast<const Word*>(operands.in) + p.first_of(p.in, row);
        for (std::int64_t j = 0; j < n; ++j) {
          Word* const to = buffer.get() + natural_place(p.in_ordering, j, log_n_);
          for (std::int64_t i = 0; i < count; ++i)
            to[i * n] = in[j * p.inner + i];
        }
        for (std::int64_t i = 0; i < count; ++i)
          transform(buffer.get() + i * n);
        Word* const out = static_cast<Word*>(operands.out) + p.first_of(p.out, row);
        for (std::int64_t j = 0; j < n; ++j) {
          const Word* const from = buffer.get() + natural_place(p.out_ordering, j, log_n_);
          for (std::int64_t i = 0; i < count; ++i)
            out[j * p.inner + i] = from[i * n];
        }
      }
    });
  }

  CpuPlan<Real> one_row_;
  int log_n_;
  std::int64_t rows_at_once_;
  int threads_;
};

template <bool takes_integers>
Support supports(const Problem& asked, const DeviceInfo&) {
  if (Support launch = require_ordinary_launch(asked); !launch) return launch;
  const bool encoded = !asked.encoding.is_plain();
  if (encoded && asked.dtype() == Dtype::f64)
    return {concat("the encoding ", to_string(asked.encoding), " is not offered for f64 data")};
  if (asked.prologue && asked.dtype() == Dtype::f64)
    return {concat("the prologue ", to_string(*asked.prologue), " is not offered for f64 data")};
  Problem problem = asked;  // every encoding and prologue of the others is offered
  problem.encoding = {};
  problem.prologue = {};
  problem.paging = {};
  problem.in_ordering = problem.out_ordering = Ordering::natural;
  problem.inner = 1;
  if (is_integer(problem.dtype())) {
    return require_sylvester(problem, 2, kLargestN,
                             takes_integers ? std::span<const Dtype>(kIntegers) : std::span(kDtypes));
  }
  // H_1 with an encoding is a quantizer alone.
  if (problem.op.is_sylvester()) return require_sylvester(problem, encoded ? 1 : 2, kLargestN, kDtypes);
  if (Support rows = require_plain_rows(problem, kDtypes); !rows) return rows;
  if (problem.n() < 2 || problem.n() > kLargestN)
    return {concat("n=", problem.n(), " must be between 2 and ", kLargestN)};
  return require_factors(problem.op);
}

template <class Real>
std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  if (problem.is_arranged_plainly()) return std::make_unique<CpuPlan<Real>>(problem, device.host_threads);
  return std::make_unique<ArrangedPlan<Real>>(problem, device.host_threads);
}

}  // namespace

const Variant variant{"cpu",
                      "plain host loops: fp32 butterflies over a cached row, one thread a share of the rows",
                      Memory::host, supports<true>, make_plan<float>};

const Variant f64_variant{"cpu_f64", "cpu in double precision: the cost and the error of an FP64 reference",
                          Memory::host, supports<false>, make_plan<double>};

}  // namespace fwht::cpu
