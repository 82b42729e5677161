// Shapes and memory: ragged row counts, strides, misaligned pointers, placements, requests that must be
// refused, results that do not depend on the run, the neighbours or the batch.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "reference/conformance/checks.hpp"
#include "reference/conformance/device_tools.hpp"

namespace fwht::conformance {
namespace {

using reference::InputClass;

constexpr std::uint64_t kSeed = 11;
constexpr unsigned char kOtherPoison = 0x5A;  // an ordinary number in every storage type

/// Seven rows: prime to every tile.
JudgedRows judged_pattern(ConformanceRun& session, std::int64_t n, std::int64_t rows = 7) {
  return session.judged_rows(make_problem(session.dtype(), n, rows), kSeed);
}

/// Fails unless the call throws BadRequest.
void expect_bad_request(ConformanceRun& session, const std::string& what, const std::function<void()>& call) {
  try {
    call();
  } catch (const BadRequest&) {
    return;
  }
  session.fail(fmt::format("{} was not refused", what));
}

/// A pair of poisoned buffers on which refused calls are tried; nothing in them may change.
class UntouchedBuffers {
 public:
  UntouchedBuffers(Memory memory, std::int64_t bytes)
      : a(memory, static_cast<std::size_t>(bytes)), b(memory, static_cast<std::size_t>(bytes)) {}

  void expect_untouched(ConformanceRun& session, const std::string& what) const {
    synchronize(a.memory());
    for (const Buffer* buffer : {&a, &b}) {
      Bytes bytes(buffer->bytes());
      buffer->download(bytes.data(), bytes.size());
      const bool same =
          std::all_of(bytes.begin(), bytes.end(), [](std::byte x) { return x == std::byte{kPoisonByte}; });
      if (!same || !buffer->guards_intact())
        session.fail(fmt::format("{} wrote before it was refused", what));
    }
  }

  Buffer a, b;
};

}  // namespace

// A plan says of itself what it was asked for, and its steps are some.
void declarations(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    const Problem problem = make_problem(session.dtype(), n, 3, Placement::out_of_place);
    const std::unique_ptr<Plan> plan = session.plan(problem);
    const Numerics numerics = plan->numerics();
    const auto require = [&](bool holds, std::string_view what) {
      if (!holds) session.fail(fmt::format("{}: {}", to_string(problem), what));
    };
    require(plan->problem() == problem, "the plan is for another problem");
    require(is_power_of_two(static_cast<std::int64_t>(plan->alignment())) &&
                static_cast<std::int64_t>(plan->alignment()) >= bytes_of(problem.dtype()),
            "the alignment is no power of two, or smaller than an element");
    require(!plan->settings().empty(), "the plan has no settings to report");
    require(numerics.roundings() >= 1, "the plan rounds less than once");
    require(numerics.promises.row_isolation || numerics.promises.isolation_span >= 2,
            "no row isolation, but no isolation_span either");
    require(numerics.promises.intermediate_growth >= 1.0 || n == 1,
            "intermediates smaller than the input are no upper bound");
    Bytes input = make_input(problem, InputClass::normal, kSeed);
    session.execute(*plan, input);
  }
}

// D1. No rows: no launch, no error, nothing written, whatever the pointers. Ragged counts: every row is the
// same row.
void row_counts(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    const JudgedRows pattern = judged_pattern(session, n);
    for (const std::int64_t rows : {1, 2, 3, 5, 7, 31, 33, 127, 255, 256, 257, 1009, 4099}) {
      if (rows > 257 && rows * n > std::int64_t{1} << 20) continue;
      const Problem problem = make_problem(session.dtype(), n, rows);
      session.expect_repeated(pattern, rows % 2 == 0 ? problem : out_of_place(problem), "ragged row count");
    }
    const std::unique_ptr<Plan> none = session.plan(make_problem(session.dtype(), n, 0));
    (void)none->settings();
    (void)none->numerics();
    none->execute(nullptr, nullptr);
    UntouchedBuffers buffers(session.variant().memory, 4 * n);
    none->execute(buffers.a.data(), buffers.a.data());
    session.plan(make_problem(session.dtype(), n, 0, Placement::out_of_place))
        ->execute(buffers.a.data(), buffers.b.data());
    buffers.expect_untouched(session, fmt::format("n={} rows=0", n));
  }
}

// D2. The trigger of the published kernel's tail path: short rows, more than 8192 of them, rows mod 8 = 1 ..
// 4, run after run, with NaN left in shared memory and in the output. It failed in 3 to 35 of 201 runs.
void tail_rows(ConformanceRun& session) {
  const int runs = session.on_device() ? 40 : 2;
  for (const std::int64_t n : session.sizes()) {
    if (n > 256) continue;
    const JudgedRows pattern = judged_pattern(session, n);
    for (const std::int64_t rows : {8193, 8194, 8195, 8196}) {
      const Problem problem = out_of_place(make_problem(session.dtype(), n, rows));
      const std::unique_ptr<Plan> plan = session.plan(problem);
      const Bytes input = repeat_rows(pattern.problem, pattern.input, problem);
      const Bytes want = repeat_rows(pattern.problem, pattern.output, problem);
      Buffer in(session.variant().memory, input.size()), out(session.variant().memory, input.size());
      in.upload(input.data(), input.size());
      Bytes got(input.size());
      for (int run = 0; run < runs; ++run) {
        out.poison(run % 2 == 0 ? kPoisonByte : kOtherPoison);
        if (session.on_device()) fill_shared_memory_with_nan();
        plan->execute(in.data(), out.data());
        synchronize(session.variant().memory);
        session.count_case();
        out.download(got.data(), got.size());
        if (got != want) {
          session.expect_same_rows(pattern.problem, pattern.output, problem, got, fmt::format("run {}", run));
          break;
        }
      }
      if (!out.guards_intact()) session.fail(fmt::format("{}: a guard was overwritten", to_string(problem)));
    }
  }
}

// D3. What is not supported is refused by plan() with the very sentence of supports(), before there is
// anything to execute.
void unsupported_problems(ConformanceRun& session) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  for (const std::int64_t n : {std::int64_t{-4}, std::int64_t{0}, std::int64_t{3}, std::int64_t{12},
                               std::int64_t{1000}, kHuge, kHuge + 1}) {
    const Problem problem = make_problem(session.dtype(), n, 1);
    const bool order_exists = n == 1 || n == 2 || (n > 0 && n % 4 == 0);  // of a Hadamard matrix, at most
    if (order_exists && session.supports(problem)) {
      session.skip(fmt::format("n={} is supported", n));
      continue;
    }
    expect_bad_request(session, to_string(problem), [&] { session.plan(problem); });
  }
  for (const std::int64_t n : session.sizes()) {
    Problem negative = make_problem(session.dtype(), n, -1), narrow = make_problem(session.dtype(), n, 2);
    narrow.set_row_stride(n - 1);
    expect_bad_request(session, "a negative number of rows", [&] { session.plan(negative); });
    expect_bad_request(session, "a row stride below n", [&] { session.plan(narrow); });
    session.count_case();
  }
}

// D4. Rows further apart than n: the same bits, and the gaps (NaN in the input) are neither read nor written.
void strides(ConformanceRun& session) {
  constexpr std::int64_t kRows = 23;  // of the pattern, too: a plan may promise its bits for one row count
  for (const std::int64_t n : session.sizes()) {
    const JudgedRows pattern = judged_pattern(session, n, kRows);
    for (const std::int64_t gap : {std::int64_t{1}, std::int64_t{2}, std::int64_t{8}, std::int64_t{64}, n}) {
      for (const Placement placement : {Placement::in_place, Placement::out_of_place}) {
        const Problem problem = with_stride(make_problem(session.dtype(), n, kRows, placement), n + gap);
        if (!session.offers(problem)) continue;
        session.expect_repeated(pattern, problem, "row stride", {kOtherPoison, 0, 0});
      }
      for (const auto& [in_gap, out_gap] :
           {std::pair{gap, std::int64_t{0}}, std::pair{std::int64_t{0}, gap}}) {
        Problem problem = make_problem(session.dtype(), n, kRows, Placement::out_of_place);
        problem.in.row_stride += in_gap;
        problem.out.row_stride += out_gap;
        if (!session.offers(problem)) continue;
        session.expect_repeated(pattern, problem, "two row strides", {kOtherPoison, 0, 0});
      }
    }
  }
}

// D5. A pointer off the 16-byte grid gives the right result, or is refused before anything is written; which
// of the two is said by Plan::alignment().
void misaligned_pointers(ConformanceRun& session) {
  constexpr std::int64_t kRows = 13;
  for (const std::int64_t n : session.sizes()) {
    const JudgedRows pattern = judged_pattern(session, n, kRows);
    for (const Placement placement : {Placement::in_place, Placement::out_of_place}) {
      const Problem problem = make_problem(session.dtype(), n, kRows, placement);
      const std::unique_ptr<Plan> plan = session.plan(problem);
      const Bytes input = repeat_rows(pattern.problem, pattern.input, problem);
      for (const auto& [in_offset, out_offset] :
           std::vector<std::pair<int, int>>{{1, 1}, {2, 2}, {4, 4}, {8, 8}, {1, 0}, {0, 1}, {4, 2}, {0, 8}}) {
        if (placement == Placement::in_place && in_offset != out_offset) continue;
        const auto misses = [&](int offset) {
          return static_cast<std::size_t>(offset * bytes_of(problem.dtype())) % plan->alignment() != 0;
        };
        const std::string what = fmt::format("pointers off by {} and {} elements", in_offset, out_offset);
        if (misses(in_offset) || misses(out_offset)) {
          UntouchedBuffers buffers(session.variant().memory, problem.span_bytes() + 64);
          const auto at = [&](Buffer& buffer, int offset) {
            return static_cast<std::byte*>(buffer.data()) + offset * bytes_of(problem.dtype());
          };
          Buffer& out = placement == Placement::in_place ? buffers.a : buffers.b;
          expect_bad_request(session, what,
                             [&] { plan->execute(at(buffers.a, in_offset), at(out, out_offset)); });
          buffers.expect_untouched(session, what);
        } else {
          session.expect_repeated(pattern, problem, what, {kPoisonByte, in_offset, out_offset});
        }
      }
    }
  }
}

// D6, D7, D8. In place equals out of place bit for bit; the old contents of the output do not matter; the
// input of an out-of-place plan survives (execute() compares it).
void placements(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    const JudgedRows pattern = judged_pattern(session, n, 19);
    const Problem apart = out_of_place(pattern.problem);
    for (const unsigned char poison : {kPoisonByte, kOtherPoison, static_cast<unsigned char>(0)}) {
      session.expect_repeated(pattern, apart, fmt::format("out of place over {:#04x}", poison),
                              {poison, 0, 0});
    }
  }
}

// D8. Null, overlapping and unequal pointers are refused before anything is written.
void refused_pointers(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    const Problem inside = make_problem(session.dtype(), n, 4), apart = out_of_place(inside);
    const std::unique_ptr<Plan> in_place = session.plan(inside), out_of_place_plan = session.plan(apart);
    UntouchedBuffers buffers(session.variant().memory, 3 * inside.span_bytes());
    const auto at = [&](std::int64_t element) {
      return static_cast<std::byte*>(buffers.a.data()) + element * bytes_of(session.dtype());
    };
    const std::string where = fmt::format("n={}: ", n);
    for (const Plan* plan : {in_place.get(), out_of_place_plan.get()}) {
      expect_bad_request(session, where + "in=nullptr", [&] { plan->execute(nullptr, at(0)); });
      expect_bad_request(session, where + "out=nullptr", [&] { plan->execute(at(0), nullptr); });
    }
    expect_bad_request(session, where + "in place with two pointers",
                       [&] { in_place->execute(at(0), buffers.b.data()); });
    for (const std::int64_t shift : {std::int64_t{0}, n / 2, n, 3 * n, 4 * n - 1}) {
      expect_bad_request(session, where + "overlap", [&] { out_of_place_plan->execute(at(0), at(shift)); });
      expect_bad_request(session, where + "overlap", [&] { out_of_place_plan->execute(at(shift), at(0)); });
    }
    buffers.expect_untouched(session, where + "a refused call");
    session.count_case();
  }
}

// E1, E2. Ten runs give the same bits, with NaN left in shared memory in between.
void repeated_runs(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    const Problem problem =
        out_of_place(make_problem(session.dtype(), n, std::max<std::int64_t>(8192 / n, 2) + 1));
    const std::unique_ptr<Plan> plan = session.plan(problem);
    const Bytes input = make_input(problem, InputClass::student3, kSeed);
    const Bytes first = session.execute(*plan, input);
    for (int run = 1; run < 10; ++run) {
      if (session.on_device()) fill_shared_memory_with_nan();
      const Bytes again = session.execute(*plan, input, {run % 2 == 0 ? kPoisonByte : kOtherPoison, 0, 0});
      session.expect_same_rows(problem, first, problem, again, fmt::format("run {} of 10", run + 1));
    }
  }
}

// E3. A row's result does not depend on how many rows there are, where it stands, or what its neighbours are.
void batch_invariance(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    const Problem many = make_problem(session.dtype(), n, std::clamp<std::int64_t>(16384 / n, 9, 301) | 1);
    const Bytes input = make_input(many, InputClass::normal, kSeed);
    const Bytes together = session.execute(many, input);
    const Problem one = make_problem(session.dtype(), n, 1);
    const bool invariant = session.plan(many)->numerics().promises.batch_invariant;
    if (!invariant) session.skip("the plan does not promise one result for all row counts");
    for (const std::int64_t row :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{6}, many.rows / 2, many.rows - 1}) {
      if (!invariant) break;
      const auto source = row_of(many, input, row);
      const Bytes alone = session.execute(one, Bytes(source.begin(), source.end()));
      session.expect_same_row(many, together, row, one, alone, 0, fmt::format("row {} alone", row));
    }
    Bytes permuted = input;
    const auto moved_to = [&](std::int64_t row) { return (many.rows + 2 - row) % many.rows; };
    for (std::int64_t row = 0; row < many.rows; ++row) {
      const auto source = row_of(many, input, row);
      std::copy(source.begin(), source.end(), row_of(many, permuted, moved_to(row)).begin());
    }
    const Bytes after = session.execute(many, permuted);
    for (std::int64_t row = 0; row < many.rows; ++row) {
      session.expect_same_row(many, together, row, many, after, moved_to(row),
                              fmt::format("row {} moved", row));
    }
  }
}

// For compute-sanitizer: every access pattern with few launches, and right results.
void small_shapes(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    const std::int64_t rows = n <= 256 ? 11 : 3;
    const JudgedRows pattern = judged_pattern(session, n, rows);
    const Problem apart = out_of_place(make_problem(session.dtype(), n, rows + 2));
    session.expect_repeated(pattern, apart, "out of place");
    for (const std::int64_t gap : {1, 8}) {
      if (const Problem strided = with_stride(apart, n + gap); session.supports(strided)) {
        session.expect_repeated(pattern, strided, "row stride");
      }
    }
    if (session.plan(pattern.problem)->alignment() <= static_cast<std::size_t>(bytes_of(session.dtype()))) {
      session.expect_repeated(pattern, pattern.problem, "pointer off by one element", {kPoisonByte, 1, 1});
    }
    // Of few long rows, launches may differ by their number.
    Settings before = session.plan(pattern.problem)->settings();
    for (const std::int64_t more : {17, 40}) {
      if (n < (more == 17 ? 1 << 14 : 1 << 16)) continue;
      Settings settings = session.plan(make_problem(session.dtype(), n, more))->settings();
      if (settings == before) continue;
      judged_pattern(session, n, more);
      before = std::move(settings);
    }
  }
  for (const Operator& op : session.operators()) {
    for (const std::int64_t rows : {1, 3}) {
      for (const Placement placement : {Placement::in_place, Placement::out_of_place}) {
        const Problem problem = make_problem(session.dtype(), op, rows, placement);
        session.execute_and_judge(problem, InputClass::normal, make_input(problem, InputClass::normal, kSeed),
                                  "few rows");
      }
    }
  }
}

void crowded_shapes(ConformanceRun& session) {
  for (const std::int64_t n : session.sizes()) {
    if (n < 1024) continue;  // blocks of shorter rows do not stay for a second one
    for (const std::int64_t rows : {1, 2, 7, 25}) {
      if (rows * n <= std::int64_t{1} << 20)
        judged_pattern(session, n, rows);  // racecheck follows each access
    }
  }
}

}  // namespace fwht::conformance
