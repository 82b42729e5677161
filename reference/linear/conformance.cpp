#include "reference/linear/conformance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>

#include "common/host/error.hpp"
#include "reference/rounding.hpp"

namespace fwht::conformance {
namespace {

using reference::LinearData;
using Bytes = std::vector<std::byte>;

LinearProblem shape(std::int64_t n, std::int64_t k, std::int64_t group, ZeroPoints zeros,
                    bool act_order = false, std::int64_t rotation = 0) {
  LinearProblem problem;
  problem.m = 1;
  problem.n = n;
  problem.k = k;
  problem.group = group;
  problem.zero_points = zeros;
  problem.act_order = act_order;
  problem.rotation = rotation;
  return problem;
}

constexpr std::int64_t kTokens[] = {1, 2, 3, 5, 8, 9, 16, 17, 32, 33, 64};

Bytes part_of(const Bytes& all, std::int64_t first, std::int64_t count, std::int64_t row_bytes) {
  return {all.begin() + first * row_bytes, all.begin() + (first + count) * row_bytes};
}

/// For each problem, the smallest and the largest number of tokens, and some between.
template <class Body>
void for_each_case(LinearSession& session, const Body& body) {
  std::size_t turn = 0;
  for (LinearProblem problem : session.problems()) {
    std::vector<std::int64_t> tokens;
    for (const std::int64_t m : session.all_tokens()) {
      problem.m = m;
      if (session.supports(problem)) tokens.push_back(m);
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      // Every number of tokens meets some problem, every problem three numbers.
      if (i != 0 && i + 1 != tokens.size() && i != turn % tokens.size()) continue;
      problem.m = tokens[i];
      body(problem);
    }
    ++turn;
  }
}

/// x = e_i gives row i of the weights: every nibble, scale and zero point, exactly.
void one_hot(LinearSession& session) {
  for (LinearProblem problem : session.problems()) {
    if (problem.rotation != 0) continue;
    problem.m = 1;
    for (const std::int64_t m : session.all_tokens()) {
      LinearProblem more = problem;
      more.m = m;
      if (m <= problem.k && session.supports(more)) problem.m = m;
    }
    if (!session.supports(problem)) continue;
    const GptqWeights weights = reference::random_weights(problem, LinearData::normal, 11);
    for (std::int64_t first = 0; first < problem.k; first += problem.m) {
      const std::int64_t at = std::min(first, problem.k - problem.m);
      Bytes x(static_cast<std::size_t>(problem.m * problem.k * 2));
      for (std::int64_t r = 0; r < problem.m; ++r)
        store_element(problem.dtype, x.data(), r * problem.k + at + r, 1.0);
      LinearNumerics numerics;
      const Bytes y = session.run(problem, weights, x, kPoisonByte, &numerics);
      for (std::int64_t i = 0; i < problem.m * problem.n; ++i) {
        const std::int64_t row = at + i / problem.n, c = i % problem.n, g = weights.group_of(row);
        const double weight = reference::weight_of(numerics.weights, problem.dtype, weights.scale(g, c),
                                                   weights.q(row, c), weights.zero(g, c));
        const double got = load_element(problem.dtype, y.data(), i);
        if (!(got == round_to(problem.dtype, weight))) {
          session.fail(fmt::format("{}: weight of row {}, column {} is {}, got {}", to_string(problem), row,
                                   c, round_to(problem.dtype, weight), got));
          return;
        }
      }
    }
    ++session.cases;
  }
}

/// Every partial sum is exact in fp32, so y is the exact sum rounded once, bit for bit. (fp16 atomics round
/// partial sums: judged by their own bound.)
void integers(LinearSession& session) {
  for_each_case(session, [&](const LinearProblem& problem) {
    if (problem.rotation != 0) return;
    const GptqWeights weights = reference::random_weights(problem, LinearData::integers, 12);
    const Bytes x = reference::random_tokens(problem, LinearData::integers, 13);
    LinearNumerics numerics;
    const Bytes y = session.run(problem, weights, x, kPoisonByte, &numerics);
    const reference::LinearTruth truth =
        reference::linear_truth(problem, weights, x.data(), numerics.weights);
    if (numerics.sums == LinearNumerics::Sums::fp16_atomic) {
      session.expect(
          reference::judge_linear(numerics, problem, truth, y.data(), LinearData::integers).verdict, problem,
          "integers");
      return;
    }
    for (std::int64_t i = 0; i < problem.m * problem.n; ++i) {
      const double want = round_to(problem.dtype, truth.exact(i / problem.n, i % problem.n));
      const double got = load_element(problem.dtype, y.data(), i);
      if (!(got == want)) {
        session.fail(fmt::format("{}: token {}, column {}: {} expected, got {}", to_string(problem),
                                 i / problem.n, i % problem.n, want, got));
        return;
      }
    }
  });
}

/// Normal data against the model, element by element and in the mean.
void normal_data(LinearSession& session) {
  for_each_case(session, [&](const LinearProblem& problem) {
    const GptqWeights weights = reference::random_weights(problem, LinearData::normal, 14);
    const Bytes x = reference::random_tokens(problem, LinearData::normal, 15);
    LinearNumerics numerics;
    const Bytes y = session.run(problem, weights, x, kPoisonByte, &numerics);
    const reference::LinearTruth truth =
        reference::linear_truth(problem, weights, x.data(), numerics.weights);
    session.expect(reference::judge_linear(numerics, problem, truth, y.data()).verdict, problem,
                   "normal data");
  });
}

/// The extremes of a format: q = 0 with the largest zero point, q = 15 with the smallest.
void extreme_zero_points(LinearSession& session) {
  for (LinearProblem problem : session.problems()) {
    if (problem.symmetric() || problem.rotation != 0) continue;
    if (!session.supports(problem)) continue;
    for (const bool high : {false, true}) {
      GptqWeights weights = reference::random_weights(problem, LinearData::integers, 16);
      std::fill(weights.qweight.begin(), weights.qweight.end(), high ? 0xFFFFFFFFU : 0U);
      std::fill(weights.qzeros.begin(), weights.qzeros.end(), high ? 0U : 0xFFFFFFFFU);
      Bytes x(static_cast<std::size_t>(problem.m * problem.k * 2));
      store_element(problem.dtype, x.data(), problem.k - 1, 1.0);
      const Bytes y = session.run(problem, weights, x);
      for (std::int64_t c = 0; c < problem.n; ++c) {
        const double want = round_to(problem.dtype, weights.weight(problem.k - 1, c));
        const double got = load_element(problem.dtype, y.data(), c);
        if (!(got == want)) {
          session.fail(fmt::format("{}: column {}: {} expected, got {}", to_string(problem), c, want, got));
          break;
        }
      }
      ++session.cases;
    }
  }
}

/// Rows in any order of groups give what sorted rows give for x in the same order.
void act_order(LinearSession& session) {
  for_each_case(session, [&](LinearProblem problem) {
    if (!problem.act_order || problem.rotation != 0) return;
    const GptqWeights weights = reference::random_weights(problem, LinearData::integers, 17);
    const Bytes x = reference::random_tokens(problem, LinearData::integers, 18);
    const Bytes mixed = session.run(problem, weights, x);
    const std::vector<std::int32_t> order = row_order(weights);
    Bytes sorted_x(x.size());
    for (std::int64_t i = 0; i < problem.m * problem.k; ++i) {
      const std::int64_t from = i / problem.k * problem.k + order[static_cast<std::size_t>(i % problem.k)];
      std::memcpy(sorted_x.data() + 2 * i, x.data() + 2 * from, 2);
    }
    problem.act_order = false;
    session.expect_same(session.run(problem, sorted_rows(weights), sorted_x), mixed, problem,
                        "sorted and unsorted rows");
  });
}

/// A token's result does not change when others change, become NaN or are added.
void tokens_apart(LinearSession& session) {
  for_each_case(session, [&](const LinearProblem& problem) {
    if (problem.m < 2) return;
    LinearNumerics numerics;
    const GptqWeights weights = reference::random_weights(problem, LinearData::integers, 19);
    Bytes x = reference::random_tokens(problem, LinearData::integers, 20);
    const Bytes before = session.run(problem, weights, x, kPoisonByte, &numerics);
    if (!numerics.row_isolation || !numerics.deterministic) return;
    for (std::int64_t i = problem.k; i < problem.m * problem.k; ++i)
      store_element(problem.dtype, x.data(), i, NAN);
    const Bytes after = session.run(problem, weights, x);
    session.expect_same(part_of(before, 0, 1, problem.n * 2), part_of(after, 0, 1, problem.n * 2), problem,
                        "token 0 beside NaN");
    for (std::int64_t i = problem.n; i < problem.m * problem.n; ++i) {
      if (!std::isnan(load_element(problem.dtype, after.data(), i))) {
        session.fail(fmt::format("{}: NaN in token {} did not reach column {}", to_string(problem),
                                 i / problem.n, i % problem.n));
        return;
      }
    }
    if (!numerics.batch_invariant) return;
    LinearProblem one = problem;
    one.m = 1;
    if (!session.supports(one)) return;
    // Normal data: an order of sums that depends on m would change bits.
    const GptqWeights random = reference::random_weights(problem, LinearData::normal, 21);
    const Bytes many_x = reference::random_tokens(problem, LinearData::normal, 22);
    const Bytes many = session.run(problem, random, many_x);
    for (const std::int64_t token : {std::int64_t{0}, problem.m - 1}) {
      const Bytes alone = session.run(one, random, part_of(many_x, token, 1, problem.k * 2));
      session.expect_same(part_of(many, token, 1, problem.n * 2), alone, problem, "a token alone");
    }
  });
}

/// Twice, over outputs that hold other things: nothing of them is left. The same bits where the plan promises
/// them.
void stale_outputs(LinearSession& session) {
  for_each_case(session, [&](const LinearProblem& problem) {
    const GptqWeights weights = reference::random_weights(problem, LinearData::normal, 23);
    const Bytes x = reference::random_tokens(problem, LinearData::normal, 24);
    LinearNumerics numerics;
    const Bytes first = session.run(problem, weights, x, 0xFF, &numerics);  // NaN
    const Bytes second = session.run(problem, weights, x, 0x44);            // 4.27 in f16
    if (numerics.deterministic) {
      session.expect_same(first, second, problem, "two runs");
    } else {
      const reference::LinearTruth truth =
          reference::linear_truth(problem, weights, x.data(), numerics.weights);
      for (const Bytes& y : {first, second})
        session.expect(reference::judge_linear(numerics, problem, truth, y.data()).verdict, problem,
                       "stale output");
    }
  });
}

/// x such that H x / sqrt(order) is an integer again: no rounding of x, so y is exact.
void rotation(LinearSession& session) {
  for_each_case(session, [&](const LinearProblem& problem) {
    if (problem.rotation == 0) return;
    if (std::countr_zero(static_cast<std::uint64_t>(problem.rotation_order())) % 2 == 1) return;
    const GptqWeights weights = reference::random_weights(problem, LinearData::integers, 25);
    Bytes x = reference::random_tokens(problem, LinearData::integers, 26);
    const double root = std::sqrt(static_cast<double>(problem.rotation_order()));
    for (std::int64_t i = 0; i < problem.m * problem.k; ++i) {
      // Few entries that are not zero: the rotated numbers stay small enough for bf16.
      const double value = i % 7 == 0 ? load_element(problem.dtype, x.data(), i) * root : 0.0;
      store_element(problem.dtype, x.data(), i, value);
    }
    const Bytes y = session.run(problem, weights, x);
    const reference::LinearTruth truth = reference::linear_truth(problem, weights, x.data());
    for (std::int64_t i = 0; i < problem.m * problem.n; ++i) {
      const double want = round_to(problem.dtype, truth.exact(i / problem.n, i % problem.n));
      if (!(load_element(problem.dtype, y.data(), i) == want)) {
        session.fail(fmt::format("{}: token {}, column {}: {} expected, got {}", to_string(problem),
                                 i / problem.n, i % problem.n, want,
                                 load_element(problem.dtype, y.data(), i)));
        return;
      }
    }
    ++session.cases;
  });
}

/// Plans whose packing() has one name pack the same bytes.
void packing(LinearSession& session) {
  for (LinearProblem problem : session.problems()) {
    const GptqWeights weights = reference::random_weights(problem, LinearData::normal, 28);
    std::map<std::string, Bytes> known;
    for (const std::int64_t m : session.all_tokens()) {
      problem.m = m;
      if (!session.supports(problem)) continue;
      const auto plan = fwht::plan(session.variant(), problem, session.device());
      const Bytes packed = plan->pack(weights);
      const auto [first, is_new] = known.emplace(plan->packing(), packed);
      if (!is_new && first->second != packed)
        session.fail(fmt::format("{}: packed in another way than for fewer tokens, but named {} too",
                                 to_string(problem), first->first));
      ++session.cases;
    }
  }
}

/// One sentence each, and nothing launched.
void bad_input(LinearSession& session) {
  const auto problems = session.problems();
  if (problems.empty()) return;
  const LinearProblem problem = problems.front();
  const auto plan = fwht::plan(session.variant(), problem, session.device());
  const GptqWeights good = reference::random_weights(problem, LinearData::normal, 27);
  const auto refused = [&](const char* what, const auto& body) {
    ++session.cases;
    try {
      body();
    } catch (const BadRequest& error) {
      if (std::string_view(error.what()).size() > 12) return;
    }
    session.fail(fmt::format("{} is not refused with a sentence", what));
  };
  const auto pack_of = [&](auto&& change) {
    GptqWeights weights = good;
    change(weights);
    return [&plan, weights] { (void)plan->pack(weights); };
  };
  refused("a NaN scale", pack_of([](GptqWeights& w) { w.scales.back() = 0x7E00; }));
  refused("an infinite scale", pack_of([](GptqWeights& w) { w.scales.front() = 0xFC00; }));
  refused("g_idx out of range", pack_of([](GptqWeights& w) {
            w.g_idx.assign(static_cast<std::size_t>(w.k), 0);
            w.g_idx.back() = static_cast<std::int32_t>(w.groups());
          }));
  refused("truncated qweight", pack_of([](GptqWeights& w) { w.qweight.pop_back(); }));
  refused("weights of another n", pack_of([&](GptqWeights& w) {
            LinearProblem other = problem;
            other.n += 8;
            w = reference::random_weights(other, LinearData::normal, 27);
          }));
  refused("weights of another group", pack_of([&](GptqWeights& w) {
            LinearProblem other = problem;
            other.group = problem.group == 32 ? 64 : 32;
            w = reference::random_weights(other, LinearData::normal, 27);
          }));
  // Stand-ins for pointers: nothing is launched, so nothing reads them.
  alignas(16) static std::byte place[64];
  const auto execute = [&](const void* x, const void* weights, void* y) {
    return [&plan, x, weights, y] { plan->execute({x, weights, y}); };
  };
  refused("x = null", execute(nullptr, place, place));
  refused("weights = null", execute(place, nullptr, place));
  refused("y = null", execute(place, place + 16, nullptr));
  refused("a pointer that misses its alignment", execute(place + 2, place, place));
  refused("x over y", execute(place, place + 16, place));
  LinearProblem nothing = problem;
  nothing.m = 0;
  if (session.supports(nothing)) {
    fwht::plan(session.variant(), nothing, session.device())->execute({nullptr, nullptr, nullptr});
    ++session.cases;
  }
}

constexpr LinearCheck kChecks[] = {{"OneHot", one_hot},
                                   {"Integers", integers},
                                   {"NormalData", normal_data},
                                   {"ExtremeZeroPoints", extreme_zero_points},
                                   {"ActOrder", act_order},
                                   {"TokensApart", tokens_apart},
                                   {"StaleOutputs", stale_outputs},
                                   {"Rotation", rotation},
                                   {"Packing", packing},
                                   {"BadInput", bad_input}};

}  // namespace

std::span<const LinearCheck> linear_checks() {
  return kChecks;
}

void run(const LinearCheck& check, LinearSession& session) {
  try {
    check.run(session);
  } catch (const std::exception& error) {
    session.fail(error.what());
  }
}

std::vector<LinearProblem> LinearSession::problems() const {
  std::vector<LinearProblem> wanted = {shape(64, 256, 128, ZeroPoints::v1),
                                       shape(136, 384, 128, ZeroPoints::v2),
                                       shape(72, 256, 32, ZeroPoints::symmetric),
                                       shape(40, 640, 64, ZeroPoints::v1),
                                       shape(48, 256, LinearProblem::kWhole, ZeroPoints::v1),
                                       shape(24, 288, 32, ZeroPoints::v2),
                                       shape(520, 1152, 128, ZeroPoints::symmetric),
                                       shape(4128, 128, 128, ZeroPoints::v1),
                                       shape(64, 512, 128, ZeroPoints::v1, true),
                                       shape(40, 512, 32, ZeroPoints::symmetric, true),
                                       shape(64, 256, 128, ZeroPoints::v1, false, LinearProblem::kWhole),
                                       shape(64, 1024, 64, ZeroPoints::v1, false, 256),
                                       shape(72, 1024, 128, ZeroPoints::v2, true, 128)};
  // Wide ones, for which kernels of the device have forms of their own.
  if (variant_.memory == Memory::device) {
    wanted.push_back(shape(8224, 384, 128, ZeroPoints::v2, true));
    wanted.push_back(shape(8208, 256, 64, ZeroPoints::symmetric));
    wanted.push_back(shape(8208, 128, 32, ZeroPoints::v1));
    wanted.push_back(shape(4136, 640, 128, ZeroPoints::v1));
  }
  std::vector<LinearProblem> found;
  for (LinearProblem problem : wanted) {
    problem.dtype = dtype_;
    if (supports(problem)) found.push_back(problem);
  }
  return found;
}

std::span<const std::int64_t> LinearSession::all_tokens() const {
  return kTokens;
}

Bytes LinearSession::run(const LinearProblem& problem, const GptqWeights& weights, const Bytes& x,
                         unsigned char poison, LinearNumerics* numerics) {
  const auto plan = fwht::plan(variant_, problem, device_);
  if (numerics != nullptr) *numerics = plan->numerics();
  const Bytes packed = plan->pack(weights);
  const Memory memory = variant_.memory;
  Buffer x_buffer(memory, x.size()), weight_buffer(memory, packed.size());
  Buffer y_buffer(memory, static_cast<std::size_t>(problem.bytes_written()));
  x_buffer.upload(x.data(), x.size());
  weight_buffer.upload(packed.data(), packed.size());
  y_buffer.poison(poison);
  plan->execute({x_buffer.data(), weight_buffer.data(), y_buffer.data()});
  synchronize(memory);
  Bytes y(y_buffer.bytes()), x_after(x.size()), packed_after(packed.size());
  y_buffer.download(y.data(), y.size());
  x_buffer.download(x_after.data(), x.size());
  weight_buffer.download(packed_after.data(), packed.size());
  if (!y_buffer.guards_intact()) fail(fmt::format("{}: wrote beside y", to_string(problem)));
  if (!x_buffer.guards_intact() || x_after != x) fail(fmt::format("{}: changed x", to_string(problem)));
  if (!weight_buffer.guards_intact() || packed_after != packed)
    fail(fmt::format("{}: changed the weights", to_string(problem)));
  ++cases;
  return y;
}

void LinearSession::fail(std::string message) {
  if (failures.size() < 8) failures.push_back(std::move(message));
  ++failure_count;
}

void LinearSession::expect_same(const Bytes& want, const Bytes& got, const LinearProblem& problem,
                                const std::string& what) {
  if (want.size() == got.size() && std::equal(want.begin(), want.end(), got.begin())) return;
  const auto differ = std::mismatch(want.begin(), want.end(), got.begin(), got.end()).first - want.begin();
  fail(fmt::format("{}: {}: bits differ at element {}", to_string(problem), what, differ / 2));
}

void LinearSession::expect(const reference::Verdict& verdict, const LinearProblem& problem,
                           const std::string& what) {
  if (!verdict) fail(fmt::format("{}: {}: {}", to_string(problem), what, verdict.message));
}

}  // namespace fwht::conformance
