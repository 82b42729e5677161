#include "python/src/abi.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <variant>

#include "common/host/text.hpp"

namespace fwht::c_abi {
namespace {

thread_local std::string last_error;

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

/// Bytes of the character at `at`; 0 where there is no UTF-8.
std::size_t length_of_character(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(text[i] & 0xFF); };
  const std::uint32_t lead = byte(at);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC0 || lead > 0xF4 || text.size() - at < length) return 0;
  std::uint32_t code = lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(at + i) & 0x3F);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  return code < kSmallest[length] || code > 0x10FFFF || surrogate ? 0 : length;
}

/// A message may quote a megabyte of the caller's: of a long one beginning and end, where the limits are.
std::string shortened(const char* message) {
  constexpr std::size_t kLongest = 2000, kBegin = 1200, kEnd = 600;
  const std::size_t length = std::strlen(message);
  if (length <= kLongest) return message;
  return std::string(message, kBegin) + " ... " + (message + length - kEnd);
}

}  // namespace

fwht_status failed(fwht_status status, const char* message) noexcept {
  try {
    last_error = shortened(message);
    for (std::size_t at = 0; at < last_error.size();) {  // a message may repeat bytes of the caller's
      const std::size_t length = length_of_character(last_error, at);
      if (length == 0) last_error[at] = '?';
      at += std::max<std::size_t>(length, 1);
    }
  } catch (...) {
    last_error.clear();  // no memory for the sentence
  }
  return status;
}

void require_known_flags(std::uint32_t flags, std::uint32_t known) {
  if ((flags & ~known) != 0)
    throw BadRequest("flags=" + std::to_string(flags) + " has unknown bits; known: " + std::to_string(known));
}

Object& Object::add(std::string_view key, std::string_view text) {
  return add_raw(key, quoted(text));
}

Object& Object::add(std::string_view key, double value) {
  return add_raw(key, std::isfinite(value) ? concat(value) : "null");  // not by printf: locales have commas
}

Object& Object::add_raw(std::string_view key, std::string_view json) {
  text_ += text_.empty() ? "{" : ", ";
  text_ += quoted(key) + ": ";
  text_ += json;
  return *this;
}

std::string settings_json(const Settings& settings) {
  Object object;
  for (const auto& setting : settings)
    std::visit([&](const auto& value) { object.add(setting.first, value); }, setting.second);
  return object.text();
}

}  // namespace fwht::c_abi

extern "C" const char* fwht_last_error(void) {
  return fwht::c_abi::last_error.c_str();
}
