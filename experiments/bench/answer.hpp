// What the C functions of a peer answer: 0, or something else and one sentence.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <stdexcept>

#include "common/contract/variant.hpp"

namespace fwht::bench {

using Sentence = std::array<char, 1024>;

inline Support support_of(std::int32_t answer, const Sentence& why) {
  if (answer == 0) return {};
  return {why[0] == '\0' ? "it gives no reason" : why.data()};
}

inline void require_done(const char* peer, std::int32_t answer, const Sentence& why) {
  if (answer != 0) throw std::runtime_error(fmt::format("{}: {}", peer, why.data()));
}

}  // namespace fwht::bench
