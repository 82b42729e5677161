// Errors. Library code throws; only main() catches (see run_main).
#pragma once

#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fwht {

/// A request that cannot be served as it stands: one sentence with the value and the limit. Exit code 2.
class BadRequest : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// The one place where a program turns exceptions into exit codes: 2 for a bad request, 1 for a failure.
template <class Body>
int run_main(std::string_view program, Body&& body) {
  try {
    return body();
  } catch (const BadRequest& error) {
    std::cerr << program << ": " << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << program << ": failed: " << error.what() << '\n';
    return 1;
  }
}

}  // namespace fwht
