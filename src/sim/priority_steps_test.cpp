// Steps of the policy `priority`: a chain of layers by hand, and every layout between the bound and `serial`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/test_effort.hpp"
#include "bound/bound.hpp"
#include "graph/operation_part.hpp"
#include "sim/test_steps.hpp"

namespace weft::test {
namespace {

// A chain of equal layers on two ranks, and nothing else: forward c, backward 2 c, a gradient whose reduction alone
// takes g, an update that takes next to nothing. Nothing has latency, and the link carries a byte in a nanosecond.
class LayerChain {
 public:
  LayerChain(std::int32_t layers, std::int64_t elements, std::int64_t gradient_bytes) : layers_(layers) {
    request_ = request(small_gpt(1), parse_cluster("local:2,nic=8Gb/s"), {.precision = ElementType::fp32}, 1);
    idealize(request_);
    graph_ = build(request_);
    graph_.operations.clear();
    graph_.values.clear();
    activation_ = add_value(ValueKind::activation, 1, true);
    for (std::int32_t i = 0; i < layers; ++i) {
      weight_.push_back(add_value(ValueKind::parameter, gradient_bytes / 4, false));
      gradient_.push_back(add_value(ValueKind::gradient, gradient_bytes / 4, false));
      reduced_.push_back(add_value(ValueKind::gradient, gradient_bytes / 4, false));
    }
    for (std::int32_t i = 0; i < layers; ++i)
      compute(i, Phase::forward, elements, {{Operand::weight, weight_[at(i)], 1}}, {});
    for (std::int32_t i = layers; i-- > 0;)
      compute(i, Phase::weight_grad, 2 * elements, {}, {{Operand::weight_grad, gradient_[at(i)]}});
    for (std::int32_t i = layers; i-- > 0;) reduce(i, gradient_bytes);
    for (std::int32_t i = 0; i < layers; ++i) update(i);
  }

  // Backward as two products, input gradient and weight gradient, and forward as one, c each: the weight gradients may
  // wait.
  static LayerChain of_products(std::int32_t layers, std::int64_t side, std::int64_t gradient_bytes) {
    LayerChain chain(layers, 1, gradient_bytes);
    IdVector<OpId, Operation> operations;
    for (Operation op : chain.graph_.operations) {
      if (op.per_micro_batch) {
        op.key.kind = OpKind::gemm;
        op.key.dims = {side, side, side, 1, 0, 0};
      }
      if (op.phase == Phase::weight_grad) {
        Operation input_grad = op;
        input_grad.phase = input_grad.key.phase = Phase::input_grad;
        input_grad.reads = {{Operand::weight, chain.weight_[at(op.layer)], 1}};
        input_grad.writes.clear();
        operations.push_back(std::move(input_grad));
      }
      operations.push_back(std::move(op));
    }
    chain.graph_.operations = std::move(operations);
    return chain;
  }

  // With every gradient in `parts`.
  double step_ns(std::string_view policy, int parts) {
    request_.options.bucket_mib = 0;
    const double bytes = static_cast<double>(graph_.value(gradient_.front()).bytes().value);
    request_.options.part_mib = bytes / parts / (1024 * 1024);
    const Plan plan = make_plan(request_, graph_, policy);
    const auto cut = std::count_if(plan.graph.operations.begin(), plan.graph.operations.end(), is_part);
    EXPECT_EQ(cut, policy == "priority" && parts > 1 ? layers_ * parts : 0);
    return simulated(plan, request_.profile).period_ns;
  }
  double time(Phase phase) const {
    const Cluster cluster(request_.cluster);
    for (const Operation& op : graph_.operations) {
      if (op.phase == phase) return static_cast<double>(CostModel(graph_, cluster, request_.profile).alone(op).value);
    }
    return 0;
  }

 private:
  static std::size_t at(std::int32_t layer) { return static_cast<std::size_t>(layer); }

  ValueId add_value(ValueKind kind, std::int64_t elements, bool per_micro_batch) {
    graph_.values.push_back({.name = fmt::format("value {}", graph_.values.size()),
                             .rank_class = ClassId{0},
                             .kind = kind,
                             .dtype = ElementType::fp32,
                             .shape = {elements},
                             .sharding = {},
                             .per_micro_batch = per_micro_batch});
    return make_id<ValueId>(graph_.values.size() - 1);
  }

  Operation& add(std::int32_t layer, Phase phase, Role role, OpKind kind, std::int64_t size) {
    Operation& op = graph_.operations.emplace_back();
    op.rank_class = ClassId{0};
    op.layer = layer;
    op.phase = op.key.phase = phase;
    op.role = role;
    op.subject = Role::qkv;
    op.key.kind = kind;
    op.key.dtype = ElementType::fp32;
    op.key.dims[0] = size;
    op.per_micro_batch = phase != Phase::optimizer;
    return op;
  }

  void compute(std::int32_t layer, Phase phase, std::int64_t elements, std::vector<Read> reads,
               std::vector<Write> writes) {
    Operation& op = add(layer, phase, Role::qkv, OpKind::elementwise, elements);
    op.key.dims[1] = 8;
    op.reads = std::move(reads);
    op.writes = std::move(writes);
    if (op.writes.empty() && layer == 0) op.writes.push_back({Operand::output, activation_});
  }

  void reduce(std::int32_t layer, std::int64_t bytes) {
    Operation& op = add(layer, Phase::optimizer, Role::grad_reduce, OpKind::transfer, bytes);
    op.reads = {{Operand::payload, gradient_[at(layer)]}};
    op.writes = {{Operand::payload, reduced_[at(layer)]}};
    op.communication.emplace();
    op.communication->format = {ElementType::fp32};
    op.communication->bytes = {bytes};
  }

  void update(std::int32_t layer) {
    Operation& op = add(layer, Phase::optimizer, Role::update, OpKind::adam, 1);
    op.key.dims[1] = 1;
    op.reads = {{Operand::gradient, reduced_[at(layer)]}};
    op.writes = {{Operand::weight, weight_[at(layer)]}};
  }

  std::int32_t layers_;
  PlanRequest request_;
  StepGraph graph_;
  ValueId activation_;
  std::vector<ValueId> weight_, gradient_, reduced_;
};

// Communication takes as long as compute: g = 3 c. Backward finishes a gradient every 2 c, and the newest is the most
// urgent one: two of its three parts travel before the next is there. So when backward ends, the first layer's gradient
// travels whole (g), and forward starts; a third of every other gradient is left, c each, and arrives just when forward
// wants it: (3 L + 3) c, which is the bound, for the chain through the first layer's gradient takes 3 L c + g. DDP
// sends gradients in the order in which they come, and forward waits for all: 2 c + L g + L c = (4 L + 2) c.
TEST(PriorityChain, ReachesTheClosedFormThatDdpCannot) {
  const LayerChain probe(1, 40'000'000, 12);
  const double c = probe.time(Phase::forward);
  ASSERT_GT(c, 1e5);
  for (const std::int32_t layers : {2, 3, 8, 20}) {
    LayerChain chain(layers, 40'000'000, static_cast<std::int64_t>(3 * c) / 12 * 12);
    const double rounding = 20.0 * layers;  // of every operation, and an update takes a nanosecond
    EXPECT_NEAR(chain.time(Phase::weight_grad), 2 * c, 1);
    EXPECT_NEAR(chain.step_ns("priority", 3), (3 * layers + 3) * c, rounding) << layers;
    EXPECT_NEAR(chain.step_ns("ddp", 3), (4 * layers + 2) * c, rounding) << layers;
    EXPECT_NEAR(chain.step_ns("serial", 3), 6 * layers * c, rounding) << layers;
  }
}

// Uncut, the gradient of the second layer (3 c, from 2 (L - 1) c on) is still under way when backward ends at 2 L c:
// the first layer's waits for c, and so does forward; everything else is there in time.
TEST(PriorityChain, WaitsForWhatIsUnderWayWithoutParts) {
  const double c = LayerChain(1, 40'000'000, 12).time(Phase::forward);
  LayerChain chain(2, 40'000'000, static_cast<std::int64_t>(3 * c) / 12 * 12);
  EXPECT_NEAR(chain.step_ns("priority", 1), (3 * 2 + 3 + 1) * c, 40);
}

// A fast link: only the first layer's gradient is seen, whatever the parts.
TEST(PriorityChain, ShowsTheFirstGradientOnlyWhereTheLinkIsFast) {
  const double c = LayerChain(1, 40'000'000, 12).time(Phase::forward);
  LayerChain chain(6, 40'000'000, static_cast<std::int64_t>(c) / 12 * 12);
  for (const int parts : {1, 2, 4}) EXPECT_NEAR(chain.step_ns("priority", parts), (3 * 6 + 1) * c, 200);
}

// As above (18 c of compute, c for a gradient), but a weight gradient may wait: while the first layer's gradient
// travels, compute works on the last layer's, whose turn on the link comes when forward has five layers to go. Nothing
// is seen.
TEST(PriorityChain, HidesTheFirstGradientBehindAWeightGradientThatWaits) {
  const double c = LayerChain::of_products(1, 2048, 12).time(Phase::forward);
  LayerChain chain = LayerChain::of_products(6, 2048, static_cast<std::int64_t>(c) / 12 * 12);
  ASSERT_NEAR(chain.time(Phase::weight_grad), c, 1);
  ASSERT_NEAR(chain.time(Phase::input_grad), c, 1);
  EXPECT_NEAR(chain.step_ns("priority", 1), 3 * 6 * c, 200);
  EXPECT_NEAR(chain.step_ns("ddp", 1), (3 * 6 + 1) * c, 200);
}

double bound_ns(const PlanRequest& r) {
  const StepGraph graph = build(r);
  const Cluster cluster(r.cluster);
  return step_bound(graph, CostModel(graph, cluster, r.profile)).seconds * 1e9;
}

class PriorityInEveryLayout : public testing::TestWithParam<int> {};

TEST_P(PriorityInEveryLayout, IsBetweenTheBoundAndSerial) {
  const std::vector<Transformer> models{small_gpt(), small_moe(), small_llama(), small_mla()};
  const std::vector<ClusterSpec> clusters{uneven_nics(), parse_cluster("dgx-a100:2"),
                                          parse_cluster("local:16,nic=200Mb/s")};
  const int zero = GetParam();
  std::size_t turn = zero;
  Sample sample;
  for (const auto& [name, base] : layouts()) {
    Layout layout = base;
    layout.zero = zero;
    layout.clip_grad = turn % 2 == 0 ? 1 : 0;
    const Transformer& model = base.ep > 1 ? models[turn % 2 * 2 + 1] : models[turn % 4];
    const ClusterSpec& cluster = clusters[turn % 3];
    ++turn;
    if (!sample.takes()) continue;
    SCOPED_TRACE(fmt::format("{}, {}, zero {}, {}, clip {}", model.name, name, zero, cluster.name, layout.clip_grad));
    const PlanRequest r = request(model, cluster, layout, layout.pp == 1 ? 2 : 4);
    const double step = simulated(r, "priority").period_ns;
    // What runs beside compute slows it a little; in these small models there is not always more to gain.
    EXPECT_LE(step, 1.005 * simulated(r, "serial").period_ns);
    const double bound = bound_ns(r);
    EXPECT_GE(step, bound - 1e-6 * bound);  // every part's time is rounded to whole nanoseconds
  }
}

INSTANTIATE_TEST_SUITE_P(Zero, PriorityInEveryLayout, testing::Range(0, 4));

}  // namespace
}  // namespace weft::test
