// The module of Kokkos::Cuda, compiled by nvcc.
#include "variants/kokkos/cuda_plan.hpp"
#include "variants/kokkos/factors.hpp"
#include "variants/kokkos/module.hpp"

namespace fwht::kokkos {

extern template std::unique_ptr<Plan> cuda_plan<Dtype::f16>(const Problem&, const DeviceInfo&);
extern template std::unique_ptr<Plan> cuda_plan<Dtype::bf16>(const Problem&, const DeviceInfo&);
extern template std::unique_ptr<Plan> cuda_plan<Dtype::f32>(const Problem&, const DeviceInfo&);

LentInstance& lent_instance() {
  // Deleted by Kokkos' own end and by nothing else: an owning static, made after Kokkos, would be destroyed
  // before that, and its instance deleted a second time.
  static LentInstance* instance = nullptr;
  static std::once_flag made;
  std::call_once(made, [] {
    instance = new LentInstance;
    Kokkos::push_finalize_hook([] { delete instance; });
  });
  return *instance;
}

namespace {

bool has_space(Space space) {
  return space == Space::cuda;
}

std::unique_ptr<Plan> make_plan(Space, const Problem& problem, const DeviceInfo& device,
                                const Library& library) {
  start_kokkos(device, library);
  if (Kokkos::Cuda().cuda_device() != device.ordinal) {
    throw BadRequest(
        "kokkos_cuda: Kokkos was started on CUDA device " + std::to_string(Kokkos::Cuda().cuda_device()) +
        " and serves no other in this process, device " + std::to_string(device.ordinal) + " was asked for");
  }
  if (!is_one_sylvester(problem.op)) return cuda_factors_plan(problem, device, library);
  switch (problem.dtype()) {
    case Dtype::f16:
      return cuda_plan<Dtype::f16>(problem, device);
    case Dtype::bf16:
      return cuda_plan<Dtype::bf16>(problem, device);
    case Dtype::f32:
      return cuda_plan<Dtype::f32>(problem, device);
    case Dtype::f64:
    case Dtype::i32:
    case Dtype::i64:
      break;  // refused by require_sylvester
  }
  return nullptr;
}

}  // namespace
}  // namespace fwht::kokkos

extern "C" __attribute__((visibility("default"))) const fwht::kokkos::Module* fwht_kokkos_module() {
  using namespace fwht::kokkos;
  static constexpr Module module{contract_of_this_build(), has_space, make_plan};
  return &module;
}
