#include "variants/auto/tuning_table.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <tuple>

#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/text.hpp"
#include "variants/kronecker/kronecker.hpp"
#include "variants/mma_kronecker/mma_kronecker.hpp"
#include "variants/registry.hpp"
#include "variants/rotate_then_quantize/rotate_then_quantize.hpp"
#include "variants/warp_kronecker/warp_kronecker.hpp"

namespace fwht::automatic {
namespace {

constexpr std::string_view kTitle = "# fwht tuning table 2";
constexpr std::string_view kHeader = "dtype,n,elements,placement,launch,variant";

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::int64_t positive_number(std::string_view digits) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || value < 1) {
    throw BadRequest(concat("'", digits, "' is no positive number"));
  }
  return value;
}

int small_number(std::string_view digits) {
  constexpr std::int64_t kMost = 100000;
  const std::int64_t value = positive_number(digits);
  if (value > kMost) throw BadRequest(concat(value, " is above the limit of ", kMost));
  return static_cast<int>(value);
}

Placement placement_of(std::string_view word) {
  if (word == "in") return Placement::in_place;
  if (word == "out") return Placement::out_of_place;
  throw BadRequest(concat("unknown placement '", word, "'; known: in, out"));
}

bool is_programmatic(std::string_view word) {
  if (word == "ordinary" || word == "programmatic") return word == "programmatic";
  throw BadRequest(concat("unknown launch '", word, "'; known: ordinary, programmatic"));
}

/// A variant that a plan can be made of: any in device memory but those that would ask the table again.
std::string chosen_variant(std::string_view name) {
  const Variant& variant = find_variant(name);
  if (&variant == &automatic::variant) throw BadRequest("auto cannot be the choice: it is what chooses");
  if (&variant == &rotate_then_quantize::variant)
    throw BadRequest(concat(name, " cannot be the choice: its rotation is that of auto"));
  if (variant.memory != Memory::device) {
    throw BadRequest(concat(name, " cannot be the choice: it works in host memory"));
  }
  return std::string(name);
}

FastestVariant parse_choice(std::string_view line) {
  const std::vector<std::string_view> cells = split(line, ',');
  if (cells.size() != 6) throw BadRequest(concat(cells.size(), " cells, not the 6 of ", kHeader));
  const std::int64_t n = positive_number(cells[1]);
  operator_for(n);  // throws where there is none
  return {parse_dtype(cells[0]),     n,
          positive_number(cells[2]), placement_of(cells[3]),
          is_programmatic(cells[4]), chosen_variant(cells[5])};
}

void parse_comment(std::string_view line, TuningTable& table) {
  const std::size_t colon = line.find(": ");
  if (colon == std::string_view::npos) return;
  const std::string_view key = line.substr(2, colon - 2), value = line.substr(colon + 2);
  if (key == "device") table.device = value;
  if (key == "source") table.source = value;
  if (key == "compute_capability") table.compute_capability = small_number(value);
  if (key == "sm_count") table.sm_count = small_number(value);
}

double octaves_apart(std::int64_t a, std::int64_t b) {
  return std::fabs(std::log2(static_cast<double>(a)) - std::log2(static_cast<double>(b)));
}

/// Whether the grid `tune` has its factors: Sylvester's for 2^k, else those of operator_for. With signs,
/// transposed or dense they take what is fastest without. With signs another variant is seldom faster, and
/// by little (docs/attempts.md); transposed and dense nobody measured it. Other orders of the length go by
/// the rule. Only for lengths that a table has, all of which have an operator.
bool is_measured(const Operator& op) {
  if (is_power_of_two(op.n())) return op.is_sylvester();
  return std::ranges::equal(op.factors(), operator_for(op.n()).factors(), {}, &Factor::order, &Factor::order);
}

/// Whether Hopper's own kernels run there, by the build too.
bool runs_wgmma(const DeviceInfo& device) {
  return static_cast<bool>(find_variant("wgmma").supports(make_problem(Dtype::f16, 65536, 1), device));
}

}  // namespace

const FastestVariant* TuningTable::nearest(const Problem& problem) const {
  if (!problem.is_arranged_plainly() || !problem.encoding.is_plain()) return nullptr;  // none was measured
  const auto nearest_of = [&](Placement placement) {
    const FastestVariant* best = nullptr;
    const std::int64_t elements = std::max<std::int64_t>(problem.elements(), 1);
    for (const FastestVariant& choice : choices) {
      if (choice.dtype != problem.dtype() || choice.n != problem.n() || choice.placement != placement ||
          choice.programmatic > problem.programmatic_launch)
        continue;
      // The nearest, of two the larger, of two the one of the problem's own launch.
      const auto rank = [elements](const FastestVariant& c) {
        return std::tuple(-octaves_apart(c.elements, elements), c.elements, c.programmatic);
      };
      if (best == nullptr || rank(choice) > rank(*best)) best = &choice;
    }
    return best;
  };
  const FastestVariant* nearest = nearest_of(problem.placement);
  if (nearest == nullptr) nearest = nearest_of(Placement::in_place);
  return nearest != nullptr && is_measured(problem.op) ? nearest : nullptr;
}

std::set<std::string_view> TuningTable::variants_for(Dtype dtype, std::int64_t n) const {
  std::set<std::string_view> names;
  for (const FastestVariant& choice : choices)
    if (choice.dtype == dtype && choice.n == n) names.insert(choice.variant);
  return names;
}

TuningTable parse_tuning_table(std::string_view text, const std::string& name) {
  TuningTable table;
  bool header_seen = false;
  const std::vector<std::string_view> lines = split(text, '\n');
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    try {
      if (i == 0 && line != kTitle) throw BadRequest(concat("the first line is not '", kTitle, "'"));
      if (line.empty()) continue;
      if (line.starts_with("# ")) {
        parse_comment(line, table);
      } else if (!header_seen) {
        if (line != kHeader) throw BadRequest(concat("the header is not '", kHeader, "'"));
        header_seen = true;
      } else {
        table.choices.push_back(parse_choice(line));
      }
    } catch (const BadRequest& error) {
      throw BadRequest(concat("tuning table ", name, ", line ", i + 1, ": ", error.what()));
    }
  }
  if (table.compute_capability == 0 || table.sm_count == 0) {
    throw BadRequest(
        concat("tuning table ", name, " names no ", table.sm_count == 0 ? "sm_count" : "compute_capability"));
  }
  return table;
}

namespace {

/// Beside Hopper's kernels mma_kronecker writes codes sooner than two launches for many short rows, and for
/// long ones with one scale each where there are more than clusters of the quantizer share, and a wave at
/// most. By the grid `fused` and sizes around its limits on an H200.
bool is_sooner_on_hopper(const Problem& problem, bool one_scale, const DeviceInfo& device) {
  constexpr std::int64_t kFew = std::int64_t{3} << 19, kOutOfL2 = std::int64_t{1} << 25;  // elements
  constexpr std::int64_t kShort = 4096, kShortOfOneScale = 2048;                          // of a row
  constexpr std::int64_t kReadOnce = 32768;  // more of a token the quantizer reads twice
  if (problem.op.factors().size() > 2) return false;
  if (problem.n() <= kShort)
    return problem.elements() >= (one_scale && problem.n() > kShortOfOneScale ? kOutOfL2 : kFew);
  return one_scale && problem.n() > kReadOnce && problem.rows <= device.sm_count &&
         2 * problem.rows > device.sm_count;
}

/// The same behind a dense factor, which `kronecker` rotates by. By the grid `codes` on an H200, whose
/// numbers of whole rows stay below 2^22 and 2^24 elements.
bool is_sooner_behind_dense(const Problem& problem, bool one_scale) {
  constexpr std::int64_t kShort = 4096, kLongOfOneScale = 16384;  // elements of a row
  constexpr std::int64_t kFewOfShort = std::int64_t{3} << 19, kFew = std::int64_t{15} << 18,
                         kFewOfOneScale = std::int64_t{15} << 20;
  if (problem.op.factors().size() > 2) return false;
  if (problem.n() <= kShort) return problem.elements() >= kFewOfShort;
  return one_scale ? problem.n() <= kLongOfOneScale && problem.elements() >= kFewOfOneScale
                   : problem.elements() >= kFew;
}

/// Without Hopper's kernels: scales of groups, unless the rows come in narrow tiles or are very long; one
/// scale a row where a tile is tall and wide, or many rows are short. By the grid `codes`, by sm_80 code on
/// an H200. Behind a dense factor two launches rotate by mma_kronecker, too, so that one is sooner.
bool is_sooner_by_mma_sync(const Problem& problem, bool one_scale) {
  constexpr std::int64_t kFew = std::int64_t{1} << 20, kFewOfOneScale = std::int64_t{1} << 22;  // elements
  constexpr std::int64_t kLong = 36864, kShortOfOneScale = 2048;                                // of a row
  constexpr int kTall = 108;
  const auto cut = mma_kronecker::cut_for(problem.op);
  if (!cut || cut->is_dense()) return true;
  const rows::Shape& shape = cut->shape;
  if (shape.order > mma_kronecker::kMostWideOrder) return false;
  if (!one_scale) return problem.elements() >= kFew && problem.n() <= kLong;
  const bool wide = shape.columns >= mma_kronecker::kTileColumns && is_power_of_two(shape.columns);
  return (wide && shape.order >= kTall) ||
         (problem.n() <= kShortOfOneScale && problem.elements() >= kFewOfOneScale);
}

/// Whether mma_kronecker writes codes sooner than two launches do, which rotate few rows with more warps.
bool is_sooner_in_one_launch(const Problem& problem, const DeviceInfo& device) {
  const bool one_scale = problem.encoding.scales.kind == ScaleGranularity::Kind::row;
  if (!runs_wgmma(device)) return is_sooner_by_mma_sync(problem, one_scale);
  if (problem.op.has_dense()) return is_sooner_behind_dense(problem, one_scale);
  return is_sooner_on_hopper(problem, one_scale, device);
}

/// Whether rows of m 2^k are sooner in registers than in shared memory. They are where a row has one warp or
/// many, but for two sorts. Of 5633 to 7168 elements in 64 columns neither several warps share few rows, nor
/// are there many, in between. Many rows of 36 x 1024 have a quarter of zeros. Two warps with half of a row
/// each wait for each other, which many rows hide from 10241 elements on. By the grids `tune` and `widths` on
/// an H200; 5760 and 6016 go by the same limits.
bool is_sooner_in_registers(const Problem& problem, const DeviceInfo& device) {
  constexpr std::int64_t kSomeOfOne = 5633, kMostOfOne = 7168, kSomeOfTwo = 10241;  // elements of a row
  constexpr std::int64_t kMany = std::int64_t{1} << 22;                             // elements
  constexpr std::int64_t kThreeQuarters = 36864, kFewOfThem = 8;                    // rows a multiprocessor
  const std::int64_t n = problem.n(), multiprocessors = device.sm_count;
  if (n == kThreeQuarters) return problem.rows <= kFewOfThem * multiprocessors;
  const auto choice = warp_kronecker::choice_for(problem.op, problem.rows, device.sm_count);
  if (!choice || choice->launch.hands_out()) return true;
  if (choice->launch.parts() == 2) return n < kSomeOfTwo || problem.rows > multiprocessors;
  return n < kSomeOfOne || n > kMostOfOne || problem.rows <= 2 * multiprocessors ||
         problem.elements() >= kMany;
}

/// The same beside Hopper's kernel, whose tensor copies take longer to begin and less to go on: few short
/// rows, and rows whose order is at most half that of the launch that `kronecker` has for them.
bool is_sooner_than_tensor_copies(const Problem& problem, const DeviceInfo& device) {
  const auto choice = warp_kronecker::choice_for(problem.op, problem.rows, device.sm_count);
  if (!choice) return false;
  const auto tile = kronecker::choice_for(problem.op);
  if (tile && 2 * tile->order <= tile->launch.shape.order) return true;
  if (choice->launch.hands_out()) return false;
  const rows::Shape& shape = choice->cut.shape;
  const int most_order = shape.columns < warp_kronecker::kColumns ? 48 : 56;
  return shape.order <= most_order && problem.elements() <= std::int64_t{1} << 20;
}

std::vector<std::string_view> preferred_encoders(const Problem& problem, const DeviceInfo& device) {
  // Beside a row of 65536, shared memory holds staged boxes of few warps.
  if (problem.n() < 65536 && is_sooner_in_one_launch(problem, device))
    return {"mma_split", "kronecker", "mma_kronecker", "rotate_then_quantize"};
  return {"mma_split", "kronecker", "rotate_then_quantize", "mma_kronecker"};  // the last has longer rows
}

}  // namespace

std::vector<std::string_view> preferred_variants(const Problem& problem, const DeviceInfo& device) {
  if (!problem.is_arranged_plainly()) return {"passes"};
  if (!problem.encoding.is_plain()) return preferred_encoders(problem, device);
  // Of these mma_split takes what one warp program has: regular matrices, and 2^k with signs.
  if (!problem.op.is_sylvester()) {
    if (is_sooner_than_tensor_copies(problem, device))
      return {"mma_split", "warp_kronecker", "kronecker", "mma_kronecker", "factors"};
    if (is_sooner_in_registers(problem, device))
      return {"mma_split", "kronecker", "warp_kronecker", "mma_kronecker", "factors"};
    return {"mma_split", "kronecker", "mma_kronecker", "warp_kronecker", "factors"};
  }
  // In fp32 no row of more than 2^15 fits in a multiprocessor, in 16 bits none of more than 2^16. Wider types
  // have no other kernels.
  if (problem.dtype() == Dtype::f64 || is_integer(problem.dtype())) return {"passes"};
  if (problem.n() > (1 << (problem.dtype() == Dtype::f32 ? 15 : 16))) return {"passes"};
  if (problem.n() == 1 << 16) return {"wgmma", "mma_split", "mma_kronecker", "passes"};
  if (problem.n() >= 8192) return {"wgmma", "mma_split", "mma_kronecker", "butterflies", "warp_shuffle"};
  return {"mma_split", "butterflies", "wgmma", "warp_shuffle"};
}

}  // namespace fwht::automatic
