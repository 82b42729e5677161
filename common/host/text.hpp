#pragma once
// Text of parts, for messages: concat("n=", n, " must be a power of two"). Numbers read as those of
// std::format("{}").
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace fwht {

namespace text_detail {

template <class... How>
void append_number(std::string& text, How... value_and_form) {
  std::array<char, 64> chars;
  const auto end = std::to_chars(chars.data(), chars.data() + chars.size(), value_and_form...).ptr;
  text.append(chars.data(), end);
}

template <class Part>
void append(std::string& text, const Part& part) {
  if constexpr (std::is_convertible_v<const Part&, std::string_view>) {
    text += static_cast<std::string_view>(part);
  } else if constexpr (std::same_as<Part, char>) {
    text += part;
  } else if constexpr (std::same_as<Part, double>) {
    // The fewest digits that give the number back; an exponent only outside 1e-4 to 1e16.
    const double size = std::fabs(part);
    const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
    append_number(text, part, plain ? std::chars_format::fixed : std::chars_format::scientific);
  } else {
    static_assert(std::integral<Part> && !std::same_as<Part, bool>, "text, integers and double alone");
    append_number(text, part);
  }
}

}  // namespace text_detail

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string text;
  (text_detail::append(text, parts), ...);
  return text;
}

/// 0x1f
inline std::string hex(std::uintptr_t number) {
  std::string text = "0x";
  text_detail::append_number(text, number, 16);
  return text;
}

/// To so many digits: 0.0123, 1.2e-05.
inline std::string rounded(double number, int digits) {
  std::string text;
  text_detail::append_number(text, number, std::chars_format::general, digits);
  return text;
}

/// The items with `between` between them.
template <class Items>
std::string joined(const Items& items, std::string_view between) {
  std::string text;
  for (bool first = true; const auto& item : items) {
    if (!first) text += between;
    first = false;
    text_detail::append(text, item);
  }
  return text;
}

}  // namespace fwht
