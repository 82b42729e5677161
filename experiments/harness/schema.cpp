#include "experiments/harness/schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "common/contract/dtype.hpp"
#include "experiments/harness/mode.hpp"
#include "experiments/harness/performer.hpp"
#include "reference/inputs.hpp"

namespace fwht::harness {
namespace {

using Type = Column::Type;

enum Presence { key, optional_key, required, required_if_ok, optional };

Column column(const char* name, Type type, Presence presence, const char* unit, const char* meaning) {
  return {name,
          type,
          unit,
          meaning,
          presence == key || presence == required,
          presence <= optional_key,
          {},
          Column::Range::any,
          presence == required_if_ok};
}

Column positive(Column column) {
  column.range = Column::Range::positive;
  return column;
}
Column not_negative(Column column) {
  column.range = Column::Range::not_negative;
  return column;
}

Column string(const char* name, Presence presence, const char* meaning) {
  return column(name, Type::string, presence, "", meaning);
}
Column integer(const char* name, Presence presence, const char* unit, const char* meaning) {
  return column(name, Type::integer, presence, unit, meaning);
}
Column number(const char* name, Presence presence, const char* unit, const char* meaning) {
  return column(name, Type::number, presence, unit, meaning);
}
Column json(const char* name, Presence presence, const char* meaning) {
  return column(name, Type::json, presence, "", meaning);
}
Column one_of(const char* name, Presence presence, std::vector<std::string> values, const char* meaning) {
  Column result = column(name, Type::values, presence, "", meaning);
  result.values = std::move(values);
  return result;
}

template <class Value>
std::vector<std::string> names_of(std::initializer_list<Value> values) {
  std::vector<std::string> names;
  for (const Value value : values)
    names.emplace_back(name_of(value));
  return names;
}

// What several tables share.

Column variant() {
  return string("variant", key, "the variant of the ladder");
}
Column performer() {
  return string("variant", key, "the variant, or what stands for one: see docs/measuring.md");
}
Column source() {
  std::vector<std::string> names = names_of({Source::measured, Source::emulated, Source::emulated_a100});
  names.emplace_back("host");
  return one_of("source", key, std::move(names),
                "who carried it out: this machine, an emulation, a host model");
}
Column memory() {
  return one_of("memory", key, names_of({Memory::host, Memory::device}), "where the data are");
}
Column dtype(Presence presence = key) {
  return one_of("dtype", presence, names_of({Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64}),
                "storage type of the input");
}
Column length(Presence presence = key) {
  return positive(integer("n", presence, "elements", "row length"));
}
Column rows(Presence presence = key) {
  return positive(integer("rows", presence, "rows", "independent rows"));
}
Column placement(Presence presence = key) {
  return one_of("placement", presence, names_of({Placement::in_place, Placement::out_of_place}),
                "whether the result replaces the input");
}
Column mode() {
  return one_of("mode", key,
                names_of({Mode::replay, Mode::replay_pdl, Mode::alternating, Mode::cold, Mode::host}),
                "how launches follow each other");
}
Column input() {
  std::vector<std::string> names;
  for (const reference::InputClass value : reference::all_input_classes())
    names.emplace_back(reference::name_of(value));
  return one_of("input", key, std::move(names), "kind of input");
}
Column status() {
  return one_of("status", required, {"ok", "incorrect", "failed"},
                "incorrect: judged wrong; failed: threw; either has a message");
}
Column message() {
  return string("message", optional, "why the status is not ok");
}
Column rel_l2(const char* meaning) {
  return not_negative(number("rel_l2", optional, "", meaning));
}
Column max_error_over_rms() {
  return not_negative(
      number("max_error_over_rms", optional, "", "largest error over the root mean square of its row"));
}
Column gain() {
  return number("gain", optional, "", "least-squares gain of the result against FP64, less 1");
}
Column useful_bytes(Presence presence) {
  return positive(integer("useful_bytes", presence, "bytes", "bytes_read + bytes_written"));
}
Column bytes_read(Presence presence) {
  return not_negative(integer("bytes_read", presence, "bytes", "the fewest that must be read"));
}
Column bytes_written(Presence presence) {
  return not_negative(integer("bytes_written", presence, "bytes", "the fewest that must be written"));
}

/// The columns that tell layers over ranks apart, then `others`.
std::vector<Column> with_parallel_key(std::vector<Column> others) {
  std::vector<Column> columns = {string("shape", key, "of the MLP"),
                                 integer("m", key, "tokens", "rows of X"),
                                 integer("ranks", key, "ranks", "GPUs"),
                                 string("algorithm", key, "how column- and row-parallel layer meet"),
                                 string("rotation", key, "what turns h in between"),
                                 string("variant", key, "the linear variant of both projections")};
  columns.insert(columns.end(), others.begin(), others.end());
  return columns;
}

std::vector<Table> make_tables() {
  return {
      {"results.csv",
       "fwht_sweep",
       "one row per variant, problem and mode",
       {variant(),
        memory(),
        string("operator", key, "what rows are multiplied by: 4096, 28x512"),
        string("encoding", optional_key, "format of the result where it is encoded: e4m3:row"),
        dtype(),
        length(),
        rows(),
        positive(integer("elements", required, "elements", "n * rows")),
        placement(),
        positive(integer("row_stride", key, "elements", "distance of row starts in the input")),
        mode(),
        status(),
        positive(number("time_us", required_if_ok, "us",
                        "per launch: median over the replays; only where status is ok")),
        not_negative(number("time_min_us", required_if_ok, "us", "per launch: the fastest replay")),
        not_negative(number("time_max_us", required_if_ok, "us", "per launch: the slowest replay")),
        positive(integer("launches", required_if_ok, "launches", "in one replay")),
        positive(integer("replays", required_if_ok, "replays", "that were timed")),
        not_negative(number("empty_us", optional, "us", "an empty kernel in a graph, per launch")),
        positive(
            number("host_us", optional, "us",
                   "host time of a call from Python, no graph, behind work that is still queued; python -m "
                   "fwht.bench")),
        positive(number("limit_us", required_if_ok, "us",
                        "the fastest copy of the same bytes in the same mode and run")),
        string("limit_kernel", required_if_ok, "which copy that is"),
        positive(number("fraction_of_limit", required_if_ok, "", "limit_us / time_us")),
        bytes_read(required),
        bytes_written(required),
        useful_bytes(required),
        positive(number("bytes_per_second", required_if_ok, "bytes/s", "useful_bytes / time")),
        rel_l2("relative L2 error against FP64"),
        not_negative(number("predicted_rel_l2", optional, "", "what the plan's numerics predict for it")),
        max_error_over_rms(),
        gain(),
        json("settings", optional, "what the plan decided"),
        message()}},
      {"limits.csv",
       "fwht_sweep",
       "one row per copy kernel that was timed; a resumed run appends those that it needs again",
       {memory(), useful_bytes(key), bytes_read(key), bytes_written(key), placement(), mode(),
        string("kernel", key, "name of the copy kernel"),
        positive(number("time_us", required, "us", "per launch: median over the replays")),
        not_negative(number("time_min_us", required, "us", "per launch: the fastest replay")),
        not_negative(number("time_max_us", required, "us", "per launch: the slowest replay"))},
       true},
      {"linear.csv",
       "fwht_linear",
       "one row per linear layer with 4-bit weights, problem and mode",
       {variant(),
        memory(),
        dtype(),
        integer("m", key, "tokens", "rows of x and y"),
        integer("n", key, "elements", "outputs"),
        integer("k", key, "elements", "inputs"),
        integer("group", key, "rows", "that share scale and zero point; -1: all"),
        one_of("zero_points", key, {"v1", "v2", "symmetric"}, "how they are stored"),
        column("act_order", Type::boolean, key, "", "whether rows belong to groups in any order"),
        integer("rotation", key, "elements", "order of the matrix that x is multiplied by first; 0: none"),
        column("programmatic", Type::boolean, key, "", "whether launches are programmatic dependent ones"),
        mode(),
        status(),
        number("time_us", optional, "us", "per launch: median over the replays; only where status is ok"),
        number("time_min_us", optional, "us", "per launch: the fastest replay"),
        number("time_max_us", optional, "us", "per launch: the slowest replay"),
        number("limit_us", optional, "us",
               "the fastest kernel that reads and writes as many bytes, same mode and run"),
        string("limit_kernel", optional, "which one that is"),
        number("fraction_of_limit", optional, "", "limit_us / time_us"),
        bytes_read(optional),
        bytes_written(optional),
        rel_l2("relative L2 error against FP64, over the columns that were compared"),
        number("predicted_rel_l2", optional, "", "what the plan's numerics predict for this data"),
        number("one_rounding_rel_l2", optional, "", "of the exact result rounded once"),
        json("settings", optional, "what the plan decided"),
        message()}},
      {"linear_rotation.csv",
       "fwht_linear",
       "one row per kind of weights, kind of tokens and rotation: a layer of 4096 inputs, rounded to nearest",
       {string("weights", key, "kind of weights, as inputs are named"), input(),
        integer("rotation", key, "elements", "order of the blocks that x and W are multiplied by; 0: none"),
        number("weight_rel_l2", optional, "", "relative L2 error of 4-bit weights, groups of 128"),
        number("rel_l2_w4a16", optional, "", "relative L2 error of the result with such weights"),
        number("rel_l2_a8", optional, "", "with tokens in int8, one scale a token, and exact weights"),
        number("rel_l2_w4a8", optional, "", "with both"), status(), message()}},
      {"unsupported.csv",
       "fwht_sweep",
       "one row per problem that a variant refuses",
       {variant(), string("operator", key, "what rows are multiplied by"),
        string("encoding", optional_key, "format of the result where it is encoded"), dtype(), length(),
        rows(), placement(), string("reason", required, "one sentence")},
       true},
      {"accuracy.csv",
       "fwht_accuracy",
       "one row per variant, dtype, n and kind of input: errors against FP64 over all rows of all seeds",
       {performer(),
        source(),
        dtype(),
        length(),
        input(),
        string("seeds", optional, "separated by semicolons"),
        positive(integer("elements", optional, "elements", "of all seeds together")),
        status(),
        rel_l2("relative L2 error over all elements"),
        not_negative(number("rel_l2_min_row", optional, "", "of the row with the least")),
        not_negative(number("rel_l2_mean_row", optional, "", "mean over the rows")),
        not_negative(number("rel_l2_max_row", optional, "", "of the row with the greatest")),
        not_negative(number("predicted_rel_l2", optional, "", "what the numerics predict for such inputs")),
        not_negative(number("ratio", optional, "", "rel_l2 / predicted_rel_l2")),
        not_negative(
            number("predicted_for_data", optional, "", "the same roundings followed through this very data")),
        not_negative(number("ratio_for_data", optional, "", "rel_l2 / predicted_for_data")),
        not_negative(
            number("window", optional, "", "how far ratio_for_data may lie from 1 on continuous data")),
        max_error_over_rms(),
        gain(),
        number("predicted_gain", optional, "", "what the numerics predict for it"),
        not_negative(number("gain_spread", optional, "", "standard deviation of the gain over such inputs")),
        number("mean_signed_error", optional, "", "mean error over the root mean square of the result"),
        not_negative(
            number("bit_match", optional, "", "share of results equal to the correctly rounded one")),
        string("ulp_histogram", optional,
               "results at distance 0, 1, 2 ... from the correctly rounded one, separated by semicolons"),
        not_negative(integer("nonfinite", optional, "elements", "results that are not finite")),
        not_negative(
            integer("unexpected_nan", optional, "elements", "NaN where the exact result is a number")),
        not_negative(integer("unexpected_infinity", optional, "elements",
                             "infinite where the exact result is finite")),
        not_negative(
            integer("missing_nonfinite", optional, "elements", "finite where the exact result is not")),
        message()}},
      {"probes.csv",
       "fwht_studies",
       "one row per question to a tensor-core instruction",
       {source(), string("instruction", key, "PTX name"),
        one_of("operand", key, names_of({Dtype::f16, Dtype::bf16}), "type of the factors"),
        string("accumulator", key, "its type"),
        string("probe", optional_key, "the question; empty where the task failed"),
        positive(integer("vectors", optional, "", "that the answer rests on")),
        number("value", optional, "", "the answer"),
        number("model_value", optional, "", "what the model of the tensor core answers"),
        not_negative(integer("mismatches", optional, "vectors", "whose bits differ from the model's")),
        status(), message()}},
      {"overflow.csv",
       "fwht_studies",
       "fp16 rows of one 2-norm and four shapes: which come out infinite although their exact result is "
       "finite",
       {performer(), source(), dtype(), length(),
        one_of("shape", key, {"normal", "constant", "block_of_256", "one_hot"}, "of the rows"),
        number("norm_over_limit", optional_key, "",
               "2-norm of a row over 65504; empty where the task failed"),
        not_negative(number("rms", optional, "", "root mean square of a row")),
        not_negative(integer("rows", optional, "rows", "that were tried")),
        not_negative(integer("overflowing_rows", optional, "rows", "whose exact result overflows")),
        not_negative(integer("spurious_rows", optional, "rows",
                             "that overflow although their exact result is finite")),
        not_negative(integer("spurious_values", optional, "elements", "infinite or NaN in such rows")),
        rel_l2("relative L2 error of the rows that stay finite"), status(), message()}},
      {"quantization.csv",
       "fwht_studies",
       "tokens cast to a format without rotation, after an exact one, and after each variant's",
       {performer(), source(), dtype(), length(), input(),
        string("format", optional_key, "number format; empty where the task failed"),
        string("quantizer", optional, "who made the codes: own, the variant itself, or the reference"),
        positive(integer("elements", optional, "elements", "that were cast")),
        rel_l2("relative L2 error of the token"),
        not_negative(number("bulk_rel_l2", optional, "", "the same over the columns without outliers")),
        max_error_over_rms(),
        not_negative(number("peak_over_rms", optional, "",
                            "largest element over the root mean square of its token, mean")),
        not_negative(number("underflow", optional, "", "share of elements that become zero")),
        not_negative(number("transform_rel_l2", optional, "", "relative L2 error of the transform alone")),
        status(), message()}},
      {"attention.csv",
       "fwht_studies",
       "FP8 attention with rotated Q and K against FP64 (arXiv 2407.08608, Table 3)",
       {performer(), source(), string("method", key, "arithmetic and casts"),
        string("choice", key, "what the paper leaves open"),
        positive(integer("d", key, "elements", "head dimension")), length(),
        positive(integer("heads", optional, "heads", "independent heads")),
        positive(integer("rows_per_head", optional, "rows", "that are compared")),
        integer("seed", optional, "", "of the data"),
        not_negative(number("rmse", optional, "", "root mean square error of the output")),
        not_negative(number("rmse_mean", optional, "", "mean over the heads")),
        not_negative(number("rmse_spread", optional, "", "standard deviation over the heads")),
        not_negative(number("rmse_min", optional, "", "of the best head")),
        not_negative(number("rmse_max", optional, "", "of the worst head")),
        not_negative(number("output_rms", optional, "", "root mean square of the exact output")),
        number("published", optional, "", "what the paper reports"), status(), message()}},
      // Not unsupported.csv: a sweep in the same folder may have timed it.
      {"not_profiled.csv",
       "fwht_profile",
       "one row per problem that was left out",
       {variant(), dtype(), length(), rows(), placement(), string("reason", required, "one sentence")},
       true},
      {"launches.csv",
       "fwht_profile",
       "what was launched, in the order of the profiler's rows; a peak has no problem",
       {string("variant", optional_key, "the variant; empty for a peak"),
        string("peak", optional_key, "the resource that the launch drives as hard as it goes"),
        dtype(optional_key), length(optional_key), rows(optional_key),
        positive(integer("elements", optional, "elements", "n * rows")), placement(optional_key),
        positive(integer("row_stride", optional_key, "elements", "distance of row starts")),
        useful_bytes(optional),
        positive(integer("kernels", required, "kernels", "rows of the profiler that belong to it")),
        json("settings", optional, "what the plan decided")},
       true},
      {"tensor_parallel.csv", "fwht_tensor_parallel",
       "one row per layer spread over ranks: shape, tokens, ranks and algorithm",
       with_parallel_key(
           {one_of("status", required, {"ok", "incorrect", "failed", "unsupported"}, "what became of it"),
            number("time_us", optional, "us",
                   "one layer in a graph of several: median over the replays of the largest over the ranks"),
            number("min_us", optional, "us", "of the replays"),
            number("max_us", optional, "us", "of the replays"),
            number("pieces_us", optional, "us", "sum of the times of its pieces, each measured alone"),
            number("model_us", optional, "us",
                   "the lower line: the cost model with published bandwidth and measured collectives"),
            number("published_speedup", optional, "",
                   "the best speed-up of tp_aware over naive that arXiv 2402.04925 gives for the shape"),
            integer("layers", optional, "layers", "in one graph, each with weights of its own"),
            integer("replays", optional, "replays", "of the graph"),
            number("rel_l2", optional, "", "error against FP64 over 256 columns, the largest over the ranks"),
            number("rel_l2_bound", optional, "", "what it may be; 0: every result is exact"),
            string("reason", optional, "why it is not ok")}),
       true},
      {"tensor_parallel_pieces.csv", "fwht_tensor_parallel",
       "one row per piece of such a layer, measured alone",
       with_parallel_key(
           {string("piece", key,
                   "projection, collective or move; between: all pieces between the projections; "
                   "all_to_all of a layer that gathers: no part of it, to compare with"),
            number("time_us", required, "us", "as in tensor_parallel.csv"),
            number("min_us", required, "us", "of the replays"),
            number("max_us", required, "us", "of the replays"),
            integer("layers", required, "layers", "in one graph"),
            integer("replays", required, "replays", "of the graph")}),
       true},
      {"tensor_parallel_model.csv",
       "fwht_tensor_parallel",
       "what the cost model says of every layer; nothing in it was run",
       {string("shape", key, "of the MLP"), integer("m", key, "tokens", "rows of X"),
        integer("ranks", key, "ranks", "GPUs; 16 are two hosts of 8"),
        string("algorithm", key, "how column- and row-parallel layer meet"),
        string("rotation", key, "what turns h in between"),
        one_of("source", required, {"fitted", "from_measured", "extrapolated", "assumed"},
               "fitted to the pieces of this run, which measured the layer; from published bandwidth and "
               "measured "
               "collectives, where nothing was timed; extrapolated to other numbers of ranks; with assumed "
               "links "
               "between hosts"),
        number("gemms_us", required, "us", "reading the weights"),
        number("between_us", required, "us", "from one projection to the other"),
        number("reduce_us", required, "us", "the all-reduce"),
        number("model_us", required, "us",
               "the sum, times what a layer takes over its pieces where that was measured")}},
      {"tests.csv",
       "./testbed (analysis/times.py)",
       "one row per test case that was to run on the machine of the results",
       {string("name", key,
               "ctest's name, or suite.case of a GoogleTest program that runs many in one process"),
        string("label", required, "host, gpu, slow: joined by +"),
        one_of("status", required, {"passed", "failed", "skipped"}, "what became of it"),
        not_negative(number("seconds", required, "s", "wall-clock time"))}},
  };
}

const char* name_of(Type type) {
  switch (type) {
    case Type::string:
      return "string";
    case Type::integer:
      return "integer";
    case Type::number:
      return "number";
    case Type::boolean:
      return "boolean";
    case Type::values:
      return "enum";
    case Type::json:
      return "json";
  }
  return "";
}

template <class Number>
std::optional<Number> parsed(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value != value) return std::nullopt;
  return value;
}

bool is_of_type(const Column& column, std::string_view text) {
  switch (column.type) {
    case Type::string:
      return std::none_of(text.begin(), text.end(),
                          [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
    case Type::integer:
      return parsed<std::int64_t>(text).has_value();
    case Type::number:
      return parsed<double>(text).has_value();
    case Type::boolean:
      return text == "true" || text == "false";
    case Type::values:
      return std::find(column.values.begin(), column.values.end(), text) != column.values.end();
    case Type::json:
      return nlohmann::json::parse(text, nullptr, false).is_object();
  }
  return false;
}

bool is_in_range(const Column& column, std::string_view text) {
  if (column.range == Column::Range::any) return true;
  const double value = parsed<double>(text).value_or(0.0);
  return column.range == Column::Range::positive ? value > 0.0 && std::isfinite(value) : value >= 0.0;
}

const char* name_of(Column::Range range) {
  return range == Column::Range::positive ? "positive" : "not_negative";
}

const char* in_words(Column::Range range) {
  return range == Column::Range::positive ? "must be above 0 and finite" : "must not be below 0";
}

}  // namespace

std::string why_no_value(const Column& column, std::string_view text) {
  if (text.empty()) return column.required ? fmt::format("column {} must not be empty", column.name) : "";
  if (!is_of_type(column, text)) {
    return fmt::format("column {}: '{}' is no {}", column.name, text,
                       column.values.empty() ? name_of(column.type)
                                             : fmt::format("value of {}", fmt::join(column.values, ", ")));
  }
  if (!is_in_range(column, text))
    return fmt::format("column {}: {} {}", column.name, text, in_words(column.range));
  return "";
}

std::string why_no_row(const std::vector<Column>& columns, const std::map<std::string, std::string>& row) {
  const auto value = [&](const std::string& name) {
    const auto found = row.find(name);
    return found == row.end() ? std::string_view() : std::string_view(found->second);
  };
  const bool ok = value("status") == "ok";
  for (const Column& column : columns) {
    if (ok && column.required_if_ok && value(column.name).empty())
      return fmt::format("column {} must not be empty where status is ok", column.name);
    if (std::string why = why_no_value(column, value(column.name)); !why.empty()) return why;
  }
  return "";
}

std::vector<std::string> Table::column_names() const {
  std::vector<std::string> names;
  for (const Column& c : columns)
    names.push_back(c.name);
  return names;
}

std::vector<std::string> Table::key() const {
  std::vector<std::string> names;
  for (const Column& c : columns) {
    if (c.key) names.push_back(c.name);
  }
  return names;
}

std::span<const Table> all_tables() {
  static const std::vector<Table> tables = make_tables();
  return tables;
}

const Table& table_schema(std::string_view name) {
  for (const Table& table : all_tables()) {
    if (table.name == name) return table;
  }
  throw std::out_of_range(fmt::format("no program writes a table {}", name));
}

std::string schema_json() {
  using Json = nlohmann::ordered_json;
  Json tables = Json::object();
  for (const Table& table : all_tables()) {
    Json columns = Json::array();
    for (const Column& c : table.columns) {
      Json entry = {{"name", c.name}, {"type", name_of(c.type)}};
      if (!c.values.empty()) entry["values"] = c.values;
      entry["unit"] = c.unit;
      entry["required"] = c.required;
      if (c.required_if_ok) entry["required_if_ok"] = true;
      if (c.range != Column::Range::any) entry["range"] = name_of(c.range);
      entry["key"] = c.key;
      entry["meaning"] = c.meaning;
      columns.push_back(std::move(entry));
    }
    Json entry = {{"program", table.program}, {"meaning", table.meaning}};
    if (table.may_repeat) entry["may_repeat"] = true;
    entry["columns"] = std::move(columns);
    tables[table.name] = std::move(entry);
  }
  return Json{{"schema_version", 1}, {"tables", std::move(tables)}}.dump(1);
}

}  // namespace fwht::harness
