// Scratch of a plan on a device. Included by CUDA sources only.
#pragma once

#include "common/contract/scratch.hpp"
#include "common/contract/variant.hpp"
#include "common/device/device_array.cuh"
#include "common/host/error.hpp"
#include "common/host/text.hpp"

namespace fwht {

/// What executions of a plan work in: what each brings, or what the plan owns.
class PlanScratch {
 public:
  PlanScratch() = default;
  explicit PlanScratch(std::int64_t bytes)
      : bytes_(bytes), own_(ScratchOfCallers::asked() ? 0 : static_cast<std::size_t>(bytes)) {}
  /// The same; what the plan owns begins as zeros.
  static PlanScratch of_zeros(std::int64_t bytes) {
    PlanScratch scratch;
    scratch.bytes_ = bytes;
    if (ScratchOfCallers::asked()) return scratch;
    const std::vector<std::byte> zeros(static_cast<std::size_t>(bytes));
    scratch.own_ = DeviceArray(zeros.data(), zeros.size());
    return scratch;
  }

  std::int64_t bytes() const { return bytes_; }
  bool is_owned() const { return own_.as<void>() != nullptr; }
  template <class T>
  T* of(const Operands& operands) const {
    if (operands.scratch != nullptr) return static_cast<T*>(operands.scratch);
    if (!is_owned())
      throw BadRequest(
          concat("scratch is a null pointer; the plan owns none, and an execution needs ", bytes_, " bytes"));
    return own_.as<T>();
  }

 private:
  std::int64_t bytes_ = 0;
  DeviceArray own_;
};

}  // namespace fwht
