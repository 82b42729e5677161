#include "common/contract/prologue.hpp"

#include <charconv>

#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"

namespace fwht {

using Kind = Prologue::Kind;

void validate(const Prologue& prologue, std::int64_t n, std::int64_t rows) {
  switch (prologue.kind) {
    case Kind::none:
      if (prologue != Prologue{}) throw BadRequest("a prologue without a kind has no width and no heads");
      return;
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
  if (prologue.kind == Kind::none) return "";
  if (prologue.kind == Kind::rms_norm) return "rms";
  return concat("rope", prologue.width, prologue.interleaved ? "i" : "",
                prologue.heads == 1 ? std::string() : concat("h", prologue.heads));
}

bool is_prologue(std::string_view word) {
  return word == "rms" || word.starts_with("rope");
}

Prologue parse_prologue(std::string_view word) {
  if (word == "rms") return {Kind::rms_norm};
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
  if (!word.starts_with("rope")) refuse();
  const char* const last = word.data() + word.size();
  const char* next = number(word.data() + 4, prologue.width);
  prologue.interleaved = next != last && *next == 'i';
  if (prologue.interleaved) ++next;
  if (next != last && *next == 'h') next = number(next + 1, prologue.heads);
  if (next != last) refuse();
  return prologue;
}

}  // namespace fwht
