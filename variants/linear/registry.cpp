#include "variants/linear/registry.hpp"

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
    &linear::prefill::variant,
    &linear::rotated::variant,
    &linear::rotated::before_prefill,
    &linear::pipelined::rotating,
    &linear::by_tokens::variant,
    &linear::automatic::variant,
};
// clang-format on

}  // namespace

RegistryOf<LinearLayers> linear_registry() {
  return kLadder;
}

const LinearVariant& find_linear_variant(std::string_view name) {
  return find_in<LinearLayers>(linear_registry(), name);
}

}  // namespace fwht
