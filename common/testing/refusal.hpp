// For tests: what a call is refused with.
#pragma once

#include <string>
#include <utility>

#include "common/host/error.hpp"

namespace fwht {

/// The sentence of the BadRequest that `call` throws; `accepted` where it throws none.
template <class Call>
std::string bad_request_of(Call&& call, std::string accepted = "") {
  try {
    std::forward<Call>(call)();
  } catch (const BadRequest& error) {
    return error.what();
  }
  return accepted;
}

}  // namespace fwht
