#include "reference/linear/conformance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "common/host/error.hpp"

namespace fwht::conformance {
namespace {

using reference::LinearData;

Bytes part_of(const Bytes& all, std::int64_t first, std::int64_t count, std::int64_t row_bytes) {
  return {all.begin() + first * row_bytes, all.begin() + (first + count) * row_bytes};
}

/// For each problem, the smallest and the largest number of tokens, and one between: every number meets some
/// problem.
template <class Body>
void for_each_case(LinearRun& session, const Body& body) {
  std::size_t turn = 0;
  for (const LinearProblem& problem : session.problems()) {
    const std::vector<LinearProblem> all = session.of_all_tokens(problem);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (i == 0 || i + 1 == all.size() || i == turn % all.size()) body(all[i]);
    ++turn;
  }
}

/// Fails unless every element of y is want(token, column), rounded once; or a number that is off by at most
/// `off` of it, rounded once.
template <class Want>
bool expect_elements(LinearRun& session, const LinearProblem& problem, const Bytes& y, const Want& want,
                     double off = 0.0) {
  for (std::int64_t i = 0; i < problem.m * problem.n; ++i) {
    const double exact = want(i / problem.n, i % problem.n), wanted = round_to(problem.dtype, exact);
    const double got = load_element(problem.dtype, y.data(), i);
    if (got == wanted) continue;
    if (got == round_to(problem.dtype, exact * (1.0 - off))) continue;
    if (got == round_to(problem.dtype, exact * (1.0 + off))) continue;
    session.fail(fmt::format("{}: token {}, column {}: {} expected, got {}", to_string(problem),
                             i / problem.n, i % problem.n, wanted, got));
    return false;
  }
  return true;
}

/// x = e_i gives row i of the weights: every nibble, scale and zero point, exactly.
void one_hot(LinearRun& session) {
  for (const LinearProblem& of_one : session.problems()) {
    if (of_one.rotates()) continue;
    LinearProblem problem = of_one;
    for (const LinearProblem& more : session.of_all_tokens(of_one))
      if (more.m <= problem.k) problem = more;
    const GptqWeights weights = reference::random_weights(problem, LinearData::normal, 11);
    for (std::int64_t first = 0; first < problem.k; first += problem.m) {
      const std::int64_t at = std::min(first, problem.k - problem.m);
      Bytes x(static_cast<std::size_t>(problem.m * problem.k * 2));
      for (std::int64_t r = 0; r < problem.m; ++r)
        store_element(problem.dtype, x.data(), r * problem.k + at + r, 1.0);
      const auto [y, numerics] = session.execute(problem, weights, x);
      const WeightRounding rounding = reference::weights_of(numerics);
      const auto weight = [&](std::int64_t token, std::int64_t c) {
        const std::int64_t row = at + token, g = weights.group_of(row);
        return reference::weight_of(rounding, problem.dtype, weights.scale(g, c), weights.q(row, c),
                                    weights.zero(g, c));
      };
      // Every change of the unit rounds a quotient and a product, the quotient by one ulp; so does the last
      // product. A weight may lie that close to the middle of two numbers.
      const int changes = numerics.steps.back().unit_changes;
      const double off = changes == 0 ? 0.0 : (3.0 * changes + 1.0) * 0x1p-24;
      const bool right = expect_elements(session, problem, y, weight, off);
      if (!right) return;
    }
  }
}

/// Every partial sum is exact in fp32, so y is the exact sum rounded once, bit for bit. (fp16 atomics round
/// partial sums: judged by their own bound.)
void integers(LinearRun& session) {
  for_each_case(session, [&](const LinearProblem& problem) {
    if (problem.rotates()) return;
    const GptqWeights weights = reference::random_weights(problem, LinearData::integers, 12);
    const Bytes x = reference::random_tokens(problem, LinearData::integers, 13);
    const LinearResult got = session.execute(problem, weights, x);
    if (got.numerics.steps.back().sums == Sums::atomic_f16)
      return session.expect_judged(got, problem, weights, x, LinearData::integers);
    const reference::LinearTruth truth = reference::linear_truth(problem, weights, x.data());
    expect_elements(session, problem, got.y,
                    [&](std::int64_t token, std::int64_t c) { return truth.exact(token, c); });
  });
}

/// Normal data against the model, element by element and in the mean.
void normal_data(LinearRun& session) {
  for_each_case(session, [&](const LinearProblem& problem) {
    const GptqWeights weights = reference::random_weights(problem, LinearData::normal, 14);
    const Bytes x = reference::random_tokens(problem, LinearData::normal, 15);
    session.expect_judged(session.execute(problem, weights, x), problem, weights, x, LinearData::normal);
  });
}

/// The extremes of a format: q = 0 with the largest zero point, q = 15 with the smallest.
void extreme_zero_points(LinearRun& session) {
  for (const LinearProblem& problem : session.problems()) {
    if (problem.symmetric() || problem.rotates()) continue;
    for (const bool high : {false, true}) {
      GptqWeights weights = reference::random_weights(problem, LinearData::integers, 16);
      std::fill(weights.qweight.begin(), weights.qweight.end(), high ? 0xFFFFFFFFU : 0U);
      std::fill(weights.qzeros.begin(), weights.qzeros.end(), high ? 0U : 0xFFFFFFFFU);
      Bytes x(static_cast<std::size_t>(problem.k * 2));
      store_element(problem.dtype, x.data(), problem.k - 1, 1.0);
      expect_elements(session, problem, session.execute(problem, weights, x).y,
                      [&](std::int64_t, std::int64_t c) { return weights.weight(problem.k - 1, c); });
    }
  }
}

/// Rows in any order of groups give what sorted rows give for x in the same order.
void act_order(LinearRun& session) {
  for_each_case(session, [&](LinearProblem problem) {
    if (!problem.act_order || problem.rotates()) return;
    const GptqWeights weights = reference::random_weights(problem, LinearData::integers, 17);
    const Bytes x = reference::random_tokens(problem, LinearData::integers, 18);
    const Bytes mixed = session.execute(problem, weights, x).y;
    const std::vector<std::int32_t> order = row_order(weights);
    Bytes sorted_x(x.size());
    for (std::int64_t i = 0; i < problem.m * problem.k; ++i) {
      const std::int64_t from = i / problem.k * problem.k + order[static_cast<std::size_t>(i % problem.k)];
      std::memcpy(sorted_x.data() + 2 * i, x.data() + 2 * from, 2);
    }
    problem.act_order = false;
    session.expect_same(session.execute(problem, sorted_rows(weights), sorted_x).y, mixed, problem,
                        "sorted and unsorted rows");
  });
}

/// A token's result does not change when others change, become NaN or are added.
void tokens_apart(LinearRun& session) {
  for_each_case(session, [&](const LinearProblem& problem) {
    if (problem.m < 2) return;
    const GptqWeights weights = reference::random_weights(problem, LinearData::integers, 19);
    Bytes x = reference::random_tokens(problem, LinearData::integers, 20);
    const auto [before, numerics] = session.execute(problem, weights, x);
    const Promises& promises = numerics.promises;
    if (!promises.row_isolation || !promises.deterministic) return;
    for (std::int64_t i = problem.k; i < problem.m * problem.k; ++i)
      store_element(problem.dtype, x.data(), i, NAN);
    const Bytes after = session.execute(problem, weights, x).y;
    session.expect_same(part_of(before, 0, 1, problem.n * 2), part_of(after, 0, 1, problem.n * 2), problem,
                        "token 0 beside NaN");
    for (std::int64_t i = problem.n; i < problem.m * problem.n; ++i) {
      if (!std::isnan(load_element(problem.dtype, after.data(), i))) {
        session.fail(fmt::format("{}: NaN in token {} did not reach column {}", to_string(problem),
                                 i / problem.n, i % problem.n));
        return;
      }
    }
    if (!promises.batch_invariant) return;
    LinearProblem one = problem;
    one.m = 1;
    if (!session.supports(one)) return;
    // Normal data: an order of sums that depends on m would change bits.
    const GptqWeights random = reference::random_weights(problem, LinearData::normal, 21);
    const Bytes many_x = reference::random_tokens(problem, LinearData::normal, 22);
    const Bytes many = session.execute(problem, random, many_x).y;
    for (const std::int64_t token : {std::int64_t{0}, problem.m - 1}) {
      const Bytes alone = session.execute(one, random, part_of(many_x, token, 1, problem.k * 2)).y;
      session.expect_same(part_of(many, token, 1, problem.n * 2), alone, problem, "a token alone");
    }
  });
}

/// Twice, over outputs that hold other things: nothing of them is left. The same bits where the plan promises
/// them.
void stale_outputs(LinearRun& session) {
  for_each_case(session, [&](const LinearProblem& problem) {
    const GptqWeights weights = reference::random_weights(problem, LinearData::normal, 23);
    const Bytes x = reference::random_tokens(problem, LinearData::normal, 24);
    const LinearResult first = session.execute(problem, weights, x, 0xFF);   // NaN
    const LinearResult second = session.execute(problem, weights, x, 0x44);  // 4.27 in f16
    if (first.numerics.promises.deterministic)
      return session.expect_same(first.y, second.y, problem, "two runs");
    for (const LinearResult& result : {first, second})
      session.expect_judged(result, problem, weights, x, LinearData::normal);
  });
}

/// x such that H x / sqrt(order) is an integer again: no rounding of x, so y is exact.
void rotation(LinearRun& session) {
  for_each_case(session, [&](const LinearProblem& problem) {
    const auto order = static_cast<std::uint64_t>(problem.rotation_order());
    if (!problem.rotates() || problem.rotation.has_dense()) return;
    if (!std::has_single_bit(order) || std::countr_zero(order) % 2 == 1) return;
    const GptqWeights weights = reference::random_weights(problem, LinearData::integers, 25);
    Bytes x = reference::random_tokens(problem, LinearData::integers, 26);
    const double root = std::sqrt(static_cast<double>(problem.rotation_order()));
    for (std::int64_t i = 0; i < problem.m * problem.k; ++i) {
      // Few entries that are not zero: the rotated numbers stay small enough for bf16.
      const double value = i % 7 == 0 ? load_element(problem.dtype, x.data(), i) * root : 0.0;
      store_element(problem.dtype, x.data(), i, value);
    }
    const Bytes y = session.execute(problem, weights, x).y;
    const reference::LinearTruth truth = reference::linear_truth(problem, weights, x.data());
    expect_elements(session, problem, y,
                    [&](std::int64_t token, std::int64_t c) { return truth.exact(token, c); });
  });
}

/// Plans whose packing() has one name pack the same bytes.
void packing(LinearRun& session) {
  for (const LinearProblem& of_one : session.problems()) {
    const GptqWeights weights = reference::random_weights(of_one, LinearData::normal, 28);
    std::map<std::string, Bytes> known;
    for (const LinearProblem& problem : session.of_all_tokens(of_one)) {
      const auto plan = session.plan(problem);
      const Bytes packed = plan->pack(weights);
      const auto [first, is_new] = known.emplace(plan->packing(), packed);
      if (!is_new && first->second != packed)
        session.fail(fmt::format("{}: packed in another way than for fewer tokens, but named {} too",
                                 to_string(problem), first->first));
      session.count_case();
    }
  }
}

/// One sentence each, and nothing launched.
void bad_input(LinearRun& session) {
  if (session.problems().empty()) return;
  const LinearProblem problem = session.problems().front();
  const auto plan = session.plan(problem);
  const GptqWeights good = reference::random_weights(problem, LinearData::normal, 27);
  const auto refused = [&](const char* what, const auto& body) {
    session.count_case();
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
  if (const std::int64_t needed = plan->workspace_bytes(); needed > 0) {
    const std::int64_t distance =
        (needed + plan->packed_bytes() + problem.bytes_read() + problem.bytes_written()) / 16 * 16 + 16;
    Bytes memory(static_cast<std::size_t>(3 * distance));
    std::byte *const x = memory.data(), *const y = x + distance, *const behind = y + distance;
    const auto with = [&](void* workspace, std::int64_t bytes) {
      return [&plan, x, y, workspace, bytes] { plan->execute({x, x, y, workspace, bytes}); };
    };
    refused("workspace = null", with(nullptr, needed));
    refused("a workspace of one byte too few", with(behind, needed - 1));
    refused("a workspace that misses its alignment", with(behind + 8, needed));
    refused("a workspace over x", with(x, needed));
    refused("a workspace over y", with(y, needed));
  }
  LinearProblem nothing = problem;
  nothing.m = 0;
  if (session.supports(nothing)) {
    session.plan(nothing)->execute({nullptr, nullptr, nullptr});
    session.count_case();
  }
}

constexpr CheckOf<LinearRun> kChecks[] = {{"OneHot", one_hot},
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

std::span<const CheckOf<LinearRun>> linear_checks() {
  return kChecks;
}

std::vector<LinearProblem> linear_problems(Dtype dtype, bool wide) {
  std::vector<std::string_view> texts = {"n64/k256/w4g128",
                                         "n136/k384/w4g128/v2",
                                         "n72/k256/w4g32/sym",
                                         "n40/k640/w4g64",
                                         "n48/k256/w4g-1",
                                         "n24/k288/w4g32/v2",
                                         "n520/k1152/w4g128/sym",
                                         "n4128/k128/w4g128",
                                         "n64/k512/w4g128/act",
                                         "n40/k512/w4g32/sym/act",
                                         "n64/k256/w4g128/rot",
                                         "n64/k1024/w4g64/rot256",
                                         "n72/k1024/w4g128/v2/act/rot128",
                                         "n64/k768/w4g128/rot12x64",
                                         "n40/k512/w4g64/sym/rot256+signs",
                                         "n64/k1792/w4g128/act/rotsigns+28x32",
                                         "n72/k640/w4g128/v2/rotd20tx32+signs"};
  if (wide)
    texts.insert(texts.end(),
                 {"n8224/k384/w4g128/v2/act", "n8208/k256/w4g64/sym", "n16520/k128/w4g32",
                  "n4136/k640/w4g128", "n64/k14336/w4g128/rot28x512", "n72/k5120/w4g128/rotd20x256+signs"});
  std::vector<LinearProblem> problems;
  problems.reserve(texts.size());
  for (const std::string_view text : texts)
    problems.push_back(parse_linear_problem(fmt::format("{}/m1/{}", name_of(dtype), text)));
  return problems;
}

LinearRun::LinearRun(const LinearVariant& variant, Dtype dtype, const DeviceInfo& device)
    : FamilyRun(variant, dtype, device) {
  for (const LinearProblem& problem : linear_problems(dtype, on_device()))
    if (offers(problem)) problems_.push_back(problem);
}

std::vector<LinearProblem> LinearRun::of_all_tokens(LinearProblem problem) const {
  std::vector<LinearProblem> all;
  for (const std::int64_t m : {1, 2, 3, 5, 8, 9, 16, 17, 32, 33, 64, 65, 130, 180, 200, 250, 300}) {
    problem.m = m;
    if (supports(problem)) all.push_back(problem);
  }
  return all;
}

LinearResult LinearRun::execute(const LinearProblem& problem, const GptqWeights& weights, const Bytes& x,
                                unsigned char poison) {
  const auto made = plan(problem);
  const Bytes packed = made->pack(weights);
  const Memory memory = variant().memory;
  Buffer x_buffer(memory, x.size()), weight_buffer(memory, packed.size());
  Buffer y_buffer(memory, static_cast<std::size_t>(problem.bytes_written()));
  x_buffer.upload(x.data(), x.size());
  weight_buffer.upload(packed.data(), packed.size());
  y_buffer.poison(poison);
  Buffer workspace(memory, static_cast<std::size_t>(made->workspace_bytes()));
  workspace.poison(poison);
  if (made->one_stream_at_a_time()) fail(fmt::format("{}: owns what it changes", to_string(problem)));
  made->execute(
      {x_buffer.data(), weight_buffer.data(), y_buffer.data(), workspace.data(), made->workspace_bytes()});
  synchronize(memory);
  const auto content = [](const Buffer& buffer) {
    Bytes bytes(buffer.bytes());
    buffer.download(bytes.data(), bytes.size());
    return bytes;
  };
  if (!y_buffer.guards_intact()) fail(fmt::format("{}: wrote beside y", to_string(problem)));
  if (!workspace.guards_intact()) fail(fmt::format("{}: wrote beside its workspace", to_string(problem)));
  if (!x_buffer.guards_intact() || content(x_buffer) != x)
    fail(fmt::format("{}: changed x", to_string(problem)));
  if (!weight_buffer.guards_intact() || content(weight_buffer) != packed)
    fail(fmt::format("{}: changed the weights", to_string(problem)));
  count_case();
  return {content(y_buffer), made->numerics()};
}

void LinearRun::expect_same(const Bytes& want, const Bytes& got, const LinearProblem& problem,
                            const std::string& what) {
  if (want.size() == got.size() && std::equal(want.begin(), want.end(), got.begin())) return;
  const auto differ = std::mismatch(want.begin(), want.end(), got.begin(), got.end()).first - want.begin();
  fail(fmt::format("{}: {}: bits differ at element {}", to_string(problem), what, differ / 2));
}

void LinearRun::expect_judged(const LinearResult& got, const LinearProblem& problem,
                              const GptqWeights& weights, const Bytes& x, LinearData data) {
  const reference::LinearTruth truth =
      reference::linear_truth(problem, weights, x.data(), reference::weights_of(got.numerics));
  const reference::LinearJudged judged =
      reference::judge_linear(got.numerics, problem, truth, got.y.data(), data);
  if (!judged.verdict) fail(fmt::format("{}: {}", to_string(problem), judged.verdict.message));
}

}  // namespace fwht::conformance
