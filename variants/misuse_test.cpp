// What a caller can do wrong with the public calls: each is one BadRequest that names value and limit, from
// one thread and from eight at once, beside calls that are right. The sanitizer presets run this too.
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "common/contract/encoding.hpp"
#include "common/contract/hadamard_matrices.hpp"
#include "common/contract/operator_data.hpp"
#include "common/contract/preparation.hpp"
#include "common/device/device_info.hpp"
#include "common/device/memory.hpp"
#include "common/device/nccl.hpp"
#include "common/host/communicator.hpp"
#include "common/host/error.hpp"
#include "variants/library/sharded/sharded.hpp"
#include "variants/library/transform.hpp"
#include "variants/registry.hpp"

namespace fwht {
namespace {

using Granularity = ScaleGranularity::Kind;

struct Misuse {
  const char* what;
  std::function<void()> call;
  const char* said;  // a part of the message
};

Problem with(const std::function<void(Problem&)>& change) {
  Problem problem = make_problem(Dtype::f32, 64, 4);
  change(problem);
  return problem;
}

// Memory of the calling thread alone.
float* values() {
  thread_local std::vector<float> memory(4096, 1.0F);
  return memory.data();
}

std::unique_ptr<Plan> cpu_plan(const Problem& problem) {
  return plan(find_variant("cpu"), problem, this_device());
}

sharded::ShardedProblem sharded_problem(std::int64_t n, std::int64_t rows, int ranks) {
  return sharded::make_sharded_problem(sharded::ShardedForm::all_to_all, Dtype::f32, n, rows, ranks);
}

std::vector<Misuse> misuses() {
  const Problem in_place = make_problem(Dtype::f32, 64, 4);
  const Problem out_of_place = make_problem(Dtype::f32, 64, 4, Placement::out_of_place);
  Problem codes = make_problem(Dtype::f32, 64, 4, Placement::out_of_place);
  codes.encoding = make_encoding(CodeFormat::int8, {Granularity::row});
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  return {
      {"a variant that is not there", [] { find_variant("nosuch"); }, "unknown variant 'nosuch'; known: cpu"},
      {"a name of 10000 characters", [] { find_variant(std::string(10000, 'x')); }, "unknown variant"},
      {"a default-made problem", [] { cpu_plan(Problem{}); }, "make_problem"},
      {"rows below 0", [] { cpu_plan(with([](Problem& p) { p.rows = -1; })); }, "rows=-1"},
      {"rows beyond 63 bits", [=] { cpu_plan(with([=](Problem& p) { p.rows = most; })); },
       "exceeds the limit"},
      {"a stride below n", [] { cpu_plan(with([](Problem& p) { p.set_row_stride(63); })); }, "row_stride=63"},
      {"a stride below 0", [] { cpu_plan(with([](Problem& p) { p.set_row_stride(-64); })); },
       "row_stride=-64"},
      {"a scale that is no number",
       [] { cpu_plan(with([](Problem& p) { p.scale = std::numeric_limits<double>::quiet_NaN(); })); },
       "must be finite"},
      {"a scale beyond fp32", [] { cpu_plan(with([](Problem& p) { p.scale = 1e300; })); }, "must be finite"},
      {"a dtype that is none",
       [] { cpu_plan(with([](Problem& p) { p.set_dtype(static_cast<Dtype>(99)); })); }, "dtype 99"},
      {"a placement that is none",
       [] { cpu_plan(with([](Problem& p) { p.placement = static_cast<Placement>(7); })); }, "placement 7"},
      {"n of no power of two", [] { cpu_plan(make_problem(Dtype::f32, 3, 1)); },
       "n=3 must be a power of two"},
      {"n of 0", [] { cpu_plan(make_problem(Dtype::f32, 0, 1)); }, "n=0 must be at least 1"},
      {"n below 0", [] { cpu_plan(make_problem(Dtype::f32, -8, 1)); }, "-8"},
      {"a variant of another machine",
       [] { plan(find_variant("wgmma"), make_problem(Dtype::f16, 4096, 1), DeviceInfo{}); }, "CUDA"},
      {"no input", [=] { cpu_plan(in_place)->execute(nullptr, values()); }, "in is a null pointer"},
      {"no output", [=] { cpu_plan(out_of_place)->execute(values(), nullptr); }, "out is a null pointer"},
      {"in place with two pointers", [=] { cpu_plan(in_place)->execute(values(), values() + 1024); },
       "must be equal"},
      {"out of place that overlaps", [=] { cpu_plan(out_of_place)->execute(values(), values() + 64); },
       "overlap"},
      {"a pointer between two elements",
       [=] {
         char* odd = reinterpret_cast<char*>(values()) + 1;
         cpu_plan(in_place)->execute(odd, odd);
       },
       "must be aligned to 4 bytes"},
      {"scales that no one asked for",
       [=] {
         cpu_plan(in_place)->execute(Operands{values(), values(), values() + 2048, nullptr, nullptr},
                                     nullptr);
       },
       "scales is given"},
      {"signs that no one asked for",
       [=] {
         cpu_plan(in_place)->execute(Operands{values(), values(), nullptr, values() + 2048, nullptr},
                                     nullptr);
       },
       "signs is given"},
      {"no signs",
       [] {
         const Problem signs = make_problem(Dtype::f32, Operator::sylvester(64).with_signs(), 4);
         cpu_plan(signs)->execute(values(), values());
       },
       "signs is a null pointer"},
      {"a plan limit of 0", [] { set_transform_plan_limit(0); }, "0"},
      {"threads below 0", [] { set_host_threads(-1); }, "-1"},
      {"transform by a host variant",
       [=] {
         transform(find_variant("cpu"), Operands{values(), values()}, in_place);
       },
       "cpu"},
      {"transform of nothing", [] { transform(nullptr, nullptr, Problem{}); }, ""},
      {"five factors",
       [] {
         Operator({Factor{}, Factor{}, Factor{}, Factor{}, Factor{}});
       },
       "4"},
      {"a factor of order 0",
       [] {
         validate(Operator{{Basis::sylvester, 0}, {Basis::hadamard, 12}});
       },
       "0"},
      {"factors whose product overflows",
       [] {
         validate(
             Operator{{Basis::sylvester, std::int64_t{1} << 40}, {Basis::sylvester, std::int64_t{1} << 40}});
       },
       ""},
      {"a Hadamard order that nobody knows",
       [] {
         validate(Operator{{Basis::hadamard, 13}});
       },
       "13"},
      {"a width without operator", [] { operator_for(-4); }, "-4"},
      {"a sign of 2",
       [] {
         pack_signs(std::vector<double>{1.0, 2.0});
       },
       "2"},
      {"a matrix of letters", [] { parse_sign_matrix("+-\n-x"); }, "x"},
      {"a matrix in a folder", [] { read_sign_matrix("/"); }, "folder"},
      {"a matrix without end", [] { read_sign_matrix("/dev/zero"); }, "device"},
      {"a problem of words", [] { parse_problem("f16 of length 8"); }, "f16 of length 8"},
      {"an empty problem", [] { parse_problem(""); }, ""},
      {"an operator of words", [] { parse_operator("28x"); }, "28x"},
      {"a dtype of words", [] { parse_dtype("f8"); }, "f8"},
      {"a device below 0",
       [] { plan(find_variant("naive"), make_problem(Dtype::f32, 64, 4), this_device(-5)); }, "CUDA"},
      {"a Hadamard matrix that nobody knows", [] { hadamard_matrix(13); }, "order 13"},
      {"a dense factor that is not orthogonal",
       [] {
         const std::vector<float> ones(9, 1.0F);
         check_dense(Operator{{Basis::dense, 3}}, Dtype::f32, ones.data());
       },
       "the dense factor of order 3"},
      {"no dense factor",
       [] {
         const Problem dense = make_problem(Dtype::f32, Operator{{Basis::dense, 3}}, 4);
         cpu_plan(dense)->execute(values(), values());
       },
       "dense is a null pointer"},
      // Codes and scales.
      {"a format that is none", [] { make_encoding(static_cast<CodeFormat>(99)); }, "format 99"},
      {"codes of no scale", [] { validate(make_encoding(CodeFormat::int8), 64); }, "names no scales"},
      {"a group below 0",
       [] {
         validate(make_encoding(CodeFormat::int8, {Granularity::group, -3}), 64);
       },
       "group=-3"},
      {"a token that is no multiple of n",
       [] {
         Encoding encoding = make_encoding(CodeFormat::int8, {Granularity::row});
         encoding.token = 96;
         validate(encoding, 64);
       },
       "96"},
      {"an encoding of words", [] { parse_encoding("f9:row"); }, "f9:row"},
      {"codes without scales",
       [=] {
         cpu_plan(codes)->execute({values(), values() + 1024});
       },
       "scales is a null pointer"},
      {"too few bytes for the scales",
       [=] {
         Operands operands{values(), values() + 1024, values() + 2048};
         operands.scales_bytes = 3;
         cpu_plan(codes)->execute(operands);
       },
       "scales has 3 bytes"},
      {"a scale of the tensor that no one asked for",
       [=] {
         Operands operands{values(), values() + 1024, values() + 2048};
         operands.tensor_scale = -1.0F;
         cpu_plan(codes)->execute(operands);
       },
       "tensor_scale=-1"},
      {"no pages",
       [=] {
         Problem problem = codes;
         problem.paging = Paging{1, 0};
         cpu_plan(problem);
       },
       "pages=0"},
      // What lies in front of the transform.
      {"a prologue that is none", [] { validate(Prologue{static_cast<Prologue::Kind>(99)}, 64, 4); }, "99"},
      {"a rope of odd width",
       [] {
         validate(Prologue{Prologue::Kind::rope, 3}, 64, 4);
       },
       "width=3"},
      {"heads that do not divide the rows",
       [] {
         validate(Prologue{Prologue::Kind::rope, 64, false, 3}, 64, 4);
       },
       "heads=3"},
      {"a prologue of words", [] { parse_problem("f16/n8/r1/rope6x"); }, "rope6x"},
      // Rows over several ranks.
      {"a form of words", [] { sharded::parse_form("ring"); }, "unknown form 'ring'"},
      {"three ranks", [] { sharded_problem(4096, 4, 3); }, "ranks=3"},
      {"no rows over ranks", [] { sharded_problem(4096, 0, 2); }, "rows=0"},
      {"columns that do not divide", [] { sharded_problem(4097, 4, 2); }, "n=4097"},
      {"a group of another size",
       [] {
         const auto alone = single_rank(Memory::host);
         sharded::ShardedPlan(sharded_problem(4096, 4, 2), *alone, find_variant("cpu"), this_device());
       },
       "2"},
      {"no shard",
       [] {
         const auto alone = single_rank(Memory::host);
         const sharded::ShardedPlan plan(sharded_problem(64, 4, 1), *alone, find_variant("cpu"),
                                         this_device());
         plan.execute(nullptr, values());
       },
       "in is a null pointer"},
      {"a rank that cannot take part",
       [] {
         agree(*single_rank(Memory::host), {"a problem", "it has no GPU"}, std::chrono::seconds(1));
       },
       "it has no GPU"},
      {"NCCL over no communicator", [] { nccl::adopt(nullptr, 2); }, ""},
      {"NCCL of rank 5 of 2",
       [] {
         nccl::connect({}, {5, 2, 0}, std::chrono::seconds(1));
       },
       ""},
  };
}

std::string refusal(const Misuse& misuse) {
  try {
    misuse.call();
  } catch (const BadRequest& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("not a BadRequest: ") + error.what();
  }
  return "accepted";
}

TEST(Misuse, IsOneBadRequestThatNamesTheValue) {
  for (const Misuse& misuse : misuses()) {
    const std::string said = refusal(misuse);
    EXPECT_NE(said, "accepted") << misuse.what;
    EXPECT_FALSE(said.starts_with("not a BadRequest")) << misuse.what << ": " << said;
    EXPECT_NE(said.find(misuse.said), std::string::npos) << misuse.what << ": " << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << misuse.what;
  }
}

TEST(Misuse, FromEightThreadsHarmsNoOtherCall) {
  constexpr int kThreads = 8, kRounds = 5;
  constexpr std::size_t kAlike = 4;  // further on a message may name an address
  const std::vector<Misuse> all = misuses();
  std::vector<std::string> expected;
  for (const Misuse& misuse : all)
    expected.push_back(refusal(misuse).substr(0, kAlike));
  const std::unique_ptr<Plan> shared = cpu_plan(make_problem(Dtype::f32, 64, 4));
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  std::vector<std::string> faults(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::string& fault = faults[static_cast<std::size_t>(thread)];
      start.arrive_and_wait();
      for (int round = 0; round < kRounds; ++round) {
        for (std::size_t i = 0; i < all.size(); ++i) {
          if (refusal(all[i]).substr(0, kAlike) != expected[i]) fault = all[i].what;
          // One plan may be executed by many threads; twice in a row gives the rows back.
          std::vector<float> rows(256);
          for (std::size_t k = 0; k < rows.size(); ++k)
            rows[k] = static_cast<float>(static_cast<int>(k % 7) - 3);
          const std::vector<float> before = rows;
          shared->execute(rows.data(), rows.data());
          shared->execute(rows.data(), rows.data());
          for (std::size_t k = 0; k < rows.size(); ++k) {
            if (rows[k] < before[k] - 1e-4F || rows[k] > before[k] + 1e-4F) fault = "a wrong result";
          }
        }
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const std::string& fault : faults)
    EXPECT_EQ(fault, "");
}

}  // namespace
}  // namespace fwht
