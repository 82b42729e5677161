// An enumeration and its names, said once: the text of a value, the value of a text, and all of them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/host/error.hpp"
#include "common/host/text.hpp"

namespace fwht {

template <class Enum, std::size_t count>
struct Names {
  struct Entry {
    Enum value;
    std::string_view name;
  };
  std::string_view what;  ///< "mode", for messages
  Entry entries[count];

  constexpr const Entry* begin() const { return entries; }
  constexpr const Entry* end() const { return entries + count; }

  /// Empty for what has no name.
  constexpr std::string_view of(Enum value) const {
    for (const Entry& entry : entries) {
      if (entry.value == value) return entry.name;
    }
    return "";
  }

  /// The entry of that name, or end().
  constexpr const Entry* find(std::string_view name) const {
    const Entry* entry = begin();
    while (entry != end() && entry->name != name)
      ++entry;
    return entry;
  }

  /// Throws BadRequest that lists the known names.
  Enum parse(std::string_view name) const {
    if (const Entry* entry = find(name); entry != end()) return entry->value;
    std::string known;
    for (const Entry& entry : entries)
      known += concat(known.empty() ? "" : ", ", entry.name);
    throw BadRequest(concat("unknown ", what, " '", name, "'; known: ", known));
  }
};

}  // namespace fwht
