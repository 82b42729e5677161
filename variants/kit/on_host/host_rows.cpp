#include "variants/kit/on_host/host_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/host/bits.hpp"
#include "reference/hadamard.hpp"
#include "reference/operators.hpp"

namespace fwht::rows {

int element_at_load(const Tile& tile, int warp, int lane, int v, int e) {
  const int number = tile.first_vector(warp, lane);
  const int row = tile.row_of_vector(number) + tile.row_offset(v) + (e >> tile.element_bits());
  const int column =
      tile.column_of_vector(number) + tile.column_offset(v) + (e & ((1 << tile.element_bits()) - 1));
  return (row << tile.log_n) + column;
}

/// Of the first element of vector v.
int column_at_load(const Tile& tile, int warp, int lane, int v) {
  return element_at_load(tile, warp, lane, v, 0) & ((1 << tile.log_n) - 1);
}

std::uint32_t HostRows::spread_at(int column, std::uint32_t mask) const {
  if (signs_.bits == nullptr) return 0;
  return spread_signs((signs_.bits[column / 8] & mask) >> column % 8);
}

void HostRows::load(int warp, int v, Words (&words)[4]) const {
  const int per_word = tile_.vector_elements() / 4;
  for (int i = 0; i < 4; ++i) {
    words[i] = Words::from([&](std::size_t lane) {
      std::uint32_t word = 0;
      for (int half = 0; half < per_word; ++half) {
        const auto at = static_cast<std::size_t>(
            first_ + element_at_load(tile_, warp, static_cast<int>(lane), v, i * per_word + half));
        if (at < in_.size()) word |= in_[at] << (16 * half);
      }
      const int column = column_at_load(tile_, warp, static_cast<int>(lane), v);
      return word ^ pair_of_spread(spread_at(column, signs_.first), i);
    });
  }
}

void HostRows::store(int warp, int v, const Floats* x, int row) {
  for (int lane = 0; lane < 32; ++lane) {
    if (row >= 0 && lane >> tile_.lane_bits() != row) continue;
    const std::uint32_t spread = spread_at(column_at_load(tile_, warp, lane, v), signs_.last);
    for (int e = 0; e < tile_.vector_elements(); ++e)
      put(first_ + element_at_load(tile_, warp, lane, v, e), x[e], lane, spread, e);
  }
}

void HostRows::store_piece(int to, int from, int v, const Floats* x) {
  for (int lane = 0; lane < 32; ++lane) {
    const int column = column_of_piece(tile_, from, v, tile_.part_taken(to), lane);
    const std::uint32_t spread = spread_at(column, signs_.last);
    for (int e = 0; e < tile_.piece(); ++e)
      put(first_ + column + e, x[e], lane, spread, e);
  }
}

void HostRows::put(std::int64_t element, const Floats& x, int lane, std::uint32_t spread, int e) {
  const auto at = static_cast<std::size_t>(element);
  if (at >= out_.size()) return;
  const std::uint32_t sign = pair_of_spread(spread, e / 2) >> 16 * (e % 2) & 0x8000U;
  out_[at] = encode(tile_.dtype, x.at[static_cast<std::size_t>(lane)] * factors_.last) ^ sign;
}

Problem problem_of(Dtype dtype, int log_n, std::int64_t at_least_elements) {
  const std::int64_t n = std::int64_t{1} << log_n;
  return make_problem(dtype, n, std::max<std::int64_t>(3, at_least_elements / n + 1));
}

Bits to_bits(const Problem& problem, const std::vector<unsigned char>& storage) {
  Bits bits(static_cast<std::size_t>(problem.elements()));
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] =
        encode(problem.dtype(), load_element(problem.dtype(), storage.data(), static_cast<std::int64_t>(i)));
  }
  return bits;
}

std::vector<unsigned char> to_storage(const Problem& problem, const Bits& bits) {
  std::vector<unsigned char> storage(static_cast<std::size_t>(problem.span_bytes()));
  for (std::size_t i = 0; i < bits.size(); ++i)
    store_element(problem.dtype(), storage.data(), static_cast<std::int64_t>(i),
                  decode(problem.dtype(), bits[i]));
  return storage;
}

Bits make_input(const Problem& problem, reference::InputClass input_class, std::uint64_t seed) {
  std::vector<unsigned char> storage(static_cast<std::size_t>(problem.span_bytes()));
  reference::write_input(problem, input_class, seed, storage.data(), 1);
  return to_bits(problem, storage);
}

bool same_value(Dtype dtype, std::uint32_t a, std::uint32_t b) {
  const double x = decode(dtype, a), y = decode(dtype, b);
  return x == y || (std::isnan(x) && std::isnan(y));
}

ExactCase integers(const Problem& problem) {
  ExactCase exact;
  exact.in.resize(static_cast<std::size_t>(problem.elements()));
  exact.want.resize(exact.in.size());
  reference::IntMatrix sums(problem.rows, problem.n());
  std::uint32_t state = 12345;
  const auto row = [&](std::size_t i) { return static_cast<std::int64_t>(i) / problem.n(); };
  const auto column = [&](std::size_t i) { return static_cast<std::int64_t>(i) % problem.n(); };
  for (std::size_t i = 0; i < exact.in.size(); ++i) {
    state = state * 1664525U + 1013904223U;
    const int value = static_cast<int>(state >> 29) - 3;  // -3 .. 4
    exact.in[i] = encode(problem.dtype(), value);
    sums(row(i), column(i)) = value;
  }
  reference::ExactOperator(problem.op).apply(sums, 1);
  for (std::size_t i = 0; i < exact.in.size(); ++i) {
    const float scaled = static_cast<float>(sums(row(i), column(i))) * static_cast<float>(problem.scale);
    exact.want[i] = encode(problem.dtype(), scaled);
  }
  return exact;
}

void expect_no_sum_overflows(const Problem& problem, const std::function<Bits(const Bits&)>& run) {
  const reference::ExactOperator exact(problem.op);
  const std::int64_t n = problem.n(), function = 0x1555 % n;
  const Bits in = make_input(problem, reference::InputClass::normal, 19), clean = run(in);
  for (const double size : {3e38, std::ldexp(1.0, 127 - (log2_floor(n) + 1) / 2)}) {
    Bits large = in;
    for (std::int64_t j = 0; j < n; ++j)
      large[static_cast<std::size_t>(n + j)] = encode(problem.dtype(), exact.entry(function, j) * size);
    const double x = std::fabs(decode(problem.dtype(), large[static_cast<std::size_t>(n)]));
    const Bits out = run(large);
    for (std::int64_t j = 0; j < n; ++j) {
      const double result =
          j == function ? x * static_cast<double>(n) * static_cast<float>(problem.scale) : 0.0;
      ASSERT_EQ(decode(problem.dtype(), out[static_cast<std::size_t>(n + j)]),
                round_to(problem.dtype(), result))
          << n << ' ' << j;
      ASSERT_EQ(out[static_cast<std::size_t>(j)], clean[static_cast<std::size_t>(j)]) << n;
    }
  }
}

std::string describe(const KernelId& id) {
  std::string text = std::string(name_of(id.dtype)) + "/n" + std::to_string(1 << id.log_n);
  for (const int number : {id.launch.vectors, id.launch.warps_per_row, id.launch.threads})
    text += ' ' + std::to_string(number);
  return id.launch.form == Form::smem_passes ? text + " passes" : text;
}

}  // namespace fwht::rows
