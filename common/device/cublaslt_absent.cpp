// Where cuBLASLt is not there to build with. FWHT_CUBLASLT_BY_CUDA: cublaslt_cuda.cpp is built too, and has
// the library where the header is found.
#if !defined(FWHT_CUBLASLT_BY_CUDA) || !__has_include(<cublasLt.h>)
#include "common/device/cublaslt.hpp"
#include "common/host/error.hpp"

namespace fwht::cublaslt {

struct Matmul::State {};

const std::string& why_not() {
#ifdef FWHT_CUBLASLT_BY_CUDA
  static const std::string text = "built without the header cublasLt.h";
#else
  static const std::string text = "built without cuBLASLt: it comes with CUDA";
#endif
  return text;
}

Matmul::Matmul(Dtype, std::int64_t, std::int64_t, std::int64_t, Right, float, RowStrides) {
  throw BadRequest(why_not());
}
Matmul::~Matmul() = default;
std::int64_t Matmul::workspace_bytes() const {
  return 0;
}
void Matmul::enqueue(const void*, const void*, void*, void*, Stream) const {}
std::int64_t Matmul::version() {
  return 0;
}

}  // namespace fwht::cublaslt
#endif
