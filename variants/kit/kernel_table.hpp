// From the value that names a kernel to its instantiation.
//
// That value, a Launch, is also the kernel's template argument. The host code of nvcc 13.0 calls the type of
// such an argument by its mangled name, and declares that for types of parameters alone. So a Launch has that
// name as an alias, beside its kernels. The name of a class inside such an argument is lost.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace fwht {

/// The kernels that are compiled, each by the launch that it was compiled for.
template <class Launch, class Kernel>
class Table {
 public:
  void add(const Launch& launch, Kernel kernel) { entries_.push_back({launch, kernel}); }

  /// Kernel{} where none is compiled.
  Kernel find(const Launch& launch) const {
    for (const Entry& entry : entries_)
      if (entry.launch == launch) return entry.kernel;
    return Kernel{};
  }

 private:
  struct Entry {
    Launch launch;
    Kernel kernel;
  };
  std::vector<Entry> entries_;
};

/// What add(table, log_n, i) puts there, for smallest <= log_n <= largest and i < count; both are integral
/// constants.
template <class Table, int smallest, int largest, std::size_t count, class Add>
Table table_of(const Add& add) {
  Table table;
  const auto add_size = [&]<std::size_t... i>(auto log_n, std::index_sequence<i...>) {
    (add(table, log_n, std::integral_constant<std::size_t, i>{}), ...);
  };
  [&]<int... offset>(std::integer_sequence<int, offset...>) {
    (add_size(std::integral_constant<int, smallest + offset>{}, std::make_index_sequence<count>{}), ...);
  }
  (std::make_integer_sequence<int, largest - smallest + 1>{});
  return table;
}

/// add(launch) for every launch of a constant array; each is an integral constant.
template <const auto& launches, class Add>
void add_each(const Add& add) {
  using Launch = std::remove_cvref_t<decltype(launches[0])>;
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    (add(std::integral_constant<Launch, launches[i]>{}), ...);
  }
  (std::make_index_sequence<std::size(launches)>{});
}

/// The table that add(table, launch) makes with every launch of a constant array.
template <class Table, const auto& launches, class Add>
Table table_of_each(const Add& add) {
  Table table;
  add_each<launches>([&](auto launch) { add(table, launch); });
  return table;
}

}  // namespace fwht
