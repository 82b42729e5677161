// GPTQ layers from a safetensors file (github.com/huggingface/safetensors, "Format"): eight bytes of length,
// a JSON header of tensors, their bytes.
#pragma once

#include <filesystem>
#include <string>

#include "common/contract/linear/weights.hpp"

namespace fwht::linear_layers {

/// The tensors <layer>.qweight, .qzeros, .scales and, where there is one, .g_idx. The file does not say which
/// version its zero points are: `zero_points` does (v1 or v2). n, k and the group follow from the shapes; a
/// g_idx that only counts rows is dropped. Throws BadRequest for a file that cannot be read, is truncated or
/// no safetensors file, for a missing tensor, a foreign type or shape, and for what validate(GptqWeights)
/// refuses.
GptqWeights read_gptq(const std::filesystem::path& file, const std::string& layer,
                      ZeroPoints zero_points = ZeroPoints::v1);

}  // namespace fwht::linear_layers
