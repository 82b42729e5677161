// Rounds of fp32 rows that become codes.
#include "variants/library/rounded_rows.cuh"

namespace fwht::walsh {

template void launch_rounds_of_columns<Dtype::f32, true>(const RoundedRows&, int, Stream);
template void launch_rounds_of_matrices<Dtype::f32, true>(const RoundedRows&, int, Stream);

}  // namespace fwht::walsh
