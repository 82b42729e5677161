#include "common/contract/preparation.hpp"

#include <algorithm>
#include <charconv>

#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"

namespace fwht {

using Kind = Prologue::Kind;

void validate(const Prologue& prologue, std::int64_t n, std::int64_t rows) {
  switch (prologue.kind) {
    case Kind::rms_norm:
      if (prologue != Prologue{Kind::rms_norm})
        throw BadRequest("the prologue rms has no width, no pairs and no heads");
      if (!is_power_of_two(n))
        throw BadRequest(
            concat("the prologue rms is for n = 2^k, so that the order of its sum is said; n=", n));
      return;
    case Kind::rope:
      if (prologue.width < 2 || prologue.width % 2 != 0 || prologue.width > n) {
        throw BadRequest(concat("the prologue rope turns pairs: width=", prologue.width,
                                " must be even, at least 2 and at most n=", n));
      }
      if (prologue.heads < 1 || rows % prologue.heads != 0) {
        throw BadRequest(concat("the prologue rope: heads=", prologue.heads,
                                " must be at least 1 and divide rows=", rows));
      }
      return;
  }
  throw BadRequest(concat("the prologue ", static_cast<int>(prologue.kind), " is unknown; known: rms, rope"));
}

std::string to_string(const Prologue& prologue) {
  if (prologue.kind == Kind::rms_norm) return "rms";
  return concat("rope", prologue.width, prologue.interleaved ? "i" : "",
                prologue.heads == 1 ? std::string() : concat("h", prologue.heads));
}

std::string to_string(const Paging& paging) {
  return concat("page", paging.tokens, "x", paging.pages);
}

namespace {

Prologue parse_rope(std::string_view word) {
  Prologue prologue{Kind::rope};
  const auto refuse = [&] {
    throw BadRequest(concat("prologue '", word,
                            "': the form is rms, rope64, rope64i (pairs are neighbours) or rope64h32"));
  };
  const auto number = [&](const char* from, std::int64_t& value) {
    const auto [end, error] = std::from_chars(from, word.data() + word.size(), value);
    if (error != std::errc{}) refuse();
    return end;
  };
  const char* const last = word.data() + word.size();
  const char* next = number(word.data() + 4, prologue.width);
  prologue.interleaved = next != last && *next == 'i';
  if (prologue.interleaved) ++next;
  if (next != last && *next == 'h') next = number(next + 1, prologue.heads);
  if (next != last) refuse();
  return prologue;
}

Paging parse_paging(std::string_view word) {
  Paging paging;
  const char* const last = word.data() + word.size();
  const auto [times, error] = std::from_chars(word.data() + 4, last, paging.tokens);
  if (error == std::errc{} && times != last && *times == 'x') {
    const auto [end, second] = std::from_chars(times + 1, last, paging.pages);
    if (second == std::errc{} && end == last) return paging;
  }
  throw BadRequest(concat("pages '", word, "': the form is page64x100, 100 pages of 64 rows"));
}

}  // namespace

bool parse_preparation(std::string_view word, std::optional<Prologue>& prologue,
                       std::optional<Paging>& paging) {
  const bool has_prologue = word == "rms" || word.starts_with("rope"), pages = word.starts_with("page");
  if ((has_prologue && prologue) || (pages && paging))
    throw BadRequest(concat("'", word, "' stands behind another ", pages ? "page" : "rms or rope"));
  if (word == "rms") {
    prologue = Prologue{Kind::rms_norm};
  } else if (word.starts_with("rope")) {
    prologue = parse_rope(word);
  } else if (pages) {
    paging = parse_paging(word);
  } else {
    return false;
  }
  return true;
}

void parse_preparations(std::string_view words, std::optional<Prologue>& prologue,
                        std::optional<Paging>& paging) {
  for (std::string_view rest = words; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find('/'));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    if (!parse_preparation(word, prologue, paging))
      throw BadRequest(concat("unknown word '", word, "'; known: rms, rope64, page64x100"));
  }
}

}  // namespace fwht
