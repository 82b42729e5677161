// The three entries of the registry. What they can do is decided here without Kokkos, so that the answer is
// the same on every machine; plans come from the modules (see module.hpp).
#include "variants/kokkos/kokkos.hpp"

#include <vector>

#include "common/contract/hadamard_matrices.hpp"
#include "common/contract/operator_data.hpp"
#include "common/host/text.hpp"
#include "kokkos_config.hpp"
#include "variants/cpu/kronecker.hpp"
#include "variants/kokkos/module.hpp"

namespace fwht::kokkos {
namespace {

Support built_without(std::string_view what, std::string_view why) {
  return {concat("built without ", what, " (", why, ")")};
}

/// Operators of several factors, or with signs: those of `cpu`.
Support supports_factors(const Problem& problem, std::int64_t largest) {
  if (Support rows = require_plain_rows(problem); !rows) return rows;
  if (problem.n() < 2 || problem.n() > largest)
    return {concat("n=", problem.n(), " must be between 2 and ", largest)};
  return cpu::require_factors(problem.op);
}

Support serial_supports(const Problem& problem, const DeviceInfo&) {
  if (!config::kWhyNoHost.empty()) return built_without("Kokkos", config::kWhyNoHost);
  if (Support launch = require_ordinary_launch(problem); !launch) return launch;
  if (!problem.op.is_sylvester()) return supports_factors(problem, kLargestHostFactorsN);
  if (Support strides = require_one_row_stride(problem); !strides) return strides;
  return require_sylvester(problem, 2, kLargestHostN);
}

Support openmp_supports(const Problem& problem, const DeviceInfo& device) {
  if (!config::kWhyNoHost.empty()) return built_without("Kokkos", config::kWhyNoHost);
  if (!config::kWhyNoOpenmp.empty()) return built_without("Kokkos OpenMP", config::kWhyNoOpenmp);
  return serial_supports(problem, device);
}

Support cuda_supports(const Problem& problem, const DeviceInfo& device) {
  if (!config::kWhyNoCuda.empty()) return built_without("Kokkos CUDA", config::kWhyNoCuda);
  if (Support support = require_cuda(device); !support) return support;
  if (device.compute_capability() < config::kCudaArchitecture) {
    return built_without(
        "Kokkos CUDA",
        concat("the module was compiled for compute capability ", config::kCudaArchitecture, ", ",
               device.name, " has ", device.compute_capability(), "; FWHT_KOKKOS_CUDA_ARCHITECTURE chooses"));
  }
  if (Support launch = require_ordinary_launch(problem); !launch) return launch;
  if (!problem.op.is_sylvester()) return supports_factors(problem, kLargestDeviceFactorsN);
  if (Support strides = require_one_row_stride(problem); !strides) return strides;
  return require_sylvester(problem, 2, kLargestTiledN);
}

std::vector<float> named_entries(const Operator& op) {
  std::vector<float> entries;
  for (const Factor& factor : op.factors()) {
    if (!factor.is_named()) continue;
    const SignMatrix& matrix = named_matrix(factor);
    for (int i = 0; i < factor.order; ++i) {
      for (int j = 0; j < factor.order; ++j)
        entries.push_back(static_cast<float>(matrix(i, j)));
    }
  }
  return entries;
}

template <Space space>
std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  const char* file = space == Space::cuda ? config::kCudaModule : config::kHostModule;
  static constexpr Library library{named_entries, check_dense, host_threads};
  return load_module(file).make_plan(space, problem, device, library);
}

}  // namespace

const Variant serial_variant{"kokkos_serial",
                             "Kokkos on one CPU thread: SIMD packs, radix-256 first pass, cached fp32 row",
                             Memory::host, serial_supports, make_plan<Space::serial>};

const Variant openmp_variant{"kokkos_openmp",
                             "kokkos_serial's row on every thread: a Kokkos league over groups of rows",
                             Memory::host, openmp_supports, make_plan<Space::openmp>};

const Variant cuda_variant{
    "kokkos_cuda", "Kokkos teams: radix-16 and radix-32 register passes between fp32 scratch exchanges",
    Memory::device, cuda_supports, make_plan<Space::cuda>};

}  // namespace fwht::kokkos
