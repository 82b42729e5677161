#include "reference/operator_data.hpp"

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "common/contract/operator_data.hpp"

namespace fwht::reference {
namespace {

std::vector<std::uint32_t> random_signs(std::int64_t n) {
  std::mt19937_64 random(99);
  std::vector<double> values(static_cast<std::size_t>(n));
  for (double& value : values)
    value = random() % 2 == 0 ? 1.0 : -1.0;
  return pack_signs(values);
}

}  // namespace

std::vector<std::byte> dense_entries(const Operator& op, Dtype dtype, DenseRows rows) {
  const bool are_integers = rows == DenseRows::integers || is_integer(dtype);
  std::vector<std::byte> entries(static_cast<std::size_t>(dense_entry_count(op) * bytes_of(dtype)));
  std::int64_t next = 0;
  for (const Factor& factor : op.factors()) {
    if (factor.basis != Basis::dense) continue;
    const std::int64_t m = factor.order;
    const double length = are_integers ? 1.0 : std::sqrt(static_cast<double>(m));
    for (std::int64_t i = 0; i < m * m; ++i) {
      const bool shifted_diagonal = (i / m + 1) % m == i % m;
      const double entry = shifted_diagonal ? static_cast<double>(m - 2) : -2.0;
      store_element(dtype, entries.data(), next++, entry / length);
    }
  }
  return entries;
}

OperatorData::OperatorData(const Operator& op, Dtype dtype, Memory memory, DenseRows dense_rows) {
  if (op.has_signs()) signs_ = placed(memory, random_signs(op.n()));
  if (op.has_dense()) dense_ = placed(memory, dense_entries(op, dtype, dense_rows));
}

Operands OperatorData::operands(const void* in, void* out) const {
  Operands operands{in, out};
  operands.signs = signs_.data();
  operands.dense = dense_.data();
  return operands;
}

}  // namespace fwht::reference
