// SHA-256 (FIPS 180-4) of a file's bytes. Own code: these 60 lines are all that a dependency on OpenSSL would
// be for.
#pragma once

#include <string>
#include <string_view>

namespace fwht::harness {

/// 64 lower-case hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace fwht::harness
