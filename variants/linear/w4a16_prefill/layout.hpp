// w4a16_prefill: how a layer is cut, and where everything lies; shared by kernel, plan and host tests.
#pragma once

#include <cstdint>

#include "variants/linear/w4a16_pipelined/layout.hpp"

namespace fwht::linear::prefill {

using pipelined::kScaleBytes, pipelined::kStepBytes, pipelined::kStepK, pipelined::kTileOutputs,
    pipelined::kZeroBytes;

/// A warpgroup owns the 64 rows of a wgmma; a block has two of them, and a warp that fills the ring.
inline constexpr int kGroupOutputs = 64, kGroups = 2, kOutputs = kGroups * kGroupOutputs;
inline constexpr int kConsumers = kGroups * 128, kThreads = kConsumers + 128;
/// All shared memory that a block of sm_90 may have.
inline constexpr int kMostShared = 232448;

/// What a kernel is compiled for.
struct Form {
  int tokens = 128;  ///< of a tile: columns of a wgmma, a multiple of 16
  int stages = 4;    ///< steps of 128 k under way
  /// Clocks of a step.
  int step_clocks = 0;
  constexpr bool operator==(const Form&) const = default;

  // Where the parts of shared memory begin, in bytes; `scales`: groups in a step.
  static constexpr int word_bytes() { return kOutputs / kTileOutputs * kStepBytes; }
  static constexpr int scale_bytes(int scales) { return kOutputs / kTileOutputs * kScaleBytes * scales; }
  static constexpr int zero_bytes(int scales) { return kOutputs / kTileOutputs * kZeroBytes * scales; }
  static constexpr int bytes_of(int tokens) { return tokens * kStepK * 2; }
  constexpr int token_bytes() const { return bytes_of(tokens); }
  /// A multiple of 1024, as the swizzle asks.
  constexpr int stage_bytes() const { return token_bytes() + word_bytes(); }
  constexpr int scales_at() const { return stages * stage_bytes(); }
  constexpr int zeros_at(int scales) const { return scales_at() + stages * scale_bytes(scales); }
  constexpr int results_at(int scales) const {
    return (zeros_at(scales) + stages * zero_bytes(scales) + 127) / 128 * 128;
  }
  constexpr int barriers_at(int scales) const {
    return results_at(scales) + kGroups * result_tokens(scales) * kGroupOutputs * 2;
  }
  constexpr int shared_bytes(int scales) const { return barriers_at(scales) + stages * 16; }
  /// Tokens of a warpgroup's results that are in shared memory at once: as many as find room.
  constexpr int result_tokens(int scales) const {
    int room = 64;
    while (tokens % room != 0 ||
           results_at(scales) + kGroups * room * kGroupOutputs * 2 + stages * 16 > kMostShared)
      room /= 2;
    return room;
  }
};

/// A tile of few tokens meets the same weights more often. Times are measured; that of 224 tokens lies on a
/// line between.
inline constexpr Form kForms[] = {
    {.tokens = 64, .stages = 8, .step_clocks = 1020},  {.tokens = 96, .stages = 6, .step_clocks = 1200},
    {.tokens = 128, .stages = 5, .step_clocks = 1415}, {.tokens = 160, .stages = 4, .step_clocks = 1605},
    {.tokens = 192, .stages = 3, .step_clocks = 1800}, {.tokens = 224, .stages = 3, .step_clocks = 1995},
    {.tokens = 256, .stages = 3, .step_clocks = 2190},
};

/// Blocks that share one tile, at most.
inline constexpr int kMostSharers = 8;

/// Steps in a unit of work: the loop's body takes two groups, so that operand A of one is unpacked into
/// registers while the other one's are read. What lies beyond the last step is read as zeros.
constexpr int steps_of_unit(int scales) {
  return scales == 1 ? 2 : 1;
}

/// A part of a tile: units first .. end - 1 of its k.
struct Part {
  int tile = 0, first = 0, end = 0;
  constexpr bool operator==(const Part&) const = default;
};

/// Who does what. Every worker, a block, does `whole_waves` whole tiles, `workers` apart; the units of the
/// tiles that are left lie side by side, and each worker takes an equal run of them. Where runs end where
/// tiles do, these tiles are shared: the first `sharers` workers have the first of them, and so on.
struct Division {
  int outputs = 0, tokens = 0;  ///< tiles along n and m
  int units = 0;                ///< of a tile
  int workers = 0, whole_waves = 0;
  /// Above 1, of a tile: they exchange sums, and each finishes some tokens. Workers left over have no run.
  int sharers = 1;
  constexpr bool operator==(const Division&) const = default;

  constexpr int tiles() const { return outputs * tokens; }
  constexpr int first_cut() const { return whole_waves * workers; }
  /// Whether sums go through the workspace; who waits for them counts on a block that runs at the same time.
  constexpr bool cuts() const { return first_cut() < tiles(); }
  constexpr bool shares() const { return sharers > 1; }
  /// Workers, the first ones, that have a run of the tiles that are left.
  constexpr int runs() const { return shares() ? (tiles() - first_cut()) * sharers : workers; }
};

/// n / d and n % d for 0 <= n < 2^31, by a product. A block divides often before its first copy and before
/// its sums leave it, where a hundred clocks each would show.
class Divisor {
 public:
  constexpr explicit Divisor(int divisor) : divisor_(divisor) {
    while ((std::uint64_t{1} << (shift_ - 31)) < static_cast<std::uint64_t>(divisor))
      ++shift_;
    factor_ =
        static_cast<std::uint32_t>((std::uint64_t{1} << shift_) / static_cast<std::uint64_t>(divisor) + 1);
  }
  constexpr int value() const { return divisor_; }

  friend constexpr int operator/(int n, const Divisor& by) {
    return static_cast<int>(std::uint64_t{static_cast<std::uint32_t>(n)} * by.factor_ >> by.shift_);
  }
  friend constexpr int operator%(int n, const Divisor& by) { return n - n / by * by.divisor_; }

 private:
  int divisor_, shift_ = 31;
  std::uint32_t factor_;
};

/// A Division as a kernel reads it. Tiles follow each other so that kTogether tiles of tokens lie side by
/// side, for one tile of outputs after the other; these tokens then stay in the L2.
class PreparedDivision : public Division {
 public:
  static constexpr int kTogether = 4;

  /// Of at least one tile.
  constexpr explicit PreparedDivision(const Division& division)
      : Division(division),
        by_runs_(division.runs()),
        by_units_(units),
        by_band_(kTogether * outputs),
        by_last_(tokens % kTogether == 0 ? kTogether : tokens % kTogether),
        by_sharers_(sharers) {
    const std::int64_t cut = cuts() ? std::int64_t{tiles() - first_cut()} * units : 0;
    run_ = static_cast<int>(cut / runs());
    rest_ = static_cast<int>(cut % runs());
  }

  constexpr int runs() const { return by_runs_.value(); }
  constexpr const Divisor& by_units() const { return by_units_; }
  constexpr const Divisor& by_sharers() const { return by_sharers_; }

  constexpr int output_tile(int tile) const { return tile % by_band_ / together(tile); }
  constexpr int token_tile(int tile) const {
    return tile / by_band_ * kTogether + tile % by_band_ % together(tile);
  }
  /// Tokens of a tile that has room for so many, of m, in pairs of 8.
  constexpr int tokens_of(int tile, int room, int m) const {
    const int left = m - token_tile(tile) * room;
    return left < room ? (left + 15) / 16 * 16 : room;
  }
  /// Unit at which a worker's run begins, counted from tile first_cut() on.
  constexpr int run_begin(int worker) const { return run_ * worker + rest_ * worker / by_runs_; }

 private:
  /// Tiles of tokens that lie side by side where this one lies.
  constexpr Divisor together(int tile) const {
    return tile / by_band_ == (tokens - 1) / kTogether ? by_last_ : Divisor(kTogether);
  }

  Divisor by_runs_, by_units_, by_band_, by_last_, by_sharers_;
  int run_ = 0, rest_ = 0;
};

/// A worker's parts in order. All but the first of its run begin at their tile's unit 0.
class WorkParts {
 public:
  constexpr WorkParts(const PreparedDivision& division, int worker)
      : worker_(worker), at_(division.run_begin(worker)), end_(division.run_begin(worker + 1)) {}

  constexpr bool next(const PreparedDivision& division, Part& part) {
    if (wave_ < division.whole_waves) {
      part = {wave_++ * division.workers + worker_, 0, division.units};
      return part.tile < division.tiles();
    }
    if (at_ >= end_ || worker_ >= division.runs()) return false;
    const int first = at_ % division.by_units(), left = division.units - first;
    const int count = end_ - at_ < left ? end_ - at_ : left;
    part = {division.first_cut() + at_ / division.by_units(), first, first + count};
    at_ += count;
    return true;
  }

 private:
  int worker_, wave_ = 0, at_, end_;
};

/// Tokens first .. end - 1 of a tile.
struct TokenRange {
  int first = 0, end = 0;
  constexpr bool operator==(const TokenRange&) const = default;
  /// Of chunks of 8.
  constexpr bool has_chunk(int chunk) const { return 8 * chunk >= first && 8 * chunk < end; }
};

/// A sharer's place among those of its tile, and the tokens, in pairs of 8, that it adds and finishes.
struct Sharer {
  int index = 0;
  TokenRange own;

  constexpr Sharer(const PreparedDivision& division, int worker, int tokens)
      : index(worker % division.by_sharers()) {
    const auto begin = [&](int part) { return tokens / 16 * part / division.by_sharers() * 16; };
    own = {begin(index), begin(index + 1)};
  }
  /// The worker of another place in the tile; `worker` is this one's.
  constexpr int worker_at(int worker, int other) const { return worker + other - index; }
};

/// The packed words of decode: lane t, of the four of a row, has k = 8 t + 4 half + 0 .. 3. The hardware's
/// operand A of 16 k: lane t has 2 t, 2 t + 1, 2 t + 8, 2 t + 9. So lanes exchange the two words of 32 k.
/// Lane t sends one of them two lanes away, then halves of both one lane away. What it then has are the
/// words of the first and of the last 16 k. Selectors of __byte_perm.
struct LaneExchange {
  unsigned kept, sent, first, last;
};
constexpr LaneExchange exchange_of(int t) {
  constexpr unsigned kFirst[4] = {0x6240, 0x2604, 0x7351, 0x3715};
  const unsigned even = 0x6240, odd = 0x7351;
  return {t % 2 == 1 ? odd : even, t % 2 == 1 ? even : odd, kFirst[t], kFirst[t ^ 2]};
}

}  // namespace fwht::linear::prefill
