// Checks of variants in device memory: streams, CUDA graphs, more elements than 32 bits can count.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "common/host/bits.hpp"
#include "reference/conformance/checks.hpp"
#include "reference/conformance/device_tools.hpp"
#include "reference/emulation.hpp"

namespace fwht::conformance {
namespace {

using reference::InputClass;

constexpr std::uint64_t kSeed = 13;

/// Uploads into device memory and waits: the streams of the checks do not wait for the default stream.
Buffer on_device(const Bytes& bytes) {
  Buffer buffer(Memory::device, bytes.size());
  buffer.upload(bytes.data(), bytes.size());
  synchronize(Memory::device);
  return buffer;
}

Buffer poisoned_on_device(std::size_t bytes) {
  Buffer buffer(Memory::device, bytes);
  synchronize(Memory::device);
  return buffer;
}

void expect_output(ConformanceRun& session, const Problem& problem, const Bytes& want, const Buffer& out,
                   const std::string& what) {
  synchronize(Memory::device);
  session.count_case();
  Bytes got(out.bytes());
  out.download(got.data(), got.size());
  session.expect_same_rows(problem, want, problem, got, what);
  if (!out.guards_intact())
    session.fail(fmt::format("{}: {}: a guard was overwritten", to_string(problem), what));
}

/// The rows that 32-bit element counts, 32-bit byte offsets and signed ones would confuse with others, and
/// the ends.
std::vector<std::int64_t> rows_at_risk(const Problem& problem) {
  std::set<std::int64_t> rows{0, problem.rows - 1};
  for (const int bit : {29, 30, 31, 32, 33}) {
    const std::int64_t row = (std::int64_t{1} << bit) / problem.n();
    for (std::int64_t r = row - 2; r <= row + 2; ++r) {
      if (r >= 0 && r < problem.rows) rows.insert(r);
    }
  }
  return {rows.begin(), rows.end()};
}

/// Fails unless the first `bytes` of `data` repeat their first `period` bytes throughout.
void expect_periodic(ConformanceRun& session, const Buffer& data, std::int64_t bytes, std::int64_t period,
                     const std::string& what) {
  const std::int64_t wrong = count_departures_from_period(data.data(), bytes / 2, period / 2);
  if (wrong != 0) session.fail(fmt::format("{}: {} 16-bit words are wrong", what, wrong));
}

// One-hot rows repeat with a period that is prime, so that an address that wraps at any power of two meets
// other rows.
void huge_problem(ConformanceRun& session, std::int64_t n, std::int64_t elements) {
  constexpr std::int64_t kPeriod = 251;
  const Problem problem = make_problem(session.dtype(), n, elements / n + 259);
  const Problem period = make_problem(session.dtype(), n, kPeriod);
  const Bytes rows = make_input(period, InputClass::one_hot, kSeed);
  const Bytes want = session.execute(period, rows);

  Buffer data(Memory::device, static_cast<std::size_t>(problem.span_bytes()));
  data.upload(rows.data(), rows.size());
  data.tile(rows.size());
  session.plan(problem)->execute(data.data(), data.data());
  synchronize(Memory::device);
  session.count_case();

  const std::int64_t row_bytes = n * bytes_of(session.dtype());
  Bytes one(static_cast<std::size_t>(row_bytes));
  const Problem single = make_problem(session.dtype(), n, 1);
  for (const std::int64_t row : rows_at_risk(problem)) {
    data.download(one.data(), one.size(), static_cast<std::size_t>(row * row_bytes));
    session.expect_same_row(period, want, row % kPeriod, single, one, 0,
                            fmt::format("{}: row {}", to_string(problem), row));
  }
  Bytes first(rows.size());
  data.download(first.data(), first.size());
  session.expect_same_rows(period, want, period, first,
                           fmt::format("{}: the first rows", to_string(problem)));
  expect_periodic(session, data, problem.span_bytes(), period.span_bytes(), to_string(problem));
  if (!data.guards_intact()) session.fail(fmt::format("{}: a guard was overwritten", to_string(problem)));
}

}  // namespace

// D10. Work goes to the stream that was given, can be captured in a graph, and two plans do not disturb each
// other.
void streams_and_graphs(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    const Problem problem =
        out_of_place(make_problem(session.dtype(), n, std::max<std::int64_t>(32768 / n, 2) + 1));
    const std::unique_ptr<Plan> plan = session.plan(problem);
    const Bytes input = make_input(problem, InputClass::normal, kSeed);
    const Bytes other_input = make_input(problem, InputClass::normal, kSeed + 1);
    const Bytes want = session.execute(*plan, input), other_want = session.execute(*plan, other_input);
    const Buffer in = on_device(input), other_in = on_device(other_input);

    Buffer out = poisoned_on_device(input.size());
    execute_on_new_stream(*plan, in.data(), out.data());
    expect_output(session, problem, want, out, "on a stream of its own");

    out = poisoned_on_device(input.size());
    execute_captured(*plan, in.data(), out.data(), 3);
    expect_output(session, problem, want, out, "replayed from a graph");

    Problem inside = problem;
    inside.placement = Placement::in_place;
    const std::unique_ptr<Plan> inside_plan = session.plan(inside);
    out = on_device(input);
    execute_captured(*inside_plan, out.data(), out.data(), 1);
    expect_output(session, inside, session.execute(*inside_plan, input), out,
                  "replayed from a graph in place");

    out = poisoned_on_device(input.size());
    Buffer other_out = poisoned_on_device(input.size());
    const std::unique_ptr<Plan> other_plan = session.plan(problem);
    execute_concurrently(*plan, in.data(), out.data(), *other_plan, other_in.data(), other_out.data());
    expect_output(session, problem, want, out, "beside another plan");
    expect_output(session, problem, other_want, other_out, "beside another plan");
  }
}

// A plan launched by programmatic dependent launch gives the bits of an ordinary one, reads nothing before
// the kernel in front of it has written it, and is done before the kernel behind it reads. Row counts from
// one block to several waves.
void programmatic_launch(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    for (const std::int64_t elements :
         {n, std::int64_t{1} << 16, std::int64_t{1} << 20, std::int64_t{1} << 23}) {
      const Problem ordinary = out_of_place(make_problem(session.dtype(), n, ceil_div(elements, n) | 1));
      Problem problem = ordinary;
      problem.programmatic_launch = true;
      if (!session.offers(problem)) continue;
      const Problem period = make_problem(session.dtype(), n, std::min<std::int64_t>(ordinary.rows, 61));
      const Bytes input = repeat_rows(period, make_input(period, InputClass::normal, kSeed), problem);
      const std::unique_ptr<Plan> plan = session.plan(problem);
      const bool invariant = plan->numerics().promises.layout_invariant;
      const Bytes want = invariant ? session.execute(ordinary, input)
                                   : session.execute_and_judge(problem, InputClass::normal, input, "alone");
      // The kernels around copy words; n is even, so no number is left over.
      const Buffer source = on_device(input);
      Buffer in = poisoned_on_device(input.size()), out = poisoned_on_device(input.size());
      Buffer result = poisoned_on_device(input.size());
      execute_between_eager_neighbours(*plan, source.data(), in.data(), out.data(), result.data(),
                                       problem.span_bytes());
      expect_output(session, problem, want, out, "between eager neighbours");
      expect_output(session, problem, want, result, "copied by the kernel behind");
    }
  }
}

// D2 for every length: run after run with another number of rows, from one to more than the L2 holds, so that
// every launch configuration meets full, ragged and single tiles in turn. Rows are impulses, whose results
// are exact in any order of sums, so that one small problem says what all of them are; the output is poisoned
// before each run.
void ragged_runs(ConformanceRun& session) {
  constexpr int kRuns = 150;
  constexpr std::int64_t kMostElements = std::int64_t{1} << 26;
  std::mt19937_64 random(kSeed);
  for (const std::int64_t n : session.sizes()) {
    const Problem period = make_problem(session.dtype(), n, std::clamp<std::int64_t>(65536 / n, 7, 61));
    const Bytes rows = make_input(period, InputClass::one_hot, kSeed), want = session.execute(period, rows);
    const std::int64_t row_bytes = n * bytes_of(session.dtype()), most_rows = kMostElements / n;
    Buffer in(Memory::device, static_cast<std::size_t>(most_rows * row_bytes)),
        out(Memory::device, in.bytes());
    in.upload(rows.data(), rows.size());
    in.tile(rows.size());
    for (int run = 0; run < kRuns; ++run) {
      // Log-uniform, the largest only once.
      const double octaves =
          std::uniform_real_distribution(0.0, std::log2(static_cast<double>(most_rows)) - 3)(random);
      const std::int64_t count = run == 0 ? most_rows - 1 : static_cast<std::int64_t>(std::exp2(octaves));
      const Problem problem = out_of_place(make_problem(session.dtype(), n, count));
      out.poison(run % 2 == 0 ? kPoisonByte : static_cast<unsigned char>(0x5A));
      session.plan(problem)->execute(in.data(), out.data());
      synchronize(Memory::device);
      session.count_case();

      Bytes first(static_cast<std::size_t>(std::min(count, period.rows) * row_bytes));
      out.download(first.data(), first.size());
      const Problem head = make_problem(session.dtype(), n, std::min(count, period.rows));
      session.expect_same_rows(period, want, head, first, fmt::format("{}: run {}", to_string(problem), run));
      expect_periodic(session, out, count * row_bytes, period.span_bytes(),
                      fmt::format("{}: run {}", to_string(problem), run));
      Bytes behind(static_cast<std::size_t>(row_bytes));
      out.download(behind.data(), behind.size(), static_cast<std::size_t>(count * row_bytes));
      const bool touched =
          std::any_of(behind.begin(), behind.end(), [&](std::byte b) { return b != behind[0]; });
      if (touched || (behind[0] != std::byte{kPoisonByte} && behind[0] != std::byte{0x5A}))
        session.fail(fmt::format("{}: run {}: the row behind the last was written", to_string(problem), run));
    }
  }
}

// E3 at size: random rows have the same bits in every amount of work, from one block to more than the L2
// holds, so in every launch that a plan may choose by it.
void large_batches(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    const Problem period = make_problem(session.dtype(), n, std::clamp<std::int64_t>(65536 / n, 7, 61));
    if (!session.plan(period)->numerics().promises.batch_invariant) {
      session.skip("the plan does not promise one result for all row counts");
      continue;
    }
    const Bytes rows = make_input(period, InputClass::normal, kSeed);
    const Bytes want =
        session.execute_and_judge(period, InputClass::normal, rows, "the rows that are repeated");
    for (const int log_elements : {16, 18, 20, 21, 22, 23, 24, 26}) {
      const Problem problem =
          make_problem(session.dtype(), n, ceil_div(std::int64_t{1} << log_elements, n) + 1);
      Buffer data(Memory::device, static_cast<std::size_t>(problem.span_bytes()));
      data.upload(rows.data(), std::min(rows.size(), data.bytes()));
      if (data.bytes() > rows.size()) data.tile(rows.size());
      session.plan(problem)->execute(data.data(), data.data());
      synchronize(Memory::device);
      session.count_case();
      const Problem head = make_problem(session.dtype(), n, std::min(period.rows, problem.rows));
      Bytes first(static_cast<std::size_t>(head.span_bytes()));
      data.download(first.data(), first.size());
      session.expect_same_rows(period, want, head, first,
                               fmt::format("{}: the first rows", to_string(problem)));
      expect_periodic(session, data, problem.span_bytes(), period.span_bytes(), to_string(problem));
      if (!data.guards_intact()) session.fail(fmt::format("{}: a guard was overwritten", to_string(problem)));
    }
  }
}

// D9. More than 2^32 elements (2^31 where memory is short), in place. 16-bit data only: the index arithmetic
// of a variant is the same for all.
void index_width(ConformanceRun& session) {
  constexpr std::int64_t k2To32 = std::int64_t{1} << 32, kMargin = std::int64_t{1} << 30;
  if (session.dtype() == Dtype::f32) return session.skip("index width is checked with 16-bit data");
  const std::int64_t free = free_bytes(Memory::device);
  const std::int64_t elements = free >= 2 * k2To32 + kMargin ? k2To32 : k2To32 / 2;
  if (free < 2 * elements + kMargin) {
    return session.skip(fmt::format("{} bytes of device memory are free, {} are needed for 2^31 elements",
                                    free, 2 * elements + kMargin));
  }
  for (const std::int64_t n : {16, 256, 4096, 32768, 65536}) {
    const auto& sizes = session.sizes();
    if (std::find(sizes.begin(), sizes.end(), n) != sizes.end()) huge_problem(session, n, elements);
  }
}

namespace {

/// Random bits of every place of a significand, or of an integer.
Bytes random_rows(const Problem& problem, std::uint64_t seed) {
  Bytes bytes = blank(problem);
  const Dtype dtype = problem.dtype();
  for (std::int64_t row = 0; row < problem.rows; ++row) {
    std::byte* to = row_of(problem, bytes, row).data();
    for (std::int64_t i = 0; i < problem.n(); ++i) {
      std::uint64_t word = (seed << 40 | static_cast<std::uint64_t>(row * problem.n() + i)) + 1;
      word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9U;  // SplitMix64
      word = (word ^ word >> 27) * 0x94D049BB133111EBU;
      word ^= word >> 31;
      if (is_integer(dtype)) {
        set_bits(dtype, to, i, word);
      } else {
        const double number = static_cast<double>(static_cast<std::int64_t>(word)) * 0x1p-63;
        if (dtype == Dtype::f64) {
          store_element(dtype, to, i, number);
        } else if (dtype == Dtype::f32) {
          store_element(dtype, to, i, static_cast<float>(number));
        } else {
          const auto narrow = static_cast<float>(number);
          set_bits(dtype, to, i, dtype == Dtype::f16 ? float_to_f16(narrow) : float_to_bf16(narrow));
        }
      }
    }
  }
  return bytes;
}

/// What integers of the type keep of a number, and what else stores exact_result for it.
std::uint64_t stored_bits(const Numerics& numerics, const Problem& problem, std::int64_t sum) {
  std::uint64_t bits = 0;
  if (is_integer(problem.dtype())) {
    set_bits(problem.dtype(), &bits, 0, static_cast<std::uint64_t>(sum));
  } else {
    bits = bits_of(problem.dtype(), exact_result(numerics, problem, static_cast<double>(sum)));
  }
  return bits;
}

/// Random rows against the emulation, bit for bit: one vector, few, and more than an L2 holds, at any
/// distance and place.
void random_vectors(ConformanceRun& session, std::int64_t n) {
  const Dtype dtype = session.dtype();
  const bool several = n <= std::int64_t{1} << 22;
  const Problem problem = make_problem(dtype, n, several ? 3 : 1);
  const Numerics numerics = session.plan(problem)->numerics();
  if (!reference::has_emulation(numerics, dtype)) return session.skip("no emulation of this arithmetic");
  JudgedRows rows{problem, random_rows(problem, kSeed), {}, kSeed};
  rows.output = rows.input;
  reference::emulate(problem, numerics, rows.input.data(), rows.output.data());
  session.expect_exact(problem, rows.output, session.execute(problem, rows.input), "random rows");
  if (!several) return;
  constexpr std::int64_t kBytesOfL2 = std::int64_t{32} << 20;
  const Problem many = make_problem(dtype, n, kBytesOfL2 / (n * bytes_of(dtype)) + 2);
  session.expect_repeated(rows, many, "many rows");
  session.expect_repeated(rows, out_of_place(with_stride(problem, n + 1)), "an odd row stride");
  session.expect_repeated(rows, out_of_place(problem), "pointers off by elements", {kPoisonByte, 1, 3});
  session.expect_repeated(rows, with_stride(many, n + 2), "many rows apart");
}

/// Impulses, whose results are +-1 times a constant, and a vector of short period, whose result is 0 but at
/// the front: together they involve every index bit, at any length.
void sparse_vectors(ConformanceRun& session, std::int64_t n) {
  const Dtype dtype = session.dtype();
  const Problem problem = make_problem(dtype, n, 1);
  const std::unique_ptr<Plan> plan = session.plan(problem);
  const Numerics numerics = plan->numerics();
  const std::int64_t bytes = bytes_of(dtype);
  Buffer data(Memory::device, static_cast<std::size_t>(n * bytes));
  const auto transform = [&] {
    session.execute_in_place(*plan, data.data());
    synchronize(Memory::device);
    session.count_case();
  };
  constexpr std::int64_t kChunk = 4096;
  Bytes chunk(static_cast<std::size_t>(kChunk * bytes));

  std::mt19937_64 random(kSeed);
  const auto below_n = [&] { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n)); };
  const std::uint64_t one = bits_of(dtype, 1.0), plus = stored_bits(numerics, problem, 1),
                      minus = negated(dtype, plus);
  for (const std::int64_t at : {n - 1, n / 2, below_n(), below_n()}) {
    data.poison(0);
    data.upload(&one, static_cast<std::size_t>(bytes), static_cast<std::size_t>(at * bytes));
    transform();
    for (int sample = 0; sample < 64; ++sample) {
      const std::int64_t first = sample == 0 ? 0 : sample == 1 ? n - kChunk : below_n() / kChunk * kChunk;
      data.download(chunk.data(), chunk.size(), static_cast<std::size_t>(first * bytes));
      for (std::int64_t i = 0; i < kChunk; ++i) {
        const bool flips = parity(static_cast<std::uint64_t>((first + i) & at)) != 0;
        if (bits_at(dtype, chunk.data(), i) == (flips ? minus : plus)) continue;
        session.fail(fmt::format("{}: impulse at {}: element {} is {}", to_string(problem), at, first + i,
                                 load_element(dtype, chunk.data(), i)));
        break;
      }
    }
  }

  std::vector<std::int64_t> period(static_cast<std::size_t>(kChunk));
  for (std::int64_t i = 0; i < kChunk; ++i) {
    period[static_cast<std::size_t>(i)] = random() % 2 == 0 ? 1 : -1;
    store_element(dtype, chunk.data(), i, static_cast<double>(period[static_cast<std::size_t>(i)]));
  }
  data.upload(chunk.data(), chunk.size());
  data.tile(chunk.size());
  transform();
  for (std::int64_t half = 1; half < kChunk; half *= 2)
    reference::butterfly(period.data(), kChunk, half);
  data.download(chunk.data(), chunk.size());
  for (std::int64_t i = 0; i < kChunk; ++i) {
    const std::int64_t sum = n / kChunk * period[static_cast<std::size_t>(i)];
    if (bits_at(dtype, chunk.data(), i) == stored_bits(numerics, problem, sum)) continue;
    session.fail(fmt::format("{}: a period of {}: element {} is {}, not that of the sum {}",
                             to_string(problem), kChunk, i, load_element(dtype, chunk.data(), i), sum));
    break;
  }
  std::uint16_t word = 1;
  data.download(&word, sizeof(word), chunk.size());
  const std::int64_t others = count_departures_from_period(
      static_cast<const std::byte*>(data.data()) + chunk.size(), (n - kChunk) * bytes / 2, 1);
  if (word != 0 || others != 0)
    session.fail(fmt::format("{}: a period of {}: words behind it are not 0", to_string(problem), kChunk));
  if (!data.guards_intact()) session.fail(fmt::format("{}: a guard was overwritten", to_string(problem)));
}

}  // namespace

// Vectors beyond the lengths that every check looks at, as far as memory allows: exact, and every index bit.
void long_vectors(ConformanceRun& session) {
  constexpr std::int64_t kMargin = std::int64_t{1} << 30;
  for (int log_n = 17; log_n <= 31; ++log_n) {
    const std::int64_t n = std::int64_t{1} << log_n;
    if (!session.offers(make_problem(session.dtype(), n, 1))) continue;
    if (session.plan(make_problem(session.dtype(), n, 1))->numerics().roundings() > 1) {
      session.skip("results that are rounded more than once");
      continue;
    }
    const std::int64_t needed = session.bytes_on_device(make_problem(session.dtype(), n, 1)) + kMargin;
    if (const std::int64_t free = free_bytes(Memory::device); free < needed) {
      session.skip(fmt::format("n={}: {} bytes of device memory are free, {} are needed", n, free, needed));
      continue;
    }
    if (log_n <= 25) random_vectors(session, n);
    sparse_vectors(session, n);
  }
}

}  // namespace fwht::conformance
