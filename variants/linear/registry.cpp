#include "variants/linear/registry.hpp"

#include <string>

#include "common/host/error.hpp"

namespace fwht {
namespace {

// One line a variant.
// clang-format off
constexpr const LinearVariant* kLadder[] = {
    &linear::cpu::variant,
    &linear::dense::fp16,
    &linear::dense::dequantize_first,
    &linear::splitk::data_parallel,
    &linear::splitk::split_4,
    &linear::splitk::split_8,
    &linear::splitk::split_16,
    &linear::splitk::f32,
    &linear::pipelined::variant,
    &linear::rotated::variant,
    &linear::pipelined::rotating,
    &linear::automatic::variant,
};
// clang-format on

}  // namespace

std::span<const LinearVariant* const> linear_registry() {
  return kLadder;
}

const LinearVariant& find_linear_variant(std::string_view name) {
  std::string known;
  for (const LinearVariant* variant : linear_registry()) {
    if (variant->name == name) return *variant;
    known += (known.empty() ? "" : ", ") + std::string(variant->name);
  }
  throw BadRequest("unknown linear layer '" + std::string(name) + "'; known: " + known);
}

}  // namespace fwht
