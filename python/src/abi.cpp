#include "python/src/abi.hpp"

#include <cstdio>
#include <variant>

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

}  // namespace

fwht_status failed(fwht_status status, const char* message) noexcept {
  try {
    last_error = message;
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
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.17g", value);
  const bool finite = value - value == 0.0;
  return add_raw(key, finite ? digits : "null");
}

Object& Object::add_raw(std::string_view key, std::string_view json) {
  text_ += text_.empty() ? "{" : ", ";
  text_ += quoted(key) + ": ";
  text_ += json;
  return *this;
}

std::string settings_json(const Settings& settings) {
  Object object;
  for (const auto& [name, value] : settings)
    std::visit([&](const auto& v) { object.add(name, v); }, value);
  return object.text();
}

}  // namespace fwht::c_abi

extern "C" const char* fwht_last_error(void) {
  return fwht::c_abi::last_error.c_str();
}
