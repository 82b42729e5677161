#include "experiments/quantization/quantization.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>

#include "common/error.hpp"
#include "common/parallel_for.hpp"
#include "experiments/quantization/formats.hpp"

namespace fwht::quantization {

using harness::csv_number;
using harness::CsvRow;
using reference::Matrix;

namespace {

float largest_of(std::span<const float> values) {
  float largest = 0.0F;
  for (const float x : values)
    largest = std::max(largest, std::fabs(x));
  return largest;
}

template <class Round>
void cast(std::span<const float> from, std::span<float> to, float scale, const Round& round) {
  for (std::size_t i = 0; i < from.size(); ++i)
    to[i] = scale > 0.0F ? round(from[i] / scale) * scale : 0.0F;
}

template <class Body>
void in_blocks(std::span<const float> from, std::span<float> to, std::size_t block, const Body& body) {
  for (std::size_t first = 0; first < from.size(); first += block) {
    const std::size_t count = std::min(block, from.size() - first);
    body(from.subspan(first, count), to.subspan(first, count));
  }
}

const auto kToE4m3 = [](float x) { return round_to(kE4m3, x); };
const auto kToE2m1 = [](float x) { return round_to(kE2m1, x); };

void mxfp4(std::span<const float> from, std::span<float> to) {
  const float largest = largest_of(from);
  cast(from, to, largest > 0.0F ? power_of_two(std::max(exponent_of(largest) - 2, -126)) : 0.0F, kToE2m1);
}

void nvfp4(std::span<const float> token, std::span<float> to) {
  const float token_scale = largest_of(token) / (kE4m3.largest * kE2m1.largest);
  in_blocks(token, to, 16, [&](auto from, auto into) {
    const float wanted = token_scale > 0.0F ? largest_of(from) / kE2m1.largest / token_scale : 0.0F;
    cast(from, into, round_to(kE4m3, wanted) * token_scale, kToE2m1);
  });
}

}  // namespace

std::string_view name_of(Format format) {
  switch (format) {
    case Format::int8:
      return "int8";
    case Format::int4:
      return "int4";
    case Format::e4m3:
      return "e4m3";
    case Format::mxfp4:
      return "mxfp4";
    case Format::nvfp4:
      return "nvfp4";
  }
  return "";
}

void quantize(Format format, std::span<const float> token, std::span<float> quantized) {
  if (token.size() != quantized.size()) throw BadRequest("a token and its quantized form differ in length");
  switch (format) {
    case Format::int8:
      return cast(token, quantized, largest_of(token) / 127.0F, round_to_integer);
    case Format::int4:
      return cast(token, quantized, largest_of(token) / 7.0F, round_to_integer);
    case Format::e4m3:
      return cast(token, quantized, largest_of(token) / kE4m3.largest, kToE4m3);
    case Format::mxfp4:
      return in_blocks(token, quantized, 32, [](auto from, auto to) { mxfp4(from, to); });
    case Format::nvfp4:
      return nvfp4(token, quantized);
  }
}

Tokens::Tokens(Dtype dtype, std::int64_t n, reference::InputClass input, std::int64_t rows,
               std::uint64_t seed)
    : problem_(make_problem(dtype, n, rows)) {
  std::vector<std::byte> raw(static_cast<std::size_t>(problem_.span_bytes()));
  reference::write_input(problem_, input, seed, raw.data());
  plain_ = reference::load_rows(problem_, raw.data());
  // The signs of a column are the same for all tokens, as in a model whose weights absorb the inverse.
  const Matrix signs =
      reference::generate(make_problem(Dtype::f32, n, 1), reference::InputClass::sign_dense, seed + 1000);
  exact_ = plain_;
  for (Eigen::Index r = 0; r < exact_.rows(); ++r)
    exact_.row(r).array() *= signs.row(0).array();
  signed_raw_.resize(raw.size());
  reference::store_rows(problem_, exact_, signed_raw_.data());
  reference::transform(exact_, problem_.scale);
}

std::vector<CsvRow> Tokens::rows(Cast cast) const {
  return cast == Cast::plain ? rows_for(plain_, plain_, false) : rows_for(exact_, exact_, true);
}

std::vector<CsvRow> Tokens::rows(const std::vector<std::byte>& rotated) const {
  return rows_for(reference::load_rows(problem_, rotated.data()), exact_, true);
}

namespace {

/// Sums over tokens.
struct Sums {
  double error2 = 0.0, truth2 = 0.0, bulk_error2 = 0.0, bulk2 = 0.0, largest = 0.0, peak = 0.0;
  std::int64_t lost = 0, nonzero = 0;
};

/// Entries of a token beyond this belong to its outliers: every kind of token has a bulk of unit scale.
constexpr double kBulk = 6.0;

}  // namespace

std::vector<CsvRow> Tokens::rows_for(const Matrix& cast, const Matrix& truth, bool rotated) const {
  const auto count = static_cast<std::size_t>(truth.cols());
  const double transform_error = (cast - truth).norm() / truth.norm();
  std::vector<CsvRow> rows;
  for (const Format format : kFormats) {
    Matrix error(truth.rows(), truth.cols());
    std::vector<Sums> sums(static_cast<std::size_t>(truth.rows()));
    parallel_for(truth.rows(), reference::default_threads(), [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> token(count);
      for (std::int64_t r = begin; r < end; ++r) {
        for (std::size_t i = 0; i < count; ++i)
          token[i] = static_cast<float>(cast(r, static_cast<Eigen::Index>(i)));
        const double peak = largest_of(token);
        quantize(format, token, token);
        Sums& s = sums[static_cast<std::size_t>(r)];
        for (std::size_t i = 0; i < count; ++i) {
          const auto c = static_cast<Eigen::Index>(i);
          error(r, c) = token[i] - truth(r, c);
          s.nonzero += truth(r, c) != 0.0;
          s.lost += truth(r, c) != 0.0 && token[i] == 0.0F;
        }
        s.error2 = error.row(r).squaredNorm();
        s.truth2 = truth.row(r).squaredNorm();
        s.peak = peak / std::sqrt(s.truth2 / static_cast<double>(count));
      }
    });
    // Back to the columns of the token: the transform is its own inverse, the signs as well.
    if (rotated) reference::transform(error, problem_.scale);
    Sums all;
    for (Eigen::Index r = 0; r < truth.rows(); ++r) {
      const Sums& s = sums[static_cast<std::size_t>(r)];
      all.error2 += s.error2;
      all.truth2 += s.truth2;
      all.peak += s.peak;
      all.lost += s.lost;
      all.nonzero += s.nonzero;
      for (Eigen::Index c = 0; c < truth.cols(); ++c) {
        const double x = plain_(r, c), e = std::fabs(error(r, c));
        if (std::fabs(x) > kBulk) continue;
        all.bulk_error2 += e * e;
        all.bulk2 += x * x;
        all.largest = std::max(all.largest, e);
      }
    }
    const auto elements = static_cast<double>(truth.size());
    rows.push_back(
        {{"format", std::string(name_of(format))},
         {"elements", std::to_string(truth.size())},
         {"rel_l2", csv_number(std::sqrt(all.error2 / all.truth2))},
         {"bulk_rel_l2", csv_number(std::sqrt(all.bulk_error2 / all.bulk2))},
         {"max_error_over_rms", csv_number(all.largest / std::sqrt(all.bulk2 / elements))},
         {"peak_over_rms", csv_number(all.peak / static_cast<double>(truth.rows()))},
         {"underflow", csv_number(static_cast<double>(all.lost) / static_cast<double>(all.nonzero))},
         {"transform_rel_l2", csv_number(transform_error)}});
  }
  return rows;
}

namespace {

using reference::InputClass;

constexpr std::int64_t kLengths[] = {128, 1024, 4096, 8192};
constexpr InputClass kInputs[] = {
    InputClass::normal,      InputClass::uniform,          InputClass::laplace,        InputClass::student3,
    InputClass::fa3_mixture, InputClass::outlier_channels, InputClass::massive_channel};
constexpr std::int64_t kElements = std::int64_t{1} << 18;
constexpr std::uint64_t kSeed = 1;

struct Kind {
  Dtype dtype;
  std::int64_t n;
  InputClass input;
  bool operator==(const Kind&) const = default;
};

/// Keeps the tokens of the last kind, which tasks that follow each other share.
class TokenCache {
 public:
  const Tokens& of(const Kind& kind) {
    if (!tokens_ || !(kind_ == kind)) {
      tokens_.emplace(kind.dtype, kind.n, kind.input, kElements / kind.n, kSeed);
      kind_ = kind;
    }
    return *tokens_;
  }

 private:
  std::optional<Tokens> tokens_;
  Kind kind_{};
};

CsvRow identity(const Kind& kind, std::string_view variant, std::string_view source) {
  return {{"variant", std::string(variant)},
          {"source", std::string(source)},
          {"dtype", std::string(fwht::name_of(kind.dtype))},
          {"n", std::to_string(kind.n)},
          {"input", std::string(reference::name_of(kind.input))}};
}

}  // namespace

std::vector<harness::Task> tasks(const harness::Setup& setup) {
  const auto cache = std::make_shared<TokenCache>();
  constexpr int kRows = std::ssize(kFormats);
  std::vector<harness::Task> all;
  const auto add = [&](const Kind& kind) {
    using Cast = Tokens::Cast;
    all.push_back({identity(kind, "none", "host"), kRows, [=] { return cache->of(kind).rows(Cast::plain); }});
    all.push_back(
        {identity(kind, "exact", "host"), kRows, [=] { return cache->of(kind).rows(Cast::exact); }});
    for (const harness::Performer& performer : setup.performers) {
      if (!performer.supports(make_problem(kind.dtype, kind.n, kElements / kind.n))) continue;
      all.push_back({identity(kind, performer.name(), harness::name_of(performer.source())), kRows,
                     [cache, kind, &performer, &workspace = setup.workspace] {
                       const Tokens& tokens = cache->of(kind);
                       return tokens.rows(
                           performer.run(tokens.problem(), tokens.signed_raw(), workspace).output);
                     }});
    }
  };
  for (const std::int64_t n : kLengths) {
    for (const InputClass input : kInputs) {
      for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
        add({dtype, n, input});
    }
  }
  return all;
}

}  // namespace fwht::quantization
