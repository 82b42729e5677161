// Mutated files and command lines, seeded: every reader accepts or says BadRequest, every program ends with
// 0, 1 or 2 and one sentence, and what is refused leaves the disk as it was. FWHT_FUZZ_SECONDS (default 30,
// for both tests together) and FWHT_FUZZ_SEED (default 1) make it longer or different; a failure prints seed,
// number and input of its case.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "common/contract/linear/problem.hpp"
#include "common/contract/operator_data.hpp"
#include "common/contract/problem.hpp"
#include "common/host/error.hpp"
#include "experiments/harness/csv.hpp"
#include "experiments/harness/grid.hpp"
#include "experiments/program_fixture.hpp"
#include "reference/inputs.hpp"
#include "variants/auto/tuning_table.hpp"

namespace fwht {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

std::uint64_t number_from(const char* variable, std::uint64_t usual) {
  const char* text = std::getenv(variable);
  return text == nullptr ? usual : std::strtoull(text, nullptr, 10);
}

/// Random choices of one case: the same for the same seed and number.
class Chance {
 public:
  Chance(std::uint64_t seed, std::uint64_t number) : random_(seed * 1000003 + number) {}
  std::size_t below(std::size_t count) { return count == 0 ? 0 : random_() % count; }
  template <class Values>
  const auto& one_of(const Values& values) {
    return *(std::begin(values) + static_cast<std::ptrdiff_t>(below(std::size(values))));
  }

 private:
  std::mt19937_64 random_;
};

const std::vector<std::string> kTokens = {"",
                                          "0",
                                          "-1",
                                          "1e999",
                                          "nan",
                                          "inf",
                                          "99999999999999999999",
                                          "2^62",
                                          "2^63",
                                          "9223372036854775807",
                                          "0x10",
                                          "1.5",
                                          "true",
                                          "null",
                                          ",",
                                          ",,,",
                                          "\"",
                                          "\"\"",
                                          "'",
                                          "\n",
                                          "\r\n",
                                          "#",
                                          "[",
                                          "]",
                                          "{",
                                          "}",
                                          "..",
                                          "=",
                                          "/",
                                          "../..",
                                          std::string(1, '\0'),
                                          "\x1b[31m",
                                          "\xff\xfe",
                                          "\xc3\xa4",
                                          "%s%n",
                                          "auto",
                                          "nosuch",
                                          std::string(3000, 'A'),
                                          std::string(500, '['),
                                          std::string(300, ','),
                                          "<script>",
                                          "$(id)",
                                          "16..8",
                                          "n=",
                                          "f8"};

std::string mutated(std::string text, Chance& chance) {
  for (std::size_t left = 1 + chance.below(4); left > 0; --left) {
    const std::size_t at = chance.below(text.size() + 1);
    const std::size_t length = std::min(chance.below(40), text.size() - at);
    switch (chance.below(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(chance.below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, chance.one_of(kTokens));
        break;
      case 3:
        text.replace(at, length, chance.one_of(kTokens));
        break;
      case 4:
        text.insert(at, text.substr(chance.below(text.size() + 1), length));
        break;
      case 5:
        text.resize(at);
        break;
      default: {  // a whole line twice, or gone
        const std::size_t start = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
        const std::size_t end = std::min(text.find('\n', start), text.size());
        const std::string line = text.substr(start, end - start) + "\n";
        if (chance.below(2) == 0) {
          text.insert(start, line);
        } else {
          text.erase(start, std::min(line.size(), text.size() - start));
        }
      }
    }
  }
  return text;
}

Json strange_value(Chance& chance) {
  switch (chance.below(9)) {
    case 0:
      return nullptr;
    case 1:
      return chance.below(2) == 0;
    case 2:
      return -1;
    case 3:
      return 1e300;
    case 4:
      return std::uint64_t{18446744073709551615U};
    case 5:
      return Json::array({1, "a", nullptr});
    case 6:
      return Json::object({{"a", 1}});
    case 7: {
      Json deep = 1;
      for (std::size_t level = chance.below(200); level > 0; --level)
        deep = Json::array({std::move(deep)});
      return deep;
    }
    default:
      return "text \x01 with\ncontrols";
  }
}

void mutate(Json& node, Chance& chance) {
  if (node.is_structured() && !node.empty() && chance.below(4) != 0) {
    auto child = node.begin();
    std::advance(child, static_cast<std::ptrdiff_t>(chance.below(node.size())));
    mutate(*child, chance);
  } else if (node.is_object() && !node.empty() && chance.below(2) == 0) {
    auto child = node.begin();
    std::advance(child, static_cast<std::ptrdiff_t>(chance.below(node.size())));
    node.erase(child);
  } else {
    node = strange_value(chance);
  }
}

// Runs `one(number)` until the time is up, at least 50 times; stops at the first failure.
void repeat(double share, const std::function<void(std::uint64_t)>& one) {
  const auto seconds = static_cast<double>(number_from("FWHT_FUZZ_SECONDS", 30)) * share;
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::uint64_t number = 0;
  for (; number < 50 || Clock::now() < end; ++number) {
    one(number);
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "FWHT_FUZZ_SEED=" << number_from("FWHT_FUZZ_SEED", 1) << ", case " << number;
      break;
    }
  }
  testing::Test::RecordProperty("cases", std::to_string(number));
  std::cout << number << " cases\n";
}

const char* const kTable =
    "# fwht tuning table 2\n# device: NVIDIA H200\n# compute_capability: 90\n# sm_count: 132\n# source: x\n"
    "dtype,n,elements,placement,launch,variant\nf16,4096,8388608,in,ordinary,mma_split\n"
    "bf16,8192,1024,out,programmatic,wgmma\n";

const char* const kGrid =
    "# comment\n[L2]\nn = 16..32768\nelements = 2^23\nrows = 1, 64\ndtype = f16, bf16\nplacement = in, out\n"
    "mode = alternating\n\n[host]\nn = 8\nrows = 4\ndtype = f32\nmode = host\n";

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// In one process: fast, and a sanitizer sees every byte.
TEST(Fuzz, EveryReaderAcceptsOrSaysBadRequest) {
  const std::vector<std::pair<std::string, std::function<void(const std::string&)>>> readers = {
      {kTable, [](const std::string& text) { automatic::parse_tuning_table(text, "t"); }},
      {kGrid, [](const std::string& text) { harness::parse_grid("g", text); }},
      {"f16/n4096/r8192/out/ld4104/s0.5", [](const std::string& text) { validate(parse_problem(text)); }},
      {"f16/28x512/r64>e4m3:row", [](const std::string& text) { to_string(parse_problem(text)); }},
      {"16..256, 2^12, 4096", [](const std::string& text) { harness::parse_counts(text, "--n"); }},
      {"normal", [](const std::string& text) { reference::parse_input_class(text); }},
      {"f16/n4096/r64/rope64h32>int8:128,t8192,mn/f32",
       [](const std::string& text) { validate(parse_problem(text)); }},
      {"f16/m16/n8192/k8192/w4g128/v2/act/rot128/pdl",
       [](const std::string& text) { validate(parse_linear_problem(text)); }},
      {"++++\n+-+-\n++--\n+--+\n", [](const std::string& text) { parse_sign_matrix(text); }},
      {"a,\"b,\"\"c\"\"\",", [](const std::string& text) {
         // A line that was parsed and written again says the same.
         const std::string line = harness::csv_line(harness::parse_csv_line(text));
         if (harness::csv_line(harness::parse_csv_line(line)) != line) throw std::logic_error("another line");
       }}};
  for (const auto& [good, read] : readers)
    EXPECT_NO_THROW(read(good)) << good;
  repeat(0.2, [&](std::uint64_t number) {
    Chance chance(number_from("FWHT_FUZZ_SEED", 1), number);
    const auto& [good, read] = chance.one_of(readers);
    const std::string text = mutated(good, chance);
    try {
      read(text);
    } catch (const BadRequest& error) {
      EXPECT_STRNE(error.what(), "");
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what() << " for\n" << text;
    }
  });
}

// Every file below a folder with its bytes.
std::map<std::string, std::string> content_of(const fs::path& folder) {
  std::map<std::string, std::string> content;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    content[entry.path().string()] = entry.is_regular_file() ? text_of(entry.path()) : "";
  return content;
}

class FuzzPrograms : public testing::Test {
 protected:
  FuzzPrograms() {
    root = fs::path(testing::TempDir()) / ("fuzz_test_" + std::to_string(getpid()));
    fs::remove_all(root);
    fs::create_directories(root / "case");
  }
  ~FuzzPrograms() override {
    if (!HasFailure()) fs::remove_all(root);
  }

  Ended run(const std::vector<std::string>& words) {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit seconds{20, 20};
      setrlimit(RLIMIT_CPU, &seconds);
      // A sanitizer's report ends with a code that no program has of its own.
      for (const char* options : {"ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"})
        setenv(options, "exitcode=99", 1);
      const int out = open((root / "out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      const int err = open((root / "err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      if (chdir((root / "case").c_str()) != 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(98);
      std::vector<char*> argv;
      for (const std::string& word : words)
        argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(97);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(root / "out"), text_of(root / "err")};
  }

  // 0, 1 or 2; a refusal is one line and leaves everything as it was; no message of a library shows.
  void judge(const std::vector<std::string>& words, bool may_write) {
    const auto before = content_of(root / "case");
    const Ended ended = run(words);
    ++codes[ended.code];
    const auto after = content_of(root / "case");
    std::string line, asked;
    for (const std::string& word : words) {
      line += word.substr(0, 200) + " ";
      asked += word + " ";
    }
    SCOPED_TRACE(line);
    EXPECT_TRUE(ended.code == 0 || ended.code == 1 || ended.code == 2) << ended.code << ": " << ended.err;
    for (const char* raw :
         {"json.exception", "::at", "basic_", "stoi", "stod", "vector", "regex_error", "filesystem error",
          "bad_alloc", "AddressSanitizer", "runtime error", "what():"}) {
      // A refusal repeats its argument, in which 'sto' and 'inf' may have met.
      EXPECT_TRUE(asked.find(raw) != std::string::npos || ended.err.find(raw) == std::string::npos)
          << ended.err;
    }
    if (ended.code == 2) {
      EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
      EXPECT_LT(ended.err.size(), 2200U);
    }
    if (ended.code == 2 || !may_write) {
      EXPECT_EQ(before.size(), after.size()) << ended.err;
      EXPECT_EQ(before, after) << "something was written: " << ended.err;
    }
  }

  fs::path root;
  std::map<int, int> codes;  // how often a program ended with each
};

TEST_F(FuzzPrograms, EndWithZeroOneOrTwoAndOneSentence) {
  const std::string sweep = FWHT_SWEEP_PROGRAM, accuracy = FWHT_ACCURACY_PROGRAM,
                    analysis = FWHT_STUDIES_PROGRAM, run_once = FWHT_RUN_ONCE_PROGRAM,
                    profile = FWHT_PROFILE_PROGRAM, linear = FWHT_LINEAR_PROGRAM,
                    tensor_parallel = FWHT_TENSOR_PARALLEL_PROGRAM;
  const std::vector<std::string> tiny = {"--variant", "cpu", "--problem", "f16/n8/r2"};
  auto words = std::vector<std::string>{sweep, "--output", "good"};
  words.insert(words.end(), tiny.begin(), tiny.end());
  ASSERT_EQ(run(words).code, 0) << text_of(root / "err");
  std::map<std::string, std::string> good;
  for (const auto& [path, text] : content_of(root / "case/good"))
    good[fs::path(path).filename().string()] = text;
  ASSERT_TRUE(good.contains("context.json") && good.contains("results.csv"));
  fs::remove_all(root / "case");
  fs::create_directories(root / "case");

  const std::vector<std::string> options = {"--variant",
                                            "--problem",
                                            "--grid",
                                            "--n",
                                            "--rows",
                                            "--elements",
                                            "--dtype",
                                            "--mode",
                                            "--placement",
                                            "--device",
                                            "--input",
                                            "--seed",
                                            "--only",
                                            "--repeat",
                                            "--benchmark_filter",
                                            "--benchmark_repetitions",
                                            "--benchmark_format",
                                            "--benchmark_out_format",
                                            "--most-kernels",
                                            "--resume",
                                            "--emulate",
                                            "--a100",
                                            "--analysis",
                                            "--help",
                                            "--list-grids",
                                            "--list",
                                            "--shape",
                                            "--tokens",
                                            "--ranks",
                                            "--algorithm",
                                            "--rotation",
                                            "--layers",
                                            "--programmatic",
                                            "--rotation-study"};
  const std::vector<std::string> values = {"cpu",
                                           "cpu,naive",
                                           "f16/n8/r2",
                                           "smoke",
                                           "16..256",
                                           "4",
                                           "2^12",
                                           "f16",
                                           "host",
                                           "in",
                                           "0",
                                           "normal",
                                           "1,2",
                                           "probes",
                                           "json",
                                           "n8",
                                           "(n8|r2)+",
                                           "naive",
                                           "blocks",
                                           "granite-20b-gated",
                                           "256x1024x128",
                                           "f16/m1/n128/k128/w4g128"};

  const auto folder_case = [&](Chance& chance) {
    fs::create_directories(root / "case/m");
    const std::string target = chance.one_of(std::array<std::string, 6>{
        "context.json", "context.json", "results.csv", "limits.csv", "unsupported.csv", "schema.json"});
    for (const auto& [name, text] : good) {
      std::string changed = text;
      if (name == target && name == "context.json" && chance.below(3) != 0) {
        Json context = Json::parse(text);
        mutate(context, chance);
        changed = context.dump(1, ' ', false, Json::error_handler_t::replace);
      } else if (name == target) {
        changed = mutated(text, chance);
      }
      // Without the hashes what is in the tables is looked at itself.
      if (name == "context.json" && target != name) {
        Json context = Json::parse(changed);
        context.erase("files");
        changed = context.dump(1);
      }
      write(root / "case/m" / name, changed);
    }
    std::vector<std::string> line = {sweep, "--resume", "m"};
    line.insert(line.end(), tiny.begin(), tiny.end());
    judge(line, true);
  };
  const auto grid_case = [&](Chance& chance) {
    write(root / "case/g", mutated(kGrid, chance));
    judge({chance.below(2) == 0 ? sweep : profile, "--grid", "g", "--variant", "cpu,naive",
           chance.below(2) == 0 ? "--list" : "--dry-run"},
          false);
  };
  const auto option_case = [&](Chance& chance) {
    const std::string program = chance.one_of(
        std::array<std::string, 6>{sweep, accuracy, analysis, profile, linear, tensor_parallel});
    std::vector<std::string> line = {program, program == profile           ? "--list"
                                              : program == tensor_parallel ? "--model"
                                                                           : "--dry-run"};
    for (std::size_t left = 1 + chance.below(4); left > 0; --left) {
      line.push_back(chance.one_of(options));
      if (chance.below(6) == 0) line.back() = mutated(line.back(), chance);
      std::string value = chance.one_of(values);
      if (chance.below(2) == 0)
        value = chance.below(2) == 0 ? chance.one_of(kTokens) : mutated(value, chance);
      // What no command line can hold.
      std::erase(line.back(), '\0');
      std::erase(value, '\0');
      line.push_back(value);
    }
    judge(line, false);
  };
  const auto problem_case = [&](Chance& chance) {
    std::string problem = mutated("f16/n8/r2/out", chance);
    std::erase(problem, '\0');
    judge({run_once, "--variant", "cpu", "--problem", problem.substr(0, 20)}, false);
  };

  repeat(0.8, [&](std::uint64_t number) {
    Chance chance(number_from("FWHT_FUZZ_SEED", 1), number);
    switch (chance.below(8)) {
      case 0:
      case 1:
      case 2:
        folder_case(chance);
        break;
      case 3:
      case 4:
        grid_case(chance);
        break;
      case 5:
      case 6:
        option_case(chance);
        break;
      default:
        problem_case(chance);
    }
    if (HasFailure()) return;
    fs::remove_all(root / "case");
    fs::create_directories(root / "case");
  });
  // Cases that are all refused, or none, would show little.
  EXPECT_GE(codes[0], 5);
  EXPECT_GE(codes[2], 5);
  std::cout << codes[0] << " ended with 0, " << codes[1] << " with 1, " << codes[2] << " with 2\n";
}

}  // namespace
}  // namespace fwht
