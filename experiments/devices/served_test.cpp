#include "experiments/devices/served.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "variants/auto/auto.hpp"
#include "variants/linear/auto/auto.hpp"
#include "variants/registry.hpp"

namespace fwht::devices {
namespace {

/// What only compute capability 9.0 itself runs: code of sm_90a, and clusters.
bool is_for_90_alone(std::string_view server) {
  for (const std::string_view name : {"mma_kronecker", "warp_kronecker"})
    if (server.find(name) != std::string_view::npos) return false;
  for (const std::string_view name : {"wgmma", "kronecker", "prefill", "inside"})
    if (server.find(name) != std::string_view::npos) return true;
  return false;
}

bool lacks_90a() {
  const Problem problem = make_problem(Dtype::f16, 65536, 1);
  return find_variant("wgmma").supports(problem, h200_description()).why_not.starts_with("built without");
}

TEST(Served, EveryChoiceForARowIsSupportedAndFits) {
  for (const DeviceInfo& device : described_devices()) {
    for (const Problem& problem : timed_problems()) {
      SCOPED_TRACE(device.name + ", " + to_string(problem));
      const std::string server = server_of(problem, device);
      const Support support = automatic::variant.supports(problem, device);
      ASSERT_EQ(server != "-", static_cast<bool>(support)) << server << ": " << support.why_not;
      if (!support) {
        EXPECT_GE(support.why_not.size(), 8U);
        continue;
      }
      EXPECT_TRUE(device.compute_capability() == 90 || !is_for_90_alone(server)) << server;
      const std::string_view name = std::string_view(server).substr(0, server.find(':'));
      EXPECT_TRUE(find_variant(name).supports(problem, device)) << server;
      const BlockNeeds needs = block_needs(name, problem, device);
      EXPECT_LE(needs.shared_bytes, device.shared_bytes_per_block) << server;
      EXPECT_LE(needs.threads, 1024) << server;
      if (HasFailure()) return;
    }
  }
}

TEST(Served, EveryChoiceForALayerIsSupported) {
  for (const DeviceInfo& device : described_devices()) {
    for (const LinearProblem& problem : timed_layers()) {
      SCOPED_TRACE(device.name + ", " + to_string(problem));
      const LinearVariant* choice = linear::automatic::choice_for(problem, device);
      ASSERT_NE(choice, nullptr);
      EXPECT_TRUE(choice->supports(problem, device)) << choice->name;
      EXPECT_TRUE(device.compute_capability() == 90 || !is_for_90_alone(server_of(problem, device)));
    }
  }
}

// What a later change moves on a device that nobody has at hand is seen here.
TEST(Served, IsTheCommittedTable) {
  if (lacks_90a()) GTEST_SKIP() << "built without sm_90a";
  std::ifstream file(FWHT_SERVED_FILE);
  std::stringstream committed;
  committed << file.rdbuf();
  EXPECT_TRUE(committed.str() == served_csv())
      << "fwht_devices > experiments/devices/served.csv makes it anew; read the difference";
}

TEST(Served, TheTableTellsDevicesApart) {
  if (lacks_90a()) GTEST_SKIP() << "built without sm_90a";
  const Problem longest = make_problem(Dtype::f16, 65536, 1024);
  EXPECT_EQ(server_of(longest, h200_description()), "wgmma");
  EXPECT_NE(server_of(longest, a100_description()), "wgmma");
  const LinearProblem many = parse_linear_problem("f16/m96/n8192/k8192/w4g128");
  EXPECT_EQ(server_of(many, h200_description()), "w4a16_prefill");
  EXPECT_NE(server_of(many, a100_description()), "w4a16_prefill");
}

}  // namespace
}  // namespace fwht::devices
