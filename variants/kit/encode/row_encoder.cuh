// The epilogue of a kernel that writes codes: a warp has finished vectors of eight consecutive elements a
// lane, in fp32. Largest |y| of every group, its scale, the codes, their stores.
//
//   group of up to 256   lies in one vector of the warp: shuffles over the lanes of the group
//   whole row            first the lane's vectors of the row, then one redux, then, where warps share the
//                        row, one word a warp in shared memory
//   several rows a warp  where numbers are rounded first, lanes share them out as they do groups
//                        (sharing.hpp)
//
// Which recipe, layout and group it is are numbers in the kernel's argument (Rule, Output). What the compiler
// needs to know are the element, the family of scales, and whether a group lies in a vector.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "common/device/ptx/global.cuh"
#include "common/device/ptx/mma.cuh"
#include "common/device/ptx/pairs.cuh"
#include "common/device/storage.cuh"
#include "variants/kit/encode/output.hpp"
#include "variants/kit/encode/sharing.hpp"

namespace fwht::encoder {

// ---- maxima

__device__ __forceinline__ float larger_of(float a, float b) {
  return fmaxf(a, b);
}
/// The largest magnitudes of both halves of pairs, with any sign.
template <Dtype dtype>
struct LargestPair {
  std::uint32_t pair;
};
template <Dtype dtype>
__device__ __forceinline__ LargestPair<dtype> larger_of(LargestPair<dtype> a, LargestPair<dtype> b) {
  return {ptx::max_xorsign_abs_x2<dtype>(a.pair, b.pair)};
}
__device__ __forceinline__ float from_lane_across(float x, int lane_mask) {
  return __shfl_xor_sync(0xFFFFFFFFU, x, lane_mask);
}
template <Dtype dtype>
__device__ __forceinline__ LargestPair<dtype> from_lane_across(LargestPair<dtype> x, int lane_mask) {
  return {__shfl_xor_sync(0xFFFFFFFFU, x.pair, lane_mask)};
}

/// Of 2^steps vectors each lane goes on with one: a step halves them, as a lane takes the larger numbers of
/// its half from its neighbour and gives those of the other half. Then maximum[k] is that of vector (k <<
/// steps) + lane % 2^steps, over as many lanes.
template <int steps, int step = 0, int vectors, class Maximum>
__device__ __forceinline__ void spread_maxima(Maximum (&maximum)[vectors], int lane) {
  if constexpr (step < steps) {
    const bool upper = (lane >> step & 1) != 0;
#pragma unroll
    for (int i = 0; i < vectors >> (step + 1); ++i) {
      const Maximum kept = upper ? maximum[2 * i + 1] : maximum[2 * i];
      const Maximum given = upper ? maximum[2 * i] : maximum[2 * i + 1];
      maximum[i] = larger_of(kept, from_lane_across(given, 1 << step));
    }
    spread_maxima<steps, step + 1>(maximum, lane);
  }
}

/// Lanes of a group: known to the compiler where the format says it.
template <class Form>
__device__ __forceinline__ int lanes_of_group(const Output& out) {
  if (Form::whole_row) return 32;
  if (Form::family == Family::e8m0) return 4;
  return Form::family == Family::e4m3 ? 2 : out.lanes;
}

/// Over the lanes of a group, from `first_step` on. Where their number is not known, a lane behind the end is
/// the lane itself: a branch would take longer than its shuffle.
template <class Form, int first_step, int scales, int vectors, class Maximum>
__device__ __forceinline__ void maxima_of_lanes(const Output& out, Maximum (&maximum)[vectors]) {
  constexpr bool kKnown = Form::whole_row || Form::family != Family::f32;
  const int lanes = lanes_of_group<Form>(out);
#pragma unroll
  for (int step = first_step; step < 32; step *= 2) {
    if (kKnown && step >= lanes) return;
#pragma unroll
    for (int s = 0; s < scales; ++s)
      maximum[s] = larger_of(maximum[s], from_lane_across(maximum[s], step & (lanes - 1)));
  }
}

// ---- the number of the tensor

/// Whether the scale of the tensor is given, so there is nothing to find out. Longer rows than one vector
/// have whole_row where a scale is not that of a group.
template <class Form, int vectors_of_row>
__device__ __forceinline__ bool is_given(const Output& out) {
  return kMayBeGiven<Form> && (Form::whole_row || vectors_of_row == 1) && out.rule.given;
}

/// The rule, with what follows from a number that only the device knows. Kernels whose rule has none ask
/// nothing.
///
/// @tparam ordinary  where the number's inverse is not in the middle, what comes instead is not either
template <class Form, bool ordinary = false>
__device__ __forceinline__ Rule rule_in_kernel(const Output& out) {
  Rule rule = out.rule;
  if constexpr (kMayHaveTensorScale<Form>) {
    if (out.tensor_scale != nullptr && (Form::family == Family::e4m3 || rule.given)) {
      const float number = *out.tensor_scale;
      take_tensor_scale(
          rule, number,
          ordinary ? corrected_reciprocal(number, approximate_reciprocal(number)) : 1.0F / number);
    }
  }
  return rule;
}

/// Whether the short arithmetic is exact with the factor of a rule that is given, see folds().
__device__ __forceinline__ bool given_is_short(const Output& out, float factor) {
  return out.tensor_scale == nullptr || is_in_middle(factor);
}

// ---- codes

/// Infinities, NaN, tiny and huge numbers: slow, and out of the way of all others. What these functions take
/// by reference lives in local memory, so it must be a copy.
template <class Form>
__device__ __noinline__ Scale scale_of_any(const Output& out, float maximum) {
  return scale_of<Form::family, false>(rule_in_kernel<Form>(out), maximum);
}
template <class Form>
__device__ __noinline__ float given_factor_of_any(const Output& out) {
  return rule_in_kernel<Form>(out).given_factor;
}
template <class Form>
__device__ __noinline__ void codes_of_any(const Rule& rule, const Scale& scale, const float (&y)[8],
                                          std::uint32_t (&words)[Form::words]) {
  float q[8];
#pragma unroll 1
  for (int e = 0; e < 8; ++e)
    q[e] = number_to_round<Form>(rule, scale, y[e]);
  codes_of_numbers<Form>(q, words);
}

// ---- scales

template <class Form>
__device__ __forceinline__ void store_scale(const Output& out, const Scale& scale, std::int64_t position) {
  if constexpr (Form::family != Family::f32) {
    static_cast<std::uint8_t*>(out.scales)[position] = static_cast<std::uint8_t>(scale.code);
  } else if (out.layout == ScaleLayout::packed) {
    static_cast<std::uint8_t*>(out.scales)[position] =
        static_cast<std::uint8_t>(__float_as_uint(scale.number) >> 23);
  } else if (Form::element == Element::int4 && out.rule.in_f16) {
    static_cast<std::uint16_t*>(out.scales)[position] = static_cast<std::uint16_t>(f16_bits_of(scale.number));
  } else {
    static_cast<float*>(out.scales)[position] = scale.number;
  }
}

/// Position of the scale of a row's group.
inline __device__ std::int64_t position_of(const Output& out, std::uint32_t row, std::uint32_t column) {
  std::uint32_t token = row;
  if (out.rows_per_token > 1) {
    const auto in_token = static_cast<std::uint32_t>(out.rows_per_token);
    token = row / in_token;
    column += row % in_token * (static_cast<std::uint32_t>(out.scale_columns) / in_token);
  }
  if (out.layout == ScaleLayout::row_major || out.layout == ScaleLayout::mn_major)
    return token * out.row_step + column * out.column_step;
  return scale_position(out.layout, token, column, out.scale_rows, out.scale_columns);
}

/// Zeros behind the scales: in the last word of a row, and in the words of rows that only fill a tile.
inline __device__ __noinline__ void pad_columns(const Output& out, std::int64_t token) {
  for (std::int64_t column = out.scale_columns; (column & 3) != 0; ++column)
    static_cast<std::uint8_t*>(
        out.scales)[scale_position(out.layout, token, column, out.scale_rows, out.scale_columns)] = 0;
}
inline __device__ __noinline__ void pad_rows(const Output& out, int worker, int workers) {
  auto* words = static_cast<std::uint32_t*>(out.scales);
  const auto columns = static_cast<int>(ceil_div(out.scale_columns, 4));
  if (out.layout == ScaleLayout::packed) {
    const std::int64_t rows = round_up(out.scale_rows, 4);
    for (int i = worker; i < 4 * columns; i += workers) {
      const std::int64_t row = rows - 4 + (i & 3);
      if (row >= out.scale_rows) words[(i >> 2) * rows + row] = 0;
    }
    return;
  }
  const std::int64_t tile_row = (out.scale_rows - 1) >> 7;  // the last one
  const int rows = static_cast<int>(out.scale_rows - (tile_row << 7));
  words += tile_row * columns * 128;
  for (int i = worker; i < 128 * columns; i += workers) {
    if ((i >> 2 & 31) + (i & 3) * 32 >= rows) words[i] = 0;
  }
}

// ---- all of it

/// y rounded to the storage type.
template <Dtype dtype, int count>
__device__ __forceinline__ void round_to_storage(float (&y)[count]) {
#pragma unroll
  for (int i = 0; i < count; i += 2) {
    if constexpr (dtype == Dtype::bf16) {
      const std::uint32_t word = ptx::cvt_rn_bf16x2_f32(y[i], y[i + 1]);
      y[i] = float_of(word << 16);
      y[i + 1] = float_of(word & 0xFFFF0000U);
    } else {
      const auto pair = Storage<dtype>::from_float2(y[i], y[i + 1]);
      const float2 rounded = Storage<dtype>::to_float2(pair);
      y[i] = rounded.x;
      y[i + 1] = rounded.y;
    }
  }
}

/// The scale of vector v, from the lane that has it.
template <class Shared, bool number>
__device__ __forceinline__ Scale scale_of_vector(const Scale (&scale)[Shared::kScales], int v, int lane) {
  Scale wanted = scale[Shared::scale_of(v)];
  if constexpr (Shared::kSteps > 0) {
    const int owner = Shared::owner_of(v, lane);
    wanted.factor = __shfl_sync(0xFFFFFFFFU, wanted.factor, owner);
    if constexpr (number) wanted.number = __shfl_sync(0xFFFFFFFFU, wanted.number, owner);
  }
  return wanted;
}

/// Largest |x| of the groups that the lane has scales of.
///
/// @param meet  Form::whole_row where warps share the row: takes the warp's maximum, returns the row's
template <class Form, class Shared, int vectors, class Meet>
__device__ __forceinline__ void find_maxima(const Output& out, const float (&x)[vectors][8], int lane,
                                            float (&maximum)[Shared::kScales], const Meet& meet) {
  float of_vector[vectors];
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    of_vector[v] = fmaxf(fabsf(x[v][0]), fabsf(x[v][1]));
#pragma unroll
    for (int e = 2; e < 8; ++e)
      of_vector[v] = fmaxf(of_vector[v], fabsf(x[v][e]));
  }
  if constexpr (Form::whole_row) {
    constexpr int kJoined = vectors / Shared::kScales;
#pragma unroll
    for (int s = 0; s < Shared::kScales; ++s) {
      maximum[s] = of_vector[s * kJoined];
#pragma unroll
      for (int v = 1; v < kJoined; ++v)
        maximum[s] = fmaxf(maximum[s], of_vector[s * kJoined + v]);
      maximum[s] =
          fmaxf(maximum[s], 0.0F);  // a NaN would be the largest; the others are ordered like their bits
      maximum[s] = meet(__uint_as_float(__reduce_max_sync(0xFFFFFFFFU, __float_as_uint(maximum[s]))));
    }
  } else {
    spread_maxima<Shared::kSteps>(of_vector, lane);
    maxima_of_lanes<Form, Shared::kOwners, Shared::kScales>(out, of_vector);
#pragma unroll
    for (int s = 0; s < Shared::kScales; ++s)
      maximum[s] = of_vector[s];
  }
}

/// The largest |y| where |x| is the largest |x|, whatever the sign of the scale: rounding keeps the order.
template <Dtype dtype>
__device__ __forceinline__ float rounded_maximum(const Output& out, float maximum) {
  float y[2] = {multiply(maximum, fabsf(out.last)), 0.0F};
  if (out.rounds_first) round_to_storage<dtype>(y);
  return larger(y[0], out.rule.floor);
}

/// Layouts with tiles, packed scales, tokens of several rows: out of the way of the others.
template <class Form>
__device__ __noinline__ void store_scale_in_tiles(const Output& out, float number, std::uint32_t code,
                                                  std::uint32_t row, std::uint32_t column) {
  store_scale<Form>(out, {number, 0.0F, code}, position_of(out, row, column));
}

/// The scales that the lane has and that are its to store. Vectors lie at constant distances from the first
/// one, and so do their scales.
template <class Form, class Shared, int vectors_of_row, class Where>
__device__ __forceinline__ void store_scales(const Output& out, const Scale (&scale)[Shared::kScales],
                                             const Where& where) {
  using Stored = std::conditional_t<Form::family == Family::f32, float, std::uint8_t>;
  const auto stored = [&](int s) {
    if constexpr (Form::family == Family::f32) {
      return scale[s].number;
    } else {
      return static_cast<std::uint8_t>(scale[s].code);
    }
  };
  const auto vector = [](int s) { return Shared::vector_of(s); };
  const int lane = where.lane();
  if (Form::whole_row && !where.leads_rows()) return;
  if ((lane & (lanes_of_group<Form>(out) - 1)) >= Shared::kOwners) return;
  const int first = Shared::first_vector(lane);
  const auto row = [&](int s) { return where.row(first) + where.row_step(vector(s)); };
  const auto column = [&](int s) {
    if (Form::whole_row) return 0U;
    return static_cast<std::uint32_t>(where.column(first) + where.column_step(vector(s))) >> out.log_group;
  };
  if constexpr (Where::has_places()) {
#pragma unroll
    for (int s = 0; s < Shared::kScales; ++s) {
      const int v = first + vector(s);
      if (where.exists(v)) store_scale<Form>(out, scale[s], where.scale_position(v, column(s)));
    }
  } else if (out.direct) {
    auto* const first_scale =
        static_cast<Stored*>(out.scales) + (row(0) * out.row_step + column(0) * out.column_step);
#pragma unroll
    for (int s = 0; s < Shared::kScales; ++s) {
      const std::uint32_t columns =
          Form::whole_row ? 0U : static_cast<std::uint32_t>(where.column_step(vector(s))) >> out.log_group;
      if (where.exists(first + vector(s)))
        first_scale[where.row_step(vector(s)) * out.row_step + columns * out.column_step] = stored(s);
    }
  } else if (Form::family != Family::f32 && out.swizzled) {
#pragma unroll
    for (int s = 0; s < Shared::kScales; ++s) {
      const std::uint32_t r = row(s), c = column(s);
      const std::uint32_t tile = (r >> 7) * out.tile_columns + (c >> 2);
      if (where.exists(first + vector(s))) {
        static_cast<Stored*>(out.scales)[tile * 512 + (r & 31) * 16 + (r >> 5 & 3) * 4 + (c & 3)] =
            static_cast<Stored>(scale[s].code);
      }
    }
  } else {
#pragma unroll
    for (int s = 0; s < Shared::kScales; ++s) {
      if (where.exists(first + vector(s)))
        store_scale_in_tiles<Form>(out, scale[s].number, scale[s].code, row(s), column(s));
    }
  }
}

/// Where the codes of each vector go: one address, and constant distances where the vectors lie in one row.
template <class Form, class Where>
__device__ __forceinline__ auto places_of_codes(const Output& out, const Where& where) {
  std::uint8_t* const first =
      out.codes + where.row(0) * std::uint64_t{out.row_bytes} + where.column(0) * Form::bits / 8;
  return [&out, &where, first](int v) {
    if constexpr (Where::has_places()) return out.codes + where.code_offset(v);
    return first + where.row_step(v) * std::uint64_t{out.row_bytes} + where.column_step(v) * Form::bits / 8;
  };
}

/// Codes and scales of a lane's vectors of x, the sums of the transform; y = last * x is what is encoded.
///
/// @tparam vectors_of_row  how many of the vectors belong to one row
/// @param where            has_places(): rows go to places of their own, code_offset(v) and
///                         scale_position(v, column); row(v), column(v): of the first element; row_step(v),
///                         column_step(v): the same from vector 0, constants; exists(v); lane();
///                         leads_rows(): whether the warp stores the scales of whole rows; asks_for_nan():
///                         whether any of its elements may be NaN
/// @param meet             see find_maxima()
template <class Form, Dtype dtype, int vectors_of_row, int vectors, class Where, class Meet>
__device__ __forceinline__ void encode(const Output& out, float (&x)[vectors][8], const Where& where,
                                       const Meet& meet) {
  using Shared = Sharing<Form, vectors, vectors_of_row>;
  const int lane = where.lane();
  Scale scale[Shared::kScales];
  bool ordinary = true;
  const Rule rule = rule_in_kernel<Form, true>(out);
  if (is_given<Form, vectors_of_row>(out)) {
    ordinary = given_is_short(out, rule.given_factor);
#pragma unroll
    for (int s = 0; s < Shared::kScales; ++s)
      scale[s].factor = ordinary ? rule.given_factor : given_factor_of_any<Form>(out);
  } else {
    float maximum[Shared::kScales];
    if (out.largest != nullptr) {
#pragma unroll
      for (int s = 0; s < Shared::kScales; ++s)
        maximum[s] = larger(__uint_as_float(*out.largest), rule.floor);
    } else {
      find_maxima<Form, Shared>(out, x, lane, maximum, meet);
#pragma unroll
      for (int s = 0; s < Shared::kScales; ++s)
        maximum[s] = rounded_maximum<dtype>(out, maximum[s]);
    }
#pragma unroll
    for (int s = 0; s < Shared::kScales; ++s)
      ordinary &= is_ordinary<Form::family>(rule, maximum[s]);
    // A NaN among the data is in every element of its row, and in no maximum.
    if (where.asks_for_nan()) {
#pragma unroll
      for (int v = 0; v < vectors; v += vectors_of_row)
        ordinary &= x[v][0] == x[v][0];
    }
    ordinary = __all_sync(0xFFFFFFFFU, ordinary);
#pragma unroll
    for (int s = 0; s < Shared::kScales; ++s)
      scale[s] =
          ordinary ? scale_of<Form::family, true>(rule, maximum[s]) : scale_of_any<Form>(out, maximum[s]);
  }

  const auto codes_at = places_of_codes<Form>(out, where);
  if (!ordinary) [[unlikely]] {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      const Scale of_vector = scale_of_vector<Shared, true>(scale, v, lane);
      float y[8];
      std::uint32_t words[Form::words];
#pragma unroll
      for (int e = 0; e < 8; ++e)
        y[e] = multiply(x[v][e], out.last);
      if (out.rounds_first) round_to_storage<dtype>(y);
      codes_of_any<Form>(out.rule, of_vector, y, words);
      ptx::st_global_if(where.exists(v), codes_at(v), words);
    }
  } else {
    if (!out.folds) {
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
#pragma unroll
        for (int e = 0; e < 8; ++e)
          x[v][e] = multiply(x[v][e], out.last);
      }
    }
    if (out.rounds_first) {
#pragma unroll
      for (int v = 0; v < vectors; ++v)
        round_to_storage<dtype>(x[v]);
    }
    const auto store_all = [&]<bool by_quotient, bool clamps>() {
      Scale folded[Shared::kScales];
#pragma unroll
      for (int s = 0; s < Shared::kScales; ++s) {
        folded[s].factor = multiply(scale[s].factor, out.folded_last);
        if (by_quotient) folded[s].number = multiply(scale[s].number, out.folded_inverse);
      }
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
        std::uint32_t words[Form::words];
        codes_of<Form, by_quotient, clamps>(scale_of_vector<Shared, by_quotient>(folded, v, lane), x[v],
                                            words);
        ptx::st_global_if(where.exists(v), codes_at(v), words);
      }
    };
    if constexpr (Form::family == Family::e4m3) {
      bool clamps = false;
#pragma unroll
      for (int s = 0; s < Shared::kScales; ++s)
        clamps |= code_is_saturated(scale[s]);
      if (__any_sync(0xFFFFFFFFU, clamps)) {
        store_all.template operator()<false, true>();
      } else {
        store_all.template operator()<false, false>();
      }
    } else if constexpr ((Form::element == Element::e4m3 && Form::family == Family::f32) ||
                         (Form::element == Element::int4 && dtype == Dtype::f16)) {
      if (out.rule.codes == Codes::by_quotient) {
        store_all.template operator()<true, false>();
      } else {
        store_all.template operator()<false, false>();
      }
    } else {
      store_all.template operator()<false, false>();
    }
  }

  if (is_given<Form, vectors_of_row>(out)) return;
  if (out.largest != nullptr) {
    if (where.row(0) == 0 && where.column(0) == 0) store_scale<Form>(out, scale[0], 0);
    return;
  }
  store_scales<Form, Shared, vectors_of_row>(out, scale, where);
}

}  // namespace fwht::encoder
