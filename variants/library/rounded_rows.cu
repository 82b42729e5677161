// Which kernel has the rows, and those of a power of two. The others are in files of their own.
#include "variants/library/rounded_rows.cuh"

namespace fwht::walsh {

extern template void launch_rounds_of_columns<Dtype::f32, true>(const RoundedRows&, int, Stream);
extern template void launch_rounds_of_matrices<Dtype::f32, true>(const RoundedRows&, int, Stream);
extern template void launch_rounds_of_matrices<Dtype::f32, false>(const RoundedRows&, int, Stream);
extern template void launch_rounds_of_matrices<Dtype::f16, false>(const RoundedRows&, int, Stream);
extern template void launch_rounds_of_matrices<Dtype::bf16, false>(const RoundedRows&, int, Stream);

void launch_rounded_rows(Dtype dtype, const RoundedRows& work, int sm_count, Stream stream) {
  if (work.bits != 0) {
    return work.tile.order == 1 ? launch_rounds_of_columns<Dtype::f32, true>(work, sm_count, stream)
                                : launch_rounds_of_matrices<Dtype::f32, true>(work, sm_count, stream);
  }
  dispatch_dtype(dtype, [&](auto type) {
    if (work.tile.order == 1) return launch_rounds_of_columns<type(), false>(work, sm_count, stream);
    launch_rounds_of_matrices<type(), false>(work, sm_count, stream);
  });
}

}  // namespace fwht::walsh
