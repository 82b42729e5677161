#include "variants/kokkos/cuda_plan.hpp"

template std::unique_ptr<fwht::Plan> fwht::kokkos::cuda_plan<fwht::Dtype::f16>(const fwht::Problem&,
                                                                               const fwht::DeviceInfo&);
