#include "variants/library/sharded/moves.hpp"

#include <cstring>

#include "common/contract/dtype.hpp"
#include "variants/library/sharded/device_moves.hpp"

namespace fwht::sharded {
namespace {

template <class Load, class Store>
void add_on_host(const Parts& parts, float scale, const Load& load, const Store& store) {
  const auto& [ranks, rows, width, rank_stride, row_stride] = parts;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int s = 0; s < ranks; ++s) {
      for (std::int64_t j = 0; j < width; ++j) {
        float sum = 0.0F;
        for (int r = 0; r < ranks; ++r) {
          const float x = load(r * rank_stride + row * row_stride + j);
          sum += static_cast<float>(
                     hadamard_sign(static_cast<std::uint64_t>(s), static_cast<std::uint64_t>(r))) *
                 x;
        }
        store((row * ranks + s) * width + j, scale * sum);
      }
    }
  }
}

}  // namespace

void swap_outer(Memory memory, const void* in, void* out, std::int64_t outer, std::int64_t inner,
                std::int64_t bytes, bool programmatic, Stream stream) {
  if (memory == Memory::device) return device::swap_outer(in, out, outer, inner, bytes, programmatic, stream);
  for (std::int64_t a = 0; a < outer; ++a) {
    for (std::int64_t b = 0; b < inner; ++b) {
      std::memcpy(static_cast<std::byte*>(out) + (b * outer + a) * bytes,
                  static_cast<const std::byte*>(in) + (a * inner + b) * bytes,
                  static_cast<std::size_t>(bytes));
    }
  }
}

void take_chunk(Memory memory, const void* in, void* out, std::int64_t rows, std::int64_t stride_bytes,
                std::int64_t bytes, Stream stream) {
  if (memory == Memory::device) return device::take_chunk(in, out, rows, stride_bytes, bytes, stream);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::memcpy(static_cast<std::byte*>(out) + row * bytes,
                static_cast<const std::byte*>(in) + row * stride_bytes, static_cast<std::size_t>(bytes));
  }
}

void add_with_signs(Memory memory, Dtype dtype, const void* in, void* out, const Parts& parts, float scale,
                    bool programmatic, Stream stream) {
  if (memory == Memory::device)
    return device::add_with_signs(dtype, in, out, parts, scale, programmatic, stream);
  const auto* in16 = static_cast<const std::uint16_t*>(in);
  auto* out16 = static_cast<std::uint16_t*>(out);
  switch (dtype) {
    case Dtype::f16:
      return add_on_host(
          parts, scale, [&](std::int64_t i) { return f16_to_float(in16[i]); },
          [&](std::int64_t i, float y) { out16[i] = float_to_f16(y); });
    case Dtype::bf16:
      return add_on_host(
          parts, scale, [&](std::int64_t i) { return bf16_to_float(in16[i]); },
          [&](std::int64_t i, float y) { out16[i] = float_to_bf16(y); });
    case Dtype::f32:
      return add_on_host(
          parts, scale, [&](std::int64_t i) { return static_cast<const float*>(in)[i]; },
          [&](std::int64_t i, float y) { static_cast<float*>(out)[i] = y; });
    case Dtype::f64:
    case Dtype::i32:
    case Dtype::i64:
      return;  // validate() refuses them
  }
}

void pick_columns(Memory memory, const void* in, void* out, const std::int32_t* columns, std::int64_t rows,
                  std::int64_t count, std::int64_t width, Stream stream) {
  if (memory == Memory::device) return device::pick_columns(in, out, columns, rows, count, width, stream);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < count; ++i) {
      static_cast<std::uint16_t*>(out)[row * count + i] =
          static_cast<const std::uint16_t*>(in)[gathered_offset(rows, width, row, columns[i])];
    }
  }
}

}  // namespace fwht::sharded
