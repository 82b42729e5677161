// The kernel for operators of several factors, or with signs: one functor for every execution space.
//
// Idea: a team keeps one row as fp32 numbers in memory of its own and multiplies it factor by factor, slowest
// first, as `cpu` does. A Sylvester factor goes by butterflies in ascending order, a matrix by sums over its
// columns in ascending order. Nothing is tuned: a team's memory is global memory, so that rows of any length
// and any factor fit.
//
// Card, for the digit of stride s of a row: league: rows | team: the other digits above s | vector: those
// below s.
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>

#include "common/contract/dtype.hpp"
#include "common/contract/operator.hpp"
#include "common/contract/variant.hpp"
#include "variants/kokkos/kokkos_kernel.hpp"

namespace fwht::kokkos {

/// One factor. The index of an element is (outer, digit, inner) with `order` digits, `stride` apart.
struct FactorStage {
  std::int64_t order = 1, stride = 1;
  Basis basis = Basis::sylvester;
  bool transposed = false;
  std::int64_t entries = 0;  ///< where its first entry lies among those of its basis
};

struct FactorsJob {
  std::int64_t n = 0, rows = 0, in_stride = 0, out_stride = 0;  ///< strides in elements
  FactorStage stages[Operator::kMostFactors];
  int stage_count = 0;
  std::int64_t named_entries = 0, dense_entries = 0;  ///< of all matrices of the table, of all dense ones
  bool has_signs = false, signs_come_last = false;
  float scale = 1.0F;
};

/// Operator::is_sylvester, which lies in the library.
inline bool is_one_sylvester(const Operator& op) {
  return op.factors().size() == 1 && op.factors().front().basis == Basis::sylvester && !op.has_signs();
}

/// The stages of an operator, slowest factor first.
inline FactorsJob factors_job(const Problem& problem) {
  FactorsJob job;
  job.n = problem.n(), job.rows = problem.rows;
  job.in_stride = problem.in.row_stride, job.out_stride = problem.out.row_stride;
  job.has_signs = problem.op.has_signs(), job.signs_come_last = problem.op.signs_come_last();
  job.scale = static_cast<float>(problem.scale);
  std::int64_t stride = job.n;
  for (const Factor& factor : problem.op.factors()) {
    stride /= factor.order;
    FactorStage& stage = job.stages[job.stage_count++];
    stage = {factor.order, stride, factor.basis, factor.transposed, 0};
    if (factor.basis == Basis::sylvester) continue;
    std::int64_t& entries = factor.is_named() ? job.named_entries : job.dense_entries;
    stage.entries = entries;
    entries += factor.order * factor.order;
  }
  return job;
}

/// Two rows for each team.
inline std::int64_t workspace_floats(const FactorsJob& job, std::int64_t teams) {
  return 2 * job.n * teams;
}

/// Sums in ascending order but for dense factors, whose products a compiler may fuse with the sums.
inline Numerics factors_numerics(const Problem& problem) {
  return single_rounding_by_factors(Sums::fp32, problem, Sums::fp32_any_order);
}

/// KokkosCodec for host spaces, where Kokkos' half types are floats.
template <Dtype dtype>
struct HostCodec {
  static float decode(std::uint32_t bits) {
    if constexpr (dtype == Dtype::f32) return Kokkos::bit_cast<float>(bits);
    const auto half = static_cast<std::uint16_t>(bits);
    return dtype == Dtype::f16 ? f16_to_float(half) : bf16_to_float(half);
  }
  static std::uint32_t encode(float value) {
    if constexpr (dtype == Dtype::f32) return Kokkos::bit_cast<std::uint32_t>(value);
    return dtype == Dtype::f16 ? float_to_f16(value) : float_to_bf16(value);
  }
};

template <class Space, Dtype dtype>
struct FactorsKernel {
  using Policy = Kokkos::TeamPolicy<Space>;
  using Member = typename Policy::member_type;
  /// Columns that a thread multiplies at once: host threads have packs, device threads neighbours.
  static constexpr int kWidth = kTiled<Space> ? 1 : 16;
  using Codec = std::conditional_t<kTiled<Space>, KokkosCodec<dtype>, HostCodec<dtype>>;

  FactorsJob job;
  Unowned<Space, const Storage<dtype>> in;
  Unowned<Space, Storage<dtype>> out;
  Unowned<Space, const float> named;           ///< matrices of the table, not transposed, row-major
  Unowned<Space, const Storage<dtype>> dense;  ///< Operands::dense
  Unowned<Space, const std::uint8_t> signs;    ///< Operands::signs
  Unowned<Space, float> rows_in_fp32;          ///< two rows for each team of the league

  KOKKOS_FUNCTION void operator()(const Member& team) const {
    float* row = rows_in_fp32.data() + 2 * job.n * team.league_rank();
    float* other = row + job.n;
    for (std::int64_t r = team.league_rank(); r < job.rows; r += team.league_size()) {
      load(team, in.data() + r * job.in_stride, row);
      for (int s = 0; s < job.stage_count; ++s) {
        const FactorStage& stage = job.stages[s];
        if (stage.basis == Basis::sylvester) {
          butterflies(team, stage, row);
        } else {
          multiply(team, stage, row, other);
          Kokkos::kokkos_swap(row, other);
        }
      }
      store(team, row, out.data() + r * job.out_stride);
      team.team_barrier();
    }
  }

 private:
  KOKKOS_FUNCTION float with_sign(std::int64_t i, float value) const {
    return (signs(static_cast<std::size_t>(i / 8)) >> (i % 8) & 1) != 0 ? -value : value;
  }
  KOKKOS_FUNCTION void load(const Member& team, const Storage<dtype>* from, float* row) const {
    const bool negates = job.has_signs && !job.signs_come_last;
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, job.n), [&](std::int64_t i) {
      const float value = decoded(from[i]);
      row[i] = negates ? with_sign(i, value) : value;
    });
    team.team_barrier();
  }
  KOKKOS_FUNCTION void store(const Member& team, const float* row, Storage<dtype>* to) const {
    const bool negates = job.has_signs && job.signs_come_last;
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, job.n), [&](std::int64_t i) {
      const float value = row[i] * job.scale;
      to[i] = encoded(negates ? with_sign(i, value) : value);
    });
  }

  KOKKOS_FUNCTION void butterflies(const Member& team, const FactorStage& stage, float* row) const {
    for (std::int64_t half = stage.stride; half < stage.stride * stage.order; half *= 2) {
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, job.n / (2 * half)), [&](std::int64_t block) {
        float* const low = row + block * 2 * half;
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, half), [&](std::int64_t i) {
          const float a = low[i], b = low[i + half];
          low[i] = a + b;
          low[i + half] = a - b;
        });
      });
      team.team_barrier();
    }
  }

  KOKKOS_FUNCTION void multiply(const Member& team, const FactorStage& stage, const float* terms,
                                float* sums) const {
    const std::int64_t order = stage.order, stride = stage.stride;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, job.n / stride), [&](std::int64_t digit_of_block) {
      const std::int64_t i = digit_of_block % order, pieces = (stride + kWidth - 1) / kWidth;
      const float* const first = terms + (digit_of_block - i) * stride;
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, pieces), [&](std::int64_t piece) {
        const std::int64_t at = piece * kWidth, width = Kokkos::min(std::int64_t{kWidth}, stride - at);
        float sum[kWidth] = {};
        if (width == kWidth) {
          add_products<kWidth>(stage, i, first + at, kWidth, sum);
        } else {
          add_products<0>(stage, i, first + at, width, sum);
        }
        for (std::int64_t c = 0; c < width; ++c)
          sums[digit_of_block * stride + at + c] = sum[c];
      });
    });
    team.team_barrier();
  }
  /// Digit i of `width` adjacent columns; `constant` is the width where it is known.
  template <int constant>
  KOKKOS_FUNCTION void add_products(const FactorStage& stage, std::int64_t i, const float* terms,
                                    std::int64_t width, float (&sum)[kWidth]) const {
    const std::int64_t count = constant == 0 ? width : constant;
    for (std::int64_t j = 0; j < stage.order; ++j) {
      const float factor = entry(stage, i, j);
      for (std::int64_t c = 0; c < count; ++c)
        sum[c] += factor * terms[j * stage.stride + c];
    }
  }
  KOKKOS_FUNCTION float entry(const FactorStage& stage, std::int64_t i, std::int64_t j) const {
    const std::int64_t at = stage.transposed ? j * stage.order + i : i * stage.order + j;
    return stage.basis != Basis::dense ? named(static_cast<std::size_t>(stage.entries + at))
                                       : decoded(dense(static_cast<std::size_t>(stage.entries + at)));
  }

  KOKKOS_FUNCTION static float decoded(Storage<dtype> element) {
    return Codec::decode(Kokkos::bit_cast<Word>(element));
  }
  KOKKOS_FUNCTION static Storage<dtype> encoded(float value) {
    return Kokkos::bit_cast<Storage<dtype>>(static_cast<Word>(Codec::encode(value)));
  }
  using Word = std::conditional_t<dtype == Dtype::f32, std::uint32_t, std::uint16_t>;
};

/// The kernel with its operands; `named`, and a workspace for `teams` teams, in the memory of the space.
template <class Space, Dtype dtype>
FactorsKernel<Space, dtype> factors_kernel(const FactorsJob& job, const Problem& problem,
                                           const Operands& operands, const float* named, float* workspace,
                                           std::int64_t teams) {
  using Element = Storage<dtype>;
  return {job,
          unowned<Space>(static_cast<const Element*>(operands.in), problem.span_elements()),
          unowned<Space>(static_cast<Element*>(operands.out), (job.rows - 1) * job.out_stride + job.n),
          unowned<Space>(named, job.named_entries),
          unowned<Space>(static_cast<const Element*>(operands.dense), job.dense_entries),
          unowned<Space>(static_cast<const std::uint8_t*>(operands.signs), (job.n + 7) / 8),
          unowned<Space>(workspace, workspace_floats(job, teams))};
}

}  // namespace fwht::kokkos
