#include "experiments/harness/performer.hpp"

#include <algorithm>

#include "experiments/harness/encoded.hpp"
#include "experiments/harness/transform.hpp"
#include "reference/emulation.hpp"
#include "variants/library/host_models.hpp"

namespace fwht::harness {

Performer::Performer(const Variant& variant, Source source, const DeviceInfo& device)
    : variant_(&variant), source_(source), device_(&device) {
  if (source == Source::emulated) described_ = h200_description();
  if (source == Source::emulated_a100) described_ = a100_description();
}

Support Performer::supports(const Problem& problem) const {
  if (source_ == Source::measured) return variant_->supports(problem, *device_);
  if (Support support = variant_->supports(problem, described_); !support) return support;
  const auto numerics = numerics_without_plan(*variant_, problem, described_);
  if (!numerics || !reference::has_emulation(*numerics))
    return {"no host emulation reproduces this arithmetic"};
  return {};
}

Performer::Result Performer::run(const Problem& problem, const std::vector<std::byte>& input,
                                 Workspace& workspace) const {
  Result result;
  result.output.resize(input.size());
  if (source_ != Source::measured) {
    result.numerics = numerics_without_plan(*variant_, problem, described_).value();
    const reference::TensorCore core =
        source_ == Source::emulated ? reference::kHopperTensorCore : reference::kAmpereTensorCore;
    reference::emulate(problem, result.numerics, input.data(), result.output.data(), 0, core);
    return result;
  }
  const auto plan = fwht::plan(*variant_, problem, *device_);
  Slices& slices = workspace.get(describe(*variant_, problem).buffers);
  slices.fill(input);
  plan->execute(slices.in(0), slices.out(0));
  synchronize(variant_->memory);
  slices.output().download(result.output.data(), result.output.size());
  result.guards_intact = slices.output().guards_intact();
  result.numerics = plan->numerics();
  return result;
}

bool Performer::encodes(const Problem& problem) const {
  return source_ == Source::measured && static_cast<bool>(variant_->supports(problem, *device_));
}

Performer::CodedResult Performer::encode(const Problem& problem, const std::vector<std::byte>& input,
                                         float tensor_scale, Workspace& workspace) const {
  const auto plan = fwht::plan(*variant_, problem, *device_);
  Slices& slices = workspace.get(describe(*variant_, problem).buffers);
  slices.fill(input);
  Operands operands = encoded_operands(problem, slices.in(0), slices.out(0));
  if (needs_tensor_scale(problem.encoding)) operands.tensor_scale = tensor_scale;
  plan->execute(operands);
  synchronize(variant_->memory);
  CodedResult encoded;
  encoded.codes.resize(static_cast<std::size_t>(problem.span_bytes_out()));
  encoded.scales.resize(static_cast<std::size_t>(problem.scale_bytes_out()));
  slices.output().download(encoded.codes.data(), encoded.codes.size());
  slices.output().download(encoded.scales.data(), encoded.scales.size(),
                           static_cast<std::size_t>(encoded_block(problem).scales_at));
  return encoded;
}

namespace {

/// Whether the emulated results depend on the tensor core at all.
bool depends_on_tensor_core(const Variant& variant) {
  const DeviceInfo a100 = a100_description();
  const Problem problem = make_problem(Dtype::f16, 1024, 1);
  if (!variant.supports(problem, a100)) return false;
  const auto numerics = numerics_without_plan(variant, problem, a100);
  return numerics && reference::has_emulation(*numerics) &&
         std::any_of(numerics->steps.begin(), numerics->steps.end(),
                     [](const Step& step) { return step.is_tensor_block(); });
}

}  // namespace

std::vector<Performer> performers(const std::vector<const Variant*>& variants, const DeviceInfo& device,
                                  PerformerChoice choice) {
  std::vector<Performer> all;
  for (const Variant* variant : variants) {
    const bool emulated = variant->memory == Memory::device && (choice.emulate || !device.has_cuda());
    all.emplace_back(*variant, emulated ? Source::emulated : Source::measured, device);
    if (choice.a100 && depends_on_tensor_core(*variant))
      all.emplace_back(*variant, Source::emulated_a100, device);
  }
  return all;
}

}  // namespace fwht::harness
