// What is done to rows in front of their transform, in the same kernel: P in y = encode(scale * Op P(x)).
//
// Every prologue gives the bits of the kernel that it stands for: numbers are computed in fp32, each
// operation rounded to nearest even, and stored rows are rounded to the storage type (docs/quantize.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fwht {

struct Prologue {
  enum class Kind : std::uint8_t {
    none,
    /// Root mean square normalization. q = sum of x^2: eight consecutive elements in ascending order by fused
    /// multiply-add, then sums of neighbours, of neighbouring pairs, and so on. r = 1 / sqrt(q / n +
    /// epsilon). Then x r, rounded to the storage type, times the weight, rounded again (as vLLM's kernel
    /// stores it).
    rms_norm,
    /// Rotary position embedding of the first `width` elements: pairs (a, b) become (a c - b s, b c + a s),
    /// with cosine and sine of the row's position. Products and sums are rounded one by one, then to the
    /// storage type.
    rope
  };
  Kind kind = Kind::none;
  std::int64_t width = 0;    ///< rope: elements at the front of a row that are turned; even
  bool interleaved = false;  ///< rope: pairs are neighbours; otherwise (i, i + width / 2)
  std::int64_t heads = 1;    ///< rope: so many consecutive rows share a position

  constexpr bool is_none() const { return kind == Kind::none; }
  constexpr bool operator==(const Prologue&) const = default;
};

/// Throws BadRequest, naming value and limit: a norm of rows whose n is no power of two. Also a width
/// that is odd, below 2 or above n; heads below 1, or that do not divide `rows`; an option of a kind
/// that does not have it.
void validate(const Prologue& prologue, std::int64_t n, std::int64_t rows);

/// "rms", "rope64", "rope64i" (interleaved), "rope64h32" (32 heads), "" for none.
std::string to_string(const Prologue& prologue);
/// Whether a word of a problem's text is one.
bool is_prologue(std::string_view word);
/// Inverse of to_string. Throws BadRequest.
Prologue parse_prologue(std::string_view word);

}  // namespace fwht
