// The C ABI of Walsh spectra, convolutions, rounds and sketches.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "common/host/error.hpp"
#include "fwht.h"
#include "python/src/abi.hpp"
#include "variants/library/walsh.hpp"

using namespace fwht::c_abi;

namespace {

fwht::Dtype dtype_of(std::int32_t code) {
  const auto dtype = static_cast<fwht::Dtype>(code);
  if (std::find(std::begin(fwht::kEveryDtype), std::end(fwht::kEveryDtype), dtype) ==
      std::end(fwht::kEveryDtype)) {
    throw fwht::BadRequest("dtype=" + std::to_string(code) + " is unknown");
  }
  return dtype;
}

template <class Pointer>
Pointer required_pointer(const char* name, Pointer pointer) {
  if (pointer == nullptr) throw fwht::BadRequest(std::string(name) + " is a null pointer");
  return pointer;
}

std::span<const void* const> signs_of_rounds(const void* const* signs, std::int32_t count) {
  if (count < 1) throw fwht::BadRequest("count=" + std::to_string(count) + " must be at least 1");
  return {required_pointer("signs", signs), static_cast<std::size_t>(count)};
}

/// Four numbers each.
fwht::walsh::SpectrumSummary* summaries_at(std::int64_t* numbers) {
  static_assert(sizeof(fwht::walsh::SpectrumSummary) == 4 * sizeof(std::int64_t));
  return reinterpret_cast<fwht::walsh::SpectrumSummary*>(numbers);
}

}  // namespace

extern "C" {

fwht_status fwht_walsh_spectrum(int32_t form, const void* values, int32_t variables, int64_t functions,
                                int32_t* spectra, int32_t threads) {
  return guarded([&] {
    fwht::walsh::spectrum(static_cast<fwht::walsh::FunctionForm>(form), values, variables, functions, spectra,
                          threads);
  });
}

fwht_status fwht_walsh_spectrum_on(int32_t form, const void* values, int32_t variables, int64_t functions,
                                   int32_t* spectra, int32_t device, void* stream) {
  return guarded([&] {
    fwht::walsh::spectrum_on_device(static_cast<fwht::walsh::FunctionForm>(form), values, variables,
                                    functions, spectra, static_cast<fwht::Stream>(stream), device);
  });
}

fwht_status fwht_walsh_summary(const int32_t* spectrum, int32_t variables, fwht_spectrum_summary* summary) {
  return guarded([&] {
    const fwht_spectrum_summary known = read(summary, sizeof(fwht_spectrum_summary), "fwht_spectrum_summary");
    const fwht::walsh::SpectrumSummary found = fwht::walsh::summarize(spectrum, variables);
    *summary = {known.struct_size, found.largest, found.place, found.nonlinearity, found.sum_of_squares};
  });
}

fwht_status fwht_walsh_summaries(int32_t form, const void* values, int32_t variables, int64_t functions,
                                 int64_t* summaries, int32_t threads) {
  return guarded([&] {
    fwht::walsh::summarize(static_cast<fwht::walsh::FunctionForm>(form), values, variables, functions,
                           summaries_at(summaries), threads);
  });
}

fwht_status fwht_walsh_summaries_on(int32_t form, const void* values, int32_t variables, int64_t functions,
                                    int64_t* summaries, void* workspace, int64_t workspace_bytes,
                                    int32_t device, void* stream) {
  return guarded([&] {
    fwht::walsh::summarize_on_device(static_cast<fwht::walsh::FunctionForm>(form), values, variables,
                                     functions, summaries_at(summaries), workspace, workspace_bytes,
                                     static_cast<fwht::Stream>(stream), device);
  });
}

fwht_status fwht_walsh_summaries_workspace(int32_t variables, int64_t functions, int64_t* bytes) {
  return guarded([&] {
    *required_pointer("bytes", bytes) = fwht::walsh::summary_workspace_bytes(variables, functions);
  });
}

fwht_status fwht_walsh_largest(const int32_t* spectrum, int32_t variables, int64_t count, int64_t* places,
                               int32_t* values) {
  return guarded([&] {
    required_pointer("places", places);
    required_pointer("values", values);
    for (const fwht::walsh::Coefficient& each : fwht::walsh::largest(spectrum, variables, count)) {
      *places++ = each.place;
      *values++ = each.value;
    }
  });
}

fwht_status fwht_walsh_largest_of(int32_t form, const void* values, int32_t variables, int64_t count,
                                  int64_t* places, int32_t* sums, int32_t threads) {
  return guarded([&] {
    required_pointer("places", places);
    required_pointer("sums", sums);
    const auto of = static_cast<fwht::walsh::FunctionForm>(form);
    for (const fwht::walsh::Coefficient& each : fwht::walsh::largest(of, values, variables, count, threads)) {
      *places++ = each.place;
      *sums++ = each.value;
    }
  });
}

fwht_status fwht_walsh_largest_of_on(int32_t form, const void* values, int32_t variables, int64_t count,
                                     int64_t* places, int32_t* sums, void* workspace, int64_t workspace_bytes,
                                     int32_t device, void* stream) {
  return guarded([&] {
    fwht::walsh::largest_on_device(static_cast<fwht::walsh::FunctionForm>(form), values, variables, count,
                                   places, sums, workspace, workspace_bytes,
                                   static_cast<fwht::Stream>(stream), device);
  });
}

fwht_status fwht_walsh_largest_of_workspace(int32_t variables, int64_t count, int64_t* bytes) {
  return guarded(
      [&] { *required_pointer("bytes", bytes) = fwht::walsh::largest_workspace_bytes(variables, count); });
}

fwht_status fwht_count_overflows(const fwht_problem* problem, const void* in, int64_t* count) {
  return guarded([&] {
    required_pointer("count", count);
    const auto request = read_problem(problem);
    *count = fwht::walsh::overflows(request.problem, in, request.threads);
  });
}

fwht_status fwht_dyadic_convolution(int32_t dtype, int64_t n, int64_t rows, const void* a, const void* b,
                                    void* out, int32_t threads) {
  return guarded([&] { fwht::walsh::dyadic_convolution(dtype_of(dtype), n, rows, a, b, out, threads); });
}

fwht_status fwht_dyadic_convolution_on(int32_t dtype, int64_t n, int64_t rows, const void* a, const void* b,
                                       void* out, void* workspace, int64_t workspace_bytes, int32_t device,
                                       void* stream) {
  return guarded([&] {
    fwht::walsh::dyadic_convolution_on_device(dtype_of(dtype), n, rows, a, b, out, workspace, workspace_bytes,
                                              static_cast<fwht::Stream>(stream), device);
  });
}

fwht_status fwht_dyadic_convolution_workspace(int32_t dtype, int64_t n, int64_t rows, int32_t autocorrelation,
                                              int32_t device, int64_t* bytes) {
  return guarded([&] {
    *required_pointer("bytes", bytes) =
        fwht::walsh::convolution_workspace_bytes(dtype_of(dtype), n, rows, autocorrelation != 0, device);
  });
}

fwht_status fwht_random_signs(int64_t n, uint64_t seed, uint32_t* words) {
  return guarded([&] {
    required_pointer("words", words);
    const std::vector<std::uint32_t> made = fwht::walsh::random_signs(n, seed);
    std::copy(made.begin(), made.end(), words);
  });
}

fwht_status fwht_random_rows(int64_t n, int64_t count, uint64_t seed, int64_t* rows) {
  return guarded([&] {
    const std::vector<std::int64_t> made = fwht::walsh::random_rows(n, count, seed);
    if (!made.empty()) std::copy(made.begin(), made.end(), required_pointer("rows", rows));
  });
}

fwht_status fwht_rounds(int32_t dtype, int64_t n, int64_t rows, int32_t count, const void* const* signs,
                        const void* in, void* out, int32_t threads) {
  return guarded([&] {
    fwht::walsh::rounds(dtype_of(dtype), n, rows, signs_of_rounds(signs, count), in, out, threads);
  });
}

fwht_status fwht_rounds_on(int32_t dtype, int64_t n, int64_t rows, int32_t transposed, int32_t count,
                           const uint32_t* signs, const void* in, void* out, int32_t device, void* stream) {
  return guarded([&] {
    fwht::walsh::rounds_on_device(dtype_of(dtype), n, rows, transposed != 0, count, signs, in, out,
                                  static_cast<fwht::Stream>(stream), device);
  });
}

fwht_status fwht_rounds_to_codes(int64_t n, int64_t rows, int32_t count, const void* const* signs,
                                 const float* in, int32_t bits, void* codes, float* scales, int32_t threads) {
  return guarded([&] {
    fwht::walsh::rounds_to_codes(n, rows, signs_of_rounds(signs, count), in, bits, codes, scales, threads);
  });
}

fwht_status fwht_rounds_to_codes_on(int64_t n, int64_t rows, int32_t count, const uint32_t* signs,
                                    const float* in, int32_t bits, void* codes, float* scales, int32_t device,
                                    void* stream) {
  return guarded([&] {
    fwht::walsh::rounds_to_codes_on_device(n, rows, count, signs, in, bits, codes, scales,
                                           static_cast<fwht::Stream>(stream), device);
  });
}

fwht_status fwht_sketch(int32_t dtype, int64_t length, int64_t m, uint64_t seed, int64_t vectors,
                        const void* in, void* out, int32_t threads) {
  return guarded([&] { fwht::walsh::sketch({length, m, seed}, dtype_of(dtype), vectors, in, out, threads); });
}

fwht_status fwht_sketch_table(int64_t length, int64_t m, uint64_t seed, uint32_t* words) {
  return guarded([&] {
    required_pointer("words", words);
    const std::vector<std::uint32_t> made = fwht::walsh::sketch_table({length, m, seed});
    std::copy(made.begin(), made.end(), words);
  });
}

fwht_status fwht_sketch_on(int32_t dtype, int64_t length, int64_t m, int32_t transposed, int64_t vectors,
                           const uint32_t* table, const void* in, void* out, void* workspace,
                           int64_t workspace_bytes, int32_t device, void* stream) {
  return guarded([&] {
    fwht::walsh::sketch_on_device({length, m}, transposed != 0, dtype_of(dtype), vectors, table, in, out,
                                  workspace, workspace_bytes, static_cast<fwht::Stream>(stream), device);
  });
}

fwht_status fwht_sketch_workspace(int32_t dtype, int64_t length, int64_t m, int64_t vectors, int32_t device,
                                  int64_t* bytes) {
  return guarded([&] {
    *required_pointer("bytes", bytes) =
        fwht::walsh::sketch_workspace_bytes({length, m}, dtype_of(dtype), vectors, device);
  });
}

}  // extern "C"
