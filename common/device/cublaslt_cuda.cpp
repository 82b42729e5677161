#include <dlfcn.h>

#include <map>
#include <mutex>

#include "common/device/cublaslt.hpp"
#include "common/device/stream_query.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"

#if __has_include(<cublasLt.h>)  // else cublaslt_absent.cpp takes its place
#include <cublasLt.h>

namespace fwht::cublaslt {

namespace {

// The functions that are used, by the names that the header gives their types.
#define FWHT_FUNCTIONS                                \
  FWHT_FUNCTION(cublasLtCreate)                       \
  FWHT_FUNCTION(cublasLtGetVersion)                   \
  FWHT_FUNCTION(cublasLtMatmul)                       \
  FWHT_FUNCTION(cublasLtMatmulAlgoGetHeuristic)       \
  FWHT_FUNCTION(cublasLtMatmulDescCreate)             \
  FWHT_FUNCTION(cublasLtMatmulDescDestroy)            \
  FWHT_FUNCTION(cublasLtMatmulDescSetAttribute)       \
  FWHT_FUNCTION(cublasLtMatmulPreferenceCreate)       \
  FWHT_FUNCTION(cublasLtMatmulPreferenceDestroy)      \
  FWHT_FUNCTION(cublasLtMatmulPreferenceSetAttribute) \
  FWHT_FUNCTION(cublasLtMatrixLayoutCreate)           \
  FWHT_FUNCTION(cublasLtMatrixLayoutDestroy)

struct CublasLtFunctions {
  std::string why_not;
#define FWHT_FUNCTION(name) decltype(&::name) name = nullptr;
  FWHT_FUNCTIONS
#undef FWHT_FUNCTION

  CublasLtFunctions() {
    constexpr int kMajor = CUBLAS_VER_MAJOR;
    const std::string name = concat("libcublasLt.so.", kMajor);
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* error = dlerror();
      why_not = concat("cuBLASLt cannot be loaded: ", error != nullptr ? error : name);
      return;
    }
    const auto find = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
      if (function == nullptr) why_not = concat(name, " has no ", symbol);
    };
#define FWHT_FUNCTION(name) find(name, #name);
    FWHT_FUNCTIONS
#undef FWHT_FUNCTION
  }
};

const CublasLtFunctions& library() {
  static const CublasLtFunctions loaded;
  return loaded;
}

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(concat(what, " failed: status ", static_cast<int>(status)));
}

constexpr std::size_t kMostWorkspace = std::size_t{32} << 20;

cudaDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f16:
      return CUDA_R_16F;
    case Dtype::bf16:
      return CUDA_R_16BF;
    case Dtype::f32:
      return CUDA_R_32F;
    case Dtype::f64:
    case Dtype::i32:
    case Dtype::i64:
      break;
  }
  throw BadRequest(concat("no dense product in ", name_of(dtype), " is offered"));
}

/// One for all plans of a device, as handles allocate memory there; it lives as long as the process.
cublasLtHandle_t handle_of_current_device() {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  const int device = current_device();
  const std::scoped_lock lock(mutex);
  cublasLtHandle_t& handle = handles[device];
  if (handle == nullptr) {
    const CaptureAllowed allowed;
    check(library().cublasLtCreate(&handle), "cublasLtCreate");
  }
  return handle;
}

}  // namespace

const std::string& why_not() {
  return library().why_not;
}

// The library counts columns first: d^T = b^T a^T, where b^T is its left operand.
struct Matmul::State {
  cublasLtHandle_t handle = nullptr;  // of handle_of_current_device
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
  float alpha = 1.0F;

  ~State() {
    const CublasLtFunctions& lib = library();
    if (d != nullptr) lib.cublasLtMatrixLayoutDestroy(d);
    if (b != nullptr) lib.cublasLtMatrixLayoutDestroy(b);
    if (a != nullptr) lib.cublasLtMatrixLayoutDestroy(a);
    if (product != nullptr) lib.cublasLtMatmulDescDestroy(product);
  }
};

Matmul::Matmul(Dtype dtype, std::int64_t m, std::int64_t n, std::int64_t k, Right right, float alpha,
               RowStrides strides) {
  if (!why_not().empty()) throw BadRequest(why_not());
  const CublasLtFunctions& lib = library();
  state_ = std::make_unique<State>();
  State& s = *state_;
  s.alpha = alpha;
  const cudaDataType_t type = type_of(dtype);
  const auto rows = static_cast<std::uint64_t>(m), columns = static_cast<std::uint64_t>(n),
             depth = static_cast<std::uint64_t>(k);
  s.handle = handle_of_current_device();
  check(lib.cublasLtMatmulDescCreate(&s.product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  const cublasOperation_t transpose = right == Right::rows_of_n ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(lib.cublasLtMatmulDescSetAttribute(s.product, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                           sizeof transpose),
        "cublasLtMatmulDescSetAttribute");
  check(right == Right::rows_of_n ? lib.cublasLtMatrixLayoutCreate(&s.b, type, depth, columns, k)
                                  : lib.cublasLtMatrixLayoutCreate(&s.b, type, columns, depth, n),
        "cublasLtMatrixLayoutCreate");
  check(lib.cublasLtMatrixLayoutCreate(&s.a, type, depth, rows, strides.a == 0 ? k : strides.a),
        "cublasLtMatrixLayoutCreate");
  check(lib.cublasLtMatrixLayoutCreate(&s.d, type, columns, rows, strides.d == 0 ? n : strides.d),
        "cublasLtMatrixLayoutCreate");

  cublasLtMatmulPreference_t preference = nullptr;
  check(lib.cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  lib.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &kMostWorkspace, sizeof kMostWorkspace);
  lib.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                           &reductions, sizeof reductions);
  constexpr std::uint32_t kBytes = kAlignment;  // the library assumes 256 otherwise
  for (const auto pointer :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    lib.cublasLtMatmulPreferenceSetAttribute(preference, pointer, &kBytes, sizeof kBytes);
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status = lib.cublasLtMatmulAlgoGetHeuristic(s.handle, s.product, s.b, s.a, s.d, s.d,
                                                                   preference, 1, &best, &found);
  lib.cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0)
    throw BadRequest(concat("cuBLASLt offers no kernel for m = ", m, ", n = ", n, ", k = ", k));
  s.algorithm = best.algo;
  s.workspace_bytes = best.workspaceSize;
}

Matmul::~Matmul() = default;

std::int64_t Matmul::workspace_bytes() const {
  return static_cast<std::int64_t>(state_->workspace_bytes);
}

void Matmul::enqueue(const void* a, const void* b, void* d, void* workspace, Stream stream) const {
  const State& s = *state_;
  const float beta = 0.0F;
  const CaptureAllowed allowed;  // the library loads a kernel when it is first launched
  check(library().cublasLtMatmul(s.handle, s.product, &s.alpha, b, s.b, a, s.a, &beta, d, s.d, d, s.d,
                                 &s.algorithm, workspace, s.workspace_bytes, stream),
        "cublasLtMatmul");
}

std::int64_t Matmul::version() {
  return why_not().empty() ? static_cast<std::int64_t>(library().cublasLtGetVersion()) : 0;
}

}  // namespace fwht::cublaslt

#endif
