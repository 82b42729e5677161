// CUDA errors as exceptions that carry expression, place and values. Included by CUDA sources only.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <stdexcept>
#include <string>

namespace fwht {

class CudaError : public std::runtime_error {
 public:
  CudaError(cudaError_t status, const std::string& what) : std::runtime_error(what), status_(status) {}
  cudaError_t status() const { return status_; }

 private:
  cudaError_t status_;
};

inline void check_cuda(cudaError_t status, const char* expression, const std::string& values = {},
                       std::source_location place = std::source_location::current()) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clear the sticky copy, so that the next call reports its own error
  throw CudaError(status, std::string(expression) + " failed: " + cudaGetErrorName(status) + " (" +
                              cudaGetErrorString(status) + ")" + (values.empty() ? "" : " with " + values) +
                              " at " + place.file_name() + ":" + std::to_string(place.line()));
}

}  // namespace fwht

// A macro, because only the preprocessor can put the expression into the message.
#define FWHT_CUDA(expression) ::fwht::check_cuda((expression), #expression)
