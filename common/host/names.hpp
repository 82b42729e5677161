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
  struct NamedValue {
    Enum value;
    std::string_view name;
  };
  std::string_view what;  ///< "mode", for messages
  NamedValue entries[count];

  constexpr const NamedValue* begin() const { return entries; }
  constexpr const NamedValue* end() const { return entries + count; }

  /// Empty for what has no name.
  constexpr std::string_view of(Enum value) const {
    for (const NamedValue& entry : entries) {
      if (entry.value == value) return entry.name;
    }
    return "";
  }

  /// The entry of that name, or end().
  constexpr const NamedValue* find(std::string_view name) const {
    const NamedValue* entry = begin();
    while (entry != end() && entry->name != name)
      ++entry;
    return entry;
  }

  /// Throws BadRequest that lists the known names.
  Enum parse(std::string_view name) const {
    if (const NamedValue* entry = find(name); entry != end()) return entry->value;
    std::string known;
    for (const NamedValue& entry : entries)
      known += concat(known.empty() ? "" : ", ", entry.name);
    throw BadRequest(concat("unknown ", what, " '", name, "'; known: ", known));
  }
};

}  // namespace fwht
