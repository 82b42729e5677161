#include "variants/wgmma/wgmma_encoded_instances.cuh"

namespace fwht::wgmma {

template Kernel find_encoded_ring<Dtype::f16, Element::e4m3>(const Launch&, int, bool);

}  // namespace fwht::wgmma
