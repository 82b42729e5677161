// wgmma_tune: measures launches, for the table in wgmma.hpp. Their sums run in different orders, so they are
// compared on integers.

#include <algorithm>
#include <array>
#include <cmath>

#include "common/device/cuda_check.hpp"
#include "common/device/launcher.hpp"
#include "common/host/static_dispatch.hpp"
#include "experiments/tune/launch_tune.hpp"
#include "variants/wgmma/wgmma.hpp"
#include "variants/wgmma/wgmma_one_shot_kernel.cuh"
#include "variants/wgmma/wgmma_pair_kernel.cuh"
#include "variants/wgmma/wgmma_passes_kernel.cuh"
#include "variants/wgmma/wgmma_ring_kernel.cuh"

namespace fwht::wgmma {
namespace {

constexpr Launch kBlockPerRow{.form = Form::one_shot, .load_pieces = 2};
constexpr Launch kRing{.form = Form::ring, .slots = 2};

constexpr Launch blocks(Launch launch, int blocks_per_sm) {
  launch.blocks_per_sm = blocks_per_sm;
  return launch;
}
constexpr Launch teams(Launch launch, int number, int slots) {
  launch.teams = number;
  launch.slots = slots;
  return launch;
}
constexpr Launch pieces(Launch launch, int load, int store) {
  launch.load_pieces = load;
  launch.store_pieces = store;
  return launch;
}
constexpr Launch parts(Launch launch, int log_parts) {
  launch.log_parts = log_parts;
  return launch;
}
constexpr Launch with_table(Launch launch) {
  launch.table = true;
  return launch;
}
constexpr Launch deferred(Launch launch) {
  launch.deferred = true;
  return launch;
}
constexpr Launch joined(Launch launch) {
  launch.joined = true;
  return launch;
}
constexpr Launch dynamic(Launch launch) {
  launch.dynamic = true;
  return launch;
}

constexpr Launch chains(Launch launch, int pairs) {
  launch.chains = pairs;
  return launch;
}

constexpr Launch starts(Launch launch, int groups, int step) {
  launch.start_groups = groups;
  launch.start_step = step;
  return launch;
}

template <int log_n>
constexpr auto launches_to_try() {
  if constexpr (log_n == 12) {
    constexpr Launch small = with_table(blocks(teams(kRing, 4, 2), 2)), large = teams(kRing, 4, 4);
    return std::array{blocks(kBlockPerRow, 6), large,          chains(large, 4), small,
                      deferred(large),         deferred(small)};
  } else if constexpr (log_n == 13) {
    constexpr Launch small = blocks(kRing, 4), large = teams(kRing, 4, 2);
    return std::array{blocks(kBlockPerRow, 4),
                      small,
                      pieces(small, 2, 2),
                      dynamic(small),
                      large,
                      with_table(parts(large, 1)),
                      deferred(small),
                      deferred(dynamic(small)),
                      joined(small),
                      joined(chains(pieces(small, 2, 2), 4)),
                      joined(deferred(small)),
                      joined(deferred(pieces(small, 2, 1)))};
  } else if constexpr (log_n == 14) {
    constexpr Launch small = blocks(kRing, 2), large = teams(kRing, 2, 2);
    return std::array{small,
                      pieces(small, 2, 2),
                      large,
                      with_table(pieces(parts(small, 1), 4, 2)),
                      dynamic(large),
                      dynamic(pieces(small, 2, 2)),
                      chains(deferred(large), 4),
                      deferred(dynamic(large)),
                      joined(small),
                      joined(pieces(small, 2, 2)),
                      joined(deferred(large)),
                      joined(deferred(dynamic(large)))};
  } else if constexpr (log_n == 16) {
    constexpr Launch fixed = kPasses16, drawn = kPasses16Dynamic;
    return std::array{kPair16,
                      kCluster4For16,
                      kCluster8For16,
                      starts(fixed, 1, 0),
                      starts(fixed, 2, 1000),
                      fixed,
                      starts(fixed, 4, 500),
                      starts(drawn, 1, 0),
                      starts(drawn, 2, 2000),
                      drawn,
                      starts(drawn, 16, 500)};
  } else {
    constexpr Launch row = parts(kRing, 1), pieced = pieces(row, 4, 2), late = deferred(pieces(row, 4, 1));
    return std::array{row,
                      pieced,
                      pieces(row, 8, 2),
                      with_table(pieces(parts(kRing, 2), 4, 2)),
                      chains(pieced, 4),
                      dynamic(pieced),
                      chains(dynamic(pieced), 4),
                      dynamic(pieces(row, 8, 2)),
                      late,
                      dynamic(late),
                      chains(dynamic(late), 4),
                      joined(pieced),
                      joined(late),
                      joined(dynamic(late))};
  }
}

template <int log_n, int which>
constexpr Launch tried() {
  Launch launch = launches_to_try<log_n>()[which];
  launch.log_n = log_n;
  return launch;
}

std::string described(const Launch& launch) {
  std::string values = launch.form == Form::one_shot ? "one_shot"
                       : launch.form == Form::pair   ? "pair"
                       : launch.form == Form::passes ? "passes"
                                                     : "ring";
  if (launch.dynamic) values += "_dynamic";
  for (const int number : {launch.parts(), launch.teams, launch.slots, launch.blocks_per_sm,
                           launch.load_pieces, launch.store_pieces, launch.chains, int{launch.table},
                           int{launch.deferred}, int{launch.joined}, launch.start_groups, launch.start_step})
    values += ',' + std::to_string(number);
  return values;
}

RowBatch batch_of(const void* in, void* out, std::int64_t rows, int log_n) {
  const std::int64_t row_bytes = std::int64_t{2} << log_n;
  return {static_cast<const std::byte*>(in),
          static_cast<std::byte*>(out),
          static_cast<int>(rows),
          row_bytes,
          row_bytes,
          static_cast<float>(std::pow(2.0, -0.5 * log_n)),
          false};
}

unsigned* row_counter() {
  static unsigned* const counter = [] {
    void* memory = nullptr;
    FWHT_CUDA(cudaMalloc(&memory, sizeof(unsigned)));
    FWHT_CUDA(cudaMemset(memory, 0, sizeof(unsigned)));
    return static_cast<unsigned*>(memory);
  }();
  return counter;
}

template <Launch launch>
void add_candidate(std::vector<LaunchCandidate>& all) {
  constexpr Scaling kScaling = launch.log_n % 2 == 0 ? Scaling::constants : Scaling::results;
  static constexpr int shared = shared_bytes(launch);
  static_assert(shared <= 227 << 10);
  const auto kernel = [] {
    if constexpr (launch.form == Form::one_shot) {
      return one_shot<Dtype::f16, launch, kScaling>;
    } else if constexpr (launch.form == Form::pair) {
      return pair<Dtype::f16, launch, kScaling>;
    } else if constexpr (launch.form == Form::passes) {
      return passes<Dtype::f16, launch, kScaling>;
    } else {
      return ring<Dtype::f16, launch, kScaling>;
    }
  }();
  allow_shared(kernel, shared);
  const cudaFuncAttributes attributes = attributes_of(kernel);
  const int blocks_per_sm = resident_blocks(kernel, launch.threads(), shared);
  const std::int64_t resident = std::int64_t{blocks_per_sm} * this_device().sm_count / launch.cluster();
  all.push_back({described(launch), attributes.numRegs, static_cast<int>(attributes.localSizeBytes),
                 [kernel, resident](const void* in, void* out, std::int64_t rows, Stream stream) {
                   const RowBatch batch = batch_of(in, out, rows, launch.log_n);
                   const std::int64_t groups =
                       launch.form == Form::one_shot ? rows : std::min(rows, resident);
                   const LaunchGrid grid{.blocks = groups * launch.cluster(),
                                         .threads = launch.threads(),
                                         .shared = shared,
                                         .cluster = launch.cluster()};
                   if constexpr (launch.form == Form::one_shot || launch.form == Form::pair) {
                     fwht::launch(kernel, grid, stream, batch);
                   } else {
                     fwht::launch(kernel, grid, stream, batch, row_counter());
                   }
                 }});
}

/// None for bf16: the same instructions at the same rates as fp16.
std::vector<LaunchCandidate> candidates(Dtype dtype, int log_n) {
  if (dtype != Dtype::f16) return {};
  return dispatch_int<kSmallestLogN, kLargestLogN>(log_n, [](auto l) {
    std::vector<LaunchCandidate> all;
    [&]<int... which>(std::integer_sequence<int, which...>) {
      (add_candidate<tried<l(), which>()>(all), ...);
    }
    (std::make_integer_sequence<int, static_cast<int>(launches_to_try<l()>().size())>{});
    return all;
  });
}

}  // namespace
}  // namespace fwht::wgmma

fwht::LaunchTuning fwht::launch_tuning() {
  constexpr std::int64_t kSeveralRowsForEveryTeam = std::int64_t{1} << 24;
  return {wgmma::variant,
          "form,parts,teams,slots,blocks_per_sm,load_pieces,store_pieces,chains,table,deferred,joined,"
          "start_groups,start_step",
          wgmma::kSmallestLogN,
          wgmma::kLargestLogN,
          wgmma::candidates,
          kSeveralRowsForEveryTeam,
          true};
}
