// The parts that few problems have: what is done to rows in front of their transform, in the same kernel, P
// in y = encode(scale * Op P(x)); and the pages of a cache that codes go to.
//
// Every prologue gives the bits of the kernel that it stands for: numbers are computed in fp32, each
// operation rounded to nearest even, and stored rows are rounded to the storage type (docs/quantize.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fwht {

struct Prologue {
  enum class Kind : std::uint8_t {
    /// Root mean square normalization. q = sum of x^2: eight consecutive elements in ascending order by fused
    /// multiply-add, then sums of neighbours, of neighbouring pairs, and so on. r = 1 / sqrt(q / n +
    /// epsilon). Then x r, rounded to the storage type, times the weight, rounded again (as vLLM's kernel
    /// stores it).
    rms_norm = 1,
    /// Rotary position embedding of the first `width` elements: pairs (a, b) become (a c - b s, b c + a s),
    /// with cosine and sine of the row's position. Products and sums are rounded one by one, then to the
    /// storage type.
    rope
  };  // 0 is none, in what kernels are told
  Kind kind = Kind::rms_norm;
  std::int64_t width = 0;    ///< rope: elements at the front of a row that are turned; even
  bool interleaved = false;  ///< rope: pairs are neighbours; otherwise (i, i + width / 2)
  std::int64_t heads = 1;    ///< rope: so many consecutive rows share a position

  constexpr bool operator==(const Prologue&) const = default;
};

/// Rows of codes that go to places of a cache instead of one behind the other. A page holds the codes of
/// `tokens` rows, then their scales; row r goes to place slots[r] of all places, counted through the pages. A
/// row whose slot is negative or behind the last place is left out.
struct Paging {
  std::int64_t tokens = 1;  ///< rows of a page
  std::int64_t pages = 1;
  constexpr std::int64_t places() const { return tokens * pages; }
  constexpr bool operator==(const Paging&) const = default;
};

/// The bytes of such pages.
struct PageLayout {
  Paging paging;
  std::int64_t code_bytes = 0, scale_bytes = 0;  ///< of one row

  std::int64_t page_bytes() const { return paging.tokens * (code_bytes + scale_bytes); }
  bool has(std::int64_t slot) const { return slot >= 0 && slot < paging.places(); }
  /// From the first page on.
  std::int64_t codes_at(std::int64_t slot) const {
    return slot / paging.tokens * page_bytes() + slot % paging.tokens * code_bytes;
  }
  std::int64_t scales_at(std::int64_t slot) const {
    return slot / paging.tokens * page_bytes() + paging.tokens * code_bytes +
           slot % paging.tokens * scale_bytes;
  }
};

/// What a prologue and pages read beside rows.
struct PreparedOperands {
  /// rms: n weights in the input's dtype, and the number that is added to the mean square, on the host.
  const void* weight = nullptr;
  float epsilon = 0.0F;
  /// rope: fp32 [positions, width], per position width / 2 cosines, then as many sines; and the position of
  /// each group of Prologue::heads rows, which the caller answers for, at a multiple of 8 bytes.
  const float* cos_sin = nullptr;
  const std::int64_t* positions = nullptr;
  /// Pages: the place of each row, at a multiple of 8 bytes; no two rows have one place.
  const std::int64_t* slots = nullptr;
};

/// Throws BadRequest, naming value and limit: a norm of rows whose n is no power of two. Also a width
/// that is odd, below 2 or above n; heads below 1, or that do not divide `rows`; an option of a kind
/// that does not have it.
void validate(const Prologue& prologue, std::int64_t n, std::int64_t rows);

/// "rms", "rope64", "rope64i" (interleaved), "rope64h32" (32 heads).
std::string to_string(const Prologue& prologue);
/// "page64x100": 100 pages of 64 rows.
std::string to_string(const Paging& paging);

/// A word of a problem's text: sets the part that it names; false where it names none. Throws BadRequest.
bool parse_preparation(std::string_view word, std::optional<Prologue>& prologue,
                       std::optional<Paging>& paging);
/// Such words between slashes: "rope64/page64x100". Throws BadRequest for another one.
void parse_preparations(std::string_view words, std::optional<Prologue>& prologue,
                        std::optional<Paging>& paging);

}  // namespace fwht
