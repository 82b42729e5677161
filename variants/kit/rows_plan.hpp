// The plan of the variants whose kernels take a Batch of rows: mma_split and butterflies. A variant gives it
// a table, which names the kernel for a problem and finds it.
#pragma once

#include <memory>

#include "common/contract/variant.hpp"
#include "variants/kit/batch.hpp"
#include "variants/kit/launch.hpp"

namespace fwht::rows {

using Kernel = void (*)(Batch);

struct KernelTable {
  KernelId (*dense)(const Problem&);  // contiguous rows on the 16-byte grid
  /// The same, where the next launch may overlap.
  KernelId (*overlapping)(Dtype, int log_n, bool single_block);
  /// The same for more rows than `overlapping` leaves room for; nullptr: none.
  KernelId (*overlapping_more)(Dtype, int log_n);
  KernelId (*strided)(Dtype, int log_n);  // 16-byte vectors, rows any distance apart
  Kernel (*find)(const KernelId&);        // nullptr: not instantiated; a SignedKernel goes as one, by address
};

std::unique_ptr<Plan> make_rows_plan(const Problem& problem, const DeviceInfo& device,
                                     const KernelTable& table, const Factors& factors,
                                     const Numerics& numerics);

}  // namespace fwht::rows
