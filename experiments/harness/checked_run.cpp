#include "experiments/harness/checked_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "common/host/bits.hpp"
#include "common/host/parallel_for.hpp"
#include "experiments/harness/device_work.hpp"
#include "reference/operators.hpp"

namespace fwht::harness {
namespace {

using reference::Checked;
using reference::Verdict;

constexpr std::size_t kKeptTruths = 6;

bool same_rows(const Truth& truth, const Problem& period, reference::InputClass input_class,
               std::uint64_t seed) {
  return truth.period == period && truth.input_class == input_class && truth.seed == seed;
}

Truth make_input(const Problem& period, reference::InputClass input_class, std::uint64_t seed) {
  Truth truth{period, input_class, seed, {}, false, {}, {}};
  truth.raw.assign(static_cast<std::size_t>(period.rows * period.row_stride() * bytes_of(period.dtype())),
                   std::byte{kPoisonByte});
  reference::write_input(period, input_class, seed, truth.raw.data());
  return truth;
}

/// Calls move(where an element lies, its place in rows side by side in natural order), both in bytes, for
/// every element of `rows` rows.
template <class Move>
void for_each_element(const Problem& problem, const Array& array, Ordering ordering, std::int64_t rows,
                      const Move& move) {
  const std::int64_t n = problem.n(), element = bytes_of(problem.dtype());
  const int log_n = is_power_of_two(n) ? log2_floor(n) : 0;
  std::vector<std::int64_t> places(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    places[static_cast<std::size_t>(i)] = natural_place(ordering, i, log_n);
  parallel_for(rows, reference::threads_or_default(0), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t first = problem.first_of(array, r);
      for (std::int64_t i = 0; i < n; ++i)
        move((first + i * problem.inner) * element, (r * n + places[static_cast<std::size_t>(i)]) * element);
    }
  });
}

/// Inverse of `arranged`, of the output.
std::vector<std::byte> in_natural_order(const Problem& problem, const std::vector<std::byte>& output,
                                        std::int64_t rows) {
  const std::int64_t element = bytes_of(problem.dtype());
  std::vector<std::byte> natural(static_cast<std::size_t>(rows * problem.n() * element));
  for_each_element(problem, problem.out, problem.out_ordering, rows, [&](std::int64_t from, std::int64_t to) {
    std::memcpy(natural.data() + to, output.data() + from, static_cast<std::size_t>(element));
  });
  return natural;
}

// What lies behind the rows (blocks of rows) in `output`, their raw storage, must still be poison.
bool gaps_intact(const Problem& problem, const std::vector<std::byte>& output) {
  const auto element = static_cast<std::size_t>(bytes_of(problem.dtype()));
  const std::size_t row = static_cast<std::size_t>(problem.out.row_stride) * element;
  const std::size_t used = static_cast<std::size_t>(problem.block_elements()) * element;
  for (std::size_t start = 0; start + used < output.size(); start += row) {
    const auto gap = output.begin() + static_cast<std::ptrdiff_t>(start + used);
    const auto end = output.begin() + static_cast<std::ptrdiff_t>(std::min(start + row, output.size()));
    if (!std::all_of(gap, end, [](std::byte b) { return b == std::byte{kPoisonByte}; })) return false;
  }
  return true;
}

class RunCheck {
 public:
  RunCheck(const Plan& plan, const Truth& truth, Slices& slices)
      : plan_(plan),
        truth_(truth),
        slices_(slices),
        beside_rows_(operator_data(plan.problem(), slices.memory())),
        numerics_(judged_by(plan)),
        has_numerics_(!plan.numerics().steps.empty()),
        block_rows_(plan.problem().inner),
        block_bytes_(plan.problem().out.row_stride * bytes_of(plan.problem().dtype())),
        periods_(plan.problem().rows / std::max<std::int64_t>(truth.period.rows, 1)) {
    if (!plan.problem().is_arranged_plainly()) arranged_ = arranged(plan.problem(), truth.raw);
  }

  Checked run() {
    slices_.fill(input());
    plan_.execute(beside_rows_.operands(slices_.in(0), slices_.out(0)));
    synchronize(slices_.memory());
    Checked checked = judge_first_period();
    for (const auto& judge :
         {&RunCheck::judge_repetition, &RunCheck::judge_tail, &RunCheck::judge_surroundings}) {
      if (checked.verdict) checked.verdict = (this->*judge)();
    }
    return checked;
  }

 private:
  const std::vector<std::byte>& input() const { return arranged_.empty() ? truth_.raw : arranged_; }

  // Rows [first, first + count) of the output as raw storage, with what lies behind each row (block of rows)
  // but the very last.
  std::vector<std::byte> download(std::int64_t first, std::int64_t count) const {
    const std::int64_t offset = first / block_rows_ * block_bytes_;
    std::vector<std::byte> raw(static_cast<std::size_t>(
        std::min(count / block_rows_ * block_bytes_, plan_.problem().span_bytes_out() - offset)));
    slices_.output().download(raw.data(), raw.size(), static_cast<std::size_t>(offset));
    return raw;
  }

  reference::ErrorLimits limits(const Problem& problem, const reference::Matrix& input,
                                const reference::Matrix& expected) const {
    if (!has_numerics_) return {};
    if (problem.op.is_sylvester())
      return reference::limits_for(numerics_, problem, truth_.input_class, input);
    const reference::OperatorData data = operator_data(problem, Memory::host);
    const Operands operands = data.operands(nullptr, nullptr);
    const reference::ExactOperator exact(problem.op, problem.dtype(), operands.signs, operands.dense);
    return reference::operator_limits(numerics_, problem, truth_.input_class, exact, input, expected);
  }

  // Every element and row of the first `problem.rows` truths against `output`; of all of them the statistics
  // as well.
  Checked compare(const Problem& problem, const std::vector<std::byte>& output) const {
    const bool all = problem.rows == truth_.period.rows;
    const reference::Matrix input = truth_.input.topRows(problem.rows);
    reference::Comparison comparison(problem);
    const reference::Matrix expected =
        all ? truth_.expected : reference::Matrix(truth_.expected.topRows(problem.rows));
    const bool plain = plan_.problem().is_arranged_plainly();
    const std::vector<std::byte> rows =
        plain ? std::vector<std::byte>() : in_natural_order(plan_.problem(), output, problem.rows);
    const void* const data = plain ? output.data() : rows.data();
    const bool exact = is_integer(problem.dtype());
    comparison.add(0, expected, data, exact ? reference::ErrorLimits{} : limits(problem, input, expected));
    Checked checked{{}, comparison.stats()};
    if (exact) {
      checked.verdict = reference::compare_exact(problem, expected, data);
    } else if (!has_numerics_) {
      checked.verdict = judge_without_numerics(problem, checked.stats);
    } else if (all) {
      checked.verdict = reference::judge(checked.stats, numerics_, problem, truth_.input_class);
    } else {
      checked.verdict = reference::judge_elements(checked.stats, problem);
    }
    if (checked.verdict) checked.verdict = judge_gaps(plan_.problem(), output);
    return checked;
  }

  Checked judge_first_period() { return compare(truth_.period, download(0, truth_.period.rows)); }

  Verdict judge_without_numerics(const Problem& problem, const reference::ErrorStats& stats) const {
    if (Verdict verdict = reference::judge_elements(stats, problem); !verdict) return verdict;
    const double allowed = kPeerErrors * reference::predicted_rel_l2(numerics_, problem, stats.expected_rms);
    if (stats.rel_l2_max_row <= allowed) return reference::passed();
    return reference::incorrect(fmt::format(
        "the relative L2 error of a row is {:.3g}; {:.3g}, {} times that of one rounding, is allowed",
        stats.rel_l2_max_row, allowed, kPeerErrors));
  }

  Verdict judge_repetition() {
    const std::int64_t period = truth_.period.rows / block_rows_ * block_bytes_;
    const std::int64_t bytes = std::min(periods_ * period, plan_.problem().span_bytes_out());
    const std::int64_t broken = period_break(slices_.output(), period, bytes);
    if (broken < 0) return reference::passed();
    return reference::incorrect(
        fmt::format("row {} differs from row {} although both have the same input (byte {} of the output)",
                    broken / block_bytes_ * block_rows_,
                    broken / block_bytes_ * block_rows_ - truth_.period.rows, broken));
  }

  Verdict judge_tail() {
    Problem tail = truth_.period;
    const std::int64_t first = periods_ * truth_.period.rows;
    tail.rows = plan_.problem().rows - first;
    if (tail.rows == 0) return reference::passed();
    Verdict verdict = compare(tail, download(first, tail.rows)).verdict;
    if (!verdict) verdict.message = fmt::format("counted from row {}: {}", first, verdict.message);
    return verdict;
  }

  static Verdict judge_gaps(const Problem& problem, const std::vector<std::byte>& output) {
    return gaps_intact(problem, output) ? reference::passed()
                                        : reference::incorrect("elements between the rows were written");
  }

  Verdict judge_surroundings() {
    if (!slices_.output().guards_intact() || !slices_.input().guards_intact()) {
      return reference::incorrect("memory in front of or behind the data was written");
    }
    if (slices_.placement() == Placement::in_place) return reference::passed();
    const std::vector<std::byte>& before = input();
    std::vector<std::byte> after(std::min(before.size(), slices_.input().bytes()));
    slices_.input().download(after.data(), after.size());
    const bool kept = std::equal(after.begin(), after.end(), before.begin()) &&
                      period_break(slices_.input(), static_cast<std::int64_t>(before.size()),
                                   static_cast<std::int64_t>(slices_.input().bytes())) < 0;
    return kept ? reference::passed()
                : reference::incorrect("the input of an out-of-place transform was written");
  }

  const Plan& plan_;
  const Truth& truth_;
  Slices& slices_;
  reference::OperatorData beside_rows_;
  Numerics numerics_;
  bool has_numerics_;
  std::vector<std::byte> arranged_;  // the input, where it is not truth_.raw
  std::int64_t block_rows_, block_bytes_;
  std::int64_t periods_;  // whole ones
};

}  // namespace

reference::OperatorData operator_data(const Problem& problem, Memory memory) {
  return {problem.op, problem.dtype(), memory, reference::DenseRows::as_long_as_signs};
}

const Truth& TruthCache::of(const Problem& problem, reference::InputClass input_class, std::uint64_t seed) {
  Truth& truth = find_or_add(problem, input_class, seed);
  if (!truth.transformed) {
    truth.input = reference::load_rows(truth.period, truth.raw.data());
    const reference::OperatorData data = operator_data(truth.period, Memory::host);
    truth.expected = reference::expected(truth.period, data.operands(truth.raw.data(), nullptr));
    truth.transformed = true;
  }
  return truth;
}

const std::vector<std::byte>& TruthCache::input_of(const Problem& problem, reference::InputClass input_class,
                                                   std::uint64_t seed) {
  return find_or_add(problem, input_class, seed).raw;
}

Truth& TruthCache::find_or_add(const Problem& problem, reference::InputClass input_class,
                               std::uint64_t seed) {
  Problem period = problem;
  period.placement = Placement::in_place;  // makes no difference to the truth, nor does the encoding
  period.encoding = {};
  period.prologue = {};  // who executes them prepares the rows
  period.paging = {};
  period.rows = std::min(problem.rows,
                         ceil_div(ceil_div(period_elements_, problem.n()), problem.inner) * problem.inner);
  if (!problem.is_arranged_plainly()) {
    period.in_ordering = period.out_ordering = Ordering::natural;
    period.inner = 1;
    period.set_row_stride(period.n());
  }
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Truth& truth) {
    return same_rows(truth, period, input_class, seed);
  });
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
    return kept_.front();
  }
  if (kept_.size() >= kKeptTruths) kept_.pop_back();
  kept_.push_front(make_input(period, input_class, seed));
  return kept_.front();
}

reference::InputClass judged_input(Dtype dtype, reference::InputClass asked) {
  const bool fits = !is_integer(dtype) || reference::is_exact_integer(asked);
  return fits ? asked : reference::InputClass::integers;
}

std::vector<std::byte> arranged(const Problem& problem, const std::vector<std::byte>& rows) {
  const std::int64_t element = bytes_of(problem.dtype());
  const std::int64_t count = static_cast<std::int64_t>(rows.size()) / (problem.n() * element);
  std::vector<std::byte> raw(static_cast<std::size_t>(count / problem.inner * problem.row_stride() * element),
                             std::byte{kPoisonByte});
  for_each_element(problem, problem.in, problem.in_ordering, count, [&](std::int64_t to, std::int64_t from) {
    std::memcpy(raw.data() + to, rows.data() + from, static_cast<std::size_t>(element));
  });
  return raw;
}

Numerics judged_by(const Plan& plan) {
  Numerics numerics = plan.numerics();
  return numerics.steps.empty() ? single_rounding(Sums::fp32_any_order, plan.problem()) : numerics;
}

reference::Checked check_plan(const Plan& plan, const Truth& truth, Slices& slices) {
  return RunCheck(plan, truth, slices).run();
}

}  // namespace fwht::harness
