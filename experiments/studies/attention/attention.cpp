#include "experiments/studies/attention/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "common/host/parallel_for.hpp"
#include "reference/hadamard.hpp"
#include "reference/inputs.hpp"

namespace fwht::attention {

using harness::csv_number;
using harness::CsvRow;

namespace {

struct Method {
  std::string_view name;
  Arithmetic arithmetic;
  Cast cast;
  bool rotates;
  double published;
};

constexpr float kTensorScale = quantization::kE4m3.largest;  // of weights, which are at most 1
constexpr float kFlashScale = 256.0F;

constexpr Method kMethods[] = {
    {"fp16_standard", {false, true, Rounding::none}, Cast::none, false, 3.2e-4},
    {"fp16_flash", {true, false, Rounding::f16}, Cast::none, false, 1.9e-4},
    {"fp8_baseline", {false, true, Rounding::e4m3, kTensorScale}, Cast::per_tensor, false, 2.4e-2},
    {"fp8_no_rotation", {true, false, Rounding::e4m3, kFlashScale}, Cast::per_block, false, 2.4e-2},
    {"fp8_no_block", {true, false, Rounding::e4m3, kFlashScale}, Cast::per_tensor, true, 9.3e-3},
    {"fp8_fa3", {true, false, Rounding::e4m3, kFlashScale}, Cast::per_block, true, 9.1e-3},
};

/// What is chosen otherwise, at d = 128 and the largest n.
struct SoftmaxChoice {
  std::string_view method, name;
};
constexpr SoftmaxChoice kChoices[] = {
    {"fp8_baseline", "p_unscaled"},      {"fp8_baseline", "p_fp16"},
    {"fp8_baseline", "softmax_fp32"},    {"fp16_standard", "reference_rounded"},
    {"fp16_flash", "reference_rounded"}, {"fp8_baseline", "reference_rounded"},
    {"fp8_no_rotation", "p_unscaled"},   {"fp8_no_rotation", "p_scaled"},
    {"fp8_fa3", "p_unscaled"},           {"fp8_fa3", "p_scaled"},
};

const Method& method_of(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kMethods), std::end(kMethods), [&](const Method& m) { return m.name == name; });
  if (found == std::end(kMethods)) throw std::invalid_argument("no method " + std::string(name));
  return *found;
}

Arithmetic arithmetic_for(const Method& method, std::string_view choice) {
  Arithmetic arithmetic = method.arithmetic;
  if (choice == "softmax_fp32") arithmetic.half_softmax = false;
  if (choice == "p_scaled") arithmetic.weight_scale = kTensorScale;
  if (choice == "p_unscaled") arithmetic.weight_scale = 1.0F;
  if (choice == "p_fp16") {
    arithmetic.weights = Rounding::f16;
    arithmetic.weight_scale = 1.0F;
  }
  return arithmetic;
}

std::size_t bytes_for(std::int64_t elements, Dtype dtype) {
  return static_cast<std::size_t>(elements * bytes_of(dtype));
}

}  // namespace

bool rotates(std::string_view method) {
  return method_of(method).rotates;
}

double published_rmse(std::string_view method, std::string_view choice) {
  return choice == "default" ? method_of(method).published : 0.0;
}

struct Experiment::Data {
  AttentionShape layout;
  std::unique_ptr<Engine> engine;
  std::uint64_t seed;
  std::vector<std::byte> unrounded[3] = {};    // f32
  std::vector<std::byte> rounded[3] = {};      // f16
  std::vector<std::byte> signed_rows[2] = {};  // f16, Q and K times the signs
  std::vector<std::byte> rotated[2] = {};
  const harness::Performer* rotated_by = nullptr;
  std::set<int> has_reference = {};  // for these n, of the kind that follows
  bool unrounded_reference = false;

  Problem problem(Dtype dtype) const {
    return make_problem(dtype, layout.d, std::int64_t{layout.heads} * layout.rows);
  }

  void make_inputs() {
    const Problem wide = problem(Dtype::f32);
    for (int slot = 0; slot < 3; ++slot) {
      unrounded[slot].resize(bytes_for(layout.elements(), Dtype::f32));
      reference::write_input(wide, reference::InputClass::fa3_mixture,
                             3 * seed + static_cast<std::uint64_t>(slot), unrounded[slot].data());
      rounded[slot].resize(bytes_for(layout.elements(), Dtype::f16));
      convert(unrounded[slot], rounded[slot], nullptr);
    }
    const reference::Matrix signs = reference::generate(make_problem(Dtype::f32, layout.d, 1),
                                                        reference::InputClass::sign_dense, seed + 1000);
    for (int slot = 0; slot < 2; ++slot) {
      signed_rows[slot].resize(rounded[slot].size());
      convert(unrounded[slot], signed_rows[slot], signs.data());
    }
  }

  /// f32 to f16, every row times `signs`.
  void convert(const std::vector<std::byte>& from, std::vector<std::byte>& to, const double* signs) const {
    const auto* values = reinterpret_cast<const float*>(from.data());
    auto* bits = reinterpret_cast<std::uint16_t*>(to.data());
    parallel_for(layout.elements(), reference::default_threads(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const float sign = signs ? static_cast<float>(signs[i % layout.d]) : 1.0F;
        bits[i] = float_to_f16(sign * values[i]);
      }
    });
  }

  void rotate(const harness::Performer& performer, harness::Workspace& workspace) {
    if (rotated_by == &performer) return;
    rotated_by = nullptr;
    for (int slot = 0; slot < 2; ++slot)
      rotated[slot] = performer.run(problem(Dtype::f16), signed_rows[slot], workspace).output;
    rotated_by = &performer;
  }

  void need_reference(int n, bool of_unrounded) {
    if (unrounded_reference != of_unrounded) has_reference.clear();
    unrounded_reference = of_unrounded;
    if (!has_reference.insert(n).second) return;
    for (int slot = 0; slot < 3; ++slot) {
      engine->load(static_cast<Slot>(slot), of_unrounded ? unrounded[slot] : rounded[slot],
                   of_unrounded ? Dtype::f32 : Dtype::f16, Cast::none, n);
    }
    engine->make_reference(n);
  }
};

Experiment::Experiment(AttentionShape layout, std::unique_ptr<Engine> engine, std::uint64_t seed)
    : data_(new Data{.layout = layout, .engine = std::move(engine), .seed = seed}) {
  data_->make_inputs();
}
Experiment::~Experiment() = default;

CsvRow Experiment::row(std::string_view name, std::string_view choice, int n,
                       const harness::Performer* performer, harness::Workspace& workspace) {
  Data& data = *data_;
  const Method& method = method_of(name);
  data.need_reference(n, choice != "reference_rounded");
  if (method.rotates) data.rotate(*performer, workspace);
  for (int slot = 0; slot < 3; ++slot) {
    const bool turned = method.rotates && slot < 2;
    data.engine->load(static_cast<Slot>(slot), turned ? data.rotated[slot] : data.rounded[slot], Dtype::f16,
                      method.cast, n);
  }
  const std::vector<HeadError> heads = data.engine->errors(arithmetic_for(method, choice), n);
  const auto count = static_cast<double>(heads.size());
  double error2 = 0.0, reference2 = 0.0, sum = 0.0, squares = 0.0, least = INFINITY, most = 0.0;
  for (const HeadError& head : heads) {
    const double rmse = std::sqrt(head.error2);
    error2 += head.error2;
    reference2 += head.reference2;
    sum += rmse;
    squares += rmse * rmse;
    least = std::min(least, rmse);
    most = std::max(most, rmse);
  }
  const double mean = sum / count;
  const double published = published_rmse(name, choice);
  return {{"heads", std::to_string(heads.size())},
          {"rows_per_head", std::to_string(data.engine->compared_rows(n))},
          {"seed", std::to_string(data.seed)},
          {"rmse", csv_number(std::sqrt(error2 / count))},
          {"rmse_mean", csv_number(mean)},
          {"rmse_spread",
           csv_number(std::sqrt(std::max(0.0, squares / count - mean * mean) * count / (count - 1.0)))},
          {"rmse_min", csv_number(least)},
          {"rmse_max", csv_number(most)},
          {"output_rms", csv_number(std::sqrt(reference2 / count))},
          {"published", published > 0.0 ? csv_number(published) : ""}};
}

namespace {

constexpr int kHeads = 32;
constexpr int kSampledRows = 32;  // of a head, on the host
constexpr std::uint64_t kSeed = 1;

struct Sizes {
  int d;
  std::vector<int> lengths;
};

std::vector<Sizes> sizes_for(bool on_device) {
  if (on_device) return {{64, {2048, 4096, 8448}}, {128, {2048, 4096, 8448}}, {256, {2048, 4096, 8448}}};
  return {{64, {2048}}, {128, {2048, 8448}}, {256, {2048}}};
}

bool rotates_here(const harness::Performer& performer, const Sizes& sizes) {
  return static_cast<bool>(
      performer.supports(make_problem(Dtype::f16, sizes.d, std::int64_t{kHeads} * sizes.lengths.back())));
}

/// Keeps the experiment of the last d: its data fill gigabytes.
class ExperimentCache {
 public:
  explicit ExperimentCache(bool on_device) : on_device_(on_device) {}
  Experiment& of(int d, int rows) {
    if (!experiment_ || d_ != d) {
      experiment_.reset();
      const AttentionShape layout{kHeads, rows, d};
      experiment_ = std::make_unique<Experiment>(
          layout, on_device_ ? make_device_engine(layout) : make_host_engine(layout, kSampledRows), kSeed);
      d_ = d;
    }
    return *experiment_;
  }

 private:
  bool on_device_;
  int d_ = 0;
  std::unique_ptr<Experiment> experiment_;
};

}  // namespace

std::vector<harness::Task> tasks(const harness::StudySetup& setup) {
  const bool on_device = setup.device.has_cuda();
  const auto cache = std::make_shared<ExperimentCache>(on_device);
  std::vector<harness::Task> all;
  const auto add = [&](const Sizes& sizes, int n, std::string_view method, std::string_view choice,
                       const harness::Performer* performer) {
    const std::string host = on_device ? "measured" : "host";
    CsvRow identity = {{"variant", performer ? std::string(performer->name()) : "none"},
                       {"source", performer ? std::string(harness::name_of(performer->source())) : host},
                       {"method", std::string(method)},
                       {"choice", std::string(choice)},
                       {"d", std::to_string(sizes.d)},
                       {"n", std::to_string(n)}};
    all.push_back({std::move(identity), 1, [=, d = sizes.d, rows = sizes.lengths.back(), &setup] {
                     return std::vector{
                         cache->of(d, rows).row(method, choice, n, performer, setup.workspace)};
                   }});
  };
  // Other choices are shown with one variant.
  const auto rotating = [&](const Sizes& sizes) -> const harness::Performer* {
    for (const harness::Performer& performer : setup.performers)
      if (rotates_here(performer, sizes)) return &performer;
    return nullptr;
  };
  for (const Sizes& sizes : sizes_for(on_device)) {
    for (const int n : sizes.lengths) {
      for (const Method& method : kMethods) {
        if (!method.rotates) add(sizes, n, method.name, "default", nullptr);
      }
    }
    for (const harness::Performer& performer : setup.performers) {
      if (!rotates_here(performer, sizes)) continue;
      for (const int n : sizes.lengths) {
        for (const Method& method : kMethods) {
          if (method.rotates) add(sizes, n, method.name, "default", &performer);
        }
      }
    }
    if (sizes.d != 128) continue;
    const int n = sizes.lengths.back();
    for (const SoftmaxChoice& choice : kChoices) {
      const harness::Performer* turning = rotates(choice.method) ? rotating(sizes) : nullptr;
      if (turning || !rotates(choice.method)) add(sizes, n, choice.method, choice.name, turning);
    }
  }
  return all;
}

}  // namespace fwht::attention
