// Grids: which problems are timed in which modes, as text files.
//
//   # A comment.
//   [L2]                         a block; its name is for the reader
//   n = 16..32768                numbers are 4096 or 2^12; a..b stands for every power of two from a to b
//   width = 768, 14336           instead of n, or beside it: rows of this length by operator_for
//   operator = 28x512 d53x256    instead of n, or beside it, between blanks: rows of any operator's length;
//                                signs and dense factors are made up
//   elements = 2^23              rows follow: elements / n; an n above the element count is left out;
//                                for a width or an operator as many whole rows as there are
//   rows = 1, 64                 instead of elements, or beside them
//   dtype = f16, bf16
//   placement = in, out          optional; in is the default
//   arrangement = inner64 from-dyadic/sequency
//                                optional, between blanks, as in a problem's text; orderings out of place.
//                                natural is the default
//   encoding = e4m3:row nvfp4    optional, between blanks; out of place. plain is the default
//   prepared = none signs rms    optional, between blanks; parts of one case: signs/rope64/page64x100. All
//                                but signs for encoded results; none is the default
//   problem = f16/n4096/r8       instead of these keys or beside them, between blanks; FWHT_TRACE writes such
//                                blocks
//   mode = alternating           replay, replay_pdl, alternating, cold: device variants; host: host variants
//
// A block stands for every combination of its values; combinations that an earlier block named are not
// repeated.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/problem.hpp"
#include "experiments/harness/mode.hpp"

namespace fwht::harness {

struct Case {
  Problem problem;
  Mode mode = Mode::replay;
};

struct Grid {
  std::string name, text;
  std::vector<Case> cases;
};

struct BuiltInGrid {
  std::string_view name, text;
};

/// The grids of experiments/grids, compiled in, so that a program finds them wherever it runs.
std::span<const BuiltInGrid> built_in_grids();

/// Throws BadRequest with name and line.
Grid parse_grid(std::string name, std::string_view text);

/// A built-in grid by name, else a file. Throws BadRequest that lists the built-in names when there is
/// neither.
Grid load_grid(const std::string& name_or_file);

/// "4096" or "2^12"; `what` names the value in the BadRequest.
std::int64_t parse_count(std::string_view text, std::string_view what);
/// "16..128, 2^10": see above.
std::vector<std::int64_t> parse_counts(std::string_view text, std::string_view what);

/// Items between commas, without surrounding blanks; none where there is no text. Throws BadRequest for an
/// empty item.
std::vector<std::string> split_list(std::string_view text);

}  // namespace fwht::harness
