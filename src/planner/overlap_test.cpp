// What the overlapping policies share: every layout gives a safe plan, and each says rightly what runs beside compute.
#include "planner/overlap.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "graph/operation_part.hpp"
#include "graph/own_rows.hpp"
#include "model/presets.hpp"
#include "plan/test_oracle.hpp"
#include "plan/unfold.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

std::string verdict(const Plan& plan) {
  const std::optional<Violation> found = verify_plan(plan, {.memory_limit = {}, .check_memory = false});
  return found ? found->message : "safe";
}

// Buckets small enough that the tests' models have several.
PlanRequest small_buckets(PlanRequest r) {
  r.options = {.bucket_parameters = 30'000, .bucket_mib = 0.1, .part_mib = 0.02};
  return r;
}

std::vector<std::string> overlapping() {
  return {"ddp", "megatron-dist", "megatron-grad", "megatron-param"};
}

class AcceptsOverlap : public ::testing::TestWithParam<std::string> {};

// ZeRO 0 to 3 with every layout; models, clusters and the other switches take their turns.
TEST_P(AcceptsOverlap, InEveryLayoutAtEveryZeroStage) {
  const std::vector<Transformer> models{test::small_gpt(), test::small_moe(), test::small_llama(), test::small_mla()};
  const std::vector<ClusterSpec> clusters{test::uneven_nics(), parse_cluster("dgx-a100:2"),
                                          parse_cluster("local:16,nic=200Mb/s")};
  std::size_t turn = GetParam().size();
  for (const auto& [name, base] : test::layouts()) {
    for (int zero = 0; zero <= 3; ++zero, ++turn) {
      Layout layout = base;
      layout.zero = zero;
      layout.recompute = static_cast<Recompute>(turn % 3);
      if (turn % 6 == 2) layout.recompute_layers = {1};
      layout.clip_grad = turn / 2 % 2 == 0 ? 1 : 0;
      layout.precision = turn % 5 == 0 ? ElementType::fp32 : ElementType::bf16;
      const Transformer& model = base.ep > 1 ? models[turn / 4 % 2 * 2 + 1] : models[(turn / 4 + turn) % 4];
      const ClusterSpec& cluster = clusters[turn % 3];
      SCOPED_TRACE(fmt::format("{}, {}, zero {}, {}", model.name, name, zero, cluster.name));
      PlanRequest r = test::request(model, cluster, layout, layout.pp == 1 ? 2 : layout.pp > 4 ? 3 : 4);
      if (turn % 4 != 3) r = small_buckets(r);
      const bool megatron = GetParam().starts_with("megatron");
      r.options.tp_comm_overlap = megatron && layout.sequence_parallel && turn % 2 == 0;
      r.options.overlap_moe_expert_parallel_comm = megatron && layout.ep > 1 && zero < 2 && turn % 3 != 0 &&
                                                   (layout.pp == 1 || layout.vpp > 1) &&
                                                   layout.recompute != Recompute::full;
      r.options.delay_wgrad_compute = r.options.overlap_moe_expert_parallel_comm && turn % 4 < 2;
      const Plan plan = make_plan(r, test::build(r), GetParam());
      EXPECT_EQ(plan.policy, GetParam());
      ASSERT_EQ(verdict(plan), "safe");
      if (turn % 11 == 0) {
        EXPECT_EQ(test::find_damage(plan, 1, 2).value_or("safe"), "safe");
      }
    }
  }
}

std::vector<std::string> and_others() {
  std::vector<std::string> names = overlapping();
  names.emplace_back("priority");
  names.emplace_back("nanotron");
  return names;
}

INSTANTIATE_TEST_SUITE_P(Policies, AcceptsOverlap, ::testing::ValuesIn(and_others()), [](const auto& test) {
  std::string name = test.param;
  std::erase(name, '-');
  return name;
});

bool is_send(const Operation& op) {
  return op.communication && op.communication->collective == Collective::send_recv && op.communication->sends;
}

// LinearWithGradAccumulationAndAsyncCommunication, the backward of QKV, of the first product of the feed-forward and of
// the head: with sequence parallelism it gathers its input beside dgrad and scatters dgrad's result beside wgrad.
bool is_beside_products_in_megatron(const Operation& op) {
  const bool column_parallel =
      op.role == Role::attention_gather || op.role == Role::ffn_gather || op.role == Role::head_gather;
  return column_parallel && op.per_micro_batch && op.phase != Phase::forward && op.phase != Phase::recompute;
}

struct LayerTraffic {
  int all = 0, beside = 0;
};
LayerTraffic layer_traffic(const PlanRequest& r, const std::string& policy) {
  const Plan plan = make_plan(r, test::build(r), policy);
  LayerTraffic traffic;
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (!op.communication || op.communication->group != GroupKind::tp || op.layer != 1 || !op.per_micro_batch) continue;
    ++traffic.all;
    traffic.beside += plan.issues[i].blocking ? 0 : 1;
  }
  return traffic;
}

// Korthikanti et al. 2022, section 4.2.2; Megatron-LM's core/tensor_parallel/layers.py.
TEST(Megatron, RunsFourOfTenCollectivesOfALayerBesideItsProducts) {
  for (const std::string policy : {"megatron-dist", "megatron-grad", "megatron-param"}) {
    const auto traffic = [&](bool sequence_parallel) {
      const Layout layout{.tp = 2, .sequence_parallel = sequence_parallel};
      return layer_traffic(test::request(test::small_gpt(4), parse_cluster("dgx-a100:1"), layout), policy);
    };
    EXPECT_EQ(traffic(true).all, 10);
    EXPECT_EQ(traffic(true).beside, 4);
    EXPECT_EQ(traffic(false).all, 4);
    EXPECT_EQ(traffic(false).beside, 2);
  }
}

// nanotron's functional.py: of the ten collectives of a layer two are waited for, the reductions of forward. Products
// that read gathered rows begin with their own, which wait for no gather.
TEST(Nanotron, WaitsForTheReductionsOfForwardAlone) {
  const PlanRequest r =
      test::request(test::small_gpt(4), parse_cluster("dgx-a100:1"), {.tp = 2, .sequence_parallel = true});
  const LayerTraffic traffic = layer_traffic(r, "nanotron");
  EXPECT_EQ(traffic.all, 10);
  EXPECT_EQ(traffic.beside, 8);
  const Plan plan = make_plan(r, test::build(r), "nanotron");
  const std::vector<std::vector<OpId>> writers = writers_of(plan.graph);
  int own = 0;
  for (const Operation& op : plan.graph.operations) {
    if (op.layer != 1 || !is_own_piece(op.origins.front())) continue;
    ++own;
    for (const Read& read : op.reads) {
      if (plan.graph.value(read.value).kind == ValueKind::parameter) continue;
      for (const OpId writer : writers[read.value.index()]) {
        EXPECT_FALSE(plan.graph.op(writer).is_transfer()) << describe(op);
      }
    }
  }
  EXPECT_EQ(own, 4);
}

// Transformer Engine's userbuffers: what forward communicates, and what row-parallel linears gather in backward,
// travels in parts beside the products. The four of the column-parallel ones stay as they are.
TEST(Megatron, WithUserbuffersWaitsForNothingThatIsCut) {
  Transformer model = model_preset("llama2-13b");
  model.layers = 2;
  PlanRequest r = test::request(model, parse_cluster("dgx-a100:1"), {.tp = 8, .seq = 4096, .sequence_parallel = true});
  r.options.tp_comm_overlap = true;
  const Plan plan = make_plan(r, test::build(r), "megatron-param");
  int parts = 0, own = 0;
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    own += is_own_piece(op.origins.front()) ? 1 : 0;
    if (!op.communication || !is_part(op)) continue;
    ++parts;
    // Rings of 8 ranks exchange gathers in 7 steps, here in 8 parts.
    if (gathers_rows_of_others(op)) {
      EXPECT_EQ(op.origins.front().of, 8) << describe(op);
    }
    EXPECT_FALSE(plan.issues[i].blocking) << describe(op);
    EXPECT_FALSE(is_beside_products_in_megatron(op)) << describe(op);
  }
  EXPECT_GT(parts, 0);
  EXPECT_GT(own, 0);  // where the cost model finds that faster
  ASSERT_EQ(verdict(plan), "safe");
}

// Transformer Engine's defaults: ring exchanges take one SM and copy engines, the rest 16 SMs; what compute waits for,
// and traffic that is not tensor parallelism's, stays with the library.
TEST(Megatron, UserbuffersTakeSmsByProduct) {
  Transformer model = model_preset("llama2-13b");
  model.layers = 2;
  Layout layout{.tp = 4, .seq = 4096, .sequence_parallel = true};
  layout.zero = 1;
  PlanRequest r = test::request(model, parse_cluster("dgx-h100:1"), layout, 2);
  r.options.tp_comm_overlap = true;
  for (const bool recipes : {false, true}) {
    r.options.userbuffers.source = recipes ? UserbufferSource::recipes : UserbufferSource::defaults;
    const Plan plan = make_plan(r, test::build(r), "megatron-param");
    const UserbufferTable table =
        recipes ? recipe_userbuffers("h100", ProductFormat::stored, 5120) : default_userbuffers();
    std::set<LinearPass> moved;
    for (const OpId id : plan.graph.operations.ids()) {
      const Operation& op = plan.graph.op(id);
      if (!op.communication) continue;
      const std::optional<LinearPass> pass = linear_pass(op);
      const bool expected = pass && !plan.issues[id.index()].blocking;
      EXPECT_EQ(op.communication->mover, expected ? mover_of(table.of(*pass)) : Mover{}) << describe(op);
      if (expected) moved.insert(*pass);
    }
    EXPECT_GE(moved.size(), 8U);
    EXPECT_TRUE(moved.contains(LinearPass::qkv_fprop) && moved.contains(LinearPass::fc1_wgrad));
    ASSERT_EQ(verdict(plan), "safe");
  }
}

TEST(Megatron, RefusesWhatMegatronRefuses) {
  const auto refusal = [](Layout layout, const PolicyOptions& options) {
    PlanRequest r = test::request(test::small_moe(4), parse_cluster("dgx-a100:1"), layout);
    r.options = options;
    try {
      make_plan(r, test::build(r), "megatron-param");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(refusal({.tp = 2}, {.tp_comm_overlap = true}).find("--sequence-parallel"), std::string::npos);
  EXPECT_NE(refusal({}, {.tp_comm_overlap = true}).find("--tp"), std::string::npos);
  EXPECT_NE(refusal({}, {.overlap_moe_expert_parallel_comm = true}).find("--ep"), std::string::npos);
  EXPECT_NE(refusal({.pp = 2, .ep = 2}, {.overlap_moe_expert_parallel_comm = true}).find("--vpp"), std::string::npos);
  EXPECT_NE(refusal({.ep = 2}, {.delay_wgrad_compute = true}).find("--overlap-moe-expert-parallel-comm"),
            std::string::npos);
  EXPECT_EQ(refusal({.ep = 2}, {.overlap_moe_expert_parallel_comm = true, .delay_wgrad_compute = true}), "accepted");
}

TEST(Overlap, IsOfWhatThePolicySaysAndNothingElse) {
  for (const std::string& policy : overlapping()) {
    for (int zero = 0; zero <= 3; ++zero) {
      SCOPED_TRACE(fmt::format("{}, zero {}", policy, zero));
      const PlanRequest r = small_buckets(test::request(test::small_gpt(4), parse_cluster("dgx-a100:1"),
                                                        {.tp = 2, .pp = 2, .zero = zero, .sequence_parallel = true}));
      const Plan plan = make_plan(r, test::build(r), policy);
      int ahead = 0;
      for (std::size_t i = 0; i < plan.issues.size(); ++i) {
        const Operation& op = plan.graph.operations[i];
        if (!op.is_transfer()) continue;
        if (policy == "megatron-param" && op.role == Role::param_gather && op.per_micro_batch) {
          ahead += plan.issues[i].blocking ? 0 : 1;  // all but the first of a block
          continue;
        }
        const bool reduction = op.role == Role::grad_reduce || (op.role == Role::replica_reduce && zero < 2);
        const bool beside = is_send(op) || (policy != "megatron-dist" && reduction) ||
                            (policy == "megatron-param" && op.role == Role::param_gather) ||
                            (policy != "ddp" && is_beside_products_in_megatron(op));
        EXPECT_EQ(plan.issues[i].blocking, !beside) << describe(op);
      }
      EXPECT_EQ(ahead > 0, policy == "megatron-param" && zero == 3);
    }
  }
}

TEST(Overlap, PoliciesDecideTheSameWhereTheyHaveNothingToDecide) {
  const auto decide = [](int zero, std::string_view policy, std::int64_t tp = 2) {
    const PlanRequest r = small_buckets(test::request(test::small_gpt(4), parse_cluster("dgx-a100:1"),
                                                      {.tp = tp, .pp = 2, .zero = zero, .sequence_parallel = tp > 1}));
    return decide_overlap(r, test::build(r), policy);
  };
  EXPECT_EQ(decide(3, "serial", 1), decide(3, "megatron-dist", 1));
  EXPECT_EQ(decide(3, "ddp", 1), decide(3, "megatron-grad", 1));
  EXPECT_NE(decide(3, "serial"), decide(3, "megatron-dist"));
  // ZeRO 3 leaves nothing to bucket but the replicas' reductions, which all but fsdp put together.
  EXPECT_NE(decide(3, "serial"), decide(3, "ddp"));
  EXPECT_NE(decide(3, "megatron-grad"), decide(3, "megatron-param"));
  // Buckets of 100 KiB are not those of 30,000 parameters.
  EXPECT_NE(decide(1, "ddp"), decide(1, "megatron-grad"));
}

// The operations of a class's queue in one iteration.
std::vector<Operation> on_queue(const Plan& plan, std::size_t of_class, std::string_view queue) {
  std::vector<Operation> result;
  const Unfolded u(plan);
  const auto rank_class = make_id<ClassId>(of_class);
  for (const Instance& i : u.instances()) {
    if (i.rank_class != rank_class) continue;
    if (plan.classes[rank_class].queues[i.queue].name == queue) {
      result.push_back(plan.graph.op(i.operation));
    }
  }
  return result;
}

TEST(MegatronParam, ReducesFromTheLastLayerAndGathersFromTheFirst) {
  PlanRequest r = test::request(test::small_llama(4), parse_cluster("dgx-a100:1"), {.zero = 1});
  r.options.bucket_parameters = 1;  // each parameter alone
  const Plan plan = make_plan(r, test::build(r), "megatron-param");
  const std::vector<Operation> queue = on_queue(plan, 0, "dp");
  std::vector<std::int32_t> layers;
  for (const Operation& op : queue) {
    // The head and the final norm belong behind the last layer, the embedding before the first.
    const std::int32_t layer = op.layer >= 0 ? op.layer : op.subject == Role::embedding ? -1 : 4;
    if (layers.empty() || layers.back() != layer) layers.push_back(layer);
  }
  EXPECT_EQ(layers, (std::vector<std::int32_t>{4, 3, 2, 1, 0, -1, 0, 1, 2, 3, 4}));
  EXPECT_EQ(queue.front().role, Role::grad_reduce);
  EXPECT_EQ(queue.back().role, Role::param_gather);
}

TEST(Ddp, ReducesTheHighestChunkFirst) {
  PlanRequest r = test::request(test::small_llama(8), parse_cluster("dgx-a100:1"),
                                {.pp = 2, .vpp = 4, .schedule = PipelineSchedule::interleaved});
  r.options.bucket_mib = 0;  // each parameter alone
  const Plan plan = make_plan(r, test::build(r), "ddp");
  std::vector<std::int32_t> chunks;
  for (const Operation& op : on_queue(plan, 1, "dp")) {
    if (chunks.empty() || chunks.back() != op.chunk) chunks.push_back(op.chunk);
  }
  EXPECT_EQ(chunks, (std::vector<std::int32_t>{3, 2, 1, 0}));
}

// Positions are declared after the embedding and finished after it: neither order of the graph is that of backward.
TEST(Ddp, ReducesInTheOrderInWhichBackwardFinishes) {
  PlanRequest r = test::request(test::small_gpt(4), parse_cluster("dgx-a100:1"), {.pp = 2}, 3);
  r.options.bucket_mib = 0;
  const Plan plan = make_plan(r, test::build(r), "ddp");
  const Unfolded u(plan);
  std::map<ClassId, std::int32_t> last;
  for (const InstanceId i : u.instances().ids()) {
    const Instance& reduction = u.instances()[i];
    if (plan.graph.op(reduction.operation).role != Role::grad_reduce) continue;
    std::int32_t finished = 0;
    for (const Edge& edge : u.waits_for(i)) {
      if (edge.kind == EdgeKind::data) {
        finished = std::max(finished, u.instances()[edge.from].chain_position);
      }
    }
    EXPECT_GT(finished, last[reduction.rank_class]) << describe(plan, reduction);
    last[reduction.rank_class] = finished;
  }
  EXPECT_EQ(last.size(), 2u);
}

// A reduction waits for its own gradients and for reductions of what backward finished before, so nothing of an earlier
// layer holds it: not its compute, not its gradients, not its tensor-parallel traffic.
TEST(Ddp, StartsABucketWithoutAnythingOfTheNextLayer) {
  PlanRequest r =
      test::request(test::small_llama(3), parse_cluster("dgx-a100:1"), {.tp = 2, .sequence_parallel = true});
  r.options.bucket_mib = 0;
  const Plan plan = make_plan(r, test::build(r), "ddp");
  const Unfolded u(plan);
  const auto at_the_end = [](const Operation& op) {
    return op.layer == 2 || op.subject == Role::head || op.subject == Role::final_norm;
  };
  int replicas = 0;
  for (const InstanceId i : u.instances().ids()) {
    const Operation& op = plan.graph.op(u.instances()[i].operation);
    if ((op.role != Role::grad_reduce && op.role != Role::replica_reduce) || !at_the_end(op)) continue;
    replicas += op.role == Role::replica_reduce ? 1 : 0;
    for (const Edge& edge : u.waits_for(i)) {
      const Operation& before = plan.graph.op(u.instances()[edge.from].operation);
      EXPECT_TRUE(edge.distance > 0 || at_the_end(before)) << describe(op) << " waits for " << describe(before);
    }
  }
  EXPECT_EQ(replicas, 3);  // two norms of the layer, the last norm
}

TEST(Megatron, IsTheLastLevel) {
  const PlanRequest r = test::request(test::small_gpt(2), parse_cluster("local:2"), {.zero = 1});
  const Plan plan = make_plan(r, test::build(r), "megatron");
  EXPECT_EQ(plan.policy, "megatron-param");
  EXPECT_EQ(plan.issues, make_plan(r, test::build(r), "megatron-param").issues);
  EXPECT_NO_THROW(require_policy("megatron"));
  EXPECT_THROW(require_policy("megatron-"), Error);
}

}  // namespace
}  // namespace weft
