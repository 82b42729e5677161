#include "experiments/linear/linear.hpp"

#include <fmt/format.h>

#include "common/host/error.hpp"
#include "common/host/names.hpp"
#include "experiments/harness/settings_json.hpp"

namespace fwht::linear_layers {
namespace {

using harness::CsvRow;
using harness::Judgement;
using harness::Slices;
using harness::Subject;

constexpr std::int64_t kAlignment = 256;  // of x behind the packed weights

std::string weights_key(LinearProblem problem) {
  problem.m = 1;
  problem.rotation = {};
  problem.programmatic_launch = false;
  return to_string(problem);
}

std::string tokens_key(const LinearProblem& problem) {
  return fmt::format("{}/m{}/k{}", name_of(problem.dtype), problem.m, problem.k);
}

constexpr Names<ZeroPoints, 3> kZeroPoints{
    "zero points", {{ZeroPoints::v1, "v1"}, {ZeroPoints::v2, "v2"}, {ZeroPoints::symmetric, "symmetric"}}};

std::string settings_json(const LinearPlan& plan) {
  Settings settings = plan.settings();
  settings.emplace_back("packed_bytes", plan.packed_bytes());
  return harness::settings_json(settings);
}

template <class Value, class Make>
std::shared_ptr<const Value> last_of(std::map<std::string, std::shared_ptr<const Value>>& kept,
                                     const std::string& key, const Make& make) {
  if (!kept.contains(key)) {
    kept.clear();
    kept[key] = std::make_shared<const Value>(make());
  }
  return kept[key];
}

std::int64_t tokens_at(const LinearPlan& plan) {
  return (plan.packed_bytes() + kAlignment - 1) / kAlignment * kAlignment;
}

CsvRow run(const LinearCase& c, harness::Bench& bench, harness::Limits& limits, Data& data) {
  CsvRow row = columns_of(*c.variant, c.problem);
  row["mode"] = name_of(c.mode);
  const std::shared_ptr<const LinearPlan> plan = fwht::plan(*c.variant, c.problem, bench.device());
  const Subject subject = linear_subject(*c.variant, plan, data);
  row["settings"] = subject.settings();
  Slices& slices = bench.slice(subject);
  const Judgement judged = subject.check(slices);
  for (const auto& [name, value] : judged.columns)
    row[name] = value;
  if (!judged.verdict) {  // a wrong result has no time
    row["status"] = "incorrect";
    row["message"] = judged.verdict.message;
    return row;
  }
  const harness::ClockedTiming timing = harness::measure(subject, c.mode, bench);
  timing.describe_clock(row);
  row["time_us"] = harness::csv_number(timing.time_us);
  row["time_min_us"] = harness::csv_number(timing.min_us);
  row["time_max_us"] = harness::csv_number(timing.max_us);
  if (c.mode != harness::Mode::host) {
    const harness::Limit& limit = limits.best(subject, c.mode, c.problem.programmatic_launch);
    row["limit_us"] = harness::csv_number(limit.timing.time_us);
    row["limit_kernel"] = limit.kernel;
    row["fraction_of_limit"] = harness::csv_number(limit.timing.time_us / timing.time_us);
  }
  return row;
}

}  // namespace

std::shared_ptr<const GptqWeights> Data::weights(const LinearProblem& problem) {
  return last_of(weights_, weights_key(problem),
                 [&] { return reference::random_weights(problem, reference::LinearData::normal, 1); });
}

std::shared_ptr<const std::vector<std::byte>> Data::packed(const LinearPlan& plan) {
  const std::string key = weights_key(plan.problem());
  if (packed_weights_ != key) packed_.clear();
  packed_weights_ = key;
  auto& block = packed_[plan.packing()];
  if (!block) block = std::make_shared<const std::vector<std::byte>>(plan.pack(*weights(plan.problem())));
  return block;
}

std::shared_ptr<const std::vector<std::byte>> Data::tokens(const LinearProblem& problem) {
  return last_of(tokens_, tokens_key(problem),
                 [&] { return reference::random_tokens(problem, reference::LinearData::normal, 2); });
}

std::shared_ptr<const reference::LinearTruth> Data::truth(const LinearProblem& problem,
                                                          WeightRounding rounding) {
  LinearProblem plain = problem;
  plain.programmatic_launch = false;
  const std::string key = fmt::format("{}/{}", to_string(plain), static_cast<int>(rounding));
  if (!truths_.contains(key)) {
    if (truths_.size() > 4) truths_.clear();
    constexpr std::int64_t kColumns = 256;
    truths_[key] = std::make_shared<const reference::LinearTruth>(
        reference::linear_truth(problem, *weights(problem), tokens(problem)->data(), rounding,
                                reference::sample_columns(problem.n, kColumns), threads_));
  }
  return truths_[key];
}

/// "0", the order of H_n, or another operator's text.
std::string rotation_text(const LinearProblem& problem) {
  if (!problem.rotates()) return "0";
  return problem.rotation.is_sylvester() ? std::to_string(problem.rotation_order())
                                         : to_string(problem.rotation);
}

CsvRow columns_of(const LinearVariant& variant, const LinearProblem& problem) {
  const auto text = [](std::int64_t value) { return std::to_string(value); };
  return {{"variant", std::string(variant.name)},
          {"memory", std::string(harness::name_of(variant.memory))},
          {"dtype", std::string(fwht::name_of(problem.dtype))},
          {"m", text(problem.m)},
          {"n", text(problem.n)},
          {"k", text(problem.k)},
          {"group", text(problem.group)},
          {"zero_points", std::string(kZeroPoints.of(problem.zero_points))},
          {"act_order", problem.act_order ? "true" : "false"},
          {"rotation", rotation_text(problem)},
          {"programmatic", problem.programmatic_launch ? "true" : "false"},
          {"bytes_read", text(problem.bytes_read())},
          {"bytes_written", text(problem.bytes_written())}};
}

Subject linear_subject(const LinearVariant& variant, const std::shared_ptr<const LinearPlan>& plan,
                       Data& data) {
  const LinearProblem problem = plan->problem();
  Subject subject;
  subject.name = fmt::format("{}/{}", variant.name, to_string(problem));
  subject.columns = columns_of(variant, problem);
  const std::int64_t x_at = tokens_at(*plan), x_bytes = problem.m * problem.k * bytes_of(problem.dtype);
  subject.buffers = {variant.memory, Placement::out_of_place, x_at + x_bytes, problem.bytes_written()};
  subject.traffic = {problem.bytes_read(), problem.bytes_written()};
  subject.sign_mask = harness::sign_mask(problem.dtype);
  const auto workspace =
      std::make_shared<Buffer>(variant.memory, static_cast<std::size_t>(plan->workspace_bytes()));
  subject.launch = [plan, x_at, workspace](const void* in, void* out, Stream stream) {
    const auto* block = static_cast<const std::byte*>(in);
    plan->execute({block + x_at, block, out, workspace->data(), plan->workspace_bytes()}, stream);
  };
  auto block = std::make_shared<std::vector<std::byte>>();  // made when first asked for
  const auto fill = [=, &data](Slices& slices) {
    if (block->empty()) {
      block->reserve(static_cast<std::size_t>(x_at + x_bytes));
      *block = *data.packed(*plan);
      block->resize(static_cast<std::size_t>(x_at));
      const auto tokens = data.tokens(problem);
      block->insert(block->end(), tokens->begin(), tokens->end());
    }
    slices.fill(*block);
  };
  subject.fill = fill;
  subject.check = [=, launch = subject.launch, &data](Slices& slices) {
    fill(slices);
    launch(slices.in(0), slices.out(0), nullptr);
    synchronize(variant.memory);
    std::vector<std::byte> y(static_cast<std::size_t>(problem.bytes_written()));
    slices.output().download(y.data(), y.size());
    const Numerics numerics = plan->numerics();
    const auto judged = reference::judge_linear(
        numerics, problem, *data.truth(problem, reference::weights_of(numerics)), y.data());
    Judgement result{judged.verdict,
                     {{"rel_l2", harness::csv_number(judged.errors.rel_l2)},
                      {"predicted_rel_l2", harness::csv_number(judged.errors.predicted)},
                      {"one_rounding_rel_l2", harness::csv_number(judged.errors.one_rounding)}}};
    if (result.verdict && !(slices.output().guards_intact() && slices.input().guards_intact()))
      result.verdict = reference::incorrect("wrote beside its output");
    return result;
  };
  subject.settings = [plan] { return settings_json(*plan); };
  return subject;
}

std::string LinearCase::name() const {
  return fmt::format("{}/{}/{}", variant->name, to_string(problem), harness::name_of(mode));
}

std::vector<harness::Task> tasks(const std::vector<LinearCase>& cases, harness::Bench& bench,
                                 harness::Limits& limits, Data& data) {
  std::vector<harness::Task> all;
  for (const LinearCase& c : cases) {
    CsvRow identity = columns_of(*c.variant, c.problem);
    identity.erase("bytes_read");
    identity.erase("bytes_written");
    identity["mode"] = harness::name_of(c.mode);
    all.push_back({identity, 1,
                   [c, &bench, &limits, &data] { return std::vector{run(c, bench, limits, data)}; },
                   c.name()});
  }
  return all;
}

std::vector<LinearProblem> problem_list(const std::string& name) {
  std::vector<LinearProblem> problems;
  const auto add = [&](std::initializer_list<std::int64_t> tokens, std::int64_t n, std::int64_t k,
                       std::int64_t rotation = 0) {
    for (const std::int64_t m : tokens) {
      LinearProblem problem;
      problem.m = m;
      problem.n = n;
      problem.k = k;
      if (rotation != 0) problem.rotation = Operator::sylvester(rotation);
      problems.push_back(problem);
    }
  };
  if (name == "smoke") {
    add({1, 5, 16}, 512, 512);
  } else if (name == "paper") {
    for (std::int64_t n = 512; n <= 16384; n *= 2)
      add({1, 2, 4, 8, 16}, n, n);
  } else if (name == "headline") {
    for (std::int64_t n = 4096; n <= 16384; n *= 2)
      add({1, 8, 16, 32, 64}, n, n);
  } else if (name == "rotated") {
    for (std::int64_t n = 4096; n <= 8192; n *= 2)
      for (const std::int64_t rotation : {std::int64_t{0}, n, std::int64_t{128}})
        add({1, 8, 16}, n, n, rotation);
  } else if (name == "shapes") {
    add({1, 16}, 8192, 28672);
    add({1, 16}, 28672, 8192);
    add({1, 16}, 6144, 24576);
    add({1, 16}, 4096, 14336);
  } else if (name == "prefill") {
    for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{4096, 4096},
                               {4096, 14336},
                               {14336, 4096},
                               {8192, 8192},
                               {5120, 13824}})
      add({64, 65, 96, 128, 129, 160, 192, 256, 512, 1024, 2048, 4096, 8192}, n, k);
  } else {
    throw BadRequest(fmt::format(
        "unknown list of layers '{}'; known: smoke, paper, headline, rotated, shapes, prefill", name));
  }
  return problems;
}

}  // namespace fwht::linear_layers
