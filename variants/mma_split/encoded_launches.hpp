// mma_split: how kernels that write codes are launched. Measured on an H200.
#pragma once

#include <cstdint>
#include <span>

#include "common/contract/encoding.hpp"
#include "variants/kit/encode/scales.hpp"
#include "variants/mma_split/launches.hpp"

namespace fwht::mma_split {

inline constexpr Launch kEightVectorsSmallBlocks = rows::in_warps(8, 64, 10);
inline constexpr Launch kEightVectorsSmallestBlocks = rows::in_warps(8, 32, 20);
inline constexpr Launch kSixteenVectorsSmallBlocks = rows::in_warps(16, 64, 6);

/// For few rows and any others than the below. Every warp keeps whole vectors behind the exchange
/// (Tile::parts() = 1), so that groups lie in them. Registers are limited where the compiler would take more
/// than it needs, and warps would be missed.
///
/// @param many   rows, but these not contiguous or not rounded first
/// @param joins  see joins_vectors()
constexpr Launch encoded_launch(int log_n, bool many, bool joins) {
  switch (log_n) {
    case 9:
      return many ? kFourVectorsSmallBlocks : kTwoVectorsSmallBlocks;
    case 10:
      return kFourVectorsSmallBlocks;
    case 11:
      return many ? kEightVectorsSmallBlocks : rows::across_warps(4, 2, 16);
    case 12:
      return rows::across_warps(4, 4, 8);
    case 13:
      return rows::across_warps(8, 4, 5);
    case 14:
      return joins ? kThreeLongRowsApart : rows::across_warps(8, 8, 3);
    default:
      return many ? kFourVectorsSmallBlocks : kOneVector;
  }
}

/// For many contiguous rows that are rounded first. Eight vectors share the fixed part of a warp's code, and
/// each lane works out the scales of some of them only. With sixteen, rows of 4096 need no exchange, those of
/// 16384 less of it.
constexpr Launch launch_of_many_rounded(int log_n, bool joins) {
  if (log_n <= 10) return kEightVectorsSmallBlocks;
  if (log_n == 11) return kEightVectorsSmallestBlocks;
  if (log_n == 12) return kSixteenVectorsSmallBlocks;
  if (log_n == 14) return kThreeLongRowsApart;
  return encoded_launch(log_n, true, joins);
}

/// From how many elements on the above is faster than the launch of few rows: a wave of warps with four
/// vectors each; below it more warps are better. Where a lane has many scales of sixteen vectors to work out,
/// from where data do not fit the L2.
constexpr std::int64_t fewest_of_many(int log_n, encoder::Family family, int multiprocessors) {
  const bool has_many_scales = log_n == 14 || (log_n == 12 && family == encoder::Family::e4m3);
  return has_many_scales ? std::int64_t{1} << 24 : std::int64_t{1024} * 16 * multiprocessors;
}

/// Kernels for numbers that are not rounded first have the launches of many rows alone.
constexpr KernelId encoded_kernel(Dtype dtype, int log_n, bool many_dense, bool joins, bool rounded) {
  const Launch launch = many_dense && rounded ? launch_of_many_rounded(log_n, joins)
                                              : encoded_launch(log_n, many_dense || !rounded, joins);
  // Addresses of a block's only row cost little.
  const bool dense = rounded && many_dense && launch.form == rows::Form::in_warps;
  return {dtype,           log_n, launch, dense ? Access::dense : Access::vectors, Trigger::behind_loads,
          Scaling::results};
}

/// Of rows that are put through a prologue first. From 4096 on the launch of few rows, because sixteen
/// vectors leave a prologue no registers.
constexpr KernelId prepared_kernel(Dtype dtype, int log_n, bool many_dense, bool joins, bool rounded) {
  return encoded_kernel(dtype, log_n, many_dense && log_n <= 11, joins, rounded);
}

/// Whether warps must find the maximum of a row together: otherwise whatever shares a scale lies in one
/// vector of a warp, 256 elements.
constexpr bool joins_vectors(const Encoding& encoding, std::int64_t n) {
  return encoding.scales.kind != ScaleGranularity::Kind::group && n > 256;
}

/// Elements that share an fp32 scale in the kernels of storage_encoder.cuh, at least.
constexpr int fewest_of_group(int log_n) {
  return log_n == 12 || log_n == 14 ? 128 : 64;
}

/// Whether these kernels take the problem.
constexpr bool is_rounded_first(const Encoding& encoding, std::int64_t n) {
  const bool fits = encoder::family_of(encoding.format) != encoder::Family::f32 ||
                    encoder::group_in_row(encoding, n) >= fewest_of_group(log2_floor(n));
  return encoder::is_rounded_first(encoding) && fits;
}

/// log2 of what the first stage multiplies by, so that sums of bf16 rows are y for an orthonormal transform
/// with a scale of 2^-k: their pairs are what is encoded. No sum overflows where those of the first stage do
/// not; where they do, rows are written again without it.
constexpr int log_of_first_stage(Dtype dtype, int log_n, bool rounded) {
  return dtype == Dtype::bf16 && rounded && log_n % 2 == 0 ? log_n / 2 : 0;
}

// ---- objects

/// Whether kernels exist whose warps find the maximum of a row together, see joins_vectors().
constexpr bool may_join(CodeFormat format, int log_n) {
  return encoder::family_of(format) == encoder::Family::f32 && log_n > 8;
}

/// Kernels of a length by their number i: for few rows, for many, for numbers that are not rounded first;
/// each for scales of groups (i even) and of rows.
inline constexpr int kKinds = 6;
inline constexpr unsigned kFewGroups = 1, kFewRows = 2, kManyGroups = 4, kManyRows = 8, kAnyGroups = 16,
                          kAnyRows = 32;

/// Kernels that are compiled together: the `kinds` of some lengths. A device that compiles PTX does so with
/// all of an object when it first uses one of them, which takes many seconds with all lengths in one.
struct ObjectPart {
  int smallest, largest;
  unsigned kinds;

  constexpr bool has(int log_n, int kind) const {
    return smallest <= log_n && log_n <= largest && (kinds >> kind & 1U) != 0;
  }
};
inline constexpr ObjectPart kPartsOfE4m3[] = {
    {6, 10, kFewGroups},   {11, 14, kFewGroups}, {9, 12, kFewRows},     {13, 14, kFewRows},
    {6, 8, kManyGroups},   {9, 10, kManyGroups}, {11, 11, kManyGroups}, {12, 12, kManyGroups},
    {13, 14, kManyGroups}, {9, 11, kManyRows},   {12, 14, kManyRows},   {6, 9, kAnyGroups},
    {10, 12, kAnyGroups},  {13, 14, kAnyGroups}, {9, 12, kAnyRows},     {13, 14, kAnyRows},
};
inline constexpr ObjectPart kPartsOfIntegers[] = {
    {6, 10, kFewGroups | kFewRows},
    {11, 14, kFewGroups | kFewRows},
    {6, 10, kManyGroups | kManyRows},
    {11, 12, kManyGroups},
    {11, 12, kManyRows},
    {13, 14, kManyGroups | kManyRows},
    {6, 10, kAnyGroups | kAnyRows},
    {11, 14, kAnyGroups | kAnyRows},
};
inline constexpr ObjectPart kPartsOfBlocks[] = {
    {6, 14, kFewGroups}, {6, 11, kManyGroups}, {12, 14, kManyGroups}, {6, 14, kAnyGroups}};
/// Of those with a prologue, which take longer to compile; scales of rows come last.
inline constexpr ObjectPart kPreparedParts[] = {
    {6, 8, kFewGroups}, {9, 11, kFewGroups}, {12, 14, kFewGroups}, {6, 8, kManyGroups}, {9, 11, kManyGroups},
    {6, 8, kAnyGroups}, {9, 11, kAnyGroups}, {12, 14, kAnyGroups}, {9, 11, kFewRows},   {12, 14, kFewRows},
    {9, 11, kManyRows}, {9, 11, kAnyRows},   {12, 14, kAnyRows}};
inline constexpr int kPreparedPartsOfGroups = 8;

/// @param prepares  rows are put through a prologue first
constexpr std::span<const ObjectPart> encoded_parts(CodeFormat format, bool prepares) {
  const bool has_f32 = encoder::family_of(format) == encoder::Family::f32;
  if (prepares)
    return has_f32 ? std::span(kPreparedParts) : std::span(kPreparedParts).first(kPreparedPartsOfGroups);
  if (!has_f32) return kPartsOfBlocks;
  if (format == CodeFormat::e4m3) return kPartsOfE4m3;
  return kPartsOfIntegers;
}

/// The kernel of this number. Where that of many rows is that of few, only few rows have it.
constexpr bool is_few_rows_kernel(int kind) {
  return kind < 2;
}
constexpr KernelId kernel_of_kind(Dtype dtype, int log_n, int kind, bool prepares) {
  const bool many = !is_few_rows_kernel(kind), joins = kind % 2 == 1, rounded = kind < 4;
  return prepares ? prepared_kernel(dtype, log_n, many, joins, rounded)
                  : encoded_kernel(dtype, log_n, many, joins, rounded);
}
constexpr bool is_compiled(Dtype dtype, CodeFormat format, int log_n, int kind, bool prepares) {
  if (kind % 2 == 1 && !may_join(format, log_n)) return false;
  const bool many = kind == 2 || kind == 3;
  return !many ||
         !(kernel_of_kind(dtype, log_n, kind, prepares) == kernel_of_kind(dtype, log_n, kind - 2, prepares));
}

/// Behind the exchange: column of the first of the eight elements that a lane of warp `self` has in its
/// vector number i, of kept() from each warp of the row.
constexpr int column_behind_exchange(const Tile& tile, int self, int i, int lane) {
  const int from = i % tile.warps_per_row, v = tile.vector_taken(self) + i / tile.warps_per_row;
  return tile.column_of_vector(tile.first_vector(from, lane) + 32 * v);
}

}  // namespace fwht::mma_split
