#include "experiments/studies/quantization/quantization.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>

#include "experiments/harness/performer.hpp"
#include "reference/quantize.hpp"

namespace fwht::quantization {

using harness::csv_number;
using harness::CsvRow;
using reference::Matrix;

namespace {

/// The number of the tensor that a recipe asks for.
float tensor_scale_of(const Encoding& encoding, double largest) {
  return encoding.recipe == Recipe::te ? static_cast<float>(448.0 * 6.0 / largest) : 1.0F;
}

Problem encoded_problem(const StudiedFormat& format, Problem problem) {
  problem.encoding = parse_encoding(format.encoding);
  problem.placement = Placement::out_of_place;
  return problem;
}

}  // namespace

Matrix quantized(const StudiedFormat& format, const Matrix& values) {
  const Problem problem = encoded_problem(format, make_problem(Dtype::f32, values.cols(), values.rows()));
  std::vector<float> numbers(static_cast<std::size_t>(values.size()));
  std::transform(values.data(), values.data() + values.size(), numbers.begin(),
                 [](double x) { return static_cast<float>(x); });
  const float tensor_scale = tensor_scale_of(problem.encoding, values.cwiseAbs().maxCoeff());
  const int threads = reference::default_threads();
  const reference::Encoded encoded =
      reference::quantize(problem, problem.in, numbers.data(), tensor_scale, threads);
  return reference::dequantize(problem, encoded.codes.data(), encoded.scales.data(), tensor_scale, threads);
}

StudiedTokens::StudiedTokens(Dtype dtype, std::int64_t n, reference::InputClass input, std::int64_t rows,
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

namespace {

/// Sums over tokens.
struct ErrorSums {
  double error2 = 0.0, truth2 = 0.0, bulk_error2 = 0.0, bulk2 = 0.0, largest = 0.0, peak = 0.0;
  std::int64_t lost = 0, nonzero = 0;
};

/// Entries of a token beyond this belong to its outliers: every kind of token has a bulk of unit scale.
constexpr double kBulk = 6.0;

}  // namespace

template <class Quantize>
std::vector<CsvRow> StudiedTokens::rows_for(const Matrix& cast, const Matrix& truth, bool rotated,
                                            const Quantize& quantize) const {
  const double transform_error = (cast - truth).norm() / truth.norm();
  std::vector<CsvRow> rows;
  for (const StudiedFormat& format : kFormats) {
    if (parse_encoding(format.encoding).scales.group > truth.cols()) continue;
    const Numbers numbers = quantize(format);
    Matrix error = numbers.values - truth;
    std::vector<ErrorSums> sums(static_cast<std::size_t>(truth.rows()));
    for (Eigen::Index r = 0; r < truth.rows(); ++r) {
      ErrorSums& s = sums[static_cast<std::size_t>(r)];
      s.nonzero = (truth.row(r).array() != 0.0).count();
      s.lost = (truth.row(r).array() != 0.0 && numbers.values.row(r).array() == 0.0).count();
      s.error2 = error.row(r).squaredNorm();
      s.truth2 = truth.row(r).squaredNorm();
      s.peak = cast.row(r).cwiseAbs().maxCoeff() / std::sqrt(s.truth2 / static_cast<double>(truth.cols()));
    }
    // Back to the columns of the token: the transform is its own inverse, the signs as well.
    if (rotated) reference::transform(error, problem_.scale);
    ErrorSums all;
    for (Eigen::Index r = 0; r < truth.rows(); ++r) {
      const ErrorSums& s = sums[static_cast<std::size_t>(r)];
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
        {{"format", std::string(format.name)},
         {"quantizer", std::string(numbers.quantizer)},
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

std::vector<CsvRow> StudiedTokens::rows(Rotated cast) const {
  const Matrix& values = cast == Rotated::plain ? plain_ : exact_;
  return rows_for(values, values, cast == Rotated::exact, [&](const StudiedFormat& format) {
    return Numbers{quantized(format, values), "reference"};
  });
}

std::vector<CsvRow> StudiedTokens::rows(const harness::Performer& performer,
                                        harness::Workspace& workspace) const {
  const Matrix rotated =
      reference::load_rows(problem_, performer.run(problem_, signed_raw_, workspace).output.data());
  const double largest = rotated.cwiseAbs().maxCoeff();
  return rows_for(rotated, exact_, true, [&](const StudiedFormat& format) -> Numbers {
    const Problem problem = encoded_problem(format, problem_);
    if (!performer.encodes(problem)) return {quantized(format, rotated), "reference"};
    const float tensor_scale = tensor_scale_of(problem.encoding, largest);
    const harness::Performer::CodedResult made =
        performer.encode(problem, signed_raw_, tensor_scale, workspace);
    return {reference::dequantize(problem, made.codes.data(), made.scales.data(), tensor_scale,
                                  reference::default_threads()),
            "own"};
  });
}

namespace {

using reference::InputClass;

constexpr std::int64_t kLengths[] = {128, 1024, 4096, 8192};
constexpr InputClass kInputs[] = {
    InputClass::normal,      InputClass::uniform,          InputClass::laplace,        InputClass::student3,
    InputClass::fa3_mixture, InputClass::outlier_channels, InputClass::massive_channel};
constexpr std::int64_t kElements = std::int64_t{1} << 18;
constexpr std::uint64_t kSeed = 1;

struct TokenKind {
  Dtype dtype;
  std::int64_t n;
  InputClass input;
  bool operator==(const TokenKind&) const = default;
};

/// Keeps the tokens of the last kind, which tasks that follow each other share.
class TokenCache {
 public:
  const StudiedTokens& of(const TokenKind& kind) {
    if (!tokens_ || !(kind_ == kind)) {
      tokens_.emplace(kind.dtype, kind.n, kind.input, kElements / kind.n, kSeed);
      kind_ = kind;
    }
    return *tokens_;
  }

 private:
  std::optional<StudiedTokens> tokens_;
  TokenKind kind_{};
};

CsvRow identity(const TokenKind& kind, std::string_view variant, std::string_view source) {
  return {{"variant", std::string(variant)},
          {"source", std::string(source)},
          {"dtype", std::string(fwht::name_of(kind.dtype))},
          {"n", std::to_string(kind.n)},
          {"input", std::string(reference::name_of(kind.input))}};
}

}  // namespace

std::vector<harness::Task> tasks(const harness::StudySetup& setup) {
  const auto cache = std::make_shared<TokenCache>();
  constexpr int kRows = std::ssize(kFormats);
  std::vector<harness::Task> all;
  const auto add = [&](const TokenKind& kind) {
    using Rotated = StudiedTokens::Rotated;
    all.push_back(
        {identity(kind, "none", "host"), kRows, [=] { return cache->of(kind).rows(Rotated::plain); }});
    all.push_back(
        {identity(kind, "exact", "host"), kRows, [=] { return cache->of(kind).rows(Rotated::exact); }});
    for (const harness::Performer& performer : setup.performers) {
      if (!performer.supports(make_problem(kind.dtype, kind.n, kElements / kind.n))) continue;
      all.push_back({identity(kind, performer.name(), harness::name_of(performer.source())), kRows,
                     [cache, kind, &performer, &workspace = setup.workspace] {
                       return cache->of(kind).rows(performer, workspace);
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
