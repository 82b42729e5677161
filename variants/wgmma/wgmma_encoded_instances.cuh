// wgmma: the rings of one dtype that write codes.
#pragma once

#include <utility>

#include "variants/wgmma/wgmma_dispatch.cuh"
#include "variants/wgmma/wgmma_encoded.cuh"
#include "variants/wgmma/wgmma_ring_kernel.cuh"

namespace fwht::wgmma {

template <int log_n, int which>
struct ListedEncoded {
  static constexpr Launch launch = kEncodedLaunches<log_n>[which];
};

template <Dtype dtype, int log_n, class Choice, Element element>
Kernel encoded_ring(bool whole_row) {
  using encoder::Family;
  if (whole_row) {
    return {.encoding = ring<dtype, log_n, Choice, Scaling::results,
                             EncodedOutput<encoder::Form<element, Family::f32, true, true>>>};
  }
  return {.encoding = ring<dtype, log_n, Choice, Scaling::results,
                           EncodedOutput<encoder::Form<element, Family::f32, false, true>>>};
}

template <Dtype dtype, Element element>
Kernel find_encoded_ring(const Launch& launch, int log_n, bool whole_row) {
  return dispatch_int<kSmallestLogN, kLargestLogN>(log_n, [&](auto l) {
    Kernel found;
    const auto try_one = [&]<int which>() {
      using Choice = ListedEncoded<l(), which>;
      if (launch == Choice::launch) found = encoded_ring<dtype, l(), Choice, element>(whole_row);
    };
    [&]<int... which>(std::integer_sequence<int, which...>) {
      (try_one.template operator()<which>(), ...);
    }
    (std::make_integer_sequence<int, static_cast<int>(kEncodedLaunches<l()>.size())>{});
    return found;
  });
}

}  // namespace fwht::wgmma
