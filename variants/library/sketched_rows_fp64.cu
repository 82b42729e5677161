// Sketches in fp64. The kernels are in sketched_rows.cuh.
#include "variants/library/sketched_rows.cuh"

namespace fwht::walsh {

template void launch_rows_of_sketch<double>(const SketchedVectors&, const DeviceInfo&, Stream);
template void launch_source_of_sketch<double>(const SketchedVectors&, int, void*, const DeviceInfo&, Stream);
template void launch_sink_of_sketch<double>(const SketchedVectors&, int, const void*, const DeviceInfo&,
                                            Stream);

}  // namespace fwht::walsh
