// Calls the cpu variant of an installed fwht and checks the answer, which is worked out by hand below.
#include <cstdint>
#include <fwht/error.hpp>
#include <fwht/registry.hpp>
#include <fwht/transform.hpp>
#include <fwht/walsh.hpp>
#include <iostream>
#include <string>
#include <vector>

int main() {
  fwht::Problem problem =
      fwht::make_problem(fwht::Dtype::f32, /*n=*/4, /*rows=*/2, fwht::Placement::out_of_place);
  problem.scale = 1.0;
  const std::vector<float> in = {1, 2, 3, 4, 0, 0, 5, 0};
  // H_4 (1 2 3 4) = (10 -2 -4 0); row 2 of H_4 is (1 1 -1 -1).
  const std::vector<float> expected = {10, -2, -4, 0, 5, 5, -5, -5};
  std::vector<float> out(in.size(), -1.0f);

  const auto plan = fwht::plan(fwht::find_variant("cpu"), problem, fwht::this_device());
  plan->execute(in.data(), out.data());
  std::cout << fwht::registry().size() << " variants, cpu " << (out == expected ? "correct" : "WRONG")
            << '\n';
  if (out != expected) return 1;

  const std::vector<std::int8_t> conjunction = {0, 0, 0, 1};
  std::vector<std::int32_t> spectrum(4);
  fwht::walsh::spectrum(fwht::walsh::FunctionForm::bits, conjunction.data(), 2, 1, spectrum.data());
  if (spectrum != std::vector<std::int32_t>{2, 2, 2, -2}) return 1;

  // The call for device memory links too; without operands it is refused, with or without a device.
  try {
    fwht::transform(nullptr, nullptr, problem);
    return 1;
  } catch (const fwht::BadRequest& error) {
    std::cout << "transform: " << error.what() << '\n';
  }
  return 0;
}
