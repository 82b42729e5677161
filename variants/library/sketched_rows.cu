// Sketches in fp32. The kernels are in sketched_rows.cuh.
#include "variants/library/sketched_rows.cuh"

namespace fwht::walsh {

extern template void launch_rows_of_sketch<double>(const SketchedVectors&, const DeviceInfo&, Stream);
extern template void launch_source_of_sketch<double>(const SketchedVectors&, int, void*, const DeviceInfo&,
                                                     Stream);
extern template void launch_sink_of_sketch<double>(const SketchedVectors&, int, const void*,
                                                   const DeviceInfo&, Stream);

void launch_sketched_rows(const SketchedVectors& work, const DeviceInfo& device, Stream stream) {
  if (work.dtype == Dtype::f64) return launch_rows_of_sketch<double>(work, device, stream);
  launch_rows_of_sketch<float>(work, device, stream);
}

void launch_sketch_source(const SketchedVectors& work, int row_bits, void* sums, const DeviceInfo& device,
                          Stream stream) {
  if (work.dtype == Dtype::f64) return launch_source_of_sketch<double>(work, row_bits, sums, device, stream);
  launch_source_of_sketch<float>(work, row_bits, sums, device, stream);
}

void launch_sketch_sink(const SketchedVectors& work, int bits, const void* sums, const DeviceInfo& device,
                        Stream stream) {
  if (work.dtype == Dtype::f64) return launch_sink_of_sketch<double>(work, bits, sums, device, stream);
  launch_sink_of_sketch<float>(work, bits, sums, device, stream);
}

}  // namespace fwht::walsh
