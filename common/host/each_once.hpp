#pragma once
// For parsers of texts whose words stand in any order: each kind of word once.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "common/host/error.hpp"
#include "common/host/text.hpp"

namespace fwht {

class EachOnce {
 public:
  /// @param noun  what `text` is, for messages: "problem"
  EachOnce(std::string_view noun, std::string_view text) : noun_(noun), text_(text) {}

  /// Throws BadRequest where a word of this kind was met before.
  void operator()(std::string_view kind) {
    if (std::find(met_.begin(), met_.end(), kind) != met_.end())
      throw BadRequest(concat(noun_, " '", text_, "' names its ", kind, " twice"));
    met_.push_back(kind);
  }

 private:
  std::string_view noun_, text_;
  std::vector<std::string_view> met_;
};

}  // namespace fwht
