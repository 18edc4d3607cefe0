// Steps of the policy `fsdp` against a closed form, and against `serial`, which overlaps nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/test_effort.hpp"
#include "sim/test_steps.hpp"

namespace weft::test {
namespace {

// One class on two GPUs, one micro-batch, links at their stated rate, nothing in each other's way.
PlanRequest sharded_layers(std::int64_t layers, int zero = 3) {
  Transformer model = small_llama(layers);
  model.hidden = 512;
  model.ffn = 1024;
  model.vocab = 4096;
  model.head_dim = 128;
  PlanRequest r = request(model, parse_cluster("dgx-a100:1,gpus=2,nvlink=75GB/s"),
                          {.micro_batch = 4, .seq = 2048, .zero = zero}, 1);
  idealize(r);
  return r;
}

struct Times {
  explicit Times(const Plan& p, const PlanRequest& r)
      : plan(p), cluster(p.cluster), cost(plan.graph, cluster, r.profile) {}
  Nanos of(OpId id) const { return cost.alone(plan.graph.op(id)); }
  // The transfers of a role in issue order.
  std::vector<OpId> all(Role role, Phase phase) const {
    std::vector<OpId> found;
    for (const IssueBlock& block : plan.classes[0].blocks) {
      for (const OpId id : block.operations) {
        if (plan.graph.op(id).role == role && plan.graph.op(id).phase == phase) found.push_back(id);
      }
    }
    return found;
  }
  template <class Filter>
  Nanos compute(Filter filter) const {
    Nanos sum;
    for (const Operation& op : plan.graph.operations) {
      if (!op.is_transfer() && filter(op)) sum += cost.compute(op);
    }
    return sum;
  }
  // Of the backward block, from the last weight gradient of a layer to the end.
  Nanos after_gradients_of(std::int32_t layer) const {
    Nanos sum;
    for (const OpId id : block_of(plan.classes[0], BlockKind::backward).operations) {
      const Operation& op = plan.graph.op(id);
      if (op.is_transfer()) continue;
      sum += cost.compute(op);
      if (op.layer == layer && op.phase == Phase::weight_grad) sum = {};
    }
    return sum;
  }

  const Plan& plan;
  Cluster cluster;
  CostModel cost;
};

// Forward: the embedding is gathered on the spot, the first layer right behind it, with only the embedding's lookup to
// hide it. Backward: the head is still there; its own backward hides the gather of the last layer. Every other gather
// and reduction is shorter than a layer. At the end the reductions of the first layer and of the embedding remain, less
// the compute that follows the layer's last gradient; the update waits for them.
TEST(SimulatedFsdp, ExposesTheFirstGathersOfAStepAndTheLastReductions) {
  for (const std::int64_t layers : {3, 4, 6}) {
    SCOPED_TRACE(layers);
    const PlanRequest r = sharded_layers(layers);
    const Plan plan = fsdp(r);
    const Times t(plan, r);
    const auto forward = t.all(Role::param_gather, Phase::forward),
               backward = t.all(Role::param_gather, Phase::input_grad);
    const auto reductions = t.all(Role::grad_reduce, Phase::weight_grad);
    ASSERT_EQ(forward.size(), static_cast<std::size_t>(layers) + 2);
    ASSERT_EQ(backward.size(), static_cast<std::size_t>(layers));
    ASSERT_EQ(reductions.size(), static_cast<std::size_t>(layers) + 2);

    const Nanos layer = t.of(forward[1]), reduction = t.of(reductions[1]);
    const Nanos shortest =
        std::min(t.compute([](const Operation& op) { return op.layer == 1 && op.phase == Phase::forward; }),
                 t.compute([](const Operation& op) {
                   return op.layer < 0 && op.role == Role::head && op.phase != Phase::forward;
                 }));
    ASSERT_GT(shortest, layer + reduction + t.of(reductions[0])) << "not hidden";

    const Nanos lookup =
        t.compute([](const Operation& op) { return op.role == Role::embedding && op.phase == Phase::forward; });
    ASSERT_LT(lookup, layer);
    const Nanos gathers = t.of(forward[0]) + layer - lookup;
    const Nanos rest = t.after_gradients_of(0);
    const Nanos tail = std::max(t.of(reductions[layers]), rest) - rest + t.of(reductions.back());
    const Nanos compute = t.compute([](const Operation&) { return true; });

    const RankAccount account = checked_accounting(simulated(plan, r.profile)).ranks.at(0);
    EXPECT_NEAR(account.exposed_by[TrafficKind::param_gather], seconds(gathers), 5e-9);
    EXPECT_NEAR(account.exposed_by[TrafficKind::dp_grad], seconds(tail), 5e-9);
    EXPECT_NEAR(account.step_s, seconds(compute + gathers + tail), 5e-9);
  }
}

// With nothing gathered ahead every layer waits for what the residual between two layers does not hide.
TEST(SimulatedFsdp, WithoutPrefetchExposesEveryGather) {
  const PlanRequest r = sharded_layers(4);
  const Plan plan = fsdp(r, 0);
  const Times t(plan, r);
  const auto forward = t.all(Role::param_gather, Phase::forward);
  const Nanos residual = t.compute(
      [](const Operation& op) { return op.layer == 1 && op.role == Role::ffn_residual && op.phase == Phase::forward; });
  ASSERT_LT(residual, t.of(forward[2]));
  const double gathered =
      checked_accounting(simulated(plan, r.profile)).ranks.at(0).exposed_by[TrafficKind::param_gather];
  const double ahead =
      checked_accounting(simulated(fsdp(r, 1), r.profile)).ranks.at(0).exposed_by[TrafficKind::param_gather];
  // Forward alone: layers 1 to 3.
  EXPECT_GE(gathered, ahead + 3 * seconds(t.of(forward[2]) - residual) - 1e-8);
}

// Where transfers and compute do not slow each other and messages cost no latency, overlap does not lose. (Where a
// pipeline or tensor parallelism shares the links, its messages may meet a reduction and arrive a little later.)
TEST(SimulatedFsdp, IsNotSlowerThanSerial) {
  int faster = 0;
  Sample sample;
  for (const auto& [name, base] : layouts()) {
    for (int zero = 0; zero <= 3; ++zero) {
      if (!sample.takes()) continue;
      SCOPED_TRACE(fmt::format("{}, zero {}", name, zero));
      Layout layout = base;
      layout.zero = zero;
      layout.seq = 512;
      PlanRequest r = request(small_moe(), parse_cluster("dgx-a100:2"), layout, 4);
      idealize(r);
      const double serial_ns = simulated(serial(r), r.profile).period_ns;
      const double fsdp_ns = simulated(fsdp(r), r.profile).period_ns;
      const bool shares = layout.tp * layout.pp * layout.ep * layout.cp > 1;
      EXPECT_LE(fsdp_ns, serial_ns * (shares ? 1.01 : 1) + 100);
      faster += fsdp_ns < 0.999 * serial_ns ? 1 : 0;
    }
  }
  EXPECT_GT(faster, sampled() ? 10 : 60);
}

}  // namespace
}  // namespace weft::test
