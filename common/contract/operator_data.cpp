#include "common/contract/operator_data.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/host/error.hpp"
#include "common/host/text.hpp"
#include "common/host/text_file.hpp"

namespace fwht {

std::vector<std::uint32_t> pack_signs(std::span<const double> signs) {
  std::vector<std::uint32_t> words((signs.size() + 31) / 32, 0U);
  for (std::size_t i = 0; i < signs.size(); ++i) {
    if (signs[i] != 1.0 && signs[i] != -1.0) {
      throw BadRequest(concat("sign ", i, " of ", signs.size(), " is ", signs[i], ", not +1 or -1"));
    }
    if (signs[i] < 0.0) words[i / 32] |= std::uint32_t{1} << (i % 32);
  }
  return words;
}

std::int64_t dense_entry_count(const Operator& op) {
  std::int64_t count = 0;
  for (const Factor& factor : op.factors())
    count += factor.basis == Basis::dense ? factor.order * factor.order : 0;
  return count;
}

double orthogonality_error(Dtype dtype, const void* entries, std::int64_t order) {
  std::vector<double> matrix(static_cast<std::size_t>(order * order));
  for (std::int64_t i = 0; i < order * order; ++i)
    matrix[static_cast<std::size_t>(i)] = load_element(dtype, entries, i);
  const auto product = [&](std::int64_t i, std::int64_t j) {
    const double *a = matrix.data() + i * order, *b = matrix.data() + j * order;
    double sum = 0.0;
    for (std::int64_t k = 0; k < order; ++k)
      sum += a[k] * b[k];
    return sum;
  };
  double length2 = 0.0;
  for (std::int64_t i = 0; i < order; ++i)
    length2 += product(i, i) / static_cast<double>(order);
  if (!(length2 > 0.0) || !std::isfinite(length2)) return std::numeric_limits<double>::quiet_NaN();
  double largest = 0.0;
  for (std::int64_t i = 0; i < order; ++i) {
    for (std::int64_t j = 0; j <= i; ++j)
      largest = std::max(largest, std::fabs(product(i, j) - (i == j ? length2 : 0.0)) / length2);
  }
  return largest;
}

double orthogonality_limit(Dtype dtype, std::int64_t order) {
  const double u = format_of(dtype).unit_roundoff();
  return 2.0 * u + static_cast<double>(order) * std::min(u, 0x1p-24);
}

void check_dense(const Operator& op, Dtype dtype, const void* entries) {
  const auto* next = static_cast<const std::byte*>(entries);
  if (op.has_dense() && next == nullptr)
    throw BadRequest(
        concat("operator ", to_string(op), ": the entries of its dense factors are a null pointer"));
  for (const Factor& factor : op.factors()) {
    if (factor.basis != Basis::dense) continue;
    const double error = orthogonality_error(dtype, next, factor.order),
                 limit = orthogonality_limit(dtype, factor.order);
    if (!(error <= limit)) {
      throw BadRequest(concat("operator ", to_string(op), ": the dense factor of order ", factor.order,
                              " is not orthogonal: products of its rows are off by ", rounded(error, 3),
                              " of their square length, the limit for ", name_of(dtype), " is ",
                              rounded(limit, 3)));
    }
    next += factor.order * factor.order * bytes_of(dtype);
  }
}

SignMatrix parse_sign_matrix(std::string_view text) {
  std::vector<std::string> rows(1);
  for (const char c : text) {
    if (c == '\n') {
      if (!rows.back().empty()) rows.emplace_back();
    } else if (c == '+' || c == '-') {
      rows.back() += c;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      throw BadRequest(
          concat("row ", rows.size() - 1, " of the matrix has the character '", c, "'; + and - are known"));
    }
  }
  if (rows.back().empty()) rows.pop_back();
  constexpr std::size_t kLargest = 1024;
  if (rows.empty() || rows.size() > kLargest) {
    throw BadRequest(concat("the matrix has ", rows.size(), " rows; between 1 and ", kLargest, " are taken"));
  }
  SignMatrix matrix(static_cast<int>(rows.size()));
  for (int i = 0; i < matrix.order(); ++i) {
    const std::string& row = rows[static_cast<std::size_t>(i)];
    if (row.size() != rows.size()) {
      throw BadRequest(concat("row ", i, " of the matrix has ", row.size(), " entries, but there are ",
                              rows.size(), " rows"));
    }
    for (int j = 0; j < matrix.order(); ++j) {
      if (row[static_cast<std::size_t>(j)] == '-') matrix.set_negative(i, j);
    }
  }
  for (int i = 0; i < matrix.order(); ++i) {
    for (int j = 0; j < i; ++j) {
      if (const int product = row_product(matrix, i, j); product != 0) {
        throw BadRequest(concat("rows ", j, " and ", i, " of the matrix of order ", matrix.order(),
                                " have the product ", product, ", not 0"));
      }
    }
  }
  return matrix;
}

SignMatrix read_sign_matrix(const std::string& path) {
  constexpr std::size_t kLongest = std::size_t{16} << 20;
  return parse_sign_matrix(read_text_file(path, concat("the matrix file '", path, "'"), kLongest));
}

std::vector<std::byte> dense_entries(const SignMatrix& matrix, Dtype dtype) {
  const std::int64_t order = matrix.order();
  std::vector<std::byte> entries(static_cast<std::size_t>(order * order * bytes_of(dtype)));
  for (int i = 0; i < matrix.order(); ++i) {
    for (int j = 0; j < matrix.order(); ++j)
      store_element(dtype, entries.data(), i * order + j, matrix(i, j));
  }
  return entries;
}

}  // namespace fwht
