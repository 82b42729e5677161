// wgmma_tune: measures launches, for the table in wgmma.cpp. Every candidate must first give the bits of the
// `wgmma` plan on integers, whose sums are exact in any order.
#include "variants/wgmma/wgmma_tune.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <random>

#include "common/error.hpp"
#include "common/gpu_timer.hpp"
#include "common/memory.hpp"

namespace fwht::wgmma {
namespace {

struct Options {
  std::vector<int> log_n{12, 13, 14, 15}, log_elements{23, 24, 26};
};

template <class Distribution>
std::vector<std::uint16_t> random_data(Dtype dtype, std::size_t count, Distribution distribution) {
  std::mt19937 generator(1);
  std::vector<std::uint16_t> data(count);
  for (std::uint16_t& x : data)
    x = static_cast<std::uint16_t>(encode(dtype, static_cast<double>(distribution(generator))));
  return data;
}

std::vector<std::uint16_t> downloaded(const Buffer& buffer) {
  std::vector<std::uint16_t> data(buffer.bytes() / 2);
  synchronize(Memory::device);
  buffer.download(data.data(), buffer.bytes());
  return data;
}

/// In place, several rows for every team and a last round that is not full.
bool gives_the_same_bits(const Candidate& candidate, Dtype dtype, int log_n, const DeviceInfo& device) {
  const Problem problem = make_problem(dtype, std::int64_t{1} << log_n, (std::int64_t{1} << 25 >> log_n) + 3);
  const auto bytes = static_cast<std::size_t>(problem.span_bytes());
  static std::vector<std::uint16_t> data, want;
  if (data.size() != bytes / 2) {
    data = random_data(dtype, bytes / 2, std::uniform_int_distribution<int>(-3, 3));
    Buffer expected(Memory::device, bytes);
    expected.upload(data.data(), bytes);
    plan(variant, problem, device)->execute(expected.data(), expected.data());
    want = downloaded(expected);
  }
  Buffer got(Memory::device, bytes);
  for (int repeat = 0; repeat < 3; ++repeat) {
    got.upload(data.data(), bytes);
    candidate.enqueue(got.data(), problem.rows, nullptr);
    if (want != downloaded(got) || !got.guards_intact()) return false;
  }
  return true;
}

/// Microseconds of the second of two launches that alternate.
double alternating_us(const Enqueue& copy, const Enqueue& kernel, double copy_us) {
  const std::vector<Enqueue> both{copy, kernel};
  return 2.0 * time_on_device(both).time_us - copy_us;
}

std::string described(const Launch& launch) {
  if (launch.form == Form::one_shot)
    return fmt::format("one_shot,{},1,1,{},0,0", launch.parts(), launch.load_pieces);
  return fmt::format("{},{},{},{},{},{},{}", launch.dynamic ? "ring_dynamic" : "ring", launch.parts(),
                     launch.teams, launch.slots, launch.load_pieces, launch.store_pieces, int{launch.table});
}

void measure(Dtype dtype, int log_n, int log_elements, const std::vector<Candidate>& all, Buffer& data) {
  const std::int64_t rows = std::int64_t{1} << (log_elements - log_n),
                     bytes = std::int64_t{2} << log_elements;
  const Enqueue copy = [&](Stream stream) { enqueue_copy(data.data(), bytes, stream); };
  const double copy_us = time_on_device(std::vector{copy}).time_us;
  for (const Candidate& candidate : all) {
    if (candidate.blocks_per_sm == 0) continue;
    const Enqueue kernel = [&](Stream stream) { candidate.enqueue(data.data(), rows, stream); };
    const double replay = time_on_device(std::vector{kernel}).time_us;
    const double alternating = alternating_us(copy, kernel, copy_us);
    std::cout << fmt::format("{},{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f}\n", name_of(dtype),
                             1 << log_n, log_elements, described(candidate.launch), candidate.registers,
                             candidate.spilled_bytes, candidate.blocks_per_sm, copy_us, replay,
                             copy_us / replay, alternating, copy_us / alternating)
              << std::flush;
  }
}

int run(int argc, const char* const* argv) {
  Options options;
  CLI::App app{"Measures launches of wgmma", "wgmma_tune"};
  app.add_option("--log-n", options.log_n, "log2 of the row lengths, 12 to 15");
  app.add_option("--log-elements", options.log_elements, "log2 of the number of elements");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  constexpr Dtype dtype = Dtype::f16;
  const DeviceInfo device = this_device();
  if (Support cuda = require_cuda(device); !cuda) throw BadRequest(cuda.why_not);
  std::cout
      << "dtype,n,log_elements,form,parts,teams,slots,load_pieces,store_pieces,table,registers,spilled_bytes,"
         "blocks_per_sm,copy_us,replay_us,replay_fraction,alternating_us,alternating_fraction\n";
  for (const int log_n : options.log_n) {
    if (log_n < kSmallestLogN || log_n > kLargestLogN) {
      throw BadRequest(
          fmt::format("--log-n={} must be between {} and {}", log_n, kSmallestLogN, kLargestLogN));
    }
    std::vector<Candidate> all = candidates(log_n);
    for (Candidate& candidate : all) {
      if (candidate.blocks_per_sm == 0 || gives_the_same_bits(candidate, dtype, log_n, device)) continue;
      std::cout << fmt::format("# n={}: {} gives other bits than the plan\n", 1 << log_n,
                               described(candidate.launch));
      candidate.blocks_per_sm = 0;
    }
    for (const int log_elements : options.log_elements) {
      if (log_elements < log_n || log_elements > 32) {
        throw BadRequest(
            fmt::format("--log-elements={} must be between log n={} and 32", log_elements, log_n));
      }
      Buffer data(Memory::device, std::size_t{2} << log_elements);
      const std::vector<std::uint16_t> period =
          random_data(dtype, std::size_t{1} << std::min(log_elements, 20), std::normal_distribution<float>());
      data.upload(period.data(), 2 * period.size());
      data.tile(2 * period.size());
      measure(dtype, log_n, log_elements, all, data);
    }
  }
  return 0;
}

}  // namespace
}  // namespace fwht::wgmma

int main(int argc, char** argv) {
  return fwht::run_main("wgmma_tune", [&] { return fwht::wgmma::run(argc, argv); });
}
