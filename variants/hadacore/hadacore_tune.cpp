// hadacore_tune: measures launch configurations, for the table in hadacore.hpp. Every candidate must first
// give the bits of the `hadacore` plan.
#include "variants/hadacore/hadacore_tune.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <random>

#include "common/error.hpp"
#include "common/gpu_timer.hpp"
#include "common/memory.hpp"

namespace fwht::hadacore {
namespace {

struct Options {
  std::vector<int> log_n{7, 8, 9, 10, 11, 12, 13, 14, 15}, log_elements{15, 21, 23, 25, 28};
  std::string dtype = "f16";
};

std::vector<std::uint16_t> random_data(Dtype dtype, std::size_t count) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> data(count);
  for (std::uint16_t& x : data)
    x = static_cast<std::uint16_t>(encode(dtype, normal(generator)));
  return data;
}

std::vector<std::uint16_t> downloaded(const Buffer& buffer) {
  std::vector<std::uint16_t> data(buffer.bytes() / 2);
  synchronize(Memory::device);
  buffer.download(data.data(), buffer.bytes());
  return data;
}

/// Rows that do not fill the last block, so that the tail is part of it.
bool gives_the_same_bits(const Candidate& candidate, Dtype dtype, int log_n, const DeviceInfo& device) {
  const Problem problem =
      make_problem(dtype, std::int64_t{1} << log_n, (65536 >> log_n) + 3, Placement::out_of_place);
  const auto bytes = static_cast<std::size_t>(problem.span_bytes());
  const std::vector<std::uint16_t> data = random_data(dtype, bytes / 2);
  Buffer in(Memory::device, bytes), expected(Memory::device, bytes), got(Memory::device, bytes);
  in.upload(data.data(), bytes);
  plan(variant, problem, device)->execute(in.data(), expected.data());
  candidate.enqueue(in.data(), got.data(), problem.rows, nullptr);
  return downloaded(expected) == downloaded(got) && got.guards_intact();
}

/// Microseconds of the second of two launches that alternate.
double alternating_us(const Enqueue& copy, const Enqueue& kernel) {
  const std::vector<Enqueue> both{copy, kernel}, alone{copy, copy};
  return 2.0 * time_on_device(both).time_us - time_on_device(alone).time_us;
}

void measure(Dtype dtype, int log_n, int log_elements, const std::vector<Candidate>& all, Buffer& data) {
  const std::int64_t rows = std::int64_t{1} << (log_elements - log_n),
                     bytes = std::int64_t{2} << log_elements;
  const Enqueue copy = [&](Stream stream) { enqueue_copy(data.data(), data.data(), bytes, stream); };
  const double copy_us = time_on_device(std::vector{copy}).time_us;
  double published_replay = 0, published_alternating = 0;
  for (const Candidate& candidate : all) {
    const Enqueue kernel = [&](Stream stream) { candidate.enqueue(data.data(), data.data(), rows, stream); };
    const double replay = time_on_device(std::vector{kernel}).time_us,
                 alternating = alternating_us(copy, kernel);
    if (published_replay == 0) published_replay = replay, published_alternating = alternating;
    const Config& c = candidate.config;
    std::cout << fmt::format("{},{},{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f}\n",
                             name_of(dtype), 1 << log_n, std::int64_t{1} << log_elements, c.chunks_per_warp,
                             c.warps_per_block, c.blocks_per_sm, candidate.registers, candidate.spilled_bytes,
                             copy_us, replay, copy_us / replay, published_replay / replay, alternating,
                             copy_us / alternating, published_alternating / alternating)
              << std::flush;
  }
}

int run(int argc, const char* const* argv) {
  Options options;
  CLI::App app{"Measures launch configurations of hadacore", "hadacore_tune"};
  app.add_option("--log-n", options.log_n, "log2 of the row lengths, 4 to 15");
  app.add_option("--log-elements", options.log_elements, "log2 of the number of elements");
  app.add_option("--dtype", options.dtype, "f16 or bf16");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  const Dtype dtype = parse_dtype(options.dtype);
  const DeviceInfo device = this_device();
  if (Support cuda = require_cuda(device); !cuda) throw BadRequest(cuda.why_not);
  std::cout << "dtype,n,elements,chunks_per_warp,warps_per_block,blocks_per_sm,registers,spilled_bytes,copy_"
               "us,replay_us,"
               "replay_fraction,replay_speedup,alternating_us,alternating_fraction,alternating_speedup\n";
  for (const int log_n : options.log_n) {
    if (log_n < 4 || log_n > kLargestLogN) {
      throw BadRequest(fmt::format("--log-n={} must be between 4 and {}", log_n, kLargestLogN));
    }
    const std::vector<Candidate> all = candidates(dtype, log_n);
    for (const Candidate& candidate : all) {
      if (gives_the_same_bits(candidate, dtype, log_n, device)) continue;
      throw std::runtime_error(fmt::format("n={}: {{{}, {}, {}}} gives other bits than hadacore", 1 << log_n,
                                           candidate.config.chunks_per_warp, candidate.config.warps_per_block,
                                           candidate.config.blocks_per_sm));
    }
    for (const int log_elements : options.log_elements) {
      if (log_elements < log_n || log_elements > 32) {
        throw BadRequest(
            fmt::format("--log-elements={} must be between log n={} and 32", log_elements, log_n));
      }
      Buffer data(Memory::device, std::size_t{2} << log_elements);
      const std::vector<std::uint16_t> period =
          random_data(dtype, std::size_t{1} << std::min(log_elements, 20));
      data.upload(period.data(), 2 * period.size());
      data.tile(2 * period.size());
      measure(dtype, log_n, log_elements, all, data);
    }
  }
  return 0;
}

}  // namespace
}  // namespace fwht::hadacore

int main(int argc, char** argv) {
  return fwht::run_main("hadacore_tune", [&] { return fwht::hadacore::run(argc, argv); });
}
