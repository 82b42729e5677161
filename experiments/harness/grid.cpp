#include "experiments/harness/grid.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <sstream>

#include "common/contract/variant.hpp"
#include "common/host/bits.hpp"
#include "common/host/error.hpp"
#include "common/host/text_file.hpp"

namespace fwht::harness {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

template <class Value, class Parse>
std::vector<Value> parse_each(std::string_view text, Parse parse) {
  std::vector<Value> values;
  for (const std::string& item : split_list(text))
    values.push_back(parse(item));
  return values;
}

/// Items between blanks: encodings and problems have commas of their own.
std::vector<std::string> words_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;)
    words.push_back(word);
  return words;
}

/// @param example  of what may stand there, for the refusal of nothing
template <class Parse>
auto parse_words(std::string_view text, std::string_view key, std::string_view example, Parse parse) {
  std::vector<decltype(parse(std::string()))> values;
  for (const std::string& word : words_of(text))
    values.push_back(parse(word));
  if (values.empty())
    throw BadRequest(fmt::format("the block names nothing behind '{} ='; {}", key, example));
  return values;
}

Encoding encoding_of_word(const std::string& word) {
  return word == "plain" ? Encoding{} : parse_encoding(word);
}

/// What stands around the transform: signs of the operator, prologue, pages.
struct Prepared {
  bool signs = false;
  std::optional<Prologue> prologue = {};
  std::optional<Paging> paging = {};
};

Prepared parse_prepared(std::string parts) {
  Prepared prepared{.signs = parts == "signs" || parts.starts_with("signs/")};
  if (prepared.signs) parts.erase(0, std::string_view("signs/").size());
  if (parts != "none") parse_preparations(parts, prepared.prologue, prepared.paging);
  return prepared;
}

struct GridBlock {
  int line = 0;
  std::set<std::string, std::less<>> named;  // keys so far
  std::vector<std::int64_t> n, widths, elements, rows;
  std::vector<Dtype> dtypes;
  std::vector<Placement> placements;
  std::vector<Operator> operators;
  std::vector<Problem> problems;
  std::vector<std::string> arrangements{"natural"};
  std::vector<Encoding> encodings{Encoding{}};
  std::vector<Prepared> preparations{Prepared{}};
  std::vector<Mode> modes;

  void set(std::string_view key, std::string_view value) {
    if (!named.emplace(key).second)
      throw BadRequest(fmt::format("the block names '{}' twice; one line has all of its values", key));
    if (key == "n") {
      n = parse_counts(value, key);
    } else if (key == "width") {
      widths = parse_counts(value, key);
    } else if (key == "operator") {
      operators = parse_words(value, key, "28x512 is one", parse_operator);
    } else if (key == "elements") {
      elements = parse_counts(value, key);
    } else if (key == "rows") {
      rows = parse_counts(value, key);
    } else if (key == "dtype") {
      dtypes = parse_each<Dtype>(value, parse_dtype);
    } else if (key == "placement") {
      placements =
          parse_each<Placement>(value, [](const std::string& item) { return kPlacements.parse(item); });
    } else if (key == "arrangement") {
      arrangements = parse_words(value, key, "natural is a word", [](std::string word) { return word; });
    } else if (key == "encoding") {
      encodings = parse_words(value, key, "plain is none", encoding_of_word);
    } else if (key == "prepared") {
      preparations = parse_words(value, key, "none is a word", parse_prepared);
    } else if (key == "problem") {
      problems = parse_words(value, key, "f16/n4096/r8 is one", parse_problem);
    } else if (key == "mode") {
      modes = parse_each<Mode>(value, [](const std::string& item) { return kModes.parse(item); });
    } else {
      throw BadRequest(fmt::format(
          "unknown key '{}'; known: n, width, operator, elements, rows, dtype, placement, arrangement, "
          "encoding, prepared, problem, mode",
          key));
    }
  }

  std::vector<std::int64_t> rows_for(std::int64_t length, bool of_width) const {
    std::vector<std::int64_t> all;
    for (const std::int64_t count : elements) {
      if (count < length) continue;
      if (count % length != 0 && !of_width)
        throw BadRequest(fmt::format("elements={} is no multiple of n={}", count, length));
      all.push_back(count / length);
    }
    all.insert(all.end(), rows.begin(), rows.end());
    return all;
  }

  void append_to(std::vector<Case>& cases, std::set<std::string>& seen) const {
    for (const std::int64_t length : n)
      append_to(cases, seen, Operator::sylvester(length), rows_for(length, false));
    for (const std::int64_t width : widths)
      append_to(cases, seen, operator_for(width), rows_for(width, true));
    for (const Operator& op : operators)
      append_to(cases, seen, op, rows_for(op.n(), true));
    for (const Problem& problem : problems)
      append_to(cases, seen, problem);
  }

  void append_to(std::vector<Case>& cases, std::set<std::string>& seen, const Operator& op,
                 const std::vector<std::int64_t>& row_counts) const {
    for (const Dtype dtype : dtypes) {
      for (const std::int64_t count : row_counts) {
        for (const Placement placement : placements) {
          for (const std::string& arrangement : arrangements) {
            Problem problem = make_problem(dtype, op, count, placement);
            set_arrangement(problem, arrangement);
            if (problem.in_ordering != Ordering::natural || problem.out_ordering != Ordering::natural)
              problem.placement = Placement::out_of_place;
            append_encoded(cases, seen, problem);
          }
        }
      }
    }
  }

  void append_encoded(std::vector<Case>& cases, std::set<std::string>& seen, const Problem& plain) const {
    for (const Encoding& encoding : encodings) {
      for (const Prepared& prepared : preparations) {
        Problem problem = plain;
        if (prepared.signs) problem.op = plain.op.with_signs();
        problem.encoding = encoding;
        problem.prologue = prepared.prologue;
        problem.paging = prepared.paging;
        if (prepared.signs && plain.op.has_signs())
          throw BadRequest(
              fmt::format("prepared = signs, but the operator {} has signs", to_string(plain.op)));
        if (const Support judged = Transforms::is_judged(problem); !judged) throw BadRequest(judged.why_not);
        if (!encoding.is_plain()) problem.placement = Placement::out_of_place;
        append_to(cases, seen, problem);
      }
    }
  }

  void append_to(std::vector<Case>& cases, std::set<std::string>& seen, Problem problem) const {
    for (const Mode mode : modes) {
      problem.programmatic_launch = is_programmatic(mode);
      validate(problem);
      if (seen.insert(fmt::format("{}/{}", to_string(problem), name_of(mode))).second)
        cases.push_back({problem, mode});
    }
  }

  void require_complete() const {
    const auto require = [](bool there, std::string_view key) {
      if (!there) throw BadRequest(fmt::format("the block names no {}", key));
    };
    const bool lengths = !n.empty() || !widths.empty() || !operators.empty();
    const bool lists = lengths || !elements.empty() || !rows.empty() || !dtypes.empty();
    if (problems.empty() || lists) {
      require(lengths, "n, width or operator");
      require(!elements.empty() || !rows.empty(), "elements or rows");
      require(!dtypes.empty(), "dtype");
    }
    require(!modes.empty(), "mode");
  }
};

}  // namespace

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items;
  if (trimmed(text).empty()) return items;
  for (std::size_t first = 0, comma = 0; comma != std::string_view::npos; first = comma + 1) {
    comma = text.find(',', first);
    const std::string_view item = trimmed(text.substr(first, comma - first));
    if (item.empty()) throw BadRequest(fmt::format("'{}' has an empty item between its commas", text));
    items.emplace_back(item);
  }
  return items;
}

std::int64_t parse_count(std::string_view text, std::string_view what) {
  const auto number = [&](std::string_view digits) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size() || value < 1) {
      throw BadRequest(fmt::format("{}: '{}' is no positive number; write 4096 or 2^12", what, text));
    }
    return value;
  };
  if (!text.starts_with("2^")) return number(text);
  const std::int64_t exponent = text == "2^0" ? 0 : number(text.substr(2));
  if (exponent > 62) throw BadRequest(fmt::format("{}: '{}' is above the limit of 2^62", what, text));
  return std::int64_t{1} << exponent;
}

std::vector<std::int64_t> parse_counts(std::string_view text, std::string_view what) {
  std::vector<std::int64_t> counts;
  for (const std::string& item : split_list(text)) {
    const std::size_t dots = item.find("..");
    if (dots == std::string::npos) {
      counts.push_back(parse_count(item, what));
      continue;
    }
    const std::int64_t first = parse_count(trimmed(std::string_view(item).substr(0, dots)), what);
    const std::int64_t last = parse_count(trimmed(std::string_view(item).substr(dots + 2)), what);
    if (!is_power_of_two(first) || !is_power_of_two(last) || first > last) {
      throw BadRequest(fmt::format("{}: '{}' must run from a power of two up to a power of two", what, item));
    }
    for (std::int64_t value = first;; value *= 2) {
      counts.push_back(value);
      if (value == last) break;
    }
  }
  return counts;
}

Grid parse_grid(std::string name, std::string_view text) {
  Grid grid{std::move(name), std::string(text), {}};
  std::set<std::string> seen;
  GridBlock block;
  int line_number = 0, at = 0;
  const auto close = [&] {
    if (block.line == 0) return;
    at = block.line;
    block.require_complete();
    if (block.placements.empty()) block.placements = {Placement::in_place};
    block.append_to(grid.cases, seen);
  };
  try {
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
      at = ++line_number;
      const std::string_view content = trimmed(std::string_view(line).substr(0, line.find('#')));
      if (content.empty()) continue;
      if (content.front() == '[') {
        if (content.back() != ']') throw BadRequest(fmt::format("'{}' lacks its ]", content));
        close();
        block = GridBlock{};
        block.line = line_number;
        continue;
      }
      const std::size_t equals = content.find('=');
      if (block.line == 0 || equals == std::string_view::npos) {
        throw BadRequest(fmt::format("'{}' is neither [block] nor key = values inside a block", content));
      }
      block.set(trimmed(content.substr(0, equals)), trimmed(content.substr(equals + 1)));
    }
    close();
    if (grid.cases.empty()) throw BadRequest("the grid names no problem");
  } catch (const BadRequest& error) {
    throw BadRequest(fmt::format("grid '{}', line {}: {}", grid.name, at, error.what()));
  }
  return grid;
}

Grid load_grid(const std::string& name_or_file) {
  std::string known;
  for (const BuiltInGrid& grid : built_in_grids()) {
    if (grid.name == name_or_file) return parse_grid(std::string(grid.name), grid.text);
    known += (known.empty() ? "" : ", ") + std::string(grid.name);
  }
  std::error_code error;
  if (!std::filesystem::exists(name_or_file, error)) {
    throw BadRequest(
        fmt::format("unknown grid '{}': no such file, and the built-in grids are {}", name_or_file, known));
  }
  constexpr std::size_t kLongest = std::size_t{1} << 20;
  std::string text = read_text_file(name_or_file, fmt::format("grid '{}'", name_or_file), kLongest);
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // which some editors put first
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  if (text.empty()) throw BadRequest(fmt::format("grid '{}' is empty", name_or_file));
  return parse_grid(name_or_file, text);
}

}  // namespace fwht::harness
