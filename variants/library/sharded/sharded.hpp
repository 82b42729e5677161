// A transform whose rows are spread over ranks: rank r of T holds, of every row, the columns
// r n/T .. (r+1) n/T - 1, and the ranks exchange what the operator needs.
//
//   form            operator                communication        result at rank q
//   block_diagonal  I_T (x) local           none                 columns q n/T .. (q+1) n/T - 1
//   all_to_all      H_T (x) local           one exchange         of every shard s, columns q n/T^2 .. of it
//   gather          operator_for(n)         one all-gather       columns q n/T .. (q+1) n/T - 1
//
// all_to_all leaves the result spread otherwise than the input was. What comes next (a row-parallel layer)
// has its rows spread alike, offline, so nothing is sent back. result_column says where everything is.
// gather is the naive form: every rank transforms whole rows and keeps its part.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/contract/variant.hpp"
#include "common/host/communicator.hpp"

namespace fwht::sharded {

enum class ShardedForm { block_diagonal, all_to_all, gather };

constexpr std::string_view name_of(ShardedForm form) {
  return form == ShardedForm::block_diagonal ? "block_diagonal"
         : form == ShardedForm::all_to_all   ? "all_to_all"
                                             : "gather";
}
/// Throws BadRequest for another text.
ShardedForm parse_form(std::string_view text);

/// What the ranks of all_to_all send after the local transform.
///   pieces   to each rank what it needs, by an all-to-all; several rows are packed by receiver before
///   rows     whole rows to every rank, by an all-gather: T times the bytes, nothing to pack
enum class Exchange { pieces, rows };

constexpr std::string_view name_of(Exchange exchange) {
  return exchange == Exchange::pieces ? "pieces" : "rows";
}
/// The quicker one as measured with NCCL on GPUs linked by NVLink (docs/several_gpus.md).
Exchange quickest_exchange(int ranks, std::int64_t shard_bytes);

struct ShardedProblem {
  ShardedForm form = ShardedForm::all_to_all;
  Dtype dtype = Dtype::f16;
  Operator local;      ///< of one rank's n/T columns; of all n columns for gather
  std::int64_t n = 0;  ///< columns of a whole row
  std::int64_t rows = 0;
  int ranks = 1;
  double scale = 0.0;                    ///< of the local transform
  double mix_scale = 1.0;                ///< all_to_all: of the sum over the ranks
  Exchange exchange = Exchange::pieces;  ///< of all_to_all; the same bits either way

  constexpr std::int64_t shard() const { return n / ranks; }
  /// all_to_all: columns that one rank sends to one other, n/T^2.
  constexpr std::int64_t piece() const { return shard() / ranks; }
  std::int64_t shard_bytes() const { return rows * shard() * bytes_of(dtype); }
};

/// The orthonormal transform, with the operators that operator_for chooses. Throws BadRequest as validate.
ShardedProblem make_sharded_problem(ShardedForm form, Dtype dtype, std::int64_t n, std::int64_t rows,
                                    int ranks);

/// Throws BadRequest, in one sentence with value and limit, for shards that do not divide n, a number of
/// ranks that is no power of two. Also for pieces that do not divide a shard or are no multiples of 16 bytes
/// (all_to_all), no rows, a local operator of another order, one with signs or dense factors. Also for 2^59
/// elements and more, an unknown form or exchange, a scale that is not finite in fp32.
void validate(const ShardedProblem& problem);

/// "all_to_all/f16/n28672/r16/t4".
std::string to_string(const ShardedProblem& problem);

/// The operator on a whole row: what the ranks compute together. Throws BadRequest for block_diagonal with
/// T > 1, which is no product of factors that Operator names; it is local, T times. Also for all_to_all where
/// the local operator has all the factors that an Operator may have: H_T would be one more.
Operator whole_operator(const ShardedProblem& problem);

/// Which column of the result, 0 .. n - 1, position i of rank's result is.
inline std::int64_t result_column(const ShardedProblem& problem, int rank, std::int64_t i) {
  if (problem.form != ShardedForm::all_to_all) return rank * problem.shard() + i;
  const std::int64_t piece = problem.piece();
  return i / piece * problem.shard() + rank * piece + i % piece;
}

/// Plans and workspace of one rank. Every rank makes one, with its own communicator and the same problem.
class ShardedPlan {
 public:
  /// Transforms by `variant`, whose memory must be the communicator's. All ranks must call. They agree on the
  /// problem first, so that what is wrong on one of them (a communicator of another size, a problem of its
  /// own, an operator that the variant refuses, no GPU) is thrown as BadRequest on every one. Waits at most
  /// `limit`. Keeps a reference to the communicator.
  ShardedPlan(const ShardedProblem& problem, Communicator& communicator, const Variant& variant,
              const DeviceInfo& device, TimeLimit limit = std::chrono::seconds(60));
  ~ShardedPlan();

  /// `in` and `out`: rows x n/T, contiguous, at 16 bytes. They must not overlap. BadRequest, before anything
  /// is enqueued, where they are null, off 16 bytes or overlap. Only enqueues, so that it
  /// can be captured; executions must not run at the same time, since the workspace is the plan's.
  void execute(const void* in, void* out, Stream stream = nullptr) const;

  // The steps of execute, for who times them one by one.
  /// block_diagonal: in -> out. all_to_all: in -> transformed rows. gather: nothing.
  void transform_shard(const void* in, void* out, Stream stream) const;
  /// all_to_all: the rows' pieces, by receiver. Nothing where packs() is false.
  void pack(Stream stream) const;
  /// One row's pieces lie by receiver already.
  bool packs() const { return exchanges(Exchange::pieces) && problem_.rows > 1; }
  /// all_to_all: the pieces or rows. gather: in -> whole rows in parts. block_diagonal: nothing.
  void exchange(const void* in, Stream stream) const;
  /// all_to_all: adds what came with the signs of H_T. gather: transforms whole rows, keeps the chunk.
  void complete(void* out, Stream stream) const;

  const ShardedProblem& problem() const { return problem_; }

 private:
  bool exchanges(Exchange what) const {
    return problem_.form == ShardedForm::all_to_all && problem_.ranks > 1 && problem_.exchange == what;
  }
  void* transformed() const;
  void check(const void* in, const void* out) const;

  ShardedProblem problem_;
  Communicator& communicator_;
  bool programmatic_;  ///< kernels behind an exchange may be launched while it runs
  std::unique_ptr<Plan> local_;
  struct Workspace;
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace fwht::sharded
