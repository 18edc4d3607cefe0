// `weft verify` and `weft run` on plan files whose transfers are in legs: a cluster of two nodes of two ranks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "app/test_cli.hpp"
#include "cluster/presets.hpp"
#include "graph/substitute.hpp"
#include "io/plan_json.hpp"
#include "kernels/kernels.hpp"
#include "planner/overlap.hpp"
#include "planner/policy/policy.hpp"

namespace weft {
namespace {

PlanRequest small_request(int zero) {
  PlanRequest r;
  r.model.name = "small";
  r.model.layers = 2;
  r.model.hidden = 32;
  r.model.heads = r.model.kv_heads = 4;
  r.model.head_dim = 8;
  r.model.ffn = 128;
  r.model.vocab = 256;
  r.model.max_seq = 16;
  r.cluster = parse_cluster("local:2,nic=200Mb/s");
  r.cluster.name = "two nodes of two";
  r.cluster.devices_per_node = 2;
  LevelSpec inside = r.cluster.levels.front();
  inside.name = "shm";
  inside.joins = Domain::node;
  inside.bandwidth = {10 * inside.bandwidth.bytes_per_second};
  r.cluster.levels.insert(r.cluster.levels.begin(), inside);
  r.layout.dp = 4;
  r.layout.global_batch = 8;
  r.layout.seq = 16;
  r.layout.zero = zero;
  r.layout.precision = r.layout.grad_dtype = ElementType::fp32;
  r.layout.dropout = false;
  r.profile = default_profile();
  return r;
}

std::string plan_text(int zero, const std::vector<Substitution>& wanted) {
  const PlanRequest r = small_request(zero);
  const SharedGraph graph = build_step_graph(r.model, Cluster(r.cluster), r.layout);
  Overlap overlap = decide_overlap(r, graph, "megatron-param");
  overlap.partition.substitutions = first_possible(graph, wanted);
  std::ostringstream out;
  write_plan_json(out, make_whole_plan(r, graph, "megatron-param", overlap).plan());
  return out.str();
}

const std::vector<Substitution> kInLevels{Substitution::all_reduce_in_levels, Substitution::reduce_scatter_in_levels,
                                          Substitution::all_gather_in_levels};

TEST(PlanFileInLegs, IsVerifiedAndRefusedWithAnotherScope) {
  const ScratchFolder folder("plan_in_legss");
  const std::string text = plan_text(0, kInLevels);
  EXPECT_EQ(weft_cli("verify " + folder.write("plan.json", text)).code, kOk);
  std::string wrong = text;
  const std::string outer = "\"scope\":\"outer\"";
  ASSERT_NE(wrong.find(outer), std::string::npos);
  wrong.replace(wrong.find(outer), outer.size(), "\"scope\":\"inner\"");
  const CliResult refused = weft_cli("verify " + folder.write("wrong.json", wrong));
  EXPECT_NE(refused.code, kOk);
  EXPECT_TRUE(contains(refused.out + refused.err, "another kind of operation")) << refused.out << refused.err;
}

// The sums are added in another order, so the last digits may differ. (exec/stages_test.cpp has the other rules.)
TEST(PlanFileInLegs, TrainsToTheLossesOfWholeTransfers) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const ScratchFolder folder("staged_runs");
  const auto losses = [&](int zero, const std::vector<Substitution>& wanted) {
    const CliResult run = weft_cli("run " + folder.write("plan.json", plan_text(zero, wanted)) +
                                   " --threads 1 --steps 4 --warm-up 1 --calibrate-seconds 0.05 --json");
    EXPECT_EQ(run.code, kOk) << run.err;
    const auto json = nlohmann::json::parse(run.out);
    return json.at("policies").at("megatron-param").at("losses").get<std::vector<double>>();
  };
  const std::vector<double> whole = losses(0, {});
  ASSERT_EQ(whole.size(), 4U);
  for (const int zero : {0, 2}) {
    const std::vector<double> legs = losses(zero, kInLevels);
    ASSERT_EQ(legs.size(), whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(legs[i] / whole[i], 1, 1e-6) << zero;
  }
}

}  // namespace
}  // namespace weft
