// From the value that names a kernel to its instantiation.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "variants/kit/rows_plan.hpp"

namespace fwht::rows {

/// The first of instantiate(log_n, i), for smallest <= log_n <= largest and i < count, that is no nullptr;
/// both are integral constants.
template <int smallest, int largest, std::size_t count, class Instantiate>
Kernel find_kernel(Instantiate&& instantiate) {
  Kernel found = nullptr;
  const auto try_one = [&](auto log_n, auto i) {
    if (found == nullptr) found = instantiate(log_n, i);
  };
  const auto try_size = [&]<std::size_t... i>(auto log_n, std::index_sequence<i...>) {
    (try_one(log_n, std::integral_constant<std::size_t, i>{}), ...);
  };
  [&]<int... offset>(std::integer_sequence<int, offset...>) {
    (try_size(std::integral_constant<int, smallest + offset>{}, std::make_index_sequence<count>{}), ...);
  }
  (std::make_integer_sequence<int, largest - smallest + 1>{});
  return found;
}

}  // namespace fwht::rows
