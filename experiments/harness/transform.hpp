// Transforms as subjects.
#pragma once

#include <memory>
#include <string_view>

#include "experiments/harness/checked_run.hpp"
#include "experiments/harness/subject.hpp"
#include "reference/inputs.hpp"

namespace fwht::harness {

Description describe(std::string_view name, Memory memory, const Problem& problem);
/// `variant` is asked nothing: also for problems that it does not support.
Description describe(const Variant& variant, const Problem& problem);

/// Throws BadRequest for what no subject judges (Transforms::is_judged).
void require_judged(const Problem& problem);

/// The plan on random rows, judged against FP64; integers exactly, on rows whose sums fit (judged_input).
Subject transform_subject(std::string_view name, Memory memory, const std::shared_ptr<const Plan>& plan,
                          const std::shared_ptr<TruthCache>& truths,
                          reference::InputClass asked = reference::InputClass::normal,
                          std::uint64_t seed = 1);
/// Also of encoded results, which are judged against the reference quantizer (harness/encoded).
/// @param device  that the plan was made for
Subject transform_subject(const Variant& variant, const std::shared_ptr<const Plan>& plan,
                          const DeviceInfo& device, const std::shared_ptr<TruthCache>& truths,
                          reference::InputClass asked = reference::InputClass::normal,
                          std::uint64_t seed = 1);

/// How often a plan may run in place on its own result before the data has grown or shrunk too far to be
/// typical: by 2^6 in f16, 2^20 in i32, 2^40 in the others. At least 1.
std::int64_t applications_in_place(const Numerics& numerics, const Problem& problem);

}  // namespace fwht::harness
