// Random calls of the C interface, seeded: each is answered, or refused with a sentence, and touches nothing
// but its arrays. These end at, or begin behind, a page that nobody may touch; what lies between their rows
// stays as it was. FWHT_FUZZ_SECONDS (default 30, a fifth of it for this test) and FWHT_FUZZ_SEED (default
// 1); a failure prints seed and number of its case. One case in eight is sound: it draws nothing that
// may be refused, so that its transform or layer must be executed, its table or count made.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "fwht.h"

namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t number_from(const char* variable, std::uint64_t usual) {
  const char* text = std::getenv(variable);
  return text == nullptr ? usual : std::strtoull(text, nullptr, 10);
}

std::mt19937_64 chance;

std::size_t below(std::size_t count) {
  return chance() % count;
}

/// What a case asks for: nothing that may be refused, little that is strange, or anything.
enum class Mood { sound, calm, strange };
Mood mood = Mood::sound;

bool sound() {
  return mood == Mood::sound;
}

bool rarely(std::size_t once_in) {
  return mood == Mood::strange && below(once_in) == 0;
}

/// What sound cases never do.
bool unsoundly(std::size_t once_in) {
  return !sound() && below(once_in) == 0;
}

template <class Values>
auto one_of(const Values& values) {
  return values[below(std::size(values))];
}

/// A sound case draws from the first values of the list.
template <class Values>
auto one_of(const Values& values, std::size_t sound_ones) {
  return values[below(sound() ? sound_ones : std::size(values))];
}

/// Bytes between two pages that nobody may touch, at the end of theirs or at the start.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes, std::size_t alignment = 1) : bytes_(bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    inside_ = (bytes + page - 1) / page * page;
    length_ = inside_ + 2 * page;
    void* all = mmap(nullptr, length_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) throw std::bad_alloc();
    all_ = static_cast<unsigned char*>(all);
    begin_ = all_ + page;
    if (inside_ > 0) mprotect(begin_, inside_, PROT_READ | PROT_WRITE);
    if (below(2) == 0) begin_ += (inside_ - bytes) / alignment * alignment;
    for (std::size_t i = 0; i < bytes; ++i)
      begin_[i] = static_cast<unsigned char>(chance() & 0x3F);  // small finite numbers in every dtype
  }
  ~Guarded() { munmap(all_, length_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  unsigned char* data() const { return begin_; }
  std::vector<unsigned char> copy() const { return {begin_, begin_ + bytes_}; }

 private:
  std::size_t bytes_, inside_, length_;
  unsigned char *all_, *begin_;
};

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
const std::vector<std::int64_t> kSizes = {
    0,  1,  2,   3,   4,  5,  8,       12,       16,       20,       24,       32,       48,
    64, 96, 128, 256, -1, -8, 1 << 30, 1L << 40, 1L << 48, 1L << 60, 1L << 62, kLargest, -kLargest - 1,
    7,  28, 512, 1024};
constexpr std::size_t kSoundOperators = 11;
const std::vector<std::string> kOperators = {
    "",           "",         "",     "8",           "12",     "12x2",        "28x4",
    "signs+12x4", "64+signs", "d3x8", "2xd4t+signs", "428tx2", "d4294967296", "1099511627776x2",
    "0",          "x",        "12x",  "-4",          "\xff",   "d1x2"};
constexpr std::size_t kSoundEncodings = 4;
const std::vector<std::string> kEncodings = {"",
                                             "",
                                             "e4m3:row",
                                             "int8:row",
                                             "e4m3:tensor",
                                             "e4m3:32",
                                             "e4m3:16,ue8m0,mn,deepgemm",
                                             "e4m3:8,ue8m0,packed,deepgemm",
                                             "int8:row,t64",
                                             "int4:row",
                                             "int4:row,quarot",
                                             "mxfp8",
                                             "mxfp8:128x4",
                                             "mxfp4:even",
                                             "nvfp4:128x4",
                                             "e4m3:tensor,vllm_static",
                                             "int8:1/f32",
                                             "int8:4611686018427387904",
                                             "int8:row,t9223372036854775807",
                                             "mxfp8:",
                                             ":",
                                             "e4m3:row,\xc3",
                                             "int8:8,t32"};

std::string changed(std::string text) {
  if (!rarely(4)) return text;
  const std::size_t at = below(text.size() + 1);
  if (below(2) == 0)
    text.insert(at, 1, static_cast<char>(1 + below(255)));
  else
    text.erase(at, 1 + below(3));
  return text;
}

std::int64_t small_or_strange() {
  return rarely(6) ? one_of(kSizes) : one_of(std::vector<std::int64_t>{1, 2, 3, 4, 5, 8, 16, 17});
}

bool is_utf8(const std::string& text) {
  for (std::size_t i = 0; i < text.size();) {
    const unsigned lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80   ? 1
                               : lead < 0xC2 ? 0
                               : lead < 0xE0 ? 2
                               : lead < 0xF0 ? 3
                               : lead < 0xF5 ? 4
                                             : 0;
    if (length == 0 || text.size() - i < length) return false;
    for (std::size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return false;
    }
    i += length;
  }
  return true;
}

std::uint64_t done = 0;  // transforms and layers that were executed, tables and counts that were made

/// OK, or a status with a sentence.
bool judged(fwht_status status) {
  const std::string sentence = fwht_last_error();
  EXPECT_TRUE(status >= FWHT_OK && status <= FWHT_FAILED) << status;
  if (status != FWHT_OK) {
    EXPECT_FALSE(sentence.empty());
    EXPECT_TRUE(is_utf8(sentence)) << sentence;
    // The host has memory for what these cases may ask for; without CUDA a device fails.
    EXPECT_TRUE(status != FWHT_FAILED || sentence.find("CUDA") != std::string::npos) << sentence;
  }
  return status == FWHT_OK;
}

/// As judged; a sound call is never refused.
bool answered(fwht_status status) {
  const bool ok = judged(status);
  EXPECT_TRUE(ok || !sound()) << fwht_last_error();
  return ok;
}

std::int64_t member(const std::string& json, const std::string& name) {
  const std::size_t at = json.find("\"" + name + "\": ");
  return at == std::string::npos ? -1 : std::strtoll(json.c_str() + at + name.size() + 4, nullptr, 10);
}

std::size_t size_of(std::int32_t dtype) {
  if (dtype == FWHT_F64 || dtype == FWHT_I64) return 8;
  return dtype == FWHT_F32 || dtype == FWHT_I32 ? 4 : 2;
}

void set_to_identity(const Guarded& matrix, std::int64_t entries, std::int32_t dtype) {
  const std::uint64_t one = dtype == FWHT_F16    ? 0x3C00
                            : dtype == FWHT_BF16 ? 0x3F80
                            : dtype == FWHT_F32  ? 0x3F80'0000
                                                 : 0x3FF0'0000'0000'0000;
  for (std::int64_t i = 0, order = std::lround(std::sqrt(std::max<std::int64_t>(entries, 0)));
       i < order * order; ++i) {
    const std::uint64_t entry = i % (order + 1) == 0 ? one : 0;
    std::memcpy(matrix.data() + static_cast<std::size_t>(i) * size_of(dtype), &entry, size_of(dtype));
  }
}

/// Bytes outside the `rows` rows of `row` bytes each that begin at multiples of `stride` are as before.
void expect_gaps_kept(const std::vector<unsigned char>& before, const std::vector<unsigned char>& after,
                      std::size_t stride, std::size_t row) {
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (i % stride >= row) {
      ASSERT_EQ(before[i], after[i]) << "byte " << i << " between the rows";
    }
  }
}

void a_transform() {
  fwht_problem problem = FWHT_PROBLEM_INIT;
  const std::string op = changed(one_of(kOperators, kSoundOperators)),
                    encoding = changed(one_of(kEncodings, kSoundEncodings));
  const std::string variant =
      changed(one_of(std::vector<std::string>{"cpu", "cpu", "cpu", "cpu_f64", "auto", "wgmma", ""}, 3));
  problem.n = rarely(3) ? one_of(kSizes) : std::int64_t{sound() ? 2 : 1} << below(9);
  problem.rows = small_or_strange();
  problem.scale = one_of(std::vector<double>{0.0, 1.0, 0.5, -2.0});
  if (rarely(4)) problem.scale = one_of(std::vector<double>{1e300, std::nan(""), HUGE_VAL, 1e-320});
  problem.dtype = static_cast<std::int32_t>(rarely(10) ? chance()
                                                       : below(sound() && !encoding.empty() ? 3
                                                               : mood == Mood::strange      ? 7
                                                                                            : 4));
  problem.placement = static_cast<std::int32_t>(rarely(10) ? chance() : below(2));
  if (below(3) == 0 && !(sound() && !op.empty()))
    problem.in_stride = problem.n < 1024 ? problem.n + static_cast<std::int64_t>(below(20)) : one_of(kSizes);
  if (below(3) == 0) problem.out_stride = sound() || below(2) == 0 ? problem.in_stride : one_of(kSizes);
  problem.flags = static_cast<std::uint32_t>(
      rarely(10) ? chance() : one_of(std::vector<std::uint32_t>{0, 0, 1, 8, 9, 2}, 5));
  problem.threads = static_cast<std::int32_t>(rarely(8) ? chance() : below(3));
  if (!op.empty()) {
    problem.op_text = op.c_str();
    const char* about = fwht_operator_info_json(op.c_str());
    if (about != nullptr && !rarely(8)) problem.n = below(2) == 0 ? 0 : member(about, "n");
  }
  if (!encoding.empty()) {
    problem.encoding = encoding.c_str();
    if (!rarely(8)) problem.placement = FWHT_OUT_OF_PLACE;
  }
  if (rarely(40)) {
    problem.preparation = one_of(
        std::vector<const char*>{"", "/", "rms", "rms/rms", "rope", "rope2h0", "rope64", "rope64ih2/page4x4",
                                 "page0x1", "page4x2147483648", "page99999999999999999999x1", "e4m3"});
  }
  if (rarely(4)) problem.in_ordering = static_cast<std::int32_t>(rarely(10) ? chance() : below(4));
  if (rarely(4)) problem.out_ordering = static_cast<std::int32_t>(rarely(10) ? chance() : below(4));
  if (rarely(3)) problem.inner = rarely(10) ? one_of(kSizes) : static_cast<std::int64_t>(below(4));
  if (rarely(20)) problem.struct_size = below(6000);
  if (problem.struct_size > sizeof problem) problem.struct_size = sizeof problem;
  const char* name = below(3) == 0 ? variant.c_str() : nullptr;
  const std::int32_t device =
      unsoundly(20) ? one_of(std::vector<std::int32_t>{-3, 64, 1000, INT32_MIN, INT32_MAX}) : FWHT_HOST;
  if (!judged(fwht_supports(&problem, name, device)) || problem.preparation != nullptr) return;

  // It is supported, so its sizes are sound: as much memory as the header says, where that is not too much.
  const std::string about = op.empty() || problem.struct_size < offsetof(fwht_problem, encoding)
                                ? ""
                                : fwht_operator_info_json(op.c_str());
  const std::int64_t n = about.empty() ? problem.n : member(about, "n");
  const bool encoded = !encoding.empty() && problem.struct_size >= offsetof(fwht_problem, preparation),
             in_place = problem.placement == FWHT_IN_PLACE;
  const bool strides = problem.struct_size >= offsetof(fwht_problem, flags);
  const std::int64_t inner =
      problem.struct_size == sizeof problem ? std::max<std::int64_t>(problem.inner, 1) : 1;
  if (static_cast<double>(problem.rows) * static_cast<double>(n) > 1 << 18) return;  // inner divides rows
  const std::int64_t block = n * inner;
  const std::int64_t in_stride = strides && problem.in_stride != 0 ? problem.in_stride : block;
  const std::int64_t out_stride = strides && problem.out_stride != 0 ? problem.out_stride
                                  : in_place                         ? in_stride
                                                                     : block;
  if (static_cast<double>(problem.rows) * static_cast<double>(std::max(in_stride, out_stride)) > 1 << 18 ||
      n > 1 << 14)
    return;
  const std::size_t size = size_of(problem.dtype);
  std::size_t out_row = static_cast<std::size_t>(block) * size,
              out_step = static_cast<std::size_t>(out_stride) * size, scales_bytes = 0;
  bool number = false;
  if (encoded) {
    const char* json = fwht_encoding_info_json(encoding.c_str(), n, problem.rows);
    ASSERT_NE(json, nullptr) << fwht_last_error();
    out_row = static_cast<std::size_t>(n * member(json, "code_bits")) / 8;
    out_step = static_cast<std::size_t>(out_stride * member(json, "code_bits")) / 8;
    scales_bytes = static_cast<std::size_t>(member(json, "scale_bytes"));
    number = std::string(json).find("\"needs_tensor_scale\": true") != std::string::npos;
    if (scales_bytes > 1 << 20 || n == 1) return;
  }
  const auto rows = static_cast<std::size_t>(problem.rows / inner);  // blocks of them
  const auto span = [rows](std::size_t step, std::size_t row) {
    return rows == 0 ? 0 : (rows - 1) * step + row;
  };
  const Guarded in(span(static_cast<std::size_t>(in_stride) * size, static_cast<std::size_t>(block) * size)),
      apart(span(out_step, out_row), sound() ? size : 1);
  const Guarded& out = in_place ? in : apart;
  const Guarded signs(static_cast<std::size_t>((n + 31) / 32 * 4));
  const Guarded dense(static_cast<std::size_t>(std::max<std::int64_t>(member(about, "dense_entries"), 0)) *
                      size);
  if (sound()) set_to_identity(dense, member(about, "dense_entries"), problem.dtype);
  const Guarded scales((scales_bytes + 15) / 16 * 16);  // its start must be a multiple of 16
  const auto in_before = in.copy(), out_before = out.copy();
  fwht_operands operands = FWHT_OPERANDS_INIT;
  operands.in = in.data();
  operands.out = out.data();
  if (about.find("\"signs\": \"none\"") == std::string::npos && !about.empty()) operands.signs = signs.data();
  if (member(about, "dense_entries") > 0) operands.dense = dense.data();
  if (scales_bytes > 0) operands.scales = scales.data();
  operands.scales_bytes = static_cast<std::int64_t>(below(2) == 0 ? scales_bytes : 0);
  const float in_memory = 3.0F;
  if (number && below(2) == 0) {
    operands.tensor_scale = 3.0;
  } else if (number) {
    operands.tensor_scale_at = &in_memory;
  }
  switch (sound() ? 64 : below(mood == Mood::calm ? 64 : 16)) {
    case 7:
      operands.tensor_scale_at = static_cast<const float*>(one_of(std::vector<const void*>{
          nullptr, &in_memory, out.data(), reinterpret_cast<const char*>(&in_memory) + 1}));
      break;
    case 0:
      operands.in = nullptr;
      break;
    case 1:
      operands.out = nullptr;
      break;
    case 2:
      operands.signs = nullptr;
      break;
    case 3:
      operands.scales = below(2) == 0 ? nullptr : scales.data() + 1;
      break;
    case 4:
      operands.scales_bytes = one_of(kSizes);
      break;
    case 5:
      operands.tensor_scale = one_of(std::vector<double>{-1.0, std::nan(""), 1e300, 0.0});
      break;
    case 6:
      operands.dense = in_place || rows == 0 ? nullptr : out.data();
      break;
    default:
      break;
  }
  fwht_plan* plan = nullptr;
  switch (below(4)) {
    case 0:
      if (problem.op_text == nullptr && !encoded) {
        done += judged(fwht_transform(&problem, name, operands.in, operands.out, device, nullptr));
        break;
      }
      [[fallthrough]];
    case 1:
      done += judged(fwht_transform_operands(&problem, name, &operands, device, nullptr));
      break;
    default:
      if (judged((below(2) == 0 ? fwht_plan_create : fwht_plan_kept)(&problem, name, device, &plan))) {
        EXPECT_EQ(fwht_plan_info_json(plan)[0], '{');
        const bool plain = problem.op_text == nullptr && !encoded && below(2) == 0;
        done += judged(plain ? fwht_plan_execute(plan, operands.in, operands.out, nullptr)
                             : fwht_plan_execute_operands(plan, &operands, nullptr));
      } else {
        EXPECT_FALSE(judged(fwht_plan_execute(plan, operands.in, operands.out, nullptr)));
      }
      fwht_plan_destroy(plan);
  }
  if (rows == 0) return;
  expect_gaps_kept(out_before, out.copy(), out_step, out_row);
  if (!in_place) {
    EXPECT_EQ(in.copy(), in_before);
  }
}

void a_text() {
  const std::string op = changed(one_of(kOperators)), encoding = changed(one_of(kEncodings));
  const std::int64_t n = one_of(kSizes), rows = one_of(kSizes);
  for (const char* answer : {fwht_operator_transposed(op.c_str()), fwht_operator_info_json(op.c_str()),
                             fwht_operator_for(n), fwht_encoding_info_json(encoding.c_str(), n, rows)}) {
    if (answer == nullptr) judged(FWHT_BAD_REQUEST);
  }
  const char* json = fwht_encoding_info_json(encoding.c_str(), n, rows);
  if (json == nullptr) return;
  for (const char* name : {"token", "scale_rows", "scale_columns", "scale_bytes"})
    EXPECT_GE(member(json, name), 0) << encoding << " " << n << " " << rows << ": " << json;
}

/// Spectra and compositions, in as much memory as the header says.
void a_spectrum() {
  const auto variables = static_cast<std::int32_t>(unsoundly(6) ? chance() : 3 + below(6));
  const std::int64_t n = variables >= 1 && variables <= 12 ? std::int64_t{1} << variables : 1;
  const std::int64_t functions = unsoundly(6) ? one_of(kSizes) : static_cast<std::int64_t>(1 + below(3));
  const auto form = static_cast<std::int32_t>(sound() ? 0 : rarely(8) ? chance() : below(3));
  const auto count = static_cast<std::size_t>(n * (functions > 0 && functions < 64 ? functions : 1));
  const auto threads = static_cast<std::int32_t>(unsoundly(10) ? chance() : below(3));
  const Guarded values(form == 0 ? (count + 7) / 8 : count), spectra(4 * count, 4),
      summaries(32 * (count / static_cast<std::size_t>(n)), 8);
  if (form == 1 || form == 2) {
    for (std::size_t i = 0; i < count; ++i)
      values.data()[i] = static_cast<unsigned char>(form == 1 ? chance() & 1 : 1 - 2 * (chance() & 1));
    if (unsoundly(4)) values.data()[below(count)] = static_cast<unsigned char>(chance());
  }
  auto* const w = reinterpret_cast<std::int32_t*>(spectra.data());
  const void* const given = unsoundly(20) ? nullptr : values.data();
  auto* const numbers = reinterpret_cast<std::int64_t*>(summaries.data());
  const auto values_before = values.copy();
  const bool fits = n > 1 && functions >= 0 && functions < 64;
  bool executed = false;
  if (fits || functions < 0 || functions > 1 << 20) {
    const std::int32_t asked = fits ? variables : 31;
    executed = judged(fwht_walsh_spectrum(form, given, asked, functions, w, threads));
    done += executed;
    EXPECT_EQ(judged(fwht_walsh_summaries(form, given, asked, functions, numbers, threads)), executed);
  }
  if (!fits) {
    EXPECT_FALSE(judged(fwht_walsh_largest_of(form, given, 31, functions, numbers, w, threads)));
  }
  if (!fits || count < static_cast<std::size_t>(n)) return;
  executed = executed && functions > 0;
  struct {
    fwht_spectrum_summary summary{sizeof summary, 0, 0, 0, 0};
    unsigned char of_a_newer_header[6000]{};  // as many bytes as struct_size may say
  } larger;
  if (unsoundly(10)) larger.summary.struct_size = below(6000);
  if (judged(fwht_walsh_summary(w, variables, &larger.summary)) && executed) {
    EXPECT_EQ(std::memcmp(&larger.summary.largest, numbers, 32), 0);
  }
  const std::int64_t most = unsoundly(5) ? one_of(kSizes) : static_cast<std::int64_t>(1 + below(8));
  const auto room = static_cast<std::size_t>(most > 0 && most <= n ? most : 0);
  const Guarded places(8 * room, 8), largest(4 * room, 4), places_of(8 * room, 8), largest_of(4 * room, 4);
  const bool found =
      judged(fwht_walsh_largest(w, variables, most, reinterpret_cast<std::int64_t*>(places.data()),
                                reinterpret_cast<std::int32_t*>(largest.data())));
  if (answered(fwht_walsh_largest_of(form, given, variables, most,
                                     reinterpret_cast<std::int64_t*>(places_of.data()),
                                     reinterpret_cast<std::int32_t*>(largest_of.data()), threads))) {
    EXPECT_TRUE(found);
    EXPECT_TRUE(!executed || (places_of.copy() == places.copy() && largest_of.copy() == largest.copy()));
  }
  EXPECT_EQ(values.copy(), values_before);
  judged(fwht_random_rows(n, most, chance(), reinterpret_cast<std::int64_t*>(places.data())));
  const auto dtype = static_cast<std::int32_t>(rarely(8) ? chance() : below(6));
  const std::size_t size = dtype >= 0 && dtype < 6 ? size_of(dtype) : 8;
  const Guarded a(static_cast<std::size_t>(n) * size, below(4) == 0 ? 1 : size),
      out(static_cast<std::size_t>(n) * size, size), signs(static_cast<std::size_t>((n + 31) / 32 * 4), 4);
  judged(fwht_random_signs(n, chance(), reinterpret_cast<std::uint32_t*>(signs.data())));
  const void* const two[] = {signs.data(), unsoundly(8) ? nullptr : signs.data()};
  const auto before = a.copy();
  judged(fwht_dyadic_convolution(dtype, n, 1, a.data(), a.data(), out.data(), threads));
  judged(fwht_rounds(dtype, n, 1, static_cast<std::int32_t>(below(3)), two, a.data(), out.data(), threads));
  judged(fwht_sketch(dtype, n, most, chance(), 1, a.data(), room > 0 ? out.data() : nullptr, threads));
  EXPECT_EQ(a.copy(), before);
  const Guarded row(4 * static_cast<std::size_t>(n), 4), codes(static_cast<std::size_t>(n)), scale(16, 16);
  const std::int32_t bits = unsoundly(5) ? static_cast<std::int32_t>(chance()) : 1 << below(4);
  judged(fwht_rounds_to_codes(
      n, 1, static_cast<std::int32_t>(below(3)), two, reinterpret_cast<const float*>(row.data()), bits,
      unsoundly(8) ? nullptr : codes.data(), reinterpret_cast<float*>(scale.data()), threads));
}

/// What a device reads of a sketch: as many rows as were asked for, and the signs.
void a_table() {
  const std::int64_t length = unsoundly(5) ? one_of(kSizes) : static_cast<std::int64_t>(1 + below(200));
  const bool fits = length >= 1 && length <= 1024;
  const std::uint64_t n = fits ? std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(length, 2)))
                               : 0,
                      count = (n + 31) / 32, seed = chance();
  const std::int64_t m = unsoundly(5) ? one_of(kSizes) : static_cast<std::int64_t>(1 + below(fits ? n : 8));
  const Guarded table(12 * count, 4), signs(4 * count, 4);
  auto* const words = reinterpret_cast<std::uint32_t*>(table.data());
  const bool is_null = (!fits && length >= 1 && length <= 1 << 30) || unsoundly(20);
  if (!answered(fwht_sketch_table(length, m, seed, is_null ? nullptr : words))) return;
  ++done;
  ASSERT_TRUE(fits && !is_null);
  const auto padded = static_cast<std::int64_t>(n);
  ASSERT_TRUE(judged(fwht_random_signs(padded, seed, reinterpret_cast<std::uint32_t*>(signs.data()))));
  EXPECT_EQ(std::memcmp(words + 2 * count, signs.data(), 4 * count), 0);
  std::int64_t chosen = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    EXPECT_EQ(words[2 * i + 1], chosen);
    chosen += std::popcount(words[2 * i]);
  }
  EXPECT_EQ(chosen, m);
}

/// Sums that do not fit: those of 32 bits are counted again in 64.
void a_count() {
  fwht_problem problem = FWHT_PROBLEM_INIT;
  const std::string op = changed(one_of(kOperators, 2));
  problem.n = unsoundly(6) ? one_of(kSizes) : std::int64_t{2} << below(8);
  problem.rows = small_or_strange();
  problem.scale = unsoundly(10) ? 0.5 : 1.0;
  problem.dtype = static_cast<std::int32_t>(unsoundly(10) ? chance() : FWHT_I32 + below(2));
  problem.placement = static_cast<std::int32_t>(below(2));
  if (unsoundly(10)) problem.in_stride = one_of(kSizes);
  problem.threads = static_cast<std::int32_t>(unsoundly(10) ? chance() : below(3));
  const char* about = op.empty() ? nullptr : fwht_operator_info_json(op.c_str());
  if (!op.empty()) problem.op_text = op.c_str();
  if (about != nullptr && !rarely(4)) problem.n = 0;
  const std::int64_t n = about == nullptr ? problem.n : member(about, "n");
  const bool fits = n >= 0 && n <= 1024 && problem.rows >= 0 && problem.rows <= 64;
  const auto elements = static_cast<std::size_t>(fits ? n * problem.rows : 0);
  const Guarded in(elements * size_of(problem.dtype));
  auto* const narrow = reinterpret_cast<std::int32_t*>(in.data());
  for (std::size_t i = 0; problem.dtype == FWHT_I32 && i < elements; ++i)
    narrow[i] = static_cast<std::int32_t>(chance()) >> below(32);
  const auto before = in.copy();
  const void* const given = fits ? in.data() + (unsoundly(20) ? 1 : 0) : nullptr;
  std::int64_t count = -1;
  const bool counted = answered(fwht_count_overflows(&problem, given, unsoundly(20) ? nullptr : &count));
  done += counted;
  EXPECT_EQ(in.copy(), before);
  EXPECT_EQ(counted, count >= 0);
  EXPECT_LE(count, static_cast<std::int64_t>(elements));
  if (!counted || elements == 0 || problem.dtype != FWHT_I32) return;
  std::vector<std::int64_t> wide(narrow, narrow + elements);
  problem.dtype = FWHT_I64;
  problem.placement = FWHT_IN_PLACE;
  ASSERT_TRUE(judged(fwht_transform(&problem, nullptr, wide.data(), wide.data(), FWHT_HOST, nullptr)));
  EXPECT_EQ(count, std::count_if(wide.begin(), wide.end(),
                                 [](std::int64_t sum) { return sum != static_cast<std::int32_t>(sum); }));
}

/// What needs no problem: each variant has a name and a line, in a struct as large as the caller says.
void a_query() {
  EXPECT_EQ(fwht_abi_version(), FWHT_ABI_VERSION);
  const std::string version = fwht_version(), build = fwht_build_info_json();
  EXPECT_NE(build.find("\"version\": \"" + version + "\""), std::string::npos) << build;
  EXPECT_GE(fwht_device_count(), 0);
  EXPECT_EQ(fwht_clear_plans(), 0U);  // of the host none is kept
  const bool linear = below(2) == 0;
  const std::size_t count = linear ? fwht_linear_variant_count() : fwht_variant_count(),
                    index = unsoundly(4) ? chance() >> below(64) : below(count),
                    size = rarely(3) ? sizeof(std::size_t) + below(6000) : sizeof(fwht_variant);
  const Guarded memory(size, alignof(fwht_variant));
  if (below(2) == 0) std::memset(memory.data(), 0, size);
  std::memcpy(memory.data(), &size, sizeof size);
  auto* const variant = unsoundly(20) ? nullptr : reinterpret_cast<fwht_variant*>(memory.data());
  const auto before = memory.copy();
  if (!answered((linear ? fwht_get_linear_variant : fwht_get_variant)(index, variant))) {
    EXPECT_EQ(memory.copy(), before);
    return;
  }
  EXPECT_LT(index, count);
  EXPECT_EQ(variant->struct_size, size);
  EXPECT_TRUE(variant->name[0] != '\0' && variant->summary[0] != '\0');
  EXPECT_EQ(variant->on_device & ~1, 0);
}

/// Calls for a device, with addresses that nobody may touch. Without a device each is refused that has
/// something to do. Beside one nothing may be launched: the call is for another, or a pointer is null.
void a_call_on_a_device() {
  static void* const nowhere =
      mmap(nullptr, std::size_t{8} << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(nowhere, MAP_FAILED);
  const auto device = one_of(std::vector<std::int32_t>{0, -1, 64, 1000, 1, -2, INT32_MIN, INT32_MAX});
  const bool exists = device >= 0 && device < fwht_device_count();
  const std::size_t missing = exists ? below(2) : unsoundly(4) ? below(4) : 4;  // each needs the first two
  const auto at = [&](std::size_t place) -> void* {
    if (place == missing) return nullptr;
    return static_cast<char*>(nowhere) + (place << 30) + (unsoundly(30) ? 1 + below(16) : 0);
  };
  const auto sums = [&](std::size_t place) { return static_cast<std::int32_t*>(at(place)); };
  const auto numbers = [&](std::size_t place) { return static_cast<std::int64_t*>(at(place)); };
  const auto words = [&](std::size_t place) { return static_cast<std::uint32_t*>(at(place)); };
  const auto expect_refused = [](fwht_status status, std::int64_t work) {
    EXPECT_TRUE(!judged(status) || work == 0);
  };
  const auto room_of = [](const auto& workspace) {
    std::int64_t bytes = -1;
    const bool ok = judged(workspace(&bytes));
    EXPECT_EQ(ok, bytes >= 0);
    EXPECT_FALSE(judged(workspace(nullptr)));
    return unsoundly(3) ? one_of(kSizes) : bytes;
  };
  const auto form = static_cast<std::int32_t>(unsoundly(6) ? chance() : below(3)),
             variables = static_cast<std::int32_t>(unsoundly(4) ? chance() : 3 + below(20)),
             dtype = static_cast<std::int32_t>(unsoundly(6) ? chance() : below(6)),
             flag = static_cast<std::int32_t>(below(2)),
             rounds = static_cast<std::int32_t>(unsoundly(4) ? chance() : 1 + below(8));
  const std::int64_t many = unsoundly(4) ? one_of(kSizes) : static_cast<std::int64_t>(1 + below(4)),
                     n = unsoundly(6) ? one_of(kSizes) : std::int64_t{2} << below(20),
                     row = unsoundly(6) ? n : std::int64_t{64} << below(7),
                     m = unsoundly(6) ? one_of(kSizes) : static_cast<std::int64_t>(1 + below(200));
  const std::size_t second = exists || flag == 0 ? 1 : 0;  // b, which may be a
  expect_refused(fwht_walsh_spectrum_on(form, at(0), variables, many, sums(1), device, nullptr), many);
  std::int64_t room =
      room_of([&](std::int64_t* to) { return fwht_walsh_summaries_workspace(variables, many, to); });
  expect_refused(
      fwht_walsh_summaries_on(form, at(0), variables, many, numbers(1), at(2), room, device, nullptr), many);
  room = room_of([&](std::int64_t* to) { return fwht_walsh_largest_of_workspace(variables, m, to); });
  expect_refused(
      fwht_walsh_largest_of_on(form, at(0), variables, m, numbers(1), sums(2), at(3), room, device, nullptr),
      1);
  room = room_of(
      [&](std::int64_t* to) { return fwht_dyadic_convolution_workspace(dtype, n, many, flag, device, to); });
  expect_refused(
      fwht_dyadic_convolution_on(dtype, n, many, at(0), at(second), at(2), at(3), room, device, nullptr),
      many);
  expect_refused(
      fwht_rounds_on(dtype, row, many, flag, rounds, words(0), at(1), at(1 + below(2)), device, nullptr),
      many);
  expect_refused(fwht_rounds_to_codes_on(row, many, rounds, words(0), static_cast<const float*>(at(1)),
                                         1 << below(4), at(2), static_cast<float*>(at(3)), device, nullptr),
                 many);
  room = room_of([&](std::int64_t* to) { return fwht_sketch_workspace(dtype, n, m, many, device, to); });
  expect_refused(
      fwht_sketch_on(dtype, n, m, flag, many, words(0), at(1), at(2), at(3), room, device, nullptr), many);
}

void a_layer() {
  fwht_linear_problem problem = FWHT_LINEAR_PROBLEM_INIT;
  const auto size = [] {
    return unsoundly(8) ? one_of(kSizes) : 8 * static_cast<std::int64_t>(1 + below(20));
  };
  problem.m = small_or_strange();
  problem.n = size();
  problem.k = sound() || below(2) == 0 ? 32 * static_cast<std::int64_t>(1 + below(8)) : size();
  problem.group = one_of(std::vector<std::int64_t>{32, -1, 64, 128, 0, -2, kLargest}, 2);
  problem.dtype = static_cast<std::int32_t>(below(sound() ? 2 : 3));
  problem.zero_points = static_cast<std::int32_t>(rarely(10) ? chance() : below(3));
  problem.rotation = unsoundly(3) ? one_of(std::vector<std::int64_t>{-1, 2, 32, 64, 3, -8, kLargest}) : 0;
  problem.flags =
      rarely(10) ? static_cast<std::uint32_t>(chance()) : one_of(std::vector<std::uint32_t>{0, 0, 4, 6}, 3);
  if (unsoundly(6))
    problem.rotation_op = one_of(std::vector<const char*>{"", "32", "12x8", "4x8", "d4x8", "32+signs", "x8"});
  fwht_linear_plan* plan = nullptr;
  if (problem.m > 64 || !judged(fwht_linear_supports(&problem, nullptr, FWHT_HOST))) return;
  if (problem.n * problem.k > 1 << 18 ||
      !judged(fwht_linear_plan_create(&problem, nullptr, FWHT_HOST, &plan)))
    return;
  const std::int64_t groups = problem.group == -1 ? 1 : problem.k / problem.group,
                     bytes = member(fwht_linear_plan_info_json(plan), "packed_bytes");
  const auto count = [](std::int64_t entries, std::size_t each) {
    return static_cast<std::size_t>(entries) * each;
  };
  const Guarded qweight(count(problem.k / 8 * problem.n, 4)), qzeros(count(groups * (problem.n / 8), 4)),
      scales(count(groups * problem.n, 2)), g_idx(count(problem.k, 4)),
      sorted(count(problem.k / 8 * problem.n, 4)), order(count(problem.k, 4));
  const Guarded packed(count(bytes, 1)), x(count(problem.m * problem.k, 2)),
      y(count(problem.m * problem.n, 2));
  auto* const index = reinterpret_cast<std::int32_t*>(g_idx.data());
  for (std::int64_t i = 0; i < problem.k; ++i)
    index[i] = static_cast<std::int32_t>(i % groups);
  if (unsoundly(6)) index[below(static_cast<std::size_t>(problem.k))] = static_cast<std::int32_t>(chance());
  fwht_gptq_weights weights = FWHT_GPTQ_WEIGHTS_INIT;
  const auto at = [](const Guarded& memory) { return reinterpret_cast<const std::uint32_t*>(memory.data()); };
  weights.qweight = at(qweight);
  weights.qzeros = problem.zero_points == FWHT_ZERO_POINTS_SYMMETRIC || unsoundly(10) ? nullptr : at(qzeros);
  weights.scales = reinterpret_cast<const std::uint16_t*>(scales.data());
  if ((problem.flags & FWHT_ACT_ORDER) != 0 || unsoundly(8)) weights.g_idx = index;
  judged(fwht_gptq_sort_rows(&problem, &weights, reinterpret_cast<std::uint32_t*>(sorted.data()),
                             reinterpret_cast<std::int32_t*>(order.data())));
  const bool ready =
      judged(fwht_linear_plan_pack(plan, &weights, packed.data(), unsoundly(10) ? one_of(kSizes) : bytes));
  const auto before = x.copy();
  const std::int64_t needed = fwht_linear_plan_workspace_bytes(plan);
  const Guarded workspace(count(needed, 1));
  const auto execute = [&](const void* from) {
    return judged(fwht_linear_plan_execute(plan, from, packed.data(), y.data(), workspace.data(),
                                           unsoundly(10) ? one_of(kSizes) % (needed + 1) : needed, nullptr));
  };
  if (ready) done += execute(x.data());
  execute(nullptr);
  EXPECT_EQ(x.copy(), before);
  fwht_linear_plan_destroy(plan);
}

TEST(Fuzz, TheCInterfaceAnswersOrRefuses) {
  const std::uint64_t seed = number_from("FWHT_FUZZ_SEED", 1);
  const Clock::time_point end =
      Clock::now() + std::chrono::milliseconds(200 * number_from("FWHT_FUZZ_SECONDS", 30));
  std::uint64_t number = 0;
  for (; (number < 500 || Clock::now() < end) && !HasFailure(); ++number) {
    chance.seed(seed * 1000003 + number);
    const std::size_t drawn = below(8);
    mood = drawn == 0 ? Mood::sound : drawn < 4 ? Mood::calm : Mood::strange;
    const std::uint64_t before = done;
    bool executes = sound();
    switch (below(10)) {
      case 0:
        a_text();
        executes = false;
        break;
      case 1:
        a_layer();
        break;
      case 2:
        a_spectrum();
        break;
      case 3:
        a_table();
        break;
      case 4:
        a_count();
        break;
      case 5:
        a_query();
        executes = false;
        break;
      case 6:
        a_call_on_a_device();
        executes = false;
        break;
      default:
        a_transform();
    }
    if (executes) {
      EXPECT_EQ(done, before + 1) << "a sound case was not executed; the last refusal: " << fwht_last_error();
    }
    if (HasFailure()) ADD_FAILURE() << "FWHT_FUZZ_SEED=" << seed << ", case " << number;
  }
  std::cout << number << " cases, " << done << " transforms, layers, tables and counts made\n";
}

}  // namespace
