// Attention of sampled rows on the host; the reference in FP64 over Eigen.
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <map>

#include "common/host/parallel_for.hpp"
#include "experiments/studies/attention/attention.hpp"
#include "experiments/studies/quantization/formats.hpp"
#include "reference/hadamard.hpp"

namespace fwht::attention {
namespace {

using quantization::kE4m3;
using quantization::round_to;

/// Rows of the operands as Eigen sees them.
template <class Real>
using Rows = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

class HostEngine final : public Engine {
 public:
  HostEngine(AttentionShape layout, int sampled) : layout_(layout), sampled_(sampled) {
    for (auto& operand : operands_)
      operand.resize(static_cast<std::size_t>(layout.elements()));
  }

  void load(Slot slot, const std::vector<std::byte>& raw, Dtype dtype, Cast cast, int n) override {
    std::vector<float>& to = operands_[static_cast<int>(slot)];
    const std::int64_t head = std::int64_t{layout_.rows} * layout_.d;
    const int rows = cast == Cast::per_block ? kBlockRows : n;
    for_each_head([&](std::int64_t h) {
      for (std::int64_t i = h * head; i < h * head + std::int64_t{n} * layout_.d; ++i)
        to[static_cast<std::size_t>(i)] = static_cast<float>(load_element(dtype, raw.data(), i));
      if (cast == Cast::none) return;
      for (int first = 0; first < n; first += rows)
        cast_block(&to[static_cast<std::size_t>(h * head + std::int64_t{first} * layout_.d)],
                   std::int64_t{rows} * layout_.d);
    });
  }

  void make_reference(int n) override {
    Rows<double>& reference = references_[n];
    reference.resize(std::int64_t{layout_.heads} * sampled_, layout_.d);
    for_each_head([&](std::int64_t h) {
      const Rows<double> k = operand(Slot::k, h, n).cast<double>(), v = operand(Slot::v, h, n).cast<double>();
      for (int i = 0; i < sampled_; ++i) {
        const Eigen::RowVectorXd q = operand(Slot::q, h, n).row(row_of(i, n)).cast<double>();
        Eigen::VectorXd scores = k * q.transpose() / std::sqrt(static_cast<double>(layout_.d));
        scores = (scores.array() - scores.maxCoeff()).exp().matrix();
        reference.row(h * sampled_ + i) = scores.transpose() * v / scores.sum();
      }
    });
  }

  std::vector<HeadError> errors(const Arithmetic& arithmetic, int n) override {
    const Rows<double>& reference = references_.at(n);
    std::vector<HeadError> result(static_cast<std::size_t>(layout_.heads));
    for_each_head([&](std::int64_t h) {
      HeadError& head = result[static_cast<std::size_t>(h)];
      for (int i = 0; i < sampled_; ++i) {
        const Eigen::RowVectorXf out = attend(arithmetic, h, row_of(i, n), n);
        const auto truth = reference.row(h * sampled_ + i);
        head.error2 += (out.cast<double>() - truth).squaredNorm();
        head.reference2 += truth.squaredNorm();
      }
      const double count = static_cast<double>(sampled_) * layout_.d;
      head.error2 /= count;
      head.reference2 /= count;
    });
    return result;
  }

  int compared_rows(int) const override { return sampled_; }

 private:
  static void cast_block(float* values, std::int64_t count) {
    float largest = 0.0F;
    for (std::int64_t i = 0; i < count; ++i)
      largest = std::max(largest, std::fabs(values[i]));
    const float scale = largest / kE4m3.largest;
    for (std::int64_t i = 0; scale > 0.0F && i < count; ++i)
      values[i] = round_to(kE4m3, values[i] / scale) * scale;
  }

  Eigen::Map<const Rows<float>> operand(Slot slot, std::int64_t head, int n) const {
    const std::int64_t first = head * layout_.rows * layout_.d;
    return {&operands_[static_cast<int>(slot)][static_cast<std::size_t>(first)], n, layout_.d};
  }

  std::int64_t row_of(int i, int n) const { return std::int64_t{i} * n / sampled_; }

  /// One row; keys in blocks of 64, as the device engine takes them.
  Eigen::RowVectorXf attend(const Arithmetic& arithmetic, std::int64_t head, std::int64_t row, int n) const {
    constexpr int kKeys = 64;
    const auto k = operand(Slot::k, head, n), v = operand(Slot::v, head, n);
    Eigen::VectorXf scores = k * operand(Slot::q, head, n).row(row).transpose();
    scores /= std::sqrt(static_cast<float>(layout_.d));
    if (arithmetic.half_softmax) {
      for (float& s : scores)
        s = half_rounded(s);
    }
    Eigen::RowVectorXf out = Eigen::RowVectorXf::Zero(layout_.d);
    float largest = arithmetic.flash ? -INFINITY : scores.maxCoeff();
    float sum = arithmetic.flash ? 0.0F : (scores.array() - largest).exp().sum();
    for (int first = 0; first < n; first += kKeys) {
      auto part = scores.segment(first, kKeys);
      if (arithmetic.flash) {
        const float now = std::max(largest, part.maxCoeff()), shrink = std::exp(largest - now);
        largest = now;
        part = (part.array() - largest).exp().matrix();
        sum = sum * shrink + part.sum();
        out *= shrink;
      } else {
        part = ((part.array() - largest).exp() / sum).matrix();
      }
      for (float& weight : part) {
        if (arithmetic.half_softmax) weight = half_rounded(weight);
        weight = rounded(arithmetic.weights, arithmetic.weight_scale, weight);
      }
      out += part.transpose() * v.middleRows(first, kKeys);
    }
    if (arithmetic.flash) out /= sum;
    for (float& x : out)
      x = half_rounded(x);
    return out;
  }

  template <class Body>
  void for_each_head(const Body& body) const {
    parallel_for(layout_.heads, reference::default_threads(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t h = begin; h < end; ++h)
        body(h);
    });
  }

  AttentionShape layout_;
  int sampled_;
  std::vector<float> operands_[3];
  std::map<int, Rows<double>> references_;
};

}  // namespace

std::unique_ptr<Engine> make_host_engine(AttentionShape layout, int sampled) {
  return std::make_unique<HostEngine>(layout, sampled);
}

}  // namespace fwht::attention
