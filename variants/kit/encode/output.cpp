#include "variants/kit/encode/output.hpp"

#include <string_view>
#include <utility>

#include "variants/kit/encode/offers.hpp"

namespace fwht::encoder {

Support supports(const Problem& problem) {
  using Kind = ScaleGranularity::Kind;
  const Encoding& encoding = problem.encoding;
  const std::int64_t n = problem.n(), group = encoding.scales.group;
  const auto refuse = [&](const auto&... why) { return not_offered(encoding, why...); };
  if (encoding.scales.kind == Kind::row && token_length(encoding, n) != n)
    return refuse(token_length(encoding, n), " elements share a scale, and a row has n=", n);
  const std::int64_t smallest = encoding.format == CodeFormat::nvfp4 ? 16 : 32;
  if (encoding.scales.kind == Kind::group &&
      (!is_power_of_two(group) || group < smallest || group > 256 || group > n)) {
    return refuse("group=", group, " must be a power of two from ", smallest, " to ", n < 256 ? n : 256);
  }
  if (problem.scale_bytes_out() >> 32 != 0)
    return refuse("its scales take ", problem.scale_bytes_out(), " bytes, and 2^32 is the limit");
  for (const auto& [name, stride] :
       {std::pair{std::string_view("input"), problem.in.row_stride}, {"output", problem.out.row_stride}}) {
    if (stride % 8 != 0 || stride >> 32 != 0)
      return refuse("row_stride=", stride, " of the ", name, " must be a multiple of 8 below 2^32");
  }
  return {};
}

Support supports_rounded_first(const Problem& problem) {
  if (Support encoding = supports(problem); !encoding) return encoding;
  if (is_rounded_first(problem.encoding)) return {};
  return not_offered(problem.encoding, "rows are rounded to ", name_of(problem.out.dtype),
                     " first, scales are in fp32, and the tensor's must be given");
}

}  // namespace fwht::encoder
