// The kernels of moves.hpp.
#pragma once

#include <cstdint>

#include "common/contract/variant.hpp"
#include "variants/library/sharded/moves.hpp"

namespace fwht::sharded::device {

void swap_outer(const void* in, void* out, std::int64_t outer, std::int64_t inner, std::int64_t bytes,
                bool programmatic, Stream stream);
void take_chunk(const void* in, void* out, std::int64_t rows, std::int64_t stride_bytes, std::int64_t bytes,
                Stream stream);
void add_with_signs(Dtype dtype, const void* in, void* out, const Parts& parts, float scale,
                    bool programmatic, Stream stream);
void pick_columns(const void* in, void* out, const std::int32_t* columns, std::int64_t rows,
                  std::int64_t count, std::int64_t width, Stream stream);

}  // namespace fwht::sharded::device
