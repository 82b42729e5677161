// fwht_tensor_parallel: the MLP of a transformer over several GPUs; one thread a GPU, or, where RANK and
// WORLD_SIZE are set (torchrun), one process a rank.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>

#include "common/device/nccl.hpp"
#include "common/device/stream_query.hpp"
#include "common/host/error.hpp"
#include "common/host/host_ranks.hpp"
#include "common/host/rendezvous.hpp"
#include "common/host/run_main.hpp"
#include "experiments/harness/cli.hpp"
#include "experiments/harness/interrupt.hpp"
#include "experiments/harness/results_folder.hpp"
#include "experiments/tensor_parallel/study.hpp"
#include "variants/linear/registry.hpp"
#include "variants/registry.hpp"

namespace fwht::tensor_parallel {
namespace {

constexpr std::int64_t kMostTokens = 1 << 20;
constexpr int kMostRanks = 256;

/// What serves both projections where no variant is named.
constexpr const char* kDefaultProduct = "w4a16_pipelined";

struct TensorParallelOptions : harness::FolderOptions {
  std::vector<std::string> shapes = {"llama-70b", "granite-20b"};
  std::vector<std::int64_t> tokens = {1, 2, 4, 8, 16};
  std::vector<int> ranks;
  std::vector<std::string> algorithms = {"naive", "naive_fused", "tp_aware", "local_sort"};
  std::vector<std::string> rotations;
  std::string product, transform;
  int layers = 20, replays = 25, repeats = 1, limit_s = 60;
  bool host = false, check_only = false, model_only = false;
};

bool parse(TensorParallelOptions& options, int argc, const char* const* argv) {
  CLI::App app{"Times the MLP of a transformer, spread over several GPUs, by every algorithm.",
               "fwht_tensor_parallel"};
  app.add_option("--shape", options.shapes, "llama-70b, granite-20b, k1xn1xn2; each with -gated or without")
      ->delimiter(',');
  app.add_option("--tokens", options.tokens, "m (default: 1,2,4,8,16)")->delimiter(',');
  app.add_option("--ranks", options.ranks, "GPUs, each number in turn (default: all that there are)")
      ->delimiter(',');
  app.add_option("--algorithm", options.algorithms, "naive, naive_fused, tp_aware, local_sort (default: all)")
      ->delimiter(',');
  app.add_option("--rotation", options.rotations,
                 "also time rotated layers: blocks, block_diagonal, all_to_all, gather")
      ->delimiter(',');
  app.add_option("--variant", options.product, "linear variant of both projections (default: the fastest)");
  app.add_option("--transform", options.transform, "variant of the rotation (default: auto)");
  app.add_option("--layers", options.layers, "layers in one graph, each with its own weights (default: 20)");
  app.add_option("--replays", options.replays, "replays of each graph (default: 25)");
  app.add_option("--repeats", options.repeats, "executions that are checked (default: 1)");
  app.add_option("--limit", options.limit_s, "seconds after which a hanging rank ends the run (default: 60)");
  app.add_flag("--host", options.host, "ranks simulated by threads over host memory: checks only");
  app.add_flag("--check", options.check_only, "checks only, nothing is timed");
  auto* model = app.add_flag("--model", options.model_only, "only the model's table; nothing is run");
  harness::add_folder_options(app, options,
                              "the results folder, a new one or one that a program of this build has made");
  app.remove_option(app.get_option("--device"));  // ranks take the devices from 0 on
  app.get_option("--resume")
      ->description("a results folder to add this run to; points that it has are measured again");
  for (const char* of_a_run : {"--ranks", "--output", "--resume"})
    model->excludes(app.get_option(of_a_run));
  return harness::parse_command_line(app, argc, argv);
}

StudyOptions study_of(const TensorParallelOptions& options) {
  StudyOptions study;
  for (const std::string& shape : options.shapes)
    study.shapes.push_back(parse_shape(shape));
  for (const std::int64_t count : options.tokens) {
    if (count < 1 || count > kMostTokens)
      throw BadRequest(fmt::format("--tokens={} must be between 1 and {}", count, kMostTokens));
  }
  study.tokens = options.tokens;
  for (const std::string& name : options.algorithms)
    study.algorithms.push_back(kAlgorithms.parse(name));
  for (const std::string& name : options.rotations)
    study.rotations.push_back(kRotations.parse(name));
  const std::string product =
      options.product.empty() ? (options.host ? "cpu" : kDefaultProduct) : options.product;
  study.kernels.product = &find_linear_variant(product);
  study.kernels.transform =
      &find_variant(options.transform.empty() ? (options.host ? "cpu" : "auto") : options.transform);
  for (const auto& [name, value] :
       {std::pair("--layers", options.layers), std::pair("--replays", options.replays),
        std::pair("--repeats", options.repeats), std::pair("--limit", options.limit_s)}) {
    if (value < 1) throw BadRequest(fmt::format("{}={} must be at least 1", name, value));
  }
  study.layers = options.layers;
  study.replays = options.replays;
  study.repeats = options.repeats;
  study.timed = !options.host && !options.check_only;
  study.limit = std::chrono::seconds(options.limit_s);
  return study;
}

/// Ends the process where nothing else can: a rank that hangs inside a call of NCCL or CUDA. Points come and
/// go; one that takes longer than `limit`, which is well beyond what its own waits allow, is the last.
class Watchdog {
 public:
  explicit Watchdog(TimeLimit limit) : limit_(limit), thread_([this] { watch(); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void one_more_done() {
    const std::lock_guard lock(mutex_);
    ++done_;
    changed_.notify_all();
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      const int before = done_;
      if (changed_.wait_for(lock, limit_, [&] { return over_ || done_ != before; })) continue;
      std::cerr << fmt::format("fwht_tensor_parallel: failed: no point was done within {} s\n",
                               std::chrono::duration_cast<std::chrono::seconds>(limit_).count())
                << std::flush;
      std::_Exit(1);
    }
  }

  TimeLimit limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int done_ = 0;
  bool over_ = false;
  std::thread thread_;
};

struct Spread {
  double least = std::numeric_limits<double>::infinity(), most = 0.0;
  void add(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
  std::string text() const { return fmt::format("{:.2f} to {:.2f}", least, most); }
};

/// Rank 0's table and screen.
class Reporter {
 public:
  Reporter(harness::ResultsFolder& folder, Watchdog& watchdog) : folder_(folder), watchdog_(watchdog) {}

  void operator()(const PointResult& point) {
    const harness::CsvRow& row = point.layer;
    const auto text = [&](const char* key) {
      const auto found = row.find(key);
      return found == row.end() ? std::string() : found->second;
    };
    folder_.table("tensor_parallel.csv").append(row);
    for (const harness::CsvRow& piece : point.pieces)
      folder_.table("tensor_parallel_pieces.csv").append(piece);
    std::cout << fmt::format(
                     "{:<20} m={:<3} T={} {:<12} {:<14} {:<11} {:>9} us  pieces {:>9}  model {:>8} {}\n",
                     text("shape"), text("m"), text("ranks"), text("algorithm"), text("rotation"),
                     text("status"), text("time_us"), text("pieces_us"), text("model_us"), text("reason"))
              << std::flush;
    if (!text("time_us").empty()) {
      const double ratio = std::stod(text("time_us")) / std::stod(text("pieces_us"));
      of_pieces_.add(ratio);
      layers_.push_back(point.measured);
    }
    watchdog_.one_more_done();
  }

  const std::vector<MeasuredLayer>& layers() const { return layers_; }

  /// How well the pieces, each measured alone, and the model fitted to them make up the layers.
  void summarize() const {
    if (layers_.empty()) return;
    Spread of_model;
    std::map<std::int64_t, Machine> machines;
    for (const MeasuredLayer& layer : layers_) {
      const std::int64_t m = layer.problem.m;
      if (!machines.contains(m)) machines[m] = fitted(layers_, m);
      of_model.add(layer.time_us / predict(layer.problem, machines[m], layer.down_rows).total());
    }
    std::cout << fmt::format(
        "a layer takes {} times the sum of its pieces, {} times the model fitted to them\n",
        of_pieces_.text(), of_model.text());
  }

 private:
  harness::ResultsFolder& folder_;
  Watchdog& watchdog_;
  Spread of_pieces_;
  std::vector<MeasuredLayer> layers_;
};

/// The model's rows that an earlier run has not written, and again those that this run fits where it did not.
void add_model(harness::ResultsFolder& folder, const StudyOptions& study,
               std::span<const MeasuredLayer> layers) {
  const auto key_of = [](const harness::CsvRow& row) {
    return fmt::format("{}/{}/{}/{}/{}", row.at("shape"), row.at("m"), row.at("ranks"), row.at("algorithm"),
                       row.at("rotation"));
  };
  std::map<std::string, std::string> sources;
  for (const harness::CsvRow& row : folder.rows("tensor_parallel_model.csv"))
    sources[key_of(row)] = row.at("source");
  for (const harness::CsvRow& row : model_rows(study, layers)) {
    std::string& source = sources[key_of(row)];
    if (!source.empty() && (source == "fitted" || row.at("source") != "fitted")) continue;
    source = row.at("source");
    folder.table("tensor_parallel_model.csv").append(row);
  }
}

harness::RunInfo run_info(const StudyOptions& study, bool host) {
  harness::RunInfo info{"fwht_tensor_parallel", "", "", {study.seed}, {}};
  if (!host && nccl::why_not().empty()) {
    info.communication.emplace_back("nccl", nccl::version_text(nccl::version()));
    for (const auto& variable : nccl::variables())
      info.communication.push_back(variable);
  }
  return info;
}

/// Host ranks or GPUs of this process, a thread each.
bool run_threads(const StudyOptions& study, const TensorParallelOptions& options, int ranks,
                 WeightsCache& cache, Reporter& report) {
  bool all_right = true;
  std::mutex mutex;
  const auto body = [&](Communicator& communicator, const DeviceInfo& device) {
    const auto report_here = [&](const PointResult& point) {
      if (communicator.rank() == 0) report(point);
    };
    const bool right = run_study(study, communicator, device, cache, report_here);
    const std::lock_guard lock(mutex);
    all_right = all_right && right;
  };
  if (options.host) {
    HostRanks group(ranks, study.limit);
    DeviceInfo here = this_device();
    here.host_threads = 1;
    run_ranks(ranks, group.meeting(), [&](int rank) { body(group.communicator(rank), here); });
    return all_right;
  }
  if (ranks == 1) {  // needs no NCCL
    const DeviceScope scope(0);
    body(*single_rank(Memory::device), this_device(0));
    return all_right;
  }
  const nccl::UniqueId id = nccl::make_unique_id();
  RankMeeting meeting(ranks);
  run_ranks(ranks, meeting, [&](int rank) {
    const DeviceScope scope(rank);
    const auto communicator =
        nccl::connect(id, {rank, ranks, rank}, study.limit, [&meeting] { return meeting.reason(); });
    body(*communicator, this_device(rank));
  });
  return all_right;
}

/// This process is one rank of several.
bool run_process(const StudyOptions& study, const RankPlace& place, WeightsCache& cache,
                 const std::function<void(const PointResult&)>& report) {
  const nccl::UniqueId mine = place.rank == 0 ? nccl::make_unique_id() : nccl::UniqueId{};
  RankLines lines(place, mine, study.limit);
  try {
    const DeviceScope scope(place.local_rank);
    const auto communicator = nccl::connect(lines.message(), {place.rank, place.size, place.local_rank},
                                            study.limit, [&lines] { return lines.reason(); });
    return run_study(study, *communicator, this_device(place.local_rank), cache, report);
  } catch (const std::exception& error) {
    lines.fail(error.what());
    throw;
  }
}

int device_count() {
  int count = 0;
  while (this_device(count).has_cuda())
    ++count;
  return count;
}

int run(int argc, const char* const* argv) {
  // Loading a kernel for the first time waits for the device, and so for a collective that waits for others.
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  TensorParallelOptions options;
  if (!parse(options, argc, argv)) return 0;
  const StudyOptions study = study_of(options);
  if (options.model_only) {
    const std::vector<harness::CsvRow> rows = model_rows(study);
    if (rows.empty()) validate(points_of(study, 1).front());
    for (const harness::CsvRow& row : rows) {
      std::cout << fmt::format("{:<20} m={:<3} T={:<2} {:<12} {:<14} {:>9} us  {}\n", row.at("shape"),
                               row.at("m"), row.at("ranks"), row.at("algorithm"), row.at("rotation"),
                               row.at("model_us"), row.at("source"));
    }
    return 0;
  }
  const bool is_process = launched_as_rank() && !options.host;
  const RankPlace place = is_process ? place_from_environment() : RankPlace{};
  const DeviceInfo device = options.host ? this_device() : this_device(place.local_rank);
  if (!options.host) {
    if (!device.has_cuda()) throw BadRequest(device.why_no_cuda + "; --host simulates the ranks");
  }
  std::vector<int> ranks = options.ranks;
  if (is_process) {
    if (!ranks.empty() && ranks != std::vector<int>{place.size})
      throw BadRequest(fmt::format("--ranks differs from WORLD_SIZE={}", place.size));
  } else if (ranks.empty()) {
    ranks = {options.host ? 2 : static_cast<int>(std::bit_floor(static_cast<unsigned>(device_count())))};
  }
  for (const int count : ranks) {
    if (count < 1 || count > kMostRanks || !std::has_single_bit(static_cast<unsigned>(count)))
      throw BadRequest(fmt::format("--ranks={} must be a power of two between 1 and {}", count, kMostRanks));
    if (!options.host && !this_device(count - 1).has_cuda())
      throw BadRequest(fmt::format("{} ranks: {}", count, this_device(count - 1).why_no_cuda));
    if (!options.host && count > 1) nccl::version();  // says why there is none
  }
  if (is_process) nccl::version();

  WeightsCache cache;
  bool all_right = true;
  Watchdog watchdog(4 * study.limit);
  if (is_process && place.rank != 0) {
    const harness::InterruptWatch watch;  // the ranks stop together
    all_right = run_process(study, place, cache, [&](const PointResult&) { watchdog.one_more_done(); });
    return all_right ? 0 : 1;
  }
  harness::ResultsFolder folder = harness::ResultsFolder::open(
      options.output, options.resume, gather_provenance(argc, argv, device), run_info(study, options.host));
  return harness::write_folder(folder, argc, argv, [&] {
    Reporter report(folder, watchdog);
    if (is_process) {
      all_right = run_process(study, place, cache, std::ref(report));
    } else {
      std::set<int> done;  // a number that is named twice is run once
      for (const int count : ranks)
        if (done.insert(count).second)
          all_right = run_threads(study, options, count, cache, report) && all_right;
    }
    if (harness::interrupted_by() != 0) return 1;
    report.summarize();
    add_model(folder, study, report.layers());
    folder.finish();
    return all_right ? 0 : 1;
  });
}

}  // namespace
}  // namespace fwht::tensor_parallel

int main(int argc, char** argv) {
  const int code =
      fwht::run_main("fwht_tensor_parallel", [&] { return fwht::tensor_parallel::run(argc, argv); });
  // After a failure a thread may still wait inside NCCL for ranks that will not come.
  if (code != 0) {
    std::cout.flush();
    std::_Exit(code);
  }
  return code;
}
