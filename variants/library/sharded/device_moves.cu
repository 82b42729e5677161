// Moves on the device: a thread moves 16 bytes (swap_outer), adds the T parts of 16 bytes with all T sign
// patterns (add_with_signs: every part is read once), or picks one element (pick_columns). A few hundred KB
// at most; each is one wave of small blocks.
#include <algorithm>
#include <type_traits>

#include "common/device/cuda_check.hpp"
#include "common/device/launcher.hpp"
#include "common/device/ptx/griddepcontrol.cuh"
#include "common/device/storage.cuh"
#include "variants/library/sharded/device_moves.hpp"
#include "variants/library/sharded/moves.hpp"

namespace fwht::sharded::device {
namespace {

constexpr int kThreads = 128;

unsigned blocks_for(std::int64_t items) {
  return static_cast<unsigned>((items + kThreads - 1) / kThreads);
}

__device__ std::int64_t this_item() {
  return std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

__global__ void swap_outer_kernel(const uint4* in, uint4* out, std::int64_t outer, std::int64_t inner,
                                  std::int64_t vectors) {
  const std::int64_t item = this_item();
  if (item >= outer * inner * vectors) return;
  const std::int64_t block = item / vectors, v = item % vectors;
  const std::int64_t a = block / inner, b = block % inner;
  ptx::griddepcontrol_wait();
  out[(b * outer + a) * vectors + v] = in[item];
}

__global__ void take_chunk_kernel(const uint4* in, uint4* out, std::int64_t rows, std::int64_t stride,
                                  std::int64_t vectors) {
  const std::int64_t item = this_item();
  if (item < rows * vectors) out[item] = in[item / vectors * stride + item % vectors];
}

template <Dtype dtype, int ranks>
__global__ void add_with_signs_kernel(const uint4* in, uint4* out, Parts of_vectors, float scale) {
  const std::int64_t vectors = of_vectors.width, item = this_item();
  if (item >= of_vectors.rows * vectors) return;
  const std::int64_t row = item / vectors, v = item % vectors;
  ptx::griddepcontrol_wait();
  constexpr int kPerVector = Storage<dtype>::kPerVector;
  float parts[ranks][kPerVector];
#pragma unroll
  for (int r = 0; r < ranks; ++r)
    unpack<dtype>(in[r * of_vectors.rank_stride + row * of_vectors.row_stride + v], parts[r]);
#pragma unroll
  for (int s = 0; s < ranks; ++s) {
    float sums[kPerVector];
#pragma unroll
    for (int i = 0; i < kPerVector; ++i) {
      float sum = 0.0F;
#pragma unroll
      for (int r = 0; r < ranks; ++r)
        sum += (__popc(s & r) & 1) != 0 ? -parts[r][i] : parts[r][i];
      sums[i] = scale * sum;
    }
    out[(row * ranks + s) * vectors + v] = pack<dtype>(sums);
  }
}

__global__ void pick_columns_kernel(const std::uint16_t* in, std::uint16_t* out, const std::int32_t* columns,
                                    int rows, int count, int width) {
  const int i = static_cast<int>(this_item());
  if (i >= count) return;
  const int column = columns[i];
  const std::uint16_t* from = in + std::int64_t{column / width} * rows * width + column % width;
  for (int row = static_cast<int>(blockIdx.y); row < rows; row += static_cast<int>(gridDim.y))
    out[std::int64_t{row} * count + i] = from[std::int64_t{row} * width];
}

/// `programmatic`: the kernel waits by griddepcontrol before it reads, so it may be launched early.
LaunchGrid grid_for(std::int64_t items, bool programmatic) {
  return {.blocks = blocks_for(items), .threads = kThreads, .programmatic = programmatic};
}

template <Dtype dtype>
void add_with_signs_of(const uint4* in, uint4* out, const Parts& of_vectors, float scale, bool programmatic,
                       Stream stream) {
  const auto add = [&](auto kernel) {
    launch(kernel, grid_for(of_vectors.rows * of_vectors.width, programmatic), stream, in, out, of_vectors,
           scale);
  };
  switch (of_vectors.ranks) {
    case 1:
      return add(add_with_signs_kernel<dtype, 1>);
    case 2:
      return add(add_with_signs_kernel<dtype, 2>);
    case 4:
      return add(add_with_signs_kernel<dtype, 4>);
    case 8:
      return add(add_with_signs_kernel<dtype, 8>);
    case 16:
      return add(add_with_signs_kernel<dtype, 16>);
    default:
      return;  // validate() refuses it
  }
}

}  // namespace

void swap_outer(const void* in, void* out, std::int64_t outer, std::int64_t inner, std::int64_t bytes,
                bool programmatic, Stream stream) {
  const std::int64_t vectors = bytes / 16;
  launch(swap_outer_kernel, grid_for(outer * inner * vectors, programmatic), stream,
         static_cast<const uint4*>(in), static_cast<uint4*>(out), outer, inner, vectors);
}

void take_chunk(const void* in, void* out, std::int64_t rows, std::int64_t stride_bytes, std::int64_t bytes,
                Stream stream) {
  take_chunk_kernel<<<blocks_for(rows * (bytes / 16)), kThreads, 0, stream>>>(
      static_cast<const uint4*>(in), static_cast<uint4*>(out), rows, stride_bytes / 16, bytes / 16);
  FWHT_CUDA(cudaGetLastError());
}

void add_with_signs(Dtype dtype, const void* in, void* out, const Parts& parts, float scale,
                    bool programmatic, Stream stream) {
  const std::int64_t per_vector = 16 / bytes_of(dtype);
  const Parts of_vectors{parts.ranks, parts.rows, parts.width / per_vector, parts.rank_stride / per_vector,
                         parts.row_stride / per_vector};
  const auto* from = static_cast<const uint4*>(in);
  auto* to = static_cast<uint4*>(out);
  switch (dtype) {
    case Dtype::f16:
      return add_with_signs_of<Dtype::f16>(from, to, of_vectors, scale, programmatic, stream);
    case Dtype::bf16:
      return add_with_signs_of<Dtype::bf16>(from, to, of_vectors, scale, programmatic, stream);
    case Dtype::f32:
      return add_with_signs_of<Dtype::f32>(from, to, of_vectors, scale, programmatic, stream);
    case Dtype::f64:
    case Dtype::i32:
    case Dtype::i64:
      return;  // validate() refuses them
  }
}

void pick_columns(const void* in, void* out, const std::int32_t* columns, std::int64_t rows,
                  std::int64_t count, std::int64_t width, Stream stream) {
  if (rows == 0 || count == 0) return;
  launch(pick_columns_kernel,
         {.blocks = blocks_for(count), .threads = kThreads, .layers = std::min(rows, kMostGridLayers)},
         stream, static_cast<const std::uint16_t*>(in), static_cast<std::uint16_t*>(out), columns,
         static_cast<int>(rows), static_cast<int>(count), static_cast<int>(width));
}

}  // namespace fwht::sharded::device
