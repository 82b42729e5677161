#include "variants/library/walsh.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "common/device/device_info.hpp"
#include "common/device/stream_query.hpp"
#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/overlap.hpp"
#include "common/host/parallel_for.hpp"
#include "common/host/text.hpp"
#include "variants/cpu/cpu.hpp"
#include "variants/library/convolved_rows.hpp"
#include "variants/library/function_rows.hpp"
#include "variants/library/rounded_rows.hpp"
#include "variants/library/sketched_rows.hpp"
#include "variants/library/transform.hpp"
#include "variants/passes/passes.hpp"

namespace fwht::walsh {
namespace {

int threads_or_all(int threads) {
  if (threads < 0) throw BadRequest(concat("threads=", threads, " must not be negative"));
  const int most = host_threads();
  return threads == 0 ? most : std::min(threads, most);
}

/// A thread costs as much as tens of thousands of elements.
int threads_for(std::int64_t elements, int threads) {
  return static_cast<int>(std::clamp<std::int64_t>(elements >> 16, 1, threads_or_all(threads)));
}

void require(const char* name, const void* pointer, std::int64_t alignment = 1) {
  if (pointer == nullptr) throw BadRequest(concat(name, " is a null pointer"));
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address % static_cast<std::uintptr_t>(alignment) != 0)
    throw BadRequest(concat(name, "=", hex(address), " must be aligned to ", alignment, " bytes"));
}

void require_variables(int variables, int least) {
  if (variables >= least && variables <= kMostVariables) return;
  throw BadRequest(concat("variables=", variables, " must be between ", least, " and ", kMostVariables));
}

const DeviceInfo& existing_device(int ordinal) {
  const DeviceInfo& info = known_device(ordinal);
  if (!info.has_cuda()) throw NoCuda(info.why_no_cuda);
  return info;
}

/// @param what  how the caller's parameter of `rows` is called
void require_rows(std::int64_t n, std::int64_t rows, const char* what = "rows") {
  constexpr std::int64_t kMostN = std::int64_t{1} << 30;
  if (!is_power_of_two(n) || n < 2 || n > kMostN)
    throw BadRequest(concat("n=", n, " must be a power of two between 2 and ", kMostN));
  if (rows < 0 || rows > std::numeric_limits<std::int64_t>::max() / 16 / n)
    throw BadRequest(concat(what, "=", rows, " must be at least 0, and times n=", n, " below 2^59"));
}

std::unique_ptr<Plan> plan_on_host(const Problem& problem, int threads) {
  DeviceInfo host;
  host.host_threads = threads_or_all(threads);
  return plan(cpu::variant, problem, host);
}

std::unique_ptr<Plan> plan_on_host(Dtype dtype, std::int64_t n, std::int64_t rows, double scale,
                                   int threads) {
  Problem problem = make_problem(dtype, n, rows);
  problem.scale = scale;
  return plan_on_host(problem, threads);
}

void require_form(FunctionForm form) {
  if (form == FunctionForm::packed || form == FunctionForm::bits || form == FunctionForm::signs) return;
  throw BadRequest(concat("form ", static_cast<int>(form), " is unknown; known: packed, bits, signs"));
}

/// +1 or -1 for f(place).
std::int32_t sign_at(FunctionForm form, const std::uint8_t* values, std::int64_t place) {
  if (form == FunctionForm::packed) return (values[place / 8] >> (place % 8) & 1) != 0 ? -1 : 1;
  const int value = form == FunctionForm::bits ? values[place] : static_cast<std::int8_t>(values[place]);
  if (form == FunctionForm::bits && (value == 0 || value == 1)) return 1 - 2 * value;
  if (form == FunctionForm::signs && (value == 1 || value == -1)) return value;
  const bool signs = form == FunctionForm::signs;
  throw BadRequest(
      concat("element ", place, " is ", value, ", but the form ", signs ? "signs" : "bits", " has ",
             signs ? "1 and -1; 0 and 1 are the form bits" : "0 and 1; 1 and -1 are the form signs"));
}

void require_functions(FunctionForm form, int variables, std::int64_t functions) {
  require_form(form);
  require_variables(variables, form == FunctionForm::packed ? 3 : 1);
  require_rows(std::int64_t{1} << variables, functions, "functions");
}

std::int64_t bytes_of_functions(FunctionForm form, int variables, std::int64_t functions) {
  return (functions << variables) / (form == FunctionForm::packed ? 8 : 1);
}

void require_workspace(const void* workspace, std::int64_t bytes, std::int64_t needed,
                       std::int64_t alignment = 16) {
  if (needed == 0) return;
  require("workspace", workspace, alignment);
  if (bytes < needed) throw BadRequest(concat("workspace_bytes=", bytes, " must be at least ", needed));
}

/// Of functions [first, first + count).
void write_spectra(FunctionForm form, const void* values, int variables, std::int64_t first,
                   std::int64_t count, std::int32_t* spectra, int threads) {
  const std::int64_t n = std::int64_t{1} << variables;
  const auto* const bytes = static_cast<const std::uint8_t*>(values);
  constexpr std::int64_t kPiece = 8;  // of whole bytes; every function begins with one
  const std::int64_t piece = std::min(n, kPiece);
  parallel_for(n * count / piece, threads_for(n * count, threads), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * piece; i < end * piece; ++i)
      spectra[i] = sign_at(form, bytes, first * n + i);
  });
  plan_on_host(Dtype::i32, n, count, 1.0, threads)->execute(spectra, spectra);
}

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t seed) {
  auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0],
                        b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(a)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

template <class Number>
double length_of(const Number* row, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i)
    sum += static_cast<double>(row[i]) * static_cast<double>(row[i]);
  return std::sqrt(sum);
}

template <Dtype dtype, class Number>
void convolve(std::int64_t n, std::int64_t rows, const Number* a, const Number* b, Number* out, int threads) {
  const auto length = static_cast<std::size_t>(n);
  std::vector<Number> x(length), y(length);
  const auto sums = plan_on_host(dtype, n, 1, 1.0, threads);
  if constexpr (is_integer(dtype)) {  // of all rows first: a and b may be where the results go
    for (std::int64_t r = 0; r < rows; ++r) {
      // By Cauchy and Schwarz no sum of products of spectra is larger; 2^-20 for the rounding of the lengths.
      const double bound =
          static_cast<double>(n) * length_of(a + r * n, n) * length_of(b + r * n, n) * (1 + 0x1p-20);
      constexpr int kBits = 8 * sizeof(Number) - 1;
      if (!(bound < std::ldexp(1.0, kBits)))
        throw BadRequest(concat("row ", r, ": n |a| |b| = ", bound, " must be below 2^", kBits,
                                ", where no sum can wrap"));
    }
  }
  for (std::int64_t r = 0; r < rows; ++r, a += n, b += n, out += n) {
    std::copy_n(a, n, x.data());
    std::copy_n(b, n, y.data());
    sums->execute(x.data(), x.data());
    sums->execute(y.data(), y.data());
    for (std::size_t i = 0; i < length; ++i)
      x[i] = product_of_spectra(x[i], y[i], static_cast<Number>(1.0 / static_cast<double>(n)));
    sums->execute(x.data(), x.data());
    for (std::size_t i = 0; i < length; ++i)
      out[i] = is_integer(dtype) ? x[i] / static_cast<Number>(n) : x[i];  // without a remainder
  }
}

/// Bare sums over the `above` highest index bits of vectors: those of a dimension of a tensor.
Problem columns_above(Dtype dtype, int row_bits, int above, std::int64_t vectors) {
  Problem problem = make_problem(dtype, std::int64_t{1} << above, vectors << row_bits);
  problem.scale = 1;
  problem.inner = std::int64_t{1} << row_bits;
  problem.set_row_stride(problem.block_elements());
  return problem;
}

void require_convolution(Dtype dtype, std::int64_t n, std::int64_t rows) {
  require_rows(n, rows);
  if (dtype != Dtype::f32 && dtype != Dtype::f64 && !is_integer(dtype))
    throw BadRequest(
        concat("dtype ", name_of(dtype), " must be f32, f64, i32 or i64 for dyadic convolutions"));
}

void require_apart(const char* a, const void* at_a, std::int64_t bytes_a, const char* b, const void* at_b,
                   std::int64_t bytes_b) {
  if (!overlap(at_a, bytes_a, at_b, bytes_b)) return;
  const auto first = reinterpret_cast<std::uintptr_t>(at_a), second = reinterpret_cast<std::uintptr_t>(at_b);
  throw BadRequest(concat(a, "=", hex(first), " and ", b, "=", hex(second), ", of ", bytes_a, " and ",
                          bytes_b, " bytes, overlap"));
}

struct Extent {
  const char* name;
  const void* at;
  std::int64_t bytes;
};

/// The first `written` of them, which launches write, lie apart from one another and from the others.
void require_apart(std::span<const Extent> all, std::size_t written) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t w = 0; w < std::min(i, written); ++w) {
      if (all[i].bytes > 0 && all[w].bytes > 0)
        require_apart(all[w].name, all[w].at, all[w].bytes, all[i].name, all[i].at, all[i].bytes);
    }
  }
}

void require_same_or_apart(const char* a, const void* at_a, const char* b, const void* at_b,
                           std::int64_t bytes) {
  if (at_a != at_b) require_apart(a, at_a, bytes, b, at_b, bytes);
}

ConvolutionPasses passes_of_convolution(Dtype dtype, std::int64_t n, const DeviceInfo& device) {
  return convolution_passes(passes::word_of(dtype), log2_floor(n), device.shared_bytes_per_block);
}

/// convolve_in_passes on a device, whose launches but the first begin before the one in front ends.
struct DeviceConvolution {
  Dtype dtype;
  ConvolutionPasses passes;
  const DeviceInfo& info;
  Stream stream;
  int device;
  bool begins = true;

  void columns(const std::byte* in, std::byte* out, std::int64_t vectors) {
    Problem above = columns_above(dtype, passes.row_bits, passes.above, vectors);
    above.placement = in == out ? Placement::in_place : Placement::out_of_place;
    above.programmatic_launch = is_programmatic();
    fwht::transform(passes::variant, {in, out}, above, stream, device);
  }
  void columns_back(std::byte* data, std::int64_t vectors) {
    if (!is_integer(dtype)) return columns(data, data, vectors);
    launch_divided_passes(
        {dtype, passes.row_bits + passes.above, passes.row_bits, vectors, data, is_programmatic()}, info,
        stream);
  }
  void rows(const std::byte* a, const std::byte* b, std::byte* out, std::int64_t count) {
    launch_convolved_rows({dtype, passes.row_bits, count, passes.above, a, b, out, is_programmatic()}, info,
                          stream);
  }

 private:
  bool is_programmatic() {
    const bool first = std::exchange(begins, false);
    return !first && require_programmatic_launch(info);
  }
};

}  // namespace

void spectrum(FunctionForm form, const void* values, int variables, std::int64_t functions,
              std::int32_t* spectra, int threads) {
  require_functions(form, variables, functions);
  if (functions == 0) return;
  require("values", values);
  require("spectra", spectra, 4);
  require_apart("values", values, bytes_of_functions(form, variables, functions), "spectra", spectra,
                (functions << variables) * std::int64_t{sizeof *spectra});
  write_spectra(form, values, variables, 0, functions, spectra, threads);
}

void spectrum_on_device(FunctionForm form, const void* values, int variables, std::int64_t functions,
                        std::int32_t* spectra, Stream stream, int device) {
  require_functions(form, variables, functions);
  if (functions == 0) return;
  require("values", values, form == FunctionForm::packed ? 4 : 1);
  require("spectra", spectra, 4);
  require_apart("values", values, bytes_of_functions(form, variables, functions), "spectra", spectra,
                (functions << variables) * std::int64_t{sizeof *spectra});
  const DeviceScope scope(device);
  require_reachable("values", values, device);
  require_reachable("spectra", spectra, device);
  if (variables < kFewestVariablesInPasses)
    return launch_short_functions(form, values, variables, functions, spectra, nullptr, known_device(device),
                                  stream);
  launch_function_rows(form, values, variables, functions, spectra, stream);
  const int row_bits = function_row_bits(variables);
  fwht::transform(passes::variant, {spectra, spectra},
                  columns_above(Dtype::i32, row_bits, variables - row_bits, functions), stream, device);
}

namespace {

/// Sums over all bits but those of summary_passes().last, of functions of many variables.
void sum_lower_bits(FunctionForm form, const void* values, int variables, std::int64_t functions,
                    std::int32_t* sums, Stream stream, int device) {
  launch_function_rows(form, values, variables, functions, sums, stream);
  const SummaryPasses above = summary_passes(variables);
  if (above.middle == 0) return;
  fwht::transform(
      passes::variant, {sums, sums},
      columns_above(Dtype::i32, function_row_bits(variables), above.middle, functions << above.last), stream,
      device);
}

/// Places in a workspace.
class Pieces {
 public:
  explicit Pieces(void* begin) : begin_(static_cast<std::byte*>(begin)) {}
  template <class T>
  T* take(std::int64_t count) {
    std::byte* const at = begin_ == nullptr ? nullptr : begin_ + bytes_;
    bytes_ += ceil_div(count * std::int64_t{sizeof(T)}, 256) * 256;
    return reinterpret_cast<T*>(at);
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* begin_;
  std::int64_t bytes_ = 0;
};

struct LargestWorkspace {
  std::int32_t* sums;
  LargestRoom room;
  std::int64_t bytes;
  LargestWorkspace(void* begin, int variables, std::int64_t count) {
    Pieces pieces(begin);
    sums = pieces.take<std::int32_t>(std::int64_t{1} << variables);
    room.numbers = pieces.take<unsigned long long>(largest_numbers(variables));
    room.kept = pieces.take<unsigned long long>(kMostLargest);
    room.candidates = pieces.take<unsigned long long>(largest_candidates(variables, count));
    bytes = pieces.bytes();
  }
};

void require_count(std::int64_t count, std::int64_t most) {
  if (count < 1 || count > most) throw BadRequest(concat("count=", count, " must be between 1 and ", most));
}

}  // namespace

std::int64_t largest_workspace_bytes(int variables, std::int64_t count) {
  require_functions(FunctionForm::bits, variables, 1);
  require_count(count, std::min<std::int64_t>(kMostLargest, std::int64_t{1} << variables));
  return LargestWorkspace(nullptr, variables, count).bytes;
}

void largest_on_device(FunctionForm form, const void* values, int variables, std::int64_t count,
                       std::int64_t* places, std::int32_t* sums, void* workspace,
                       std::int64_t workspace_bytes, Stream stream, int device) {
  require_functions(form, variables, 1);
  require("values", values, form == FunctionForm::packed ? 4 : 1);
  require("places", places, 8);
  require("sums", sums, 4);
  const std::int64_t needed = largest_workspace_bytes(variables, count);
  require_workspace(workspace, workspace_bytes, needed, 256);
  const Extent all[] = {{"places", places, count * std::int64_t{sizeof *places}},
                        {"sums", sums, count * std::int64_t{sizeof *sums}},
                        {"workspace", workspace, needed},
                        {"values", values, bytes_of_functions(form, variables, 1)}};
  require_apart(all, 3);
  const DeviceScope scope(device);
  for (const Extent& each : all)
    require_reachable(each.name, each.at, device);
  const LargestWorkspace work(workspace, variables, count);
  int bits = 0;
  if (variables < kFewestVariablesInPasses) {
    spectrum_on_device(form, values, variables, 1, work.sums, stream, device);
  } else {
    sum_lower_bits(form, values, variables, 1, work.sums, stream, device);
    bits = summary_passes(variables).last;
  }
  launch_largest(work.sums, variables, bits, work.room, static_cast<int>(count), places, sums,
                 known_device(device), stream);
}

std::vector<Coefficient> largest(FunctionForm form, const void* values, int variables, std::int64_t count,
                                 int threads) {
  require_functions(form, variables, 1);  // before memory is taken, up to 4 GiB
  require("values", values);
  require_count(count, std::int64_t{1} << variables);
  std::vector<std::int32_t> sums(std::size_t{1} << variables);
  spectrum(form, values, variables, 1, sums.data(), threads);
  return largest(sums.data(), variables, count);
}

std::int64_t summary_workspace_bytes(int variables, std::int64_t functions) {
  require_functions(FunctionForm::bits, variables, functions);
  if (variables < kFewestVariablesInPasses || functions == 0) return 0;
  return summed_together(variables, functions) * std::int64_t{sizeof(std::int32_t)} << variables;
}

void summarize_on_device(FunctionForm form, const void* values, int variables, std::int64_t functions,
                         SpectrumSummary* summaries, void* workspace, std::int64_t workspace_bytes,
                         Stream stream, int device) {
  require_functions(form, variables, functions);
  if (functions == 0) return;
  require("values", values, form == FunctionForm::packed ? 4 : 1);
  require("summaries", summaries, 8);
  const std::int64_t needed = summary_workspace_bytes(variables, functions);
  require_workspace(workspace, workspace_bytes, needed);
  const Extent all[] = {{"summaries", summaries, functions * std::int64_t{sizeof *summaries}},
                        {"workspace", workspace, needed},
                        {"values", values, bytes_of_functions(form, variables, functions)}};
  require_apart(all, 2);
  const DeviceScope scope(device);
  require_reachable("values", values, device);
  require_reachable("summaries", summaries, device);
  const DeviceInfo& info = known_device(device);
  if (variables < kFewestVariablesInPasses)
    return launch_short_functions(form, values, variables, functions, nullptr, summaries, info, stream);
  require_reachable("workspace", workspace, device);
  auto* const sums = static_cast<std::int32_t*>(workspace);
  const std::int64_t together = summed_together(variables, functions),
                     bytes = bytes_of_functions(form, variables, 1);
  clear_summaries(summaries, functions, stream);
  for (std::int64_t first = 0; first < functions; first += together) {
    const std::int64_t count = std::min(together, functions - first);
    sum_lower_bits(form, static_cast<const std::uint8_t*>(values) + first * bytes, variables, count, sums,
                   stream, device);
    launch_summed_pass(sums, variables, summary_passes(variables).last, count, summaries + first, info,
                       stream);
  }
  launch_finish_summaries(summaries, variables, functions, stream);
}

void summarize(FunctionForm form, const void* values, int variables, std::int64_t functions,
               SpectrumSummary* summaries, int threads) {
  require_functions(form, variables, functions);
  if (functions == 0) return;
  require("values", values);
  require("summaries", summaries, 8);
  require_apart("values", values, bytes_of_functions(form, variables, functions), "summaries", summaries,
                functions * std::int64_t{sizeof *summaries});
  // Of many short functions as many at once as take a transform's time.
  const std::int64_t n = std::int64_t{1} << variables;
  const std::int64_t together = std::clamp<std::int64_t>((std::int64_t{1} << 20) / n, 1, functions);
  std::vector<std::int32_t> spectra(static_cast<std::size_t>(together * n));
  for (std::int64_t first = 0; first < functions; first += together) {
    const std::int64_t count = std::min(together, functions - first);
    write_spectra(form, values, variables, first, count, spectra.data(), threads);
    for (std::int64_t i = 0; i < count; ++i)
      summaries[first + i] = summarize(spectra.data() + i * n, variables);
  }
}

SpectrumSummary summarize(const std::int32_t* spectrum, int variables) {
  require_variables(variables, 1);
  require("spectrum", spectrum, 4);
  SpectrumSummary summary;
  for (std::int64_t a = 0; a < std::int64_t{1} << variables; ++a) {
    const std::int64_t size = std::abs(std::int64_t{spectrum[a]});
    summary.sum_of_squares += static_cast<std::uint64_t>(size) * static_cast<std::uint64_t>(size);
    if (size > summary.largest) {
      summary.largest = size;
      summary.place = a;
    }
  }
  summary.nonlinearity = (std::int64_t{1} << (variables - 1)) - summary.largest / 2;
  return summary;
}

std::vector<Coefficient> largest(const std::int32_t* spectrum, int variables, std::int64_t count) {
  require_variables(variables, 1);
  require("spectrum", spectrum, 4);
  const std::int64_t n = std::int64_t{1} << variables;
  require_count(count, n);
  const auto comes_first = [](const Coefficient& a, const Coefficient& b) {
    const std::int64_t size_a = std::abs(std::int64_t{a.value}), size_b = std::abs(std::int64_t{b.value});
    return size_a != size_b ? size_a > size_b : a.place < b.place;
  };
  std::vector<Coefficient> kept;  // a heap whose front is the one to leave first
  kept.reserve(static_cast<std::size_t>(count));
  for (std::int64_t a = 0; a < n; ++a) {
    const Coefficient next{a, spectrum[a]};
    if (static_cast<std::int64_t>(kept.size()) == count) {
      if (!comes_first(next, kept.front())) continue;
      std::pop_heap(kept.begin(), kept.end(), comes_first);
      kept.pop_back();
    }
    kept.push_back(next);
    std::push_heap(kept.begin(), kept.end(), comes_first);
  }
  std::sort_heap(kept.begin(), kept.end(), comes_first);
  return kept;
}

std::int64_t overflows(const Problem& problem, const void* in, int threads) {
  validate(problem);
  const bool narrow = problem.dtype() == Dtype::i32;
  if (!is_integer(problem.dtype()) || !problem.contiguous() || !problem.is_arranged_plainly())
    throw BadRequest(concat(to_string(problem), " must be of contiguous rows of i32 or i64"));
  if (problem.rows == 0) return 0;
  require("in", in, bytes_of(problem.dtype()));
  const auto n = static_cast<std::size_t>(problem.n());
  Problem wide = make_problem(Dtype::i64, problem.op, 1);  // refused unless it is H_n
  wide.scale = 1.0;
  const auto forward = plan_on_host(wide, threads);
  std::vector<std::int64_t> high(n), low(narrow ? 0 : n);
  std::int64_t count = 0;
  for (std::int64_t r = 0; r < problem.rows; ++r) {
    for (std::size_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(r) * n + i;
      if (narrow) {
        high[i] = static_cast<const std::int32_t*>(in)[at];
      } else {  // 2^32 high + low
        const std::int64_t value = static_cast<const std::int64_t*>(in)[at];
        high[i] = value >> 32;
        low[i] = value & 0xFFFFFFFF;
      }
    }
    forward->execute(high.data(), high.data());
    if (!narrow) forward->execute(low.data(), low.data());
    for (std::size_t i = 0; i < n; ++i) {
      const std::int64_t top = (narrow ? high[i] : high[i] + (low[i] >> 32)) >> 31;
      count += top != 0 && top != -1 ? 1 : 0;
    }
  }
  return count;
}

void dyadic_convolution(Dtype dtype, std::int64_t n, std::int64_t rows, const void* a, const void* b,
                        void* out, int threads) {
  require_convolution(dtype, n, rows);
  if (rows == 0) return;
  for (const auto& [name, pointer] :
       {std::pair{"a", a}, std::pair{"b", b}, std::pair<const char*, const void*>{"out", out}})
    require(name, pointer, bytes_of(dtype));
  for (const auto& [name, pointer] : {std::pair{"a", a}, std::pair{"b", b}})
    require_same_or_apart(name, pointer, "out", out, rows * n * bytes_of(dtype));
  const auto by = [&]<Dtype kDtype, class Number>(Number*) {
    convolve<kDtype>(n, rows, static_cast<const Number*>(a), static_cast<const Number*>(b),
                     static_cast<Number*>(out), threads);
  };
  if (dtype == Dtype::f32) return by.operator()<Dtype::f32>(static_cast<float*>(nullptr));
  if (dtype == Dtype::f64) return by.operator()<Dtype::f64>(static_cast<double*>(nullptr));
  if (dtype == Dtype::i32) return by.operator()<Dtype::i32>(static_cast<std::int32_t*>(nullptr));
  by.operator()<Dtype::i64>(static_cast<std::int64_t*>(nullptr));
}

std::int64_t convolution_workspace_bytes(Dtype dtype, std::int64_t n, std::int64_t rows, bool autocorrelation,
                                         int device) {
  require_convolution(dtype, n, rows);
  const ConvolutionPasses passes = passes_of_convolution(dtype, n, existing_device(device));
  if (autocorrelation || rows == 0 || passes.above == 0) return 0;
  return convolved_together(dtype, log2_floor(n), rows) * n * bytes_of(dtype);
}

void dyadic_convolution_on_device(Dtype dtype, std::int64_t n, std::int64_t rows, const void* a,
                                  const void* b, void* out, void* workspace, std::int64_t workspace_bytes,
                                  Stream stream, int device) {
  require_convolution(dtype, n, rows);
  if (rows == 0) return;
  const std::int64_t bytes = rows * n * bytes_of(dtype);
  for (const auto& [name, pointer] :
       {std::pair{"a", a}, std::pair{"b", b}, std::pair<const char*, const void*>{"out", out}})
    require(name, pointer, bytes_of(dtype));
  for (const auto& [name, pointer] : {std::pair{"a", a}, std::pair{"b", b}})
    require_same_or_apart(name, pointer, "out", out, bytes);
  const DeviceScope scope(device);
  const std::int64_t needed = convolution_workspace_bytes(dtype, n, rows, a == b, device);
  require_workspace(workspace, workspace_bytes, needed);
  if (needed > 0) {
    for (const auto& [name, pointer] :
         {std::pair{"a", a}, std::pair{"b", b}, std::pair<const char*, const void*>{"out", out}})
      require_apart(name, pointer, bytes, "workspace", workspace, needed);
    require_reachable("workspace", workspace, device);
  }
  for (const auto& [name, pointer] :
       {std::pair{"a", a}, std::pair{"b", b}, std::pair<const char*, const void*>{"out", out}})
    require_reachable(name, pointer, device);
  const DeviceInfo& info = known_device(device);
  DeviceConvolution machine{dtype, passes_of_convolution(dtype, n, info), info, stream, device};
  convolve_in_passes(machine.passes, dtype, rows, static_cast<const std::byte*>(a),
                     a == b ? nullptr : static_cast<const std::byte*>(b), static_cast<std::byte*>(out),
                     static_cast<std::byte*>(workspace), machine);
}

std::vector<std::uint32_t> random_signs(std::int64_t n, std::uint64_t seed) {
  if (n < 1 || n > std::int64_t{1} << 37) throw BadRequest(concat("n=", n, " must be between 1 and 2^37"));
  std::vector<std::uint32_t> words;
  const auto count = static_cast<std::size_t>(ceil_div(n, 32));
  words.reserve(count + 3);
  for (std::uint32_t block = 0; words.size() < count; ++block) {
    const auto four = philox({block, 0, 0, 0}, seed);
    words.insert(words.end(), four.begin(), four.end());
  }
  words.resize(count);
  if (n % 32 != 0) words.back() &= (std::uint32_t{1} << (n % 32)) - 1;
  return words;
}

std::vector<std::int64_t> random_rows(std::int64_t n, std::int64_t count, std::uint64_t seed) {
  if (n < 0) throw BadRequest(concat("n=", n, " must not be negative"));
  if (count < 0 || count > n) throw BadRequest(concat("count=", count, " must be between 0 and n=", n));
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // as a sketch has: 8 GiB, five times that meanwhile
  if (count > kMost) throw BadRequest(concat("count=", count, " must be at most ", kMost));
  const auto draw = [&](std::int64_t i) {
    const auto words = philox({static_cast<std::uint32_t>(i),
                               static_cast<std::uint32_t>(static_cast<std::uint64_t>(i) >> 32), 1, 0},
                              seed);
    __extension__ using Wide = unsigned __int128;
    const Wide word = std::uint64_t{words[1]} << 32 | words[0];
    return i + static_cast<std::int64_t>(word * static_cast<std::uint64_t>(n - i) >> 64);
  };
  std::vector<std::int64_t> rows;
  rows.reserve(static_cast<std::size_t>(count));
  if (n / 4 <= count) {  // an array of all places takes no more memory than the map below, and no search
    std::vector<std::int64_t> content(static_cast<std::size_t>(n));
    std::iota(content.begin(), content.end(), std::int64_t{0});
    std::vector<bool> chosen(content.size());
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t& from = content[static_cast<std::size_t>(draw(i))];
      chosen[static_cast<std::size_t>(from)] = true;
      from = content[static_cast<std::size_t>(i)];
    }
    for (std::int64_t row = 0; row < n; ++row) {
      if (chosen[static_cast<std::size_t>(row)]) rows.push_back(row);
    }
    return rows;
  }
  std::unordered_map<std::int64_t, std::int64_t> moved;  // places of the shuffle that are not their own
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t from = draw(i);
    const auto content = [&](std::int64_t place) {
      const auto found = moved.find(place);
      return found == moved.end() ? place : found->second;
    };
    rows.push_back(content(from));
    moved[from] = content(i);
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

namespace {

/// The operator of a round: that of rows of n elements, with signs in front.
Operator require_rounds(std::int64_t n, std::int64_t rows, std::int64_t count) {
  if (n < 2) throw BadRequest(concat("n=", n, " must be at least 2"));
  const Operator op = operator_for(n);
  if (rows < 0 || rows > std::numeric_limits<std::int64_t>::max() / 16 / n)
    throw BadRequest(concat("rows=", rows, " must be at least 0, and times n=", n, " below 2^59"));
  if (count < 1) throw BadRequest(concat("count=", count, " must be at least 1"));
  return op.with_signs();
}

/// Before the first round is done, since `in` may be where it goes: the signs of all rounds are there, and
/// lie apart from what is written.
void require_signs(std::span<const void* const> signs, std::int64_t n, std::span<const Extent> written) {
  for (std::size_t i = 0; i < signs.size(); ++i) {
    const std::string name = concat("signs[", i, "]");
    require(name.c_str(), signs[i], 4);
    for (const Extent& each : written)
      require_apart(name.c_str(), signs[i], ceil_div(n, 32) * 4, each.name, each.at, each.bytes);
  }
}

void require_code_bits(std::int64_t n, int bits) {
  if (bits != 1 && bits != 4 && bits != 8) throw BadRequest(concat("bits=", bits, " must be 1, 4 or 8"));
  if (n * bits % 8 != 0)
    throw BadRequest(
        concat("n=", n, " must be a multiple of ", 8 / bits, ": codes of ", bits, " bits fill bytes"));
}

/// A row's signs, and the mean of its sizes.
void signs_of_row(const float* y, std::int64_t n, std::uint8_t* codes, float* scale) {
  double sum = 0;
  std::fill_n(codes, n / 8, std::uint8_t{0});
  for (std::int64_t i = 0; i < n; ++i) {
    sum += std::abs(static_cast<double>(y[i]));
    if (y[i] < 0) codes[i / 8] |= static_cast<std::uint8_t>(1U << i % 8);
  }
  *scale = static_cast<float>(sum / static_cast<double>(n));
}

RoundsTile require_rounds_tile(Dtype dtype, std::int64_t n, std::int64_t rows, int count) {
  if (dtype != Dtype::f32 && dtype != Dtype::f16 && dtype != Dtype::bf16)
    throw BadRequest(concat("dtype ", name_of(dtype), " must be f32, f16 or bf16 for rounds on a device"));
  const std::optional<RoundsTile> tile = find_rounds_tile(dtype, n);
  if (!tile) {
    throw BadRequest(
        concat("n=", n, " must be m 2^k between ", 1 << kSmallestRoundedRow, " and ", 1 << kLargestRoundedRow,
               " for rounds on a device, m 1, or 12, 20, 28 or 36 and k at least ", kFewestRoundedColumns));
  }
  require_rounds(n, rows, count);
  if (count > kMostRounds) throw BadRequest(concat("count=", count, " must be at most ", kMostRounds));
  return *tile;
}

void launch_on_device(Dtype dtype, RoundedRows work, std::int64_t out_bytes, Stream stream, int device) {
  const std::int64_t n = work.tile.n(), bytes = work.rows * n * bytes_of(dtype);
  require("signs", work.signs, 4);
  require("in", work.in, 16);
  require("out", work.out, 16);
  if (work.bits == 0) {
    require_same_or_apart("in", work.in, "out", work.out, bytes);
  } else {
    require("scales", work.scales, kScaleAlignment);
    require_apart("in", work.in, bytes, "out", work.out, out_bytes);
    for (const auto& [name, pointer, size] :
         {std::tuple{"in", work.in, bytes},
          std::tuple<const char*, const void*, std::int64_t>{"out", work.out, out_bytes}})
      require_apart(name, pointer, size, "scales", work.scales, 4 * work.rows);
    require_apart("signs", work.signs, work.count * n / 8, "scales", work.scales, 4 * work.rows);
  }
  require_apart("signs", work.signs, work.count * n / 8, "out", work.out, out_bytes);
  const DeviceScope scope(device);
  for (const auto& [name, pointer] : {std::pair<const char*, const void*>{"signs", work.signs},
                                      {"in", work.in},
                                      {"out", work.out},
                                      {"scales", work.scales}})
    if (pointer != nullptr) require_reachable(name, pointer, device);
  work.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(n)));
  launch_rounded_rows(dtype, work, known_device(device).sm_count, stream);
}

}  // namespace

std::optional<RoundsTile> find_rounds_tile(Dtype dtype, std::int64_t n) {
  if (n < 1 << kSmallestRoundedRow || n > 1 << kLargestRoundedRow) return std::nullopt;
  if (is_power_of_two(n)) return RoundsTile::of(dtype == Dtype::f32 ? 2 : 3, log2_floor(n));
  for (const int order : kRoundedOrders) {
    const std::int64_t columns = n / order;
    if (n % order == 0 && is_power_of_two(columns) && columns >= 1 << kFewestRoundedColumns)
      return RoundsTile::of(2, log2_floor(columns), order);
  }
  return std::nullopt;
}

void rounds(Dtype dtype, std::int64_t n, std::int64_t rows, std::span<const void* const> signs,
            const void* in, void* out, int threads) {
  const Operator op = require_rounds(n, rows, std::ssize(signs));
  if (dtype != Dtype::f32 && dtype != Dtype::f64 && dtype != Dtype::f16 && dtype != Dtype::bf16)
    throw BadRequest(concat("dtype ", name_of(dtype), " must be f32, f64, f16 or bf16 for rounds"));
  Problem problem = make_problem(dtype, op, rows);
  if (rows == 0) return;
  const Extent written[] = {{"out", out, rows * n * bytes_of(dtype)}};
  require_signs(signs, n, written);
  const void* from = in;
  for (const void* each : signs) {
    problem.placement = from == out ? Placement::in_place : Placement::out_of_place;
    Operands operands{from, out};
    operands.signs = each;
    plan_on_host(problem, threads)->execute(operands);
    from = out;
  }
}

void rounds_to_codes(std::int64_t n, std::int64_t rows, std::span<const void* const> signs, const float* in,
                     int bits, void* codes, float* scales, int threads) {
  Problem problem = make_problem(Dtype::f32, require_rounds(n, rows, std::ssize(signs)), rows);
  require_code_bits(n, bits);
  if (rows == 0) return;
  require("in", in, 4);
  require("codes", codes, bits == 1 ? 1 : 4);
  require("scales", scales, kScaleAlignment);
  const Extent all[] = {
      {"codes", codes, rows * n * bits / 8}, {"scales", scales, 4 * rows}, {"in", in, rows * n * 4}};
  require_apart(all, 2);
  require_signs(signs, n, std::span(all).first(2));
  std::vector<float> y;
  const auto first_rounds = [&](std::size_t count) -> const float* {
    if (count == 0) return in;
    y.resize(static_cast<std::size_t>(rows * n));
    rounds(Dtype::f32, n, rows, signs.first(count), in, y.data(), threads);
    return y.data();
  };
  if (bits == 1) {
    const float* const of_all = first_rounds(signs.size());
    auto* const bytes = static_cast<std::uint8_t*>(codes);
    parallel_for(rows, threads_for(rows * n, threads), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row)
        signs_of_row(of_all + row * n, n, bytes + row * n / 8, scales + row);
    });
    return;
  }
  problem.encoding =
      make_encoding(bits == 8 ? CodeFormat::int8 : CodeFormat::int4, {.kind = ScaleGranularity::Kind::row});
  problem.placement = Placement::out_of_place;
  Operands operands{first_rounds(signs.size() - 1), codes};
  operands.signs = signs.back();
  operands.scales = scales;
  plan_on_host(problem, threads)->execute(operands);
}

void rounds_on_device(Dtype dtype, std::int64_t n, std::int64_t rows, bool transposed, int count,
                      const void* signs, const void* in, void* out, Stream stream, int device) {
  const RoundsTile tile = require_rounds_tile(dtype, n, rows, count);
  if (rows == 0) return;
  RoundedRows work{
      .tile = tile, .rows = rows, .count = count, .transposed = transposed, .in = in, .out = out};
  work.signs = static_cast<const std::uint32_t*>(signs);
  launch_on_device(dtype, work, rows * n * bytes_of(dtype), stream, device);
}

void rounds_to_codes_on_device(std::int64_t n, std::int64_t rows, int count, const void* signs,
                               const void* in, int bits, void* codes, float* scales, Stream stream,
                               int device) {
  const RoundsTile tile = require_rounds_tile(Dtype::f32, n, rows, count);
  require_code_bits(n, bits);
  if (rows == 0) return;
  RoundedRows work{
      .tile = tile, .rows = rows, .count = count, .in = in, .out = codes, .bits = bits, .scales = scales};
  work.signs = static_cast<const std::uint32_t*>(signs);
  launch_on_device(Dtype::f32, work, rows * n * bits / 8, stream, device);
}

std::int64_t Sketch::padded() const {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (length < 1 || length > kMost)
    throw BadRequest(concat("length=", length, " must be between 1 and ", kMost));
  return std::max<std::int64_t>(2,
                                static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(length))));
}

namespace {

/// N.
std::int64_t require_sketch(const Sketch& sketch) {
  const std::int64_t n = sketch.padded();
  if (sketch.rows < 1 || sketch.rows > n)
    throw BadRequest(concat("rows=", sketch.rows, " must be between 1 and ", n, ", the padded length"));
  return n;
}

std::int64_t require_sketch(const Sketch& sketch, Dtype dtype, std::int64_t vectors) {
  const std::int64_t n = require_sketch(sketch);
  require_rows(n, vectors, "vectors");
  if (dtype != Dtype::f32 && dtype != Dtype::f64)
    throw BadRequest(concat("dtype ", name_of(dtype), " must be f32 or f64 for sketches"));
  return n;
}

double scale_of(const Sketch& sketch) {
  return 1.0 / std::sqrt(static_cast<double>(sketch.rows));
}

SketchPasses passes_of_sketch(Dtype dtype, std::int64_t n, const DeviceInfo& device) {
  return sketch_passes(passes::word_of(dtype), log2_floor(n), device.shared_bytes_per_block);
}

/// sketch_in_passes on a device.
struct DeviceSketch {
  SketchPasses passes;
  const DeviceInfo& info;
  Stream stream;
  int device;
  Dtype dtype;

  void whole(const SketchedVectors& work) { launch_sketched_rows(work, info, stream); }
  void source(const SketchedVectors& work, int row_bits, void* sums) {
    launch_sketch_source(work, row_bits, sums, info, stream);
  }
  void middle(std::int64_t vectors, void* sums) const {
    fwht::transform(passes::variant, {sums, sums},
                    columns_above(dtype, passes.row, passes.middle, vectors << passes.last), stream, device);
  }
  void sink(const SketchedVectors& work, int bits, const void* sums) {
    launch_sketch_sink(work, bits, sums, info, stream);
  }
};

}  // namespace

void sketch(const Sketch& sketch, Dtype dtype, std::int64_t vectors, const void* in, void* out, int threads) {
  const std::int64_t n = require_sketch(sketch, dtype, vectors);
  if (vectors == 0) return;
  require("in", in);
  require("out", out);
  const std::int64_t bytes = bytes_of(dtype);
  require_apart("in", in, vectors * sketch.length * bytes, "out", out, vectors * sketch.rows * bytes);
  const std::vector<std::uint32_t> signs = random_signs(n, sketch.seed);
  const std::vector<std::int64_t> rows = random_rows(n, sketch.rows, sketch.seed);
  std::vector<std::byte> padded(static_cast<std::size_t>(n * bytes));
  Problem problem = make_problem(dtype, Operator::sylvester(n).with_signs(), 1);
  problem.scale = scale_of(sketch);
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(out);
  for (std::int64_t v = 0; v < vectors; ++v, from += sketch.length * bytes) {
    std::memcpy(padded.data(), from, static_cast<std::size_t>(sketch.length * bytes));
    std::fill(padded.begin() + sketch.length * bytes, padded.end(), std::byte{0});
    Operands operands{padded.data(), padded.data()};
    operands.signs = signs.data();
    plan_on_host(problem, threads)->execute(operands);
    for (const std::int64_t row : rows) {
      std::memcpy(to, padded.data() + row * bytes, static_cast<std::size_t>(bytes));
      to += bytes;
    }
  }
}

std::vector<std::uint32_t> sketch_table(const Sketch& sketch) {
  const std::int64_t n = require_sketch(sketch);
  const std::vector<std::uint32_t> signs = random_signs(n, sketch.seed);
  std::vector<std::uint32_t> table(2 * signs.size());
  for (const std::int64_t row : random_rows(n, sketch.rows, sketch.seed))
    table[static_cast<std::size_t>(row / 32 * 2)] |= std::uint32_t{1} << (row % 32);
  for (std::size_t i = 2; i < table.size(); i += 2)
    table[i + 1] = table[i - 1] + static_cast<std::uint32_t>(std::popcount(table[i - 2]));
  table.insert(table.end(), signs.begin(), signs.end());
  return table;
}

std::int64_t sketch_workspace_bytes(const Sketch& sketch, Dtype dtype, std::int64_t vectors, int device) {
  const std::int64_t n = require_sketch(sketch, dtype, vectors);
  if (vectors == 0 || passes_of_sketch(dtype, n, existing_device(device)).last == 0) return 0;
  return convolved_together(dtype, log2_floor(n), vectors) * n * bytes_of(dtype);
}

void sketch_on_device(const Sketch& sketch, bool transposed, Dtype dtype, std::int64_t vectors,
                      const void* table, const void* in, void* out, void* workspace,
                      std::int64_t workspace_bytes, Stream stream, int device) {
  const std::int64_t n = require_sketch(sketch, dtype, vectors);
  if (vectors == 0) return;
  require("table", table, 8);
  require("in", in, bytes_of(dtype));
  require("out", out, bytes_of(dtype));
  const DeviceScope scope(device);
  const std::int64_t needed = sketch_workspace_bytes(sketch, dtype, vectors, device);
  require_workspace(workspace, workspace_bytes, needed);
  const std::int64_t bytes = vectors * bytes_of(dtype);
  const Extent all[] = {{"out", out, bytes * (transposed ? sketch.length : sketch.rows)},
                        {"workspace", workspace, needed},
                        {"in", in, bytes * (transposed ? sketch.rows : sketch.length)},
                        {"table", table, 12 * sketch_words(n)}};
  require_apart(all, 2);
  for (const Extent& each : all)
    if (each.bytes > 0) require_reachable(each.name, each.at, device);
  const DeviceInfo& info = known_device(device);
  const SketchedVectors work{.dtype = dtype,
                             .log_n = log2_floor(n),
                             .length = sketch.length,
                             .rows = sketch.rows,
                             .vectors = vectors,
                             .transposed = transposed,
                             .table = sketch_table_at(table, n),
                             .in = in,
                             .out = out,
                             .scale = scale_of(sketch)};
  DeviceSketch machine{passes_of_sketch(dtype, n, info), info, stream, device, dtype};
  sketch_in_passes(machine.passes, work, workspace, machine);
}

}  // namespace fwht::walsh
