// The lowest index bits of Walsh spectra on a device, from the values of Boolean functions: the first of the
// passes of walsh::spectrum_on_device, which reads 1/32 or 1/4 of the bytes that int32 data would be.
#pragma once

#include <cstdint>

#include "common/contract/family.hpp"
#include "variants/library/walsh.hpp"
#include "variants/passes/tile.hpp"

namespace fwht::walsh {

/// Index bits of the first pass; the others, 5 to 18, are those of passes along a dimension.
constexpr int function_row_bits(int variables) {
  return variables <= 20 ? 10 : variables == 23 ? 13 : 12;
}
constexpr passes::PassTile function_tile(int row_bits) {
  return {row_bits - 5, 5, true};
}

/// Enqueues it: int32 sums over the lowest function_row_bits of `functions` functions, one behind the other.
void launch_function_rows(FunctionForm form, const void* values, int variables, std::int64_t functions,
                          std::int32_t* sums, Stream stream);

}  // namespace fwht::walsh
