// The MLP of a transformer spread over T ranks (arXiv 2402.04925): up (and gate) column-parallel, down
// row-parallel, weights in 4 bit with act-order. Everything here is done once, offline, on the host: which
// columns and rows of which matrix a rank holds, and in which order.
//
//   algorithm     W_up of rank r holds columns     between the layers                  W_down holds rows
//   naive         r n1/T ..                        all-gather; permute by P2; chunk    P2[r n1/T ..]
//   naive_fused   r n1/T ..                        all-gather; pick P2[r n1/T ..]      P2[r n1/T ..]
//   tp_aware      P2[r n1/T ..]                    nothing                             P2[r n1/T ..]
//   local_sort    r n1/T ..                        pick (sort inside the rank)         r n1/T .., by group
//
// P2 sorts the rows of W_down by group. Why tp_aware is right: (X W)[:, P2] = X W[:, P2], and what is done to
// single elements in between commutes. local_sort is what vLLM does: every rank keeps its own rows and sorts
// them by group. A rank then has parts of all groups, so here each part is filled up to a multiple of 32 rows
// (all together to one of 128) with weights of zero, and scales are repeated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/linear/weights.hpp"
#include "common/host/names.hpp"
#include "variants/library/sharded/sharded.hpp"

namespace fwht::tensor_parallel {

struct MlpShape {
  std::string name;
  std::int64_t k1 = 0, n1 = 0, n2 = 0;
  bool gated = false;  ///< h = act(X W_gate) * (X W_up); else h = X W_up, as in the paper
  std::int64_t up_columns() const { return gated ? 2 * n1 : n1; }
  /// Of all weights, in elements.
  std::int64_t weights() const { return k1 * up_columns() + n1 * n2; }
};

/// "llama-70b" (8192, 28672, 8192), "llama-70b-gated" with its gate, "granite-20b" (6144, 24576, 6144), or
/// k1xn1xn2 with or without "-gated". Throws BadRequest.
MlpShape parse_shape(std::string_view text);

enum class Algorithm { naive, naive_fused, tp_aware, local_sort };
inline constexpr Names<Algorithm, 4> kAlgorithms{"algorithm",
                                                 {{Algorithm::naive, "naive"},
                                                  {Algorithm::naive_fused, "naive_fused"},
                                                  {Algorithm::tp_aware, "tp_aware"},
                                                  {Algorithm::local_sort, "local_sort"}}};
constexpr std::string_view name_of(Algorithm algorithm) {
  return kAlgorithms.of(algorithm);
}

/// What turns h before the down projection; with one, W_down is in the rotated basis, without act-order.
enum class Rotation { none, blocks, block_diagonal, all_to_all, gather };
inline constexpr Names<Rotation, 5> kRotations{"rotation",
                                               {{Rotation::none, "none"},
                                                {Rotation::blocks, "blocks"},
                                                {Rotation::block_diagonal, "block_diagonal"},
                                                {Rotation::all_to_all, "all_to_all"},
                                                {Rotation::gather, "gather"}}};
inline constexpr std::int64_t kBlock = 128;       ///< of Rotation::blocks: I (x) H_128, the same for every T
inline constexpr std::int64_t kSortedGroup = 32;  ///< rows of W_down that share a scale with local_sort
constexpr std::string_view name_of(Rotation rotation) {
  return kRotations.of(rotation);
}

/// One way to compute one MLP.
struct MlpProblem {
  MlpShape shape;
  std::int64_t m = 1;
  int ranks = 1;
  Algorithm algorithm = Algorithm::tp_aware;
  Rotation rotation = Rotation::none;
  std::int64_t group = 128;

  std::int64_t shard() const { return shape.n1 / ranks; }
};

/// "llama-70b/m16/t4/tp_aware", "/all_to_all" behind it where it rotates.
std::string to_string(const MlpProblem& problem);

/// Throws BadRequest, in one sentence with value and limit, for shards that do not divide n1 or are no
/// multiple of the group. Also for a number of ranks that is no power of two, no tokens, and a rotation with
/// another algorithm than tp_aware or one that the shards do not allow.
void validate(const MlpProblem& problem);

/// The rotation of the rows of h, `m` of them. Throws BadRequest where there is none.
sharded::ShardedProblem rotation_of(const MlpProblem& problem);

/// The whole layer before it is spread. g_idx of up is empty: X comes in the order of its groups. g_idx of
/// down may be any order.
struct MlpWeights {
  GptqWeights up;    ///< [k1][n1], or [k1][2 n1]: gate, then up
  GptqWeights down;  ///< [n1][n2]
};

/// What one rank holds.
struct Share {
  GptqWeights up, down;  ///< sorted by group, no g_idx
  /// Columns of the gathered h (naive: all of P2; naive_fused: this rank's part) or of the rank's own h
  /// (local_sort) that come next, in order; empty where nothing is picked.
  std::vector<std::int32_t> picked;
};

/// Throws BadRequest as validate.
Share share_of(const MlpProblem& problem, const MlpWeights& weights, int rank);

/// Columns of h that rank's rows of W_down meet, in order; with a rotation, of the rotated h. A position of
/// local_sort that only fills up has -1.
std::vector<std::int64_t> down_rows(const MlpProblem& problem, const MlpWeights& weights, int rank);

/// Weights with those columns only, in that order, and the same rows. g_idx is kept. `columns.size()` must be
/// a multiple of 8.
GptqWeights with_columns(const GptqWeights& weights, const std::vector<std::int64_t>& columns);

/// Weights with those rows only, in that order, in new groups of `group` rows, none of which may have rows of
/// two old groups; -1 stands for a row of zeros in the group of the row before it. No g_idx.
GptqWeights with_rows(const GptqWeights& weights, const std::vector<std::int64_t>& rows, std::int64_t group);

/// Data on which every sum is an integer that fp16 holds: exact whatever the order of sums. W in -2 .. 2,
/// scales 1 and 2, zero points everywhere, random act-order of `down` where asked for. Sparse X: `nonzero`
/// entries of +-1 in every row, fp16 patterns, m x k1.
MlpWeights integer_weights(const MlpShape& shape, std::int64_t group, bool act_order, std::uint64_t seed);
std::vector<std::uint16_t> integer_tokens(const MlpShape& shape, std::int64_t m, std::uint64_t seed);

/// Truth by definition, nothing permuted, nothing spread, in FP64: h = m x n1 (h = gate * up where gated),
/// and y = (h rotated) W_down for some columns, m x columns.size().
struct MlpTruth {
  std::vector<double> hidden;
  std::vector<double> y;
  /// What the relative L2 error of such columns may be: 0 without rotation, where integers stay exact. With
  /// one, from the variance of every rounding on the way (docs/numerics.md, "Layers over ranks"); a layer
  /// that rounds as it says exceeds it with a probability of 2e-9 at most.
  double rel_l2_bound = 0.0;
};
MlpTruth mlp_truth(const MlpProblem& problem, const MlpWeights& weights,
                   const std::vector<std::uint16_t>& tokens, const std::vector<std::int64_t>& columns);

}  // namespace fwht::tensor_parallel
