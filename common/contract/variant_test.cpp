#include "common/contract/variant.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/host/error.hpp"
#include "common/host/text.hpp"
#include "common/testing/refusal.hpp"

namespace fwht {
namespace {

// Counts how often work reached it, so that a refusal can be told from a silent success.
class RecordingPlan final : public Plan {
 public:
  RecordingPlan(const Problem& problem, std::size_t alignment) : Plan(problem), alignment_(alignment) {}
  std::size_t alignment() const override { return alignment_; }
  Numerics numerics() const override { return {}; }
  Settings settings() const override { return {}; }
  std::int64_t scratch_bytes() const override { return scratch; }
  std::int64_t scratch = 0;
  mutable int enqueued = 0;
  mutable const void* last_in = nullptr;

 private:
  void enqueue(const Operands& operands, Stream) const override {
    ++enqueued;
    last_in = operands.in;
  }
  std::size_t alignment_;
};

alignas(256) std::array<std::byte, 1024> memory;

std::optional<std::string> refusal(const Plan& plan, const void* in, void* out) {
  try {
    plan.execute(in, out);
  } catch (const BadRequest& error) {
    return error.what();
  }
  return std::nullopt;
}

bool says(const std::optional<std::string>& message, std::string_view part) {
  return message && message->find(part) != std::string::npos;
}

TEST(Plan, PassesGoodPointersOn) {
  const RecordingPlan in_place(make_problem(Dtype::f16, 8, 4), 16);
  in_place.execute(memory.data(), memory.data());
  EXPECT_EQ(in_place.enqueued, 1);
  EXPECT_EQ(in_place.last_in, memory.data());
  const RecordingPlan apart(make_problem(Dtype::f16, 8, 4, Placement::out_of_place), 16);
  apart.execute(memory.data(), memory.data() + 64);  // 4 rows of 16 bytes: adjacent, not overlapping
  apart.execute(memory.data() + 64, memory.data());
  EXPECT_EQ(apart.enqueued, 2);
}

TEST(Plan, ThreadsThatShareWhatAPlanOwnsEnqueueOneAfterTheOther) {
  class OwningPlan final : public Plan {
   public:
    explicit OwningPlan(const Problem& problem) : Plan(problem) {}
    bool one_stream_at_a_time() const override { return true; }
    Numerics numerics() const override { return {}; }
    Settings settings() const override { return {}; }
    mutable std::atomic<int> inside = 0, most = 0;

   private:
    void enqueue(const Operands&, Stream) const override {
      most = std::max<int>(most, ++inside);
      std::this_thread::sleep_for(std::chrono::microseconds(100));  // for others to come in, if they can
      --inside;
    }
  };
  const OwningPlan plan(make_problem(Dtype::f16, 8, 4));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int execution = 0; execution < 20; ++execution)
        plan.execute(memory.data(), memory.data());
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(plan.most, 1);
}

TEST(Plan, NoRowsDoNothingWhateverThePointers) {
  const RecordingPlan plan(make_problem(Dtype::f32, 8, 0), 16);
  EXPECT_EQ(refusal(plan, nullptr, nullptr), std::nullopt);
  EXPECT_EQ(refusal(plan, memory.data() + 1, nullptr), std::nullopt);
  EXPECT_EQ(plan.enqueued, 0);
}

TEST(Plan, RefusesNullPointers) {
  const RecordingPlan plan(make_problem(Dtype::f16, 8, 4, Placement::out_of_place), 2);
  EXPECT_TRUE(says(refusal(plan, nullptr, memory.data()), "in is a null pointer"));
  EXPECT_TRUE(says(refusal(plan, memory.data(), nullptr), "out is a null pointer"));
  EXPECT_EQ(plan.enqueued, 0);
}

TEST(Plan, RefusesPointersThatMissItsAlignment) {
  const RecordingPlan plan(make_problem(Dtype::f16, 8, 4, Placement::out_of_place), 16);
  EXPECT_TRUE(says(refusal(plan, memory.data() + 2, memory.data() + 512), "16 bytes for f16/n8/r4/out"));
  EXPECT_TRUE(says(refusal(plan, memory.data(), memory.data() + 512 + 8), "out="));
  EXPECT_EQ(plan.enqueued, 0);
  const RecordingPlan loose(make_problem(Dtype::f16, 8, 4, Placement::out_of_place), 2);
  EXPECT_EQ(refusal(loose, memory.data() + 2, memory.data() + 512 + 8), std::nullopt);
}

TEST(Plan, DefaultAlignmentIsTheElementSize) {
  class Plain final : public Plan {
   public:
    using Plan::Plan;
    explicit Plain(Dtype dtype) : Plan(make_problem(dtype, 8, 1)) {}
    Numerics numerics() const override { return {}; }
    Settings settings() const override { return {}; }

   private:
    void enqueue(const Operands&, Stream) const override {}
  };
  EXPECT_EQ(Plain(Dtype::f16).alignment(), 2U);
  EXPECT_EQ(Plain(Dtype::bf16).alignment(), 2U);
  EXPECT_EQ(Plain(Dtype::f32).alignment(), 4U);
}

TEST(Plan, InPlaceMeansOnePointer) {
  const RecordingPlan plan(make_problem(Dtype::f16, 8, 4), 2);
  EXPECT_TRUE(says(refusal(plan, memory.data(), memory.data() + 512), "in-place problem f16/n8/r4"));
  EXPECT_EQ(plan.enqueued, 0);
}

TEST(Plan, OutOfPlaceRefusesAnyOverlap) {
  Problem problem = make_problem(Dtype::f16, 8, 4, Placement::out_of_place);
  problem.set_row_stride(10);  // span: 3 * 10 + 8 = 38 elements = 76 bytes
  const RecordingPlan plan(problem, 2);
  std::byte* middle = memory.data() + 512;
  for (const int distance : {0, 2, 16, 20, 74}) {
    EXPECT_TRUE(says(refusal(plan, middle, middle + distance), "76 bytes")) << distance;
    EXPECT_TRUE(says(refusal(plan, middle + distance, middle), "overlap")) << distance;
  }
  EXPECT_EQ(plan.enqueued, 0);
  EXPECT_EQ(refusal(plan, middle, middle + 76), std::nullopt);
  EXPECT_EQ(refusal(plan, middle + 76, middle), std::nullopt);
  EXPECT_EQ(plan.enqueued, 2);
}

TEST(Plan, RowsMayLieBetweenEachOther) {
  Problem problem = make_problem(Dtype::f16, 8, 4, Placement::out_of_place);
  problem.set_row_stride(24);  // 48 bytes, of which a row has 16
  const RecordingPlan plan(problem, 2);
  std::byte* middle = memory.data() + 512;
  for (const int distance : {16, 20, 32, 48 + 16, 96 + 32, -16, -32, -48 - 20})
    EXPECT_EQ(refusal(plan, middle, middle + distance), std::nullopt) << distance;
  for (const int distance : {0, 2, 14, 34, 46, 48, -2, -14, -34, -48, 48 + 14})
    EXPECT_TRUE(says(refusal(plan, middle, middle + distance), "overlap")) << distance;
  problem.out.row_stride = 32;
  EXPECT_TRUE(says(refusal(RecordingPlan(problem, 2), middle, middle + 16), "overlap"));
}

int plans_made = 0;

const Variant kPicky{"picky", "supports n=8 only", Memory::host,
                     [](const Problem& problem, const DeviceInfo&) -> Support {
                       if (problem.n() == 8) return {};
                       return {"n=" + std::to_string(problem.n()) + " must be 8"};
                     },
                     [](const Problem& problem, const DeviceInfo&) -> std::unique_ptr<Plan> {
                       ++plans_made;
                       return std::make_unique<RecordingPlan>(problem, 2);
                     }};

TEST(PlanFunction, ValidatesThenAsksThenMakes) {
  plans_made = 0;
  const DeviceInfo device;
  EXPECT_EQ(plan(kPicky, make_problem(Dtype::f16, 8, 1), device)->problem().n(), 8);
  EXPECT_EQ(plans_made, 1);
  try {
    plan(kPicky, make_problem(Dtype::f16, 16, 1), device);
    FAIL() << "an unsupported problem got a plan";
  } catch (const BadRequest& error) {
    EXPECT_STREQ(error.what(), "picky: n=16 must be 8");
  }
  EXPECT_THROW(plan(kPicky, make_problem(Dtype::f16, 8, -1), device), BadRequest);
  Problem narrow = make_problem(Dtype::f16, 8, 1);
  narrow.set_row_stride(4);
  EXPECT_THROW(plan(kPicky, narrow, device), BadRequest);
  EXPECT_EQ(plans_made, 1) << "make_plan was reached with an invalid or unsupported problem";
}

// What fwht_sweep refuses must not keep it from the rest of a trace.
TEST(Trace, HasBlocksOfWhatIsTimedAndCommentsOfTheRest) {
  EXPECT_EQ(Transforms::grid_block(parse_problem("f16/n64/r3"), Memory::host),
            "[f16/n64/r3]\nproblem = f16/n64/r3\nmode = host\n");
  EXPECT_TRUE(Transforms::grid_block(parse_problem("bf16/128+signs/r4/out/rms>e4m3:row"), Memory::device)
                  .ends_with("\nmode = replay\n"));
  for (const char* text : {"f16/d4/r3", "f16/64+signs/r3"}) {
    EXPECT_EQ(Transforms::grid_block(parse_problem(text), Memory::host),
              concat("[", text, "]\nproblem = ", text, "\nmode = host\n"));
  }
  for (const char* text : {"f16/n64/r0", "bf16/n128/r4/rms", "bf16/128+signs/r4/out>e4m3:row/f32",
                           "bf16/d28x128/r4/out>e4m3:row/f32"}) {
    EXPECT_EQ(Transforms::grid_block(parse_problem(text), Memory::device),
              "# not timed by fwht_sweep: " + std::string(text) + "\n");
  }
}

TEST(Support, RequireCuda) {
  DeviceInfo none;
  none.why_no_cuda = "no CUDA device: for this test";
  EXPECT_EQ(require_cuda(none).why_not, "no CUDA device: for this test");
  EXPECT_TRUE(require_cuda(a100_description()));
  EXPECT_TRUE(require_cuda(h200_description(), 90));
  EXPECT_EQ(require_cuda(a100_description(), 90).why_not,
            "NVIDIA A100 (described) has compute capability 8.0, at least 9.0 is needed");
}

TEST(Support, RequireSylvester) {
  const auto why_not = [](const Problem& problem) { return require_sylvester(problem, 2, 32768).why_not; };
  EXPECT_EQ(why_not(make_problem(Dtype::f16, 2, 1)), "");
  EXPECT_EQ(why_not(make_problem(Dtype::f16, 32768, 1)), "");
  for (const std::int64_t n : {-2, 0, 1, 3, 12, 65536}) {
    EXPECT_EQ(why_not(make_problem(Dtype::f16, n, 1)),
              "n=" + std::to_string(n) + " must be a power of two between 2 and 32768");
  }
  EXPECT_EQ(why_not(parse_problem("f16/28x512/r64")),
            "the operator 28x512 is not offered by this variant, which takes n = 2^k from 2 to 32768");
  EXPECT_EQ(why_not(make_problem(Dtype::f16, Operator::sylvester(64).with_signs(), 1)),
            "the operator 64+signs is not offered by this variant, which takes n = 2^k from 2 to 32768");
  EXPECT_EQ(why_not(parse_problem("bf16/n4096/r8>e4m3:row")),
            "the encoding e4m3:row is not offered by this variant");
  EXPECT_EQ(why_not(parse_problem("f32/n4096/r8/out/to-bf16")),
            "input in f32 and output in bf16 are not offered by this variant");
  EXPECT_EQ(why_not(make_problem(Dtype::f64, 64, 1)), "f64 data are not offered by this variant");
  constexpr Dtype kWide[] = {Dtype::f32, Dtype::f64};
  EXPECT_TRUE(require_sylvester(make_problem(Dtype::f64, 64, 1), 2, 64, kWide));
  EXPECT_EQ(require_sylvester(make_problem(Dtype::f16, 64, 1), 2, 64, kWide).why_not,
            "f16 data are not offered by this variant");
}

TEST(Support, RequireOneRowStride) {
  EXPECT_TRUE(require_one_row_stride(parse_problem("f16/n8/r2/out/ld16")));
  EXPECT_EQ(require_one_row_stride(parse_problem("f16/n8/r2/out/ld16/ldo8")).why_not,
            "row_stride=16 of the input and 8 of the output must be equal for this variant");
}

TEST(Plan, ChecksTheOperandsThatItsProblemNeeds) {
  const RecordingPlan encoded(parse_problem("bf16/n8/r4>e4m3:row"), 2);
  EXPECT_TRUE(says(refusal(encoded, memory.data(), memory.data() + 512), "scales is a null pointer"));
  Operands operands{memory.data(), memory.data() + 512};
  operands.scales = memory.data() + 768;
  encoded.execute(operands);
  EXPECT_EQ(encoded.enqueued, 1);
  // Codes are half as long as what they stand for, so they may begin where the input's 64 bytes end.
  operands.out = memory.data() + 64;
  encoded.execute(operands);
  operands.out = memory.data() + 62;
  EXPECT_THROW(encoded.execute(operands), BadRequest);
  EXPECT_EQ(encoded.enqueued, 2);

  const RecordingPlan plain(make_problem(Dtype::f16, 8, 4), 2);
  operands.out = memory.data();
  EXPECT_THROW(plain.execute(operands), BadRequest);
  const RecordingPlan signs(make_problem(Dtype::f16, Operator::sylvester(8).with_signs(), 4), 2);
  EXPECT_TRUE(says(refusal(signs, memory.data(), memory.data()), "signs is a null pointer"));
  const RecordingPlan dense(parse_problem("f16/d3x8/r1"), 2);
  EXPECT_TRUE(says(refusal(dense, memory.data(), memory.data()), "dense is a null pointer"));
}

TEST(Plan, WhatAnOperatorReadsIsAligned) {
  const auto refusal_of = [](const char* problem, const void* signs, const void* entries) {
    const RecordingPlan plan(parse_problem(problem), 2);
    Operands operands{memory.data(), memory.data()};
    operands.signs = signs, operands.dense = entries;
    return bad_request_of([&] { plan.execute(operands); });
  };
  const std::byte* const at = memory.data() + 512;
  for (const int byte : {1, 2, 3}) {
    EXPECT_NE(refusal_of("f16/8+signs/r4", at + byte, nullptr)
                  .find("must be aligned to 4 bytes for f16/8+signs/r4"),
              std::string::npos);
  }
  EXPECT_EQ(refusal_of("f16/8+signs/r4", at + 4, nullptr), "");
  EXPECT_NE(refusal_of("f16/d2x8/r1", nullptr, at + 1).find("must be aligned to 2 bytes for f16/d2x8/r1"),
            std::string::npos);
  EXPECT_EQ(refusal_of("f16/d2x8/r1", nullptr, at + 2), "");
}

TEST(Plan, ChecksTheOperandsOfAPrologue) {
  const RecordingPlan norm(parse_problem("bf16/n8/r4/rms>e4m3:row"), 2);
  Operands operands{memory.data(), memory.data() + 256, memory.data() + 512};
  const auto refusal_of = [](const Plan& plan, const Operands& given) -> std::string {
    return bad_request_of([&] { plan.execute(given); });
  };
  EXPECT_NE(refusal_of(norm, operands).find("weight is a null pointer"), std::string::npos);
  operands.prepared.weight = memory.data() + 768;
  for (const float bad : {-1e-6F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    operands.prepared.epsilon = bad;
    EXPECT_NE(refusal_of(norm, operands).find("must be finite and not negative"), std::string::npos) << bad;
  }
  EXPECT_EQ(norm.enqueued, 0);
  operands.prepared.epsilon = 0.0F;
  EXPECT_EQ(refusal_of(norm, operands), "");

  const RecordingPlan rope(parse_problem("bf16/n8/r4/rope4>e4m3:row"), 2);
  EXPECT_NE(refusal_of(rope, operands).find("weight is given, but"), std::string::npos);
  operands.prepared.weight = nullptr;
  EXPECT_NE(refusal_of(rope, operands).find("cos_sin is a null pointer"), std::string::npos);
  operands.prepared.cos_sin = reinterpret_cast<const float*>(memory.data());
  EXPECT_NE(refusal_of(rope, operands).find("positions is a null pointer"), std::string::npos);
  operands.prepared.positions = reinterpret_cast<const std::int64_t*>(memory.data());
  operands.prepared.epsilon = 0.5F;
  EXPECT_NE(refusal_of(rope, operands).find("epsilon=0.5 is given, but"), std::string::npos);
  operands.prepared.epsilon = 0.0F;
  EXPECT_EQ(refusal_of(rope, operands), "");
}

// A kernel reads its operands while others of the grid write: not only `in` must lie apart.
TEST(Plan, WritesOnNoOperand) {
  std::byte *const in = memory.data(), *const out = in + 256, *const scales = in + 512,
                   *const apart = in + 768;
  const auto expect_apart = [&](const char* text, auto&& place, Operands operands = {}) {
    RecordingPlan plan(parse_problem(text), 2);
    plan.scratch = 16;
    operands.in = in;
    operands.out = out;
    operands.scales = writes_scales(plan.problem().encoding) && !plan.problem().paging ? scales : nullptr;
    operands.scratch = apart;
    const auto refusal_at = [&](std::byte* at) {
      Operands given = operands;
      place(given, at);
      return bad_request_of([&] { plan.execute(given); });
    };
    EXPECT_EQ(refusal_at(apart + 128), "") << text;
    for (const void* written : {operands.out, operands.scales, operands.scratch}) {
      if (written == nullptr) continue;
      std::byte* const at = in + (static_cast<const std::byte*>(written) - in);
      EXPECT_NE(refusal_at(at).find(" overlap: of "), std::string::npos) << text << at - in;
    }
  };
  expect_apart("bf16/n8/r4/rms>e4m3:row", [](Operands& to, const void* at) { to.prepared.weight = at; });
  const auto* const numbers = reinterpret_cast<const float*>(apart + 192);
  const auto* const places = reinterpret_cast<const std::int64_t*>(apart + 192);
  Operands rope;
  rope.prepared.positions = places;
  expect_apart(
      "bf16/n8/r4/rope4>e4m3:row",
      [](Operands& to, void* at) { to.prepared.cos_sin = static_cast<const float*>(at); }, rope);
  rope.prepared = {.cos_sin = numbers};
  expect_apart(
      "bf16/n8/r4/rope4>e4m3:row",
      [](Operands& to, void* at) { to.prepared.positions = static_cast<const std::int64_t*>(at); }, rope);
  expect_apart("bf16/n8/r4/page4x1>e4m3:row",
               [](Operands& to, void* at) { to.prepared.slots = static_cast<const std::int64_t*>(at); });
  expect_apart("f16/8+signs/r4/out>int8:row", [](Operands& to, const void* at) { to.signs = at; });
  expect_apart("f16/d2x8/r4/out>int8:row", [](Operands& to, const void* at) { to.dense = at; });
  expect_apart("bf16/n32/r1>nvfp4",
               [](Operands& to, void* at) { to.tensor_scale_at = static_cast<const float*>(at); });

  RecordingPlan lent(parse_problem("bf16/n8/r4/out"), 2);
  lent.scratch = 16;
  Operands operands{in, out};
  for (std::byte* const scratch : {in, out}) {
    operands.scratch = scratch;
    EXPECT_NE(bad_request_of([&] { lent.execute(operands); }).find("scratch="), std::string::npos);
  }
}

TEST(Plan, PositionsAndSlotsAreWholeNumbersInMemory) {
  const auto at = [](std::int64_t byte) {
    return reinterpret_cast<const std::int64_t*>(memory.data() + 768 + byte);
  };
  const RecordingPlan rope(parse_problem("bf16/n8/r4/rope4>e4m3:row"), 2);
  const RecordingPlan paged(parse_problem("bf16/n8/r4/page4x1>e4m3:row"), 2);
  for (const std::int64_t byte : {4, 8, 1}) {
    Operands operands{memory.data(), memory.data() + 256, memory.data() + 512};
    operands.prepared.cos_sin = reinterpret_cast<const float*>(memory.data());
    operands.prepared.positions = at(byte);
    const std::string of_rope = bad_request_of([&] { rope.execute(operands); });
    operands = {memory.data(), memory.data() + 256};
    operands.prepared.slots = at(byte);
    const std::string of_pages = bad_request_of([&] { paged.execute(operands); });
    for (const std::string& said : {of_rope, of_pages})
      EXPECT_EQ(said.find("must be aligned to 8 bytes for ") != std::string::npos, byte != 8) << said;
  }
}

TEST(Plan, ChecksTheScratchThatIsLent) {
  const RecordingPlan plan(parse_problem("bf16/n8/r4/out"), 2);
  Operands operands{memory.data(), memory.data() + 256};
  operands.scratch = memory.data() + 512;
  plan.execute(operands);
  operands.scratch = memory.data() + 528;
  EXPECT_THROW(plan.execute(operands), BadRequest);
  EXPECT_EQ(plan.enqueued, 1);
}

TEST(Plan, ChecksScalesBeforeAnythingIsLaunched) {
  const auto refusal_of = [](const Plan& plan, const Operands& operands) -> std::string {
    return bad_request_of([&] { plan.execute(operands); });
  };
  const RecordingPlan block(parse_problem("bf16/n32/r4>nvfp4:128x4"),
                            2);  // 256 bytes in, 64 codes, 512 scales
  Operands operands{memory.data(), memory.data() + 256, memory.data() + 512};
  operands.tensor_scale = 2.0F;
  operands.scales_bytes = 512;
  EXPECT_EQ(refusal_of(block, operands), "");
  operands.tensor_scale = 0.0F;
  EXPECT_EQ(
      refusal_of(block, operands),
      "bf16/n32/r4/out>nvfp4:128x4 needs a number of the whole tensor: give tensor_scale or tensor_scale_at");
  for (const float bad : {-1.0F, 1e-39F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    operands.tensor_scale = bad;
    EXPECT_NE(refusal_of(block, operands).find("must be positive and finite"), std::string::npos) << bad;
  }
  operands.tensor_scale = 2.0F;
  operands.scales_bytes = 511;
  EXPECT_EQ(refusal_of(block, operands),
            "scales has 511 bytes, but bf16/n32/r4/out>nvfp4:128x4 needs 512, padding included");
  operands.scales_bytes = -3;
  EXPECT_EQ(refusal_of(block, operands), "scales_bytes=-3 must be -1 (not said) or the bytes behind scales");
  operands.scales_bytes = -1;
  operands.scales = memory.data() + 504;
  EXPECT_NE(refusal_of(block, operands).find("must be aligned to 16 bytes"), std::string::npos);
  operands.scales = memory.data() + 304;
  EXPECT_NE(refusal_of(block, operands).find("out="), std::string::npos);
  operands = {memory.data() + 512, memory.data() + 768, memory.data() + 16};
  operands.tensor_scale = 2.0F;
  EXPECT_NE(refusal_of(block, operands).find("in="), std::string::npos);
  EXPECT_EQ(block.enqueued, 1);

  const RecordingPlan given(parse_problem("bf16/n32/r4>e4m3:tensor,vllm_static"), 2);
  operands = {memory.data(), memory.data() + 256};
  operands.tensor_scale = 0.5F;
  EXPECT_EQ(refusal_of(given, operands), "");
  operands.scales = memory.data() + 512;
  EXPECT_NE(refusal_of(given, operands).find("scales is given, but"), std::string::npos);

  // The same number in memory, whose value is the kernel's affair.
  const auto* const numbers = reinterpret_cast<const float*>(memory.data() + 768);
  operands = {memory.data(), memory.data() + 256};
  operands.tensor_scale_at = numbers;
  EXPECT_EQ(refusal_of(given, operands), "");
  operands.tensor_scale = 0.5F;
  EXPECT_NE(refusal_of(given, operands).find("are both given for"), std::string::npos);
  operands.tensor_scale = 1.0F;
  EXPECT_NE(refusal_of(given, operands).find("are both given for"), std::string::npos);
  operands.tensor_scale = 0.0F;
  operands.tensor_scale_at = reinterpret_cast<const float*>(memory.data() + 770);
  EXPECT_NE(refusal_of(given, operands).find("must be aligned to 4 bytes"), std::string::npos);
  operands.tensor_scale_at = reinterpret_cast<const float*>(memory.data() + 256 + 124);
  EXPECT_NE(refusal_of(given, operands).find("overlap"), std::string::npos);
  operands.tensor_scale_at = reinterpret_cast<const float*>(memory.data() + 256 + 128);
  EXPECT_EQ(refusal_of(given, operands), "");
  EXPECT_EQ(given.enqueued, 3);

  const RecordingPlan rows(parse_problem("bf16/n32/r4>e4m3:row"), 2);
  operands = {memory.data(), memory.data() + 256, memory.data() + 512};
  operands.tensor_scale = 0.5F;
  EXPECT_NE(refusal_of(rows, operands).find("tensor_scale=0.5 is given, but"), std::string::npos);
  operands.tensor_scale = 0.0F;
  operands.tensor_scale_at = numbers;
  EXPECT_NE(refusal_of(rows, operands).find("tensor_scale_at is given, but"), std::string::npos);
  EXPECT_EQ(rows.enqueued, 0);
}

}  // namespace
}  // namespace fwht
