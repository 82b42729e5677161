// mma_split: what a kernel is told of a prologue, and of pages.
#pragma once

#include <cstdint>

#include "common/contract/problem.hpp"
#include "common/contract/variant.hpp"

namespace fwht::mma_split {

struct PrologueArguments {
  Prologue::Kind kind;
  bool interleaved;
  int width;
  std::uint32_t heads;
  float epsilon;
  const std::uint8_t* signs;  // one bit per element; nullptr: none
  const void* weight;
  const float* cos_sin;
  const std::int64_t* positions;
};

inline PrologueArguments prologue_of(const Problem& problem, const Operands& operands) {
  const Prologue prologue = problem.prologue.value_or(Prologue{Prologue::Kind{}});  // 0: none
  const PreparedOperands& prepared = operands.prepared;
  return {prologue.kind,
          prologue.interleaved,
          static_cast<int>(prologue.width),
          static_cast<std::uint32_t>(prologue.heads),
          prepared.epsilon,
          static_cast<const std::uint8_t*>(operands.signs),
          prepared.weight,
          prepared.cos_sin,
          prepared.positions};
}

/// Where rows of codes go: Problem::paging.
struct PlacesArguments {
  const std::int64_t* slots;  // nullptr: row after row
  std::int64_t count;         // of places, at most 2^31
  std::int64_t page_bytes;
  std::uint32_t tokens;           // rows of a page
  std::int64_t first_scale;       // of a page, in scales
  std::int64_t scales_of_a_page;  // from page to page, in scales: bytes of a page over those of a scale
};

inline PlacesArguments places_of(const Problem& problem, const Operands& operands) {
  if (!problem.paging) return {};
  const PageLayout pages = problem.page_layout();
  const std::int64_t bytes = scale_bytes(problem.encoding);
  return {operands.prepared.slots,    pages.paging.places(),
          pages.page_bytes(),         static_cast<std::uint32_t>(pages.paging.tokens),
          pages.scales_at(0) / bytes, pages.page_bytes() / bytes};
}

/// Signs count as a prologue here, and pages are left to the same kernels.
inline bool has_prologue(const Problem& problem) {
  return problem.prologue || problem.op.has_signs() || problem.paging;
}

/// Formats that these kernels are compiled for.
constexpr bool is_prepared(CodeFormat format) {
  return format == CodeFormat::e4m3 || format == CodeFormat::mxfp4;
}

}  // namespace fwht::mma_split
