#include "experiments/harness/transform.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "experiments/harness/copy_kernels.hpp"
#include "experiments/harness/encoded.hpp"
#include "experiments/harness/mode.hpp"
#include "experiments/harness/settings_json.hpp"
#include "reference/operators.hpp"

namespace fwht::harness {

void require_judged(const Problem& problem) {
  if (const Support judged = Transforms::is_judged(problem); !judged)
    throw BadRequest(fmt::format("{}: {}", to_string(problem), judged.why_not));
}

namespace {

Subject encoded_subject(const Variant& variant, const std::shared_ptr<const Plan>& plan,
                        const DeviceInfo& device, const std::shared_ptr<TruthCache>& truths,
                        reference::InputClass input, std::uint64_t seed) {
  const Problem problem = plan->problem();
  require_judged(problem);
  Subject subject{describe(variant, problem)};
  const auto preparation = std::make_shared<const Preparation>(problem, variant.memory);
  subject.launch = [plan, preparation](const void* in, void* out, Stream stream) {
    plan->execute(preparation->operands(in, out), stream);
  };
  subject.fill = [=](Slices& slices) { slices.fill(truths->input_of(problem, input, seed)); };
  subject.check = [=, &variant](Slices& slices) {
    const EncodedChecked checked = check_encoded(variant, *plan, device, *truths, input, seed, slices);
    return Judgement{checked.verdict, {{"rel_l2", csv_number(checked.rel_l2)}}};
  };
  subject.settings = [plan] { return settings_json(*plan); };
  return subject;
}

/// The encoding behind prologue and pages, as in a problem's text.
std::string encoding_text(const Problem& problem) {
  std::string text;
  if (problem.prologue) text = fmt::format("{}/", to_string(*problem.prologue));
  if (problem.paging) text += fmt::format("{}/", to_string(*problem.paging));
  if (!text.empty()) text.back() = '>';
  return text + to_string(problem.encoding);
}

}  // namespace

Description describe(std::string_view name, Memory memory, const Problem& problem) {
  Description what;
  what.name = fmt::format("{}/{}", name, to_string(problem));
  what.buffers = {memory, problem.placement, problem.span_bytes(),
                  problem.encoding.is_plain() ? problem.span_bytes_out() : encoded_block(problem).bytes};
  what.traffic = {problem.bytes_read(), problem.bytes_written()};
  what.sign_mask = sign_mask(problem.dtype());
  what.columns = {{"variant", std::string(name)},
                  {"memory", std::string(name_of(memory))},
                  {"operator", to_string(problem.op)},
                  {"encoding", encoding_text(problem)},
                  {"arrangement", arrangement_text(problem)},
                  {"dtype", std::string(name_of(problem.dtype()))},
                  {"n", std::to_string(problem.n())},
                  {"rows", std::to_string(problem.rows)},
                  {"elements", std::to_string(problem.elements())},
                  {"placement", std::string(name_of(problem.placement))},
                  {"row_stride", std::to_string(problem.row_stride())},
                  {"bytes_read", std::to_string(problem.bytes_read())},
                  {"bytes_written", std::to_string(problem.bytes_written())},
                  {"useful_bytes", std::to_string(problem.useful_bytes())}};
  return what;
}

Description describe(const Variant& variant, const Problem& problem) {
  return describe(variant.name, variant.memory, problem);
}

Subject transform_subject(const Variant& variant, const std::shared_ptr<const Plan>& plan,
                          const DeviceInfo& device, const std::shared_ptr<TruthCache>& truths,
                          reference::InputClass asked, std::uint64_t seed) {
  if (!plan->problem().encoding.is_plain())
    return encoded_subject(variant, plan, device, truths, asked, seed);
  return transform_subject(variant.name, variant.memory, plan, truths, asked, seed);
}

Subject transform_subject(std::string_view name, Memory memory, const std::shared_ptr<const Plan>& plan,
                          const std::shared_ptr<TruthCache>& truths, reference::InputClass asked,
                          std::uint64_t seed) {
  const Problem problem = plan->problem();
  const reference::InputClass input = judged_input(problem.dtype(), asked);
  Subject subject{describe(name, memory, problem)};
  const auto preparation = std::make_shared<const Preparation>(problem, memory);
  subject.launch = [plan, preparation](const void* in, void* out, Stream stream) {
    plan->execute(preparation->operands(in, out), stream);
  };
  subject.fill = [=](Slices& slices) {
    const std::vector<std::byte>& rows = truths->input_of(problem, input, seed);
    slices.fill(problem.is_arranged_plainly() ? rows : arranged(problem, rows));
  };
  subject.check = [=](Slices& slices) {
    const reference::Checked checked = check_plan(*plan, truths->of(problem, input, seed), slices);
    const reference::ErrorStats& stats = checked.stats;
    const double predicted = reference::predicted_rel_l2(judged_by(*plan), problem, stats.expected_rms);
    return Judgement{checked.verdict,
                     {{"rel_l2", csv_number(stats.rel_l2)},
                      {"predicted_rel_l2", csv_number(predicted)},
                      {"max_error_over_rms", csv_number(stats.max_error_over_rms)},
                      {"gain", csv_number(stats.gain)}}};
  };
  subject.settings = [plan] { return settings_json(*plan); };
  subject.applications = applications_in_place(judged_by(*plan), problem);
  return subject;
}

std::int64_t applications_in_place(const Numerics& numerics, const Problem& problem) {
  const double allowed_octaves = problem.dtype() == Dtype::f16   ? 6.0
                                 : problem.dtype() == Dtype::i32 ? 20.0
                                                                 : 40.0;
  double gain = std::fabs(problem.scale) * std::sqrt(static_cast<double>(problem.n())) *
                (1.0 + numerics.gain_error(problem.scale));
  if (problem.op.has_dense()) {  // entries are rounded to the dtype, so Op is orthonormal but for that
    const reference::OperatorData data = operator_data(problem, Memory::host);
    const Operands operands = data.operands(nullptr, nullptr);
    const reference::ExactOperator exact(problem.op, problem.dtype(), operands.signs, operands.dense);
    gain *= std::sqrt(exact.square_length() / static_cast<double>(problem.n()));
  }
  const double octaves = std::fabs(std::log2(gain));
  // 8.6e-8 octaves off is the rounding of the scale to fp32: no drift in any number of launches that can be
  // timed.
  if (octaves < 1e-7) return std::numeric_limits<std::int64_t>::max();
  if (!std::isfinite(octaves)) return 1;  // scale 0
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(allowed_octaves / octaves));
}

}  // namespace fwht::harness
