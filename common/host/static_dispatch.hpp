// From run-time values to template arguments.
#pragma once

#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "common/contract/dtype.hpp"
#include "common/contract/encoding.hpp"

namespace fwht {

/// Calls body(std::integral_constant<int, value>) for First <= value <= Last; throws std::logic_error
/// otherwise (a plan that got here had its range checked by `supports`).
template <int First, int Last, class Body>
decltype(auto) dispatch_int(int value, Body&& body) {
  if constexpr (First < Last) {
    if (value != First) return dispatch_int<First + 1, Last>(value, std::forward<Body>(body));
  }
  if (value != First)
    throw std::logic_error("dispatch_int: value " + std::to_string(value) + " out of range");
  return body(std::integral_constant<int, First>{});
}

/// Calls body(std::integral_constant<Dtype, dtype>) for f16, bf16 and f32; throws std::logic_error otherwise.
template <class Body>
decltype(auto) dispatch_dtype(Dtype dtype, Body&& body) {
  switch (dtype) {
    case Dtype::f16:
      return body(std::integral_constant<Dtype, Dtype::f16>{});
    case Dtype::bf16:
      return body(std::integral_constant<Dtype, Dtype::bf16>{});
    case Dtype::f32:
      return body(std::integral_constant<Dtype, Dtype::f32>{});
    case Dtype::f64:
    case Dtype::i32:
    case Dtype::i64:
      break;
  }
  throw std::logic_error("dispatch_dtype: a type that is none of the ladder");
}

/// The same for the types that tensor cores and encoders take.
template <class Body>
decltype(auto) dispatch_16_bit(Dtype dtype, Body&& body) {
  if (dtype == Dtype::f16) return body(std::integral_constant<Dtype, Dtype::f16>{});
  if (dtype == Dtype::bf16) return body(std::integral_constant<Dtype, Dtype::bf16>{});
  throw std::logic_error("dispatch_16_bit: a type that is neither f16 nor bf16");
}

/// Calls body(std::integral_constant<CodeFormat, format>) for the formats of codes; throws std::logic_error
/// for plain.
template <class Body>
decltype(auto) dispatch_format(CodeFormat format, Body&& body) {
  switch (format) {
    case CodeFormat::e4m3:
      return body(std::integral_constant<CodeFormat, CodeFormat::e4m3>{});
    case CodeFormat::int8:
      return body(std::integral_constant<CodeFormat, CodeFormat::int8>{});
    case CodeFormat::int4:
      return body(std::integral_constant<CodeFormat, CodeFormat::int4>{});
    case CodeFormat::mxfp8:
      return body(std::integral_constant<CodeFormat, CodeFormat::mxfp8>{});
    case CodeFormat::mxfp4:
      return body(std::integral_constant<CodeFormat, CodeFormat::mxfp4>{});
    case CodeFormat::nvfp4:
      return body(std::integral_constant<CodeFormat, CodeFormat::nvfp4>{});
    case CodeFormat::plain:
      break;
  }
  throw std::logic_error("dispatch_format: plain is no format of codes");
}

}  // namespace fwht
