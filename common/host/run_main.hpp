// How every program of the project ends.
#pragma once

#include <exception>
#include <iostream>
#include <string_view>

#include "common/host/error.hpp"

namespace fwht {

/// The one place where a program turns exceptions into exit codes: 2 for a bad request, 1 for a failure,
/// which a standard output that cannot be written is too.
template <class Body>
int run_main(std::string_view program, Body&& body) {
  try {
    const int code = body();
    if (!std::cout.flush()) {
      std::cerr << program << ": failed: cannot write to standard output\n";
      return code == 0 ? 1 : code;
    }
    return code;
  } catch (const BadRequest& error) {
    std::cerr << program << ": " << printable(error.what()) << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << program << ": failed: " << printable(error.what()) << '\n';
    return 1;
  }
}

}  // namespace fwht
