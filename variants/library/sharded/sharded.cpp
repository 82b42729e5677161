#include "variants/library/sharded/sharded.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "common/device/memory.hpp"
#include "common/host/error.hpp"
#include "common/host/overlap.hpp"
#include "common/host/text.hpp"
#include "variants/library/sharded/moves.hpp"

namespace fwht::sharded {
namespace {

std::size_t bytes_for(std::int64_t bytes) {
  return static_cast<std::size_t>(bytes);
}

/// Rows that one rank transforms: of its shard, or whole ones.
Problem local_problem(const ShardedProblem& problem) {
  const bool in_place = problem.form == ShardedForm::gather && problem.ranks > 1;
  Problem local = make_problem(problem.dtype, problem.local, problem.rows,
                               in_place ? Placement::in_place : Placement::out_of_place);
  local.scale = problem.scale;
  if (problem.ranks == 1 && problem.form == ShardedForm::all_to_all) local.scale *= problem.mix_scale;
  return local;
}

/// What the operator has no part in.
void require_shards(const ShardedProblem& problem) {
  const auto& [form, dtype, local, n, rows, ranks, scale, mix_scale, exchange] = problem;
  if (form < ShardedForm::block_diagonal || form > ShardedForm::gather)
    throw BadRequest(concat("unknown form ", static_cast<int>(form), " of a transform over ranks"));
  if (exchange != Exchange::pieces && exchange != Exchange::rows)
    throw BadRequest(concat("unknown exchange ", static_cast<int>(exchange), " of a transform over ranks"));
  if (n < 1) throw BadRequest(concat("n=", n, " must be at least 1"));
  if (rows < 1) throw BadRequest(concat("rows=", rows, " must be at least 1"));
  if (rows > std::numeric_limits<std::int64_t>::max() / 16 / n)
    throw BadRequest(concat("rows=", rows, " times n=", n, " must be below 2^59"));
  if (ranks < 1 || ranks > kMostRanks || !std::has_single_bit(static_cast<unsigned>(ranks)))
    throw BadRequest(concat("ranks=", ranks, " must be a power of two up to ", kMostRanks));
  if (n % ranks != 0) throw BadRequest(concat("n=", n, " is not divisible by ranks=", ranks));
  if (dtype == Dtype::f64 || is_integer(dtype))
    throw BadRequest(concat("dtype ", name_of(dtype), " is not offered over ranks"));
  if (form == ShardedForm::all_to_all && n % (std::int64_t{ranks} * ranks) != 0) {
    throw BadRequest(concat("a shard of ", problem.shard(), " columns is not divisible by ranks=", ranks,
                            ", as all_to_all needs"));
  }
  const std::int64_t moved = form == ShardedForm::all_to_all ? problem.piece() : problem.shard();
  if (form != ShardedForm::block_diagonal && moved * bytes_of(dtype) % 16 != 0) {
    throw BadRequest(
        concat("pieces of ", moved, " columns of ", fwht::name_of(dtype), " are no multiple of 16 bytes"));
  }
}

/// Why this rank cannot take part; empty when it can.
std::string why_not(const ShardedProblem& problem, const Communicator& communicator, const Variant& variant,
                    const DeviceInfo& device) {
  try {
    validate(problem);
    if (communicator.size() != problem.ranks) {
      return concat("the communicator has ", communicator.size(), " ranks, the problem is for ",
                    problem.ranks);
    }
    if (communicator.memory() != variant.memory) {
      return concat("the variant ", variant.name, " does not work on the memory of this communicator");
    }
    const Problem local = local_problem(problem);
    const Support support = variant.supports(local, device);
    return support ? "" : concat(variant.name, " on ", to_string(local), ": ", support.why_not);
  } catch (const BadRequest& error) {
    return error.what();
  }
}

}  // namespace

ShardedForm parse_form(std::string_view text) {
  for (const ShardedForm form : {ShardedForm::block_diagonal, ShardedForm::all_to_all, ShardedForm::gather}) {
    if (text == name_of(form)) return form;
  }
  throw BadRequest(concat("unknown form '", text, "'; known: block_diagonal, all_to_all, gather"));
}

Exchange quickest_exchange(int ranks, std::int64_t shard_bytes) {
  // With two ranks an all-gather sends twice the bytes and saves packing; it also has less latency.
  constexpr std::int64_t kMostBytes = 512 << 10;
  return ranks == 2 && shard_bytes <= kMostBytes ? Exchange::rows : Exchange::pieces;
}

ShardedProblem make_sharded_problem(ShardedForm form, Dtype dtype, std::int64_t n, std::int64_t rows,
                                    int ranks) {
  ShardedProblem problem{form, dtype, {}, n, rows, ranks};
  require_shards(problem);
  const std::int64_t local = form == ShardedForm::gather ? n : n / ranks;
  problem.local = operator_for(local);
  problem.scale = orthonormal_scale(local);
  problem.mix_scale = form == ShardedForm::all_to_all ? orthonormal_scale(ranks) : 1.0;
  problem.exchange = quickest_exchange(ranks, problem.shard_bytes());
  validate(problem);
  return problem;
}

void validate(const ShardedProblem& problem) {
  require_shards(problem);
  const auto& [form, dtype, local, n, rows, ranks, scale, mix_scale, exchange] = problem;
  const std::int64_t order = form == ShardedForm::gather ? n : problem.shard();
  if (local.n() != order)
    throw BadRequest(concat("the local operator has order ", local.n(), ", the rows have ", order));
  if (local.has_signs() || local.has_dense())
    throw BadRequest("signs and dense factors are not offered over ranks");
  if (!std::isfinite(static_cast<float>(mix_scale)))
    throw BadRequest(concat("mix_scale=", mix_scale, " is not finite in fp32"));
  fwht::validate(local_problem(problem));
}

std::string to_string(const ShardedProblem& problem) {
  std::string text = concat(name_of(problem.form), "/", fwht::name_of(problem.dtype), "/n", problem.n, "/r",
                            problem.rows, "/t", problem.ranks, "/", fwht::to_string(problem.local));
  text += concat("/s", problem.scale, "/", problem.mix_scale);
  return problem.form == ShardedForm::all_to_all ? concat(text, "/", name_of(problem.exchange)) : text;
}

Operator whole_operator(const ShardedProblem& problem) {
  if (problem.ranks == 1 || problem.form == ShardedForm::gather) return problem.local;
  if (problem.form == ShardedForm::block_diagonal)
    throw BadRequest("a block-diagonal operator is no product of named factors");
  std::vector<Factor> factors = {{Basis::sylvester, problem.ranks, false}};
  for (const Factor& factor : problem.local.factors())
    factors.push_back(factor);
  return Operator(factors);
}

struct ShardedPlan::Workspace {
  Buffer rows, sent, received;
};

ShardedPlan::ShardedPlan(const ShardedProblem& problem, Communicator& communicator, const Variant& variant,
                         const DeviceInfo& device, TimeLimit limit)
    : problem_(problem),
      communicator_(communicator),
      programmatic_(communicator.memory() == Memory::device && require_programmatic_launch(device)),
      workspace_(std::make_unique<Workspace>()) {
  agree(communicator, {to_string(problem), why_not(problem, communicator, variant, device)}, limit);
  local_ = plan(variant, local_problem(problem), device);
  const std::size_t shard = bytes_for(problem.shard_bytes());
  const std::size_t whole = bytes_for(problem.shard_bytes() * problem.ranks);
  if (problem.ranks == 1) return;
  if (exchanges(Exchange::pieces)) {
    if (packs()) workspace_->rows = Buffer(communicator.memory(), shard);
    workspace_->sent = Buffer(communicator.memory(), shard);
    workspace_->received = Buffer(communicator.memory(), shard);
  } else if (problem.form != ShardedForm::block_diagonal) {
    workspace_->received = Buffer(communicator.memory(), whole);
    if (problem.form == ShardedForm::gather) workspace_->rows = Buffer(communicator.memory(), whole);
  }
}
ShardedPlan::~ShardedPlan() = default;

/// all_to_all: where the local transform writes, which an exchange of rows sends from in place.
void* ShardedPlan::transformed() const {
  if (packs()) return workspace_->rows.data();
  if (exchanges(Exchange::pieces)) return workspace_->sent.data();
  return static_cast<std::byte*>(workspace_->received.data()) + communicator_.rank() * problem_.shard_bytes();
}

void ShardedPlan::execute(const void* in, void* out, Stream stream) const {
  check(in, out);
  transform_shard(in, out, stream);
  pack(stream);
  exchange(in, stream);
  complete(out, stream);
}

/// Here, since another rank waits for what this one has enqueued.
void ShardedPlan::check(const void* in, const void* out) const {
  const std::int64_t bytes = problem_.shard_bytes();
  const auto from = reinterpret_cast<std::uintptr_t>(in), to = reinterpret_cast<std::uintptr_t>(out);
  for (const auto& [name, address] : {std::pair("in", from), std::pair("out", to)}) {
    if (address == 0) throw BadRequest(concat(name, " is a null pointer"));
    if (address % 16 != 0) throw BadRequest(concat(name, "=", hex(address), " must be aligned to 16 bytes"));
  }
  if (overlap(from, bytes, to, bytes))
    throw BadRequest(concat("in=", hex(from), " and out=", hex(to), ", of ", bytes, " bytes each, overlap"));
}

void ShardedPlan::transform_shard(const void* in, void* out, Stream stream) const {
  if (problem_.form == ShardedForm::block_diagonal || problem_.ranks == 1) {
    local_->execute(in, out, stream);
  } else if (problem_.form == ShardedForm::all_to_all) {
    local_->execute(in, transformed(), stream);
  }
}

void ShardedPlan::pack(Stream stream) const {
  if (!packs()) return;
  swap_outer(communicator_.memory(), workspace_->rows.data(), workspace_->sent.data(), problem_.rows,
             problem_.ranks, problem_.piece() * bytes_of(problem_.dtype), programmatic_, stream);
}

void ShardedPlan::exchange(const void* in, Stream stream) const {
  if (problem_.ranks == 1) return;
  if (exchanges(Exchange::rows)) {
    communicator_.all_gather(transformed(), workspace_->received.data(), problem_.shard_bytes(), stream);
  } else if (problem_.form == ShardedForm::all_to_all) {
    communicator_.all_to_all(workspace_->sent.data(), workspace_->received.data(),
                             problem_.shard_bytes() / problem_.ranks, stream);
  } else if (problem_.form == ShardedForm::gather) {
    communicator_.all_gather(in, workspace_->received.data(), problem_.shard_bytes(), stream);
  }
}

void ShardedPlan::complete(void* out, Stream stream) const {
  if (problem_.ranks == 1) return;
  const Memory memory = communicator_.memory();
  const std::int64_t shard_row_bytes = problem_.shard() * bytes_of(problem_.dtype);
  if (problem_.form == ShardedForm::all_to_all) {
    const std::int64_t rows = problem_.rows, piece = problem_.piece(), shard = problem_.shard();
    const bool whole_rows = exchanges(Exchange::rows);
    const auto* first = static_cast<const std::byte*>(workspace_->received.data()) +
                        (whole_rows ? communicator_.rank() * piece * bytes_of(problem_.dtype) : 0);
    const Parts parts = whole_rows ? Parts{problem_.ranks, rows, piece, rows * shard, shard}
                                   : Parts{problem_.ranks, rows, piece, rows * piece, piece};
    add_with_signs(memory, problem_.dtype, first, out, parts, static_cast<float>(problem_.mix_scale),
                   programmatic_, stream);
  } else if (problem_.form == ShardedForm::gather) {
    swap_outer(memory, workspace_->received.data(), workspace_->rows.data(), problem_.ranks, problem_.rows,
               shard_row_bytes, programmatic_, stream);
    local_->execute(workspace_->rows.data(), workspace_->rows.data(), stream);
    const auto* mine =
        static_cast<const std::byte*>(workspace_->rows.data()) + communicator_.rank() * shard_row_bytes;
    take_chunk(memory, mine, out, problem_.rows, problem_.ranks * shard_row_bytes, shard_row_bytes, stream);
  }
}

}  // namespace fwht::sharded
