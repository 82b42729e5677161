// The epilogue of a kernel that writes codes: a warp has finished vectors of eight consecutive elements a lane,
// in fp32. Largest |y| of every group, its scale, the codes, their stores.
//
//   group of up to 256   lies in one vector of the warp: shuffles over the lanes of the group
//   whole row            first the lane's vectors of the row, then one redux, then, where warps share the row,
//                        one word a warp in shared memory
//
// Which recipe, layout and group it is are numbers in the kernel's argument (Rule, Output). What the compiler
// needs to know are the element, the family of scales, and whether a group lies in a vector.
#pragma once

#include <cstdint>
#include <limits>

#include "common/ptx/global.cuh"
#include "common/ptx/mma.cuh"
#include "common/storage.cuh"
#include "variants/encode/output.hpp"

namespace fwht::encoder {

// ---- maxima

template <int vectors>
__device__ __forceinline__ void maxima_of_lanes(float (&maximum)[vectors], int lanes) {
  if (lanes == 32) {  // non-negative numbers are ordered like their bits
#pragma unroll
    for (int v = 0; v < vectors; ++v)
      maximum[v] = __uint_as_float(__reduce_max_sync(0xFFFFFFFFU, __float_as_uint(maximum[v])));
    return;
  }
#pragma unroll
  for (int step = 1; step < 16; step *= 2) {
    if (lanes <= step) return;
#pragma unroll
    for (int v = 0; v < vectors; ++v)
      maximum[v] = fmaxf(maximum[v], __shfl_xor_sync(0xFFFFFFFFU, maximum[v], step));
  }
}

// ---- codes

/// Infinities, NaN, tiny and huge numbers: slow, and out of the way of all others. What these functions take by
/// reference lives in local memory, so it must be a copy.
template <class Form>
__device__ __noinline__ Scale scale_of_any(const Rule& rule, float maximum) {
  return scale_of<Form::family, false>(rule, maximum);
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
  } else {
    static_cast<float*>(out.scales)[position] = scale.number;
  }
}

/// Position of the scale of a row's group.
inline __device__ std::int64_t position_of(const Output& out, std::int64_t row, int column) {
  std::int64_t of_token = row;
  if (out.rows_per_token > 1) {
    const auto r = static_cast<std::uint32_t>(row), in_token = static_cast<std::uint32_t>(out.rows_per_token);
    of_token = r / in_token;
    column += static_cast<int>(r % in_token * (static_cast<std::uint32_t>(out.scale_columns) / in_token));
  }
  return scale_position(out.layout, of_token, column, out.scale_rows, out.scale_columns);
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

/// One scale for all vectors of a lane that belong to one row.
template <class Form>
constexpr int scales_of_lane(int vectors, int vectors_of_row) {
  return Form::whole_row ? vectors / vectors_of_row : vectors;
}

/// Largest |y| of every group, at least the rule's floor, in all lanes of the group.
///
/// @param meet  Form::whole_row where warps share the row: takes the warp's maximum, returns the row's
template <class Form, int vectors, int scales, class Meet>
__device__ __forceinline__ void maxima(const Output& out, const float (&y)[vectors][8],
                                       float (&maximum)[scales], const Meet& meet) {
  constexpr int kJoined = vectors / scales;
#pragma unroll
  for (int s = 0; s < scales; ++s) {
    maximum[s] = out.rule.floor;
#pragma unroll
    for (int v = 0; v < kJoined; ++v) {
#pragma unroll
      for (int e = 0; e < 8; ++e)
        maximum[s] = fmaxf(maximum[s], fabsf(y[s * kJoined + v][e]));
    }
  }
  maxima_of_lanes(maximum, Form::whole_row ? 32 : out.lanes);
  if constexpr (Form::whole_row) {
#pragma unroll
    for (int s = 0; s < scales; ++s)
      maximum[s] = meet(maximum[s]);
  }
}

/// Codes and scales of a lane's vectors, y as the transform has it.
///
/// @tparam vectors_of_row  how many of the vectors belong to one row
/// @param where            row(v), column(v): of the first element; exists(v); writes_row_scale()
/// @param meet             see maxima()
template <class Form, Dtype dtype, int vectors_of_row, int vectors, class Where, class Meet>
__device__ __forceinline__ void encode(const Output& out, float (&y)[vectors][8], const Where& where,
                                       const Meet& meet) {
  constexpr int kScales = scales_of_lane<Form>(vectors, vectors_of_row), kJoined = vectors / kScales;
  if (out.rounds_first) {
#pragma unroll
    for (int v = 0; v < vectors; ++v)
      round_to_storage<dtype>(y[v]);
  }

  Scale scale[kScales];
  bool ordinary = true;
  if (out.rule.given) {
#pragma unroll
    for (int s = 0; s < kScales; ++s)
      scale[s].factor = out.rule.given_factor;
  } else {
    float maximum[kScales];
    maxima<Form>(out, y, maximum, meet);
    // A NaN among the data is in every element of its row, and in no maximum.
#pragma unroll
    for (int s = 0; s < kScales; ++s)
      ordinary &= is_ordinary<Form::family>(out.rule, maximum[s]) && y[s * kJoined][0] == y[s * kJoined][0];
    ordinary = __all_sync(0xFFFFFFFFU, ordinary);
    if (ordinary) [[likely]] {
#pragma unroll
      for (int s = 0; s < kScales; ++s)
        scale[s] = scale_of<Form::family, true>(out.rule, maximum[s]);
    } else {
#pragma unroll
      for (int s = 0; s < kScales; ++s)
        scale[s] = scale_of_any<Form>(out.rule, maximum[s]);
    }
  }

  const auto codes_at = [&](int v) {
    return out.codes + where.row(v) * static_cast<std::uint32_t>(out.row_bytes) +
           where.column(v) * Form::bits / 8;
  };
  const auto store_all = [&]<bool by_quotient, bool clamps>() {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      std::uint32_t words[Form::words];
      codes_of<Form, by_quotient, clamps>(scale[v / kJoined], y[v], words);
      ptx::st_global_if(where.exists(v), codes_at(v), words);
    }
  };
  if (!ordinary) [[unlikely]] {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      const Scale scale_copy = scale[v / kJoined];
      float copy[8];
      std::uint32_t words[Form::words];
#pragma unroll
      for (int e = 0; e < 8; ++e)
        copy[e] = y[v][e];
      codes_of_any<Form>(out.rule, scale_copy, copy, words);
      ptx::st_global_if(where.exists(v), codes_at(v), words);
    }
  } else if constexpr (Form::element == Element::e2m1) {
    bool clamps = out.rule.may_exceed;
    if constexpr (Form::family ==
                  Family::e4m3) {  // where the code of the scale is rounded coarsely, or saturates
#pragma unroll
      for (int s = 0; s < kScales; ++s)
        clamps |= code_is_coarse(scale[s]);
      clamps = __any_sync(0xFFFFFFFFU, clamps);
    }
    if (clamps) {
      store_all.template operator()<false, true>();
    } else {
      store_all.template operator()<false, false>();
    }
  } else if constexpr (Form::element == Element::e4m3 && Form::family == Family::f32) {
    if (out.rule.codes == Codes::by_quotient) {
      store_all.template operator()<true, false>();
    } else {
      store_all.template operator()<false, false>();
    }
  } else {
    store_all.template operator()<false, false>();
  }

  if (out.rule.given) return;
#pragma unroll
  for (int s = 0; s < kScales; ++s) {
    const int v = s * kJoined;
    const bool leads = Form::whole_row ? where.leads_row() : (where.lane() & (out.lanes - 1)) == 0;
    if (leads && where.exists(v)) {
      store_scale<Form>(
          out, scale[s],
          position_of(out, where.row(v), Form::whole_row ? 0 : where.column(v) >> out.log_group));
    }
  }
}

}  // namespace fwht::encoder
