#include "variants/library/sharded/sharded.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <limits>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "common/device/memory.hpp"
#include "common/device/nccl.hpp"
#include "common/device/stream_query.hpp"
#include "common/host/error.hpp"
#include "common/host/host_ranks.hpp"
#include "common/host/text.hpp"
#include "common/testing/refusal.hpp"
#include "reference/operators.hpp"
#include "variants/library/sharded/moves.hpp"
#include "variants/registry.hpp"

namespace fwht::sharded {
namespace {

using namespace std::chrono_literals;
using Values = std::vector<std::int64_t>;

/// Small integers: every partial sum of n terms stays exact in fp32, and every result in the storage type.
Values integer_rows(std::int64_t rows, std::int64_t n, int most_nonzero) {
  Values x(static_cast<std::size_t>(rows * n));
  std::mt19937_64 random(static_cast<std::uint64_t>(rows * n));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int i = 0; i < most_nonzero; ++i) {
      x[static_cast<std::size_t>(row * n) + random() % static_cast<std::uint64_t>(n)] =
          static_cast<std::int64_t>(random() % 7) - 3;
    }
  }
  return x;
}

std::vector<std::byte> to_storage(const Values& values, Dtype dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(bytes_of(dtype)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto x = static_cast<float>(values[i]);
    if (dtype == Dtype::f32) {
      reinterpret_cast<float*>(bytes.data())[i] = x;
    } else {
      reinterpret_cast<std::uint16_t*>(bytes.data())[i] =
          dtype == Dtype::f16 ? float_to_f16(x) : float_to_bf16(x);
    }
  }
  return bytes;
}

float from_storage(const std::vector<std::byte>& bytes, std::size_t i, Dtype dtype) {
  if (dtype == Dtype::f32) return reinterpret_cast<const float*>(bytes.data())[i];
  const std::uint16_t bits = reinterpret_cast<const std::uint16_t*>(bytes.data())[i];
  return dtype == Dtype::f16 ? f16_to_float(bits) : bf16_to_float(bits);
}

/// What the ranks compute together, unnormalised, in exact integers.
Values exact_result(const ShardedProblem& problem, const Values& x) {
  const bool blocks = problem.form == ShardedForm::block_diagonal;
  const reference::ExactOperator op(blocks ? problem.local : whole_operator(problem));
  const std::int64_t width = blocks ? problem.shard() : problem.n;
  reference::IntMatrix rows(static_cast<std::int64_t>(x.size()) / width, width);
  for (std::size_t i = 0; i < x.size(); ++i)
    rows(static_cast<std::int64_t>(i) / width, static_cast<std::int64_t>(i) % width) = x[i];
  op.apply(rows, 1);
  Values y(x.size());
  for (std::size_t i = 0; i < y.size(); ++i)
    y[i] = rows(static_cast<std::int64_t>(i) / width, static_cast<std::int64_t>(i) % width);
  return y;
}

constexpr ShardedForm kForms[] = {ShardedForm::block_diagonal, ShardedForm::all_to_all, ShardedForm::gather};

/// In every form; all_to_all by both exchanges.
std::vector<ShardedProblem> integer_problems(Dtype dtype, std::int64_t n, std::int64_t rows, int ranks) {
  std::vector<ShardedProblem> problems;
  const auto add = [&](ShardedForm form, Exchange exchange) {
    ShardedProblem problem = make_sharded_problem(form, dtype, n, rows, ranks);
    problem.scale = problem.mix_scale = 1.0;
    problem.exchange = exchange;
    problems.push_back(problem);
  };
  for (const ShardedForm form : kForms)
    add(form, Exchange::pieces);
  add(ShardedForm::all_to_all, Exchange::rows);
  return problems;
}

/// Transforms this rank's share of `x` and compares every element with the exact whole.
void expect_exact(const ShardedProblem& problem, Communicator& communicator, const Variant& variant,
                  const DeviceInfo& device, const Values& x, const Values& expected, int executions = 1) {
  const ShardedPlan plan(problem, communicator, variant, device, 20s);
  Values mine;
  for (std::int64_t row = 0; row < problem.rows; ++row) {
    for (std::int64_t i = 0; i < problem.shard(); ++i)
      mine.push_back(
          x[static_cast<std::size_t>(row * problem.n + communicator.rank() * problem.shard() + i)]);
  }
  const std::vector<std::byte> input = to_storage(mine, problem.dtype);
  Buffer in(communicator.memory(), input.size()), out(communicator.memory(), input.size());
  in.upload(input.data(), input.size());
  for (int execution = 0; execution < executions; ++execution) {
    out.poison();
    plan.execute(in.data(), out.data());
    communicator.finish(nullptr, 20s);
    std::vector<std::byte> output(input.size());
    out.download(output.data(), output.size());
    std::int64_t wrong = 0;
    for (std::int64_t row = 0; row < problem.rows; ++row) {
      for (std::int64_t i = 0; i < problem.shard(); ++i) {
        const std::int64_t column = result_column(problem, communicator.rank(), i);
        const float y =
            from_storage(output, static_cast<std::size_t>(row * problem.shard() + i), problem.dtype);
        wrong += !(y == static_cast<float>(expected[static_cast<std::size_t>(row * problem.n + column)]));
      }
    }
    EXPECT_EQ(wrong, 0) << "rank " << communicator.rank() << " of " << to_string(problem);
    EXPECT_TRUE(in.guards_intact() && out.guards_intact());
  }
}

TEST(Sharded, ResultColumnsAreEveryColumnOnce) {
  for (const ShardedForm form : kForms) {
    for (const int ranks : {1, 2, 4, 8}) {
      const ShardedProblem problem = make_sharded_problem(form, Dtype::f16, 28672, 3, ranks);
      std::vector<int> seen(28672);
      for (int rank = 0; rank < ranks; ++rank) {
        for (std::int64_t i = 0; i < problem.shard(); ++i)
          ++seen[static_cast<std::size_t>(result_column(problem, rank, i))];
      }
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 28672) << name_of(form) << " over " << ranks;
    }
  }
}

TEST(Sharded, SimulatedRanksGiveTheExactWhole) {
  for (const int ranks : {1, 2, 4, 8}) {
    for (const std::int64_t n :
         {std::int64_t{28672}, std::int64_t{24576}, std::int64_t{4096}, std::int64_t{1536}}) {
      const Dtype dtype = n == 4096 ? Dtype::f32 : n == 1536 ? Dtype::bf16 : Dtype::f16;
      const std::int64_t rows = n == 4096 ? 1 : 3;
      for (const ShardedProblem& problem : integer_problems(dtype, n, rows, ranks)) {
        const Values x = integer_rows(rows, n, 40), expected = exact_result(problem, x);
        HostRanks group(ranks, 20s);
        run_ranks(ranks, group.meeting(), [&](int rank) {
          DeviceInfo here = this_device();
          here.host_threads = 1;
          expect_exact(problem, group.communicator(rank), find_variant("cpu"), here, x, expected);
        });
      }
    }
  }
}

TEST(Sharded, TheScaleOfTheSumIsThatOfOneRankToo) {
  for (const int ranks : {1, 2}) {
    ShardedProblem problem = make_sharded_problem(ShardedForm::all_to_all, Dtype::f32, 64, 1, ranks);
    problem.scale = 1.0;
    problem.mix_scale = 4.0;
    HostRanks group(ranks, 5s);
    run_ranks(ranks, group.meeting(), [&](int rank) {
      const ShardedPlan plan(problem, group.communicator(rank), find_variant("cpu"), this_device(), 5s);
      const auto count = static_cast<std::size_t>(problem.shard());
      Buffer in(Memory::host, 4 * count), out(Memory::host, 4 * count);
      std::fill_n(reinterpret_cast<float*>(in.data()), count, 0.0F);
      if (rank == 0) *reinterpret_cast<float*>(in.data()) = 1.0F;
      plan.execute(in.data(), out.data());
      for (std::size_t i = 0; i < count; ++i)
        EXPECT_EQ(reinterpret_cast<const float*>(out.data())[i], 4.0F) << ranks;
    });
  }
}

TEST(Sharded, FormsAreTheOperatorsThatTheyName) {
  EXPECT_EQ(
      fwht::to_string(whole_operator(make_sharded_problem(ShardedForm::all_to_all, Dtype::f16, 28672, 1, 4))),
      "4x28x256");
  EXPECT_EQ(
      fwht::to_string(whole_operator(make_sharded_problem(ShardedForm::gather, Dtype::f16, 28672, 1, 4))),
      "28x1024");
  const ShardedProblem four_factors = make_sharded_problem(ShardedForm::all_to_all, Dtype::f16, 53760, 1, 2);
  EXPECT_EQ(four_factors.local, parse_operator("60x8x28x2"));
  EXPECT_THROW(whole_operator(four_factors), BadRequest);
  EXPECT_EQ(make_sharded_problem(ShardedForm::all_to_all, Dtype::f16, 28672, 1, 2).local,
            parse_operator("28x512"));
  const ShardedProblem problem = make_sharded_problem(ShardedForm::all_to_all, Dtype::f16, 24576, 16, 4);
  EXPECT_NEAR(problem.scale * problem.mix_scale, orthonormal_scale(24576), 1e-18);
  for (const ShardedForm form : kForms)
    EXPECT_EQ(parse_form(name_of(form)), form);
}

std::string refusal(const ShardedProblem& problem) {
  return bad_request_of([&] { validate(problem); });
}

TEST(Sharded, RefusesWhatDoesNotDivide) {
  const auto why = [](ShardedForm form, std::int64_t n, int ranks) {
    return bad_request_of([&] { make_sharded_problem(form, Dtype::f16, n, 1, ranks); });
  };
  EXPECT_EQ(why(ShardedForm::all_to_all, 28672, 3), "ranks=3 must be a power of two up to 16");
  EXPECT_EQ(why(ShardedForm::all_to_all, 28672, 32), "ranks=32 must be a power of two up to 16");
  EXPECT_EQ(why(static_cast<ShardedForm>(9), 64, 4), "unknown form 9 of a transform over ranks");
  EXPECT_EQ(why(ShardedForm::gather, 1001, 2), "n=1001 is not divisible by ranks=2");
  EXPECT_EQ(why(ShardedForm::all_to_all, 40, 4),
            "a shard of 10 columns is not divisible by ranks=4, as all_to_all needs");
  EXPECT_EQ(why(ShardedForm::all_to_all, 64, 4), "pieces of 4 columns of f16 are no multiple of 16 bytes");
  EXPECT_EQ(why(ShardedForm::block_diagonal, 64, 4), "");
  ShardedProblem problem = make_sharded_problem(ShardedForm::all_to_all, Dtype::f16, 28672, 1, 4);
  problem.local = Operator::sylvester(4096);
  EXPECT_EQ(refusal(problem), "the local operator has order 4096, the rows have 7168");
  problem = make_sharded_problem(ShardedForm::all_to_all, Dtype::f16, 28672, 1, 4);
  problem.rows = 0;
  EXPECT_EQ(refusal(problem), "rows=0 must be at least 1");
  problem = make_sharded_problem(ShardedForm::all_to_all, Dtype::f16, 28672, 1, 4);
  problem.mix_scale = 1e300;
  EXPECT_EQ(refusal(problem), "mix_scale=1e+300 is not finite in fp32");
  problem.mix_scale = 1;
  problem.exchange = static_cast<Exchange>(7);
  EXPECT_EQ(refusal(problem), "unknown exchange 7 of a transform over ranks");
  constexpr std::int64_t kMany = std::numeric_limits<std::int64_t>::max() / 2;
  EXPECT_EQ(bad_request_of([] { make_sharded_problem(ShardedForm::all_to_all, Dtype::f16, 4096, kMany, 2); }),
            concat("rows=", kMany, " times n=4096 must be below 2^59"));
  EXPECT_THROW(parse_form("ring"), BadRequest);
}

/// What every rank says; empty where ranks say different things or one goes on.
std::string said_by_all(int ranks, const std::function<void(int, Communicator&)>& body) {
  HostRanks group(ranks, 5s);
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  run_ranks(ranks, group.meeting(), [&](int rank) {
    try {
      body(rank, group.communicator(rank));
    } catch (const BadRequest& error) {
      said[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  for (const std::string& text : said) {
    if (text != said[0]) return "";
  }
  return said[0];
}

TEST(Sharded, EveryRankSaysWhatIsWrongOnOne) {
  const Variant& cpu = find_variant("cpu");
  const DeviceInfo here = this_device();
  EXPECT_EQ(said_by_all(4,
                        [&](int, Communicator& c) {
                          ShardedPlan(make_sharded_problem(ShardedForm::all_to_all, Dtype::f16, 4096, 2, 2),
                                      c, cpu, here, 5s);
                        }),
            "rank 0: the communicator has 4 ranks, the problem is for 2");
  EXPECT_NE(said_by_all(2,
                        [&](int rank, Communicator& c) {
                          ShardedPlan(
                              make_sharded_problem(ShardedForm::all_to_all, Dtype::f16, 4096, 2 + rank, 2), c,
                              cpu, here, 5s);
                        })
                .find("the ranks have different problems: rank 0 has all_to_all/f16/n4096/r2/t2"),
            std::string::npos);
  // A GPU that is missing on one rank: its description says so.
  EXPECT_EQ(said_by_all(2,
                        [&](int rank, Communicator& c) {
                          ShardedPlan(make_sharded_problem(ShardedForm::gather, Dtype::f16, 4096, 2, 2), c,
                                      rank == 1 ? find_variant("auto") : cpu, here, 5s);
                        }),
            "rank 1: the variant auto does not work on the memory of this communicator");
}

TEST(Sharded, RefusesMemoryBeforeAnythingIsEnqueued) {
  const DeviceInfo here = this_device();
  for (const auto& [form, ranks] : {std::pair{ShardedForm::all_to_all, 2},
                                    {ShardedForm::gather, 2},
                                    {ShardedForm::block_diagonal, 2},
                                    {ShardedForm::all_to_all, 1}}) {
    const ShardedProblem problem = make_sharded_problem(form, Dtype::f16, 4096, 2, ranks);
    const auto said = [&](std::size_t at_in, std::size_t at_out, bool null) {
      return said_by_all(problem.ranks, [&](int, Communicator& c) {
        const ShardedPlan plan(problem, c, find_variant("cpu"), here, 5s);
        Buffer memory(Memory::host, static_cast<std::size_t>(4 * problem.shard_bytes()));
        auto* const base = static_cast<std::byte*>(memory.data());
        try {
          plan.execute(base + at_in, null ? nullptr : base + at_out);
        } catch (const BadRequest& error) {  // every rank has addresses of its own
          throw BadRequest(std::regex_replace(error.what(), std::regex("0x[0-9a-f]+"), "ADDRESS"));
        }
      });
    };
    const auto shard = static_cast<std::size_t>(problem.shard_bytes());
    EXPECT_EQ(said(0, 0, true), "out is a null pointer");
    EXPECT_TRUE(said(2, 2 * shard, false).ends_with("must be aligned to 16 bytes"));
    EXPECT_TRUE(said(0, shard - 16, false).ends_with("bytes each, overlap"));
  }
}

TEST(Sharded, SignsOfTheSumAreThoseOfSylvester) {
  // in[r][row][j] = 2^r tells apart which ranks were added with which sign.
  for (const int ranks : {1, 2, 4, 8}) {
    const std::int64_t rows = 2, width = 8;
    Values x;
    for (int r = 0; r < ranks; ++r)
      x.insert(x.end(), static_cast<std::size_t>(rows * width), std::int64_t{1} << r);
    const std::vector<std::byte> in = to_storage(x, Dtype::f32);
    std::vector<std::byte> out(in.size());
    const Parts parts{ranks, rows, width, rows * width, width};
    add_with_signs(Memory::host, Dtype::f32, in.data(), out.data(), parts, 1.0F, false, nullptr);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto s = static_cast<unsigned>(static_cast<std::int64_t>(i) / width % ranks);
      float expected = 0.0F;
      for (unsigned r = 0; r < static_cast<unsigned>(ranks); ++r)
        expected += (std::popcount(s & r) % 2 == 0 ? 1.0F : -1.0F) * static_cast<float>(1U << r);
      EXPECT_EQ(from_storage(out, i, Dtype::f32), expected) << "position " << i << " of " << ranks;
    }
  }
}

// Two and more GPUs of one process, a thread each.
class ShardedGpu : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string why = nccl::why_not(); !why.empty()) GTEST_SKIP() << why;
    const DeviceInfo last = this_device(GetParam() - 1);
    if (!last.has_cuda()) GTEST_SKIP() << last.why_no_cuda;
  }
};

TEST_P(ShardedGpu, GivesTheExactWholeTwoHundredTimes) {
  const int ranks = GetParam();
  const nccl::UniqueId id = nccl::make_unique_id();
  RankMeeting meeting(ranks);
  run_ranks(ranks, meeting, [&](int rank) {
    const DeviceInfo device = this_device(rank);
    const DeviceScope scope(rank);
    const auto communicator =
        nccl::connect(id, {rank, ranks, rank}, 60s, [&meeting] { return meeting.reason(); });
    for (const std::int64_t n : {std::int64_t{28672}, std::int64_t{12288}, std::int64_t{4096}}) {
      for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{5}, std::int64_t{16}}) {
        for (const ShardedProblem& problem :
             integer_problems(n == 4096 ? Dtype::bf16 : Dtype::f16, n, rows, ranks)) {
          if (problem.form != ShardedForm::gather || rows == 16) {
            const Values x = integer_rows(rows, n, 24), expected = exact_result(problem, x);
            expect_exact(problem, *communicator, find_variant("auto"), device, x, expected,
                         n == 28672 && rows == 16 ? 200 : 3);
          }
        }
      }
    }
  });
}

TEST_P(ShardedGpu, ARankThatStaysAwayEndsTheOthersWithinTheLimit) {
  const int ranks = GetParam();
  if (ranks == 1) GTEST_SKIP() << "nobody can stay away from one rank";
  const nccl::UniqueId id = nccl::make_unique_id();
  RankMeeting meeting(ranks);
  std::string said_by_rank_0;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(run_ranks(ranks, meeting,
                         [&](int rank) {
                           const DeviceScope scope(rank);
                           const auto communicator = nccl::connect(id, {rank, ranks, rank}, 60s);
                           std::string what = "stayed away";
                           if (rank != 1) {
                             Buffer data(Memory::device, 4096);
                             communicator->all_reduce(data.data(), 1024, Dtype::f32, nullptr);
                             try {
                               communicator->finish(nullptr, 2s);
                             } catch (const std::runtime_error& error) {
                               what = error.what();
                             }
                             if (rank == 0) said_by_rank_0 = what;
                           }
                           meeting.arrive(60s);
                           throw std::runtime_error(what);
                         }),
               std::runtime_error);
  EXPECT_EQ(said_by_rank_0,
            "rank 0 of " + std::to_string(ranks) + ": the work enqueued was not done within 2000 ms");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 60s);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShardedGpu, testing::Values(1, 2, 4, 8));

}  // namespace
}  // namespace fwht::sharded
