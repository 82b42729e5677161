// Rounds of fp32 rows of the orders 12 to 36.
#include "variants/library/rounded_rows.cuh"

namespace fwht::walsh {

template void launch_rounds_of_matrices<Dtype::f32, false>(const RoundedRows&, int, Stream);

}  // namespace fwht::walsh
