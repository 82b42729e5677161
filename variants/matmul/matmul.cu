// matmul: rows times the whole n x n matrix of the operator, by cuBLASLt.
//
// What it shows: the price of having no fast transform. 2 n^2 operations a row in place of n log2 n, on the
// tensor cores, and a matrix of n^2 numbers to read. In place the rows are copied aside first, because a
// matrix product cannot overwrite its input.
#include <algorithm>
#include <vector>

#include "common/device/cublaslt.hpp"
#include "common/device/cuda_check.hpp"
#include "common/device/device_array.cuh"
#include "common/device/storage.cuh"
#include "variants/matmul/matmul.hpp"

namespace fwht::matmul {
namespace {

/// The matrix of +-1, row-major, a thread an entry.
template <Dtype dtype>
__global__ void write_matrix(MatrixSigns signs, std::int64_t n, typename Storage<dtype>::Element* matrix) {
  const std::int64_t at = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at < n * n) matrix[at] = Storage<dtype>::from_float(is_negative(signs, at / n, at % n) ? -1.0F : 1.0F);
}

std::size_t bytes_for(const Problem& problem, std::int64_t elements) {
  return static_cast<std::size_t>(elements * bytes_of(problem.dtype()));
}

DeviceArray matrix_of(const Problem& problem) {
  MatrixSigns signs = matrix_signs(problem.op);
  std::vector<std::uint32_t> words;
  std::size_t begins[Operator::kMostFactors] = {};
  for (int f = 0; f < signs.count; ++f) {
    const FactorSigns& factor = signs.factors[f];
    begins[f] = words.size();
    if (factor.bits != nullptr)
      words.insert(words.end(), factor.bits, factor.bits + factor.order * factor.words_per_row);
  }
  const DeviceArray tables(words.data(), words.size() * sizeof(std::uint32_t));
  for (int f = 0; f < signs.count; ++f) {
    if (signs.factors[f].bits != nullptr) signs.factors[f].bits = tables.as<std::uint32_t>() + begins[f];
  }
  const std::int64_t n = problem.n();
  DeviceArray matrix(bytes_for(problem, n * n));
  constexpr int kThreads = 256;
  const auto blocks = static_cast<unsigned>(ceil_div(n * n, kThreads));
  const OwnedStream stream;
  if (problem.dtype() == Dtype::f16) {
    write_matrix<Dtype::f16><<<blocks, kThreads, 0, stream>>>(signs, n, matrix.as<__half>());
  } else {
    write_matrix<Dtype::bf16><<<blocks, kThreads, 0, stream>>>(signs, n, matrix.as<__nv_bfloat16>());
  }
  FWHT_CUDA(cudaGetLastError());
  stream.wait();
  return matrix;
}

/// Rows of the matrix are columns of its transpose: y = x Op^T, row vectors.
cublaslt::Matmul product_of(const Problem& p, bool aside) {
  const std::int64_t rows = std::max<std::int64_t>(p.rows, 1);
  return {p.dtype(),
          rows,
          p.n(),
          p.n(),
          cublaslt::Right::rows_of_n,
          static_cast<float>(p.scale),
          {aside ? p.n() : p.in.row_stride, p.out.row_stride}};
}

class MatmulPlan final : public Plan {
 public:
  explicit MatmulPlan(const Problem& problem)
      : Plan(problem),
        is_aside_(problem.placement == Placement::in_place),
        product_(product_of(problem, is_aside_)),
        matrix_(matrix_of(problem)),
        workspace_(static_cast<std::size_t>(product_.workspace_bytes())),
        aside_(is_aside_ ? bytes_for(problem, problem.elements()) : 0) {}

  std::size_t alignment() const override { return cublaslt::Matmul::kAlignment; }
  bool one_stream_at_a_time() const override { return true; }  // the workspace, and the rows aside
  Numerics numerics() const override { return numerics_of(problem()); }
  Settings settings() const override {
    const std::int64_t element = bytes_of(problem().dtype());
    return {{"cublaslt", cublaslt::Matmul::version()},
            {"matrix_bytes", problem().n() * problem().n() * element},
            {"copied_aside_bytes", is_aside_ ? problem().elements() * element : std::int64_t{0}}};
  }

 private:
  void enqueue(const Operands& operands, Stream stream) const override {
    const Problem& p = problem();
    const void* in = operands.in;
    if (is_aside_) {
      FWHT_CUDA(cudaMemcpy2DAsync(aside_.as<void>(), bytes_for(p, p.n()), operands.in,
                                  bytes_for(p, p.in.row_stride), bytes_for(p, p.n()),
                                  static_cast<std::size_t>(p.rows), cudaMemcpyDeviceToDevice, stream));
      in = aside_.as<void>();
    }
    product_.enqueue(in, matrix_.as<void>(), operands.out, workspace_.as<void>(), stream);
  }

  bool is_aside_;
  cublaslt::Matmul product_;
  DeviceArray matrix_, workspace_, aside_;
};

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo&) {
  return std::make_unique<MatmulPlan>(problem);
}

}  // namespace fwht::matmul
