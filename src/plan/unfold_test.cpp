#include "plan/unfold.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

// By hand, three micro-batches. Stage 0: forward (reads the weight of the last step), send. Stage 1: receive, product
// (adds to the gradient), and once a step a reduction and an update.
class HandMade : public ::testing::Test {
 protected:
  static constexpr std::int32_t kMicroBatches = 3;

  HandMade() {
    plan_.graph.micro_batches = kMicroBatches;
    plan_.graph.classes.resize(2);
    plan_.graph.classes[0].name = "stage 0";
    plan_.graph.classes[1].name = "stage 1";
    plan_.classes.resize(2);
    plan_.classes[0].queues = {{"compute", QueueKind::compute}, {"pp", QueueKind::communication}};
    plan_.classes[1].queues = {
        {"compute", QueueKind::compute}, {"pp", QueueKind::communication}, {"dp", QueueKind::communication}};
    const ValueId weight0 = value(0, false), sent = value(0, true), received = value(1, true);
    const ValueId weight1 = value(1, false), grad = value(1, false), reduced = value(1, false);
    plan_.graph.values[grad.index()].accumulated = true;
    forward_ = op(0, Role::qkv, true, {{Operand::weight, weight0, 1}}, {{Operand::output, sent}});
    send_ = op(0, Role::stage_output, true, {{Operand::payload, sent}}, {}, 7);
    update0_ = op(0, Role::update, false, {}, {{Operand::weight, weight0}});
    receive_ = op(1, Role::stage_input, true, {}, {{Operand::payload, received}}, 7);
    product_ = op(1, Role::ffn_in, true, {{Operand::input, received}, {Operand::weight, weight1, 1}},
                  {{Operand::weight_grad, grad}});
    reduce_ = op(1, Role::grad_reduce, false, {{Operand::payload, grad}}, {{Operand::payload, reduced}}, -1);
    update1_ = op(1, Role::update, false, {{Operand::gradient, reduced}}, {{Operand::weight, weight1}});
    issue(send_, 1, false);
    issue(receive_, 1, true);
    issue(reduce_, 2, true);
    plan_.classes[0].blocks = {{BlockKind::forward, 0, {forward_, send_}}, {BlockKind::update, -1, {update0_}}};
    plan_.classes[1].blocks = {{BlockKind::forward, 0, {receive_, product_}},
                               {BlockKind::update, -1, {reduce_, update1_}}};
    for (ClassPlan& c : plan_.classes) {
      for (std::int32_t mb = 0; mb < kMicroBatches; ++mb) c.order.push_back({BlockId{0}, MicroBatch{mb}});
      c.order.push_back({1, -1});
    }
  }

  ValueId value(std::int32_t rank_class, bool per_micro_batch) {
    Value v;
    v.rank_class = ClassId{rank_class};
    v.per_micro_batch = per_micro_batch;
    plan_.graph.values.push_back(v);
    return make_id<ValueId>(plan_.graph.values.size() - 1);
  }

  OpId op(std::int32_t rank_class, Role role, bool per_micro_batch, std::vector<Read> reads, std::vector<Write> writes,
          std::optional<std::int32_t> transfer = {}) {
    Operation o;
    o.rank_class = ClassId{rank_class};
    o.role = o.subject = role;
    o.per_micro_batch = per_micro_batch;
    o.reads = std::move(reads);
    o.writes = std::move(writes);
    if (transfer) o.communication.emplace().transfer = *transfer;
    plan_.graph.operations.push_back(std::move(o));
    plan_.issues.push_back({});
    return make_id<OpId>(plan_.graph.operations.size() - 1);
  }

  void issue(OpId id, std::int32_t queue, bool blocking) { plan_.issues[id] = {{queue}, blocking}; }

  // What an instance waits for, as (operation, micro-batch, distance, kind), sorted.
  using Wait = std::tuple<OpId, std::int32_t, int, EdgeKind>;
  static std::vector<Wait> waits(const Unfolded& u, OpId id, std::int32_t mb) {
    std::vector<Wait> result;
    for (const Edge& edge : u.waits_for(u.instance_of(id, {mb}))) {
      const Instance& from = u.instances()[edge.from];
      result.emplace_back(from.operation, from.micro_batch.value, edge.distance, edge.kind);
    }
    std::sort(result.begin(), result.end());
    return result;
  }
  static std::vector<Wait> sorted(std::vector<Wait> list) {
    std::sort(list.begin(), list.end());
    return list;
  }

  std::string error() const {
    try {
      const Unfolded unfolded(plan_);
    } catch (const Error& e) {
      return e.what();
    }
    return "none";
  }

  Plan plan_;
  OpId forward_, send_, update0_, receive_, product_, reduce_, update1_;
};

using enum EdgeKind;

TEST_F(HandMade, HasAnInstancePerMicroBatchAndOneOfEachOnceAStep) {
  const Unfolded u(plan_);
  EXPECT_EQ(u.instances().size(), 4u * kMicroBatches + 3u);
  for (const OpId id : {forward_, send_, receive_, product_}) {
    for (const MicroBatch mb : IdRange<MicroBatch>(kMicroBatches)) {
      const Instance& i = u.instances()[u.instance_of(id, mb)];
      EXPECT_EQ(i.operation, id);
      EXPECT_EQ(i.micro_batch, mb);
    }
  }
  EXPECT_EQ(u.instance_of(update1_, {0}), u.instance_of(update1_, {2}));
  EXPECT_EQ(u.instances()[u.instance_of(update1_, kOncePerStep)].micro_batch, kOncePerStep);
  EXPECT_EQ(u.queue_length({0}, {0}), kMicroBatches + 1);
  EXPECT_EQ(u.queue_length({0}, {1}), kMicroBatches);
  EXPECT_EQ(u.queue_length({1}, {2}), 1);
}

TEST_F(HandMade, ChainHoldsComputeAndBlockingTransfers) {
  const Unfolded u(plan_);
  EXPECT_EQ(u.chain_length({0}), kMicroBatches + 1);      // forwards and the update
  EXPECT_EQ(u.chain_length({1}), 2 * kMicroBatches + 2);  // all
  const auto chain = [&](OpId id, std::int32_t mb) { return u.instances()[u.instance_of(id, {mb})].chain_position; };
  EXPECT_EQ(chain(send_, 1), -1);
  EXPECT_EQ(chain(receive_, 1), 2);
  EXPECT_EQ(chain(product_, 1), 3);
  EXPECT_EQ(chain(reduce_, 0), 6);
}

TEST_F(HandMade, DataFollowsMicroBatchesAndSteps) {
  const Unfolded u(plan_);
  // Per micro-batch from once a step, at distance 1; the queue wraps to the last of the previous iteration.
  EXPECT_EQ(waits(u, forward_, 0), sorted({{update0_, -1, 1, data}, {update0_, -1, 1, queue}}));
  EXPECT_EQ(waits(u, forward_, 2), sorted({{update0_, -1, 1, data}, {forward_, 1, 0, queue}}));
  // Per micro-batch from the same micro-batch. Sends block nothing.
  EXPECT_EQ(waits(u, send_, 0), sorted({{forward_, 0, 0, data}, {send_, 2, 1, queue}}));
  EXPECT_EQ(waits(u, send_, 1), sorted({{forward_, 1, 0, data}, {send_, 0, 0, queue}}));
  // Once a step from every micro-batch; blocking, so after the chain before it.
  EXPECT_EQ(waits(u, reduce_, -1), sorted({{product_, 0, 0, data},
                                           {product_, 1, 0, data},
                                           {product_, 2, 0, data},
                                           {reduce_, -1, 1, queue},
                                           {product_, 2, 0, blocking}}));
  // Once a step from once a step.
  EXPECT_EQ(waits(u, update1_, -1),
            sorted({{reduce_, -1, 0, data}, {product_, 2, 0, queue}, {reduce_, -1, 0, blocking}}));
}

TEST_F(HandMade, BlockingTransfersTieTheChainTogetherAndAcrossTheStep) {
  const Unfolded u(plan_);
  EXPECT_EQ(waits(u, receive_, 0), sorted({{receive_, 2, 1, queue}, {update1_, -1, 1, blocking}}));
  EXPECT_EQ(waits(u, receive_, 1), sorted({{receive_, 0, 0, queue}, {product_, 0, 0, blocking}}));
  EXPECT_EQ(
      waits(u, product_, 0),
      sorted({{receive_, 0, 0, data}, {update1_, -1, 1, data}, {update1_, -1, 1, queue}, {receive_, 0, 0, blocking}}));
}

TEST_F(HandMade, MembersOfATransferAreJoinedPerMicroBatch) {
  const Unfolded u(plan_);
  EXPECT_EQ(u.joints(), static_cast<std::size_t>(kMicroBatches));
  for (const MicroBatch mb : IdRange<MicroBatch>(kMicroBatches)) {
    const InstanceId send = u.instance_of(send_, mb), receive = u.instance_of(receive_, mb);
    const JointId joint = u.instances()[send].joint;
    ASSERT_TRUE(joint.valid());
    EXPECT_EQ(u.instances()[receive].joint, joint);
    const auto members = u.members(joint);
    EXPECT_EQ(std::vector<InstanceId>(members.begin(), members.end()), (std::vector{send, receive}));
  }
  // A collective inside one class is joined with nothing.
  EXPECT_FALSE(u.instances()[u.instance_of(reduce_, kOncePerStep)].joint.valid());
}

TEST_F(HandMade, WaitsAsToldInTheSameMicroBatch) {
  plan_.waits = {{receive_, product_, 1}, {product_, product_, 1}, {send_, forward_, 0}};
  const auto told = [&](const Unfolded& u, OpId id, std::int32_t mb) {
    std::vector<Wait> result = waits(u, id, mb);
    std::erase_if(result, [](const Wait& w) { return std::get<3>(w) != wait; });
    return result;
  };
  const Unfolded u(plan_);
  for (std::int32_t mb = 0; mb < kMicroBatches; ++mb) {
    EXPECT_EQ(told(u, send_, mb), (std::vector<Wait>{{forward_, mb, 0, wait}}));
    EXPECT_TRUE(told(u, forward_, mb).empty());
  }
  // One execution back: the micro-batch before; the first waits for the last of the previous iteration.
  EXPECT_EQ(told(u, receive_, 0), (std::vector<Wait>{{product_, 2, 1, wait}}));
  EXPECT_EQ(told(u, receive_, 1), (std::vector<Wait>{{product_, 0, 0, wait}}));
  EXPECT_EQ(told(u, receive_, 2), (std::vector<Wait>{{product_, 1, 0, wait}}));
  // Executions are counted in issue order, whatever the micro-batches are called.
  std::swap(plan_.classes[1].order[0], plan_.classes[1].order[2]);
  const Unfolded reversed(plan_);
  EXPECT_EQ(told(reversed, product_, 2), (std::vector<Wait>{{product_, 0, 1, wait}}));
  EXPECT_EQ(told(reversed, product_, 1), (std::vector<Wait>{{product_, 2, 0, wait}}));
  EXPECT_EQ(told(reversed, product_, 0), (std::vector<Wait>{{product_, 1, 0, wait}}));
  // Once a step: the previous execution is the previous iteration's.
  plan_.waits = {{update1_, reduce_, 0}, {reduce_, update1_, 1}};
  const Unfolded steps(plan_);
  EXPECT_EQ(told(steps, update1_, -1), (std::vector<Wait>{{reduce_, -1, 0, wait}}));
  EXPECT_EQ(told(steps, reduce_, -1), (std::vector<Wait>{{update1_, -1, 1, wait}}));
  // Every micro-batch waits for what runs once a step: that of its own step, or of the one before.
  plan_.waits = {{product_, update1_, 1}};
  const Unfolded by_step(plan_);
  for (std::int32_t mb = 0; mb < kMicroBatches; ++mb) {
    EXPECT_EQ(told(by_step, product_, mb), (std::vector<Wait>{{update1_, -1, 1, wait}})) << mb;
  }
}

TEST_F(HandMade, SaysWhichWaitNamesWhatCannotBe) {
  plan_.waits = {{forward_, send_, 0}, {OpId{7}, send_, 0}};
  EXPECT_EQ(error(), "wait 1 names operation 7, which is not in 0..6");
  plan_.waits = {{forward_, OpId{-1}, 0}};
  EXPECT_EQ(error(), "wait 0 names operation -1, which is not in 0..6");
  plan_.waits = {{forward_, send_, 2}};
  EXPECT_EQ(error(), "wait 0 reaches 2 executions back; 0 and 1 are allowed");
  plan_.waits = {{forward_, receive_, 0}};
  EXPECT_EQ(
      error(),
      "wait 0: 'qkv forward' of stage 0 cannot wait for 'stage_input forward' of stage 1; waits are within a rank "
      "class");
  plan_.waits = {{update0_, forward_, 1}};
  EXPECT_EQ(error(),
            "wait 0: 'update forward', which runs once a step, waits for the last 'qkv forward' of its own step; 1 "
            "executions back is not allowed");
}

TEST_F(HandMade, SaysWhatIsIssuedTwiceOrNever) {
  const Plan original = plan_;
  plan_.classes[0].order.push_back({0, 1});
  EXPECT_EQ(error(), "stage 0: qkv forward, micro-batch 1 is issued twice");
  plan_ = original;
  plan_.classes[1].order.erase(plan_.classes[1].order.begin() + 2);
  EXPECT_EQ(error(), "stage 1: 'stage_input forward', micro-batch 2, is never issued");
  plan_ = original;
  block_of(plan_.classes[1], BlockKind::update).operations.pop_back();
  EXPECT_EQ(error(), "stage 1: 'update forward' is never issued");
}

TEST_F(HandMade, OfABlockInTwoBlocksSaysSo) {
  block_of(plan_.classes[0], BlockKind::update).operations.push_back(forward_);
  EXPECT_EQ(error(), "stage 0: 'qkv forward' runs once per micro-batch, but its slot says micro-batch -1");
}

// Counts and edges of a real plan against the rules of step_graph.hpp, applied naively.
TEST(Unfold, OfARealPlanHasExactlyTheEdgesThatTheGraphImplies) {
  const Plan plan = test::serial(test::small_moe(4), "local:4",
                                 {.pp = 2, .vpp = 2, .ep = 2, .zero = 1, .schedule = PipelineSchedule::interleaved});
  const Unfolded u(plan);
  std::size_t instances = 0;
  for (const Operation& op : plan.graph.operations) instances += op.per_micro_batch ? 4 : 1;
  EXPECT_EQ(u.instances().size(), instances);
  for (const ClassId c : plan.classes.ids()) {
    for (const InstanceId i : u.instances_of(c)) EXPECT_EQ(u.instances()[i].rank_class, c);
    instances -= u.instances_of(c).size();
  }
  EXPECT_EQ(instances, 0u);
  for (const InstanceId i : u.instances().ids()) {
    const Instance& instance = u.instances()[i];
    std::multiset<std::tuple<OpId, MicroBatch, int>> expected, found;
    for (const Read& read : plan.graph.op(instance.operation).reads) {
      for (const Instance& other : u.instances()) {
        const bool same =
            !instance.micro_batch.valid() || !other.micro_batch.valid() || other.micro_batch == instance.micro_batch;
        if (same && writes_value(plan.graph.op(other.operation), read.value)) {
          expected.insert({other.operation, other.micro_batch, read.distance});
        }
      }
    }
    int in_queue = 0;
    for (const Edge& edge : u.waits_for(i)) {
      const Instance& from = u.instances()[edge.from];
      if (edge.kind == EdgeKind::data) found.insert({from.operation, from.micro_batch, edge.distance});
      if (edge.kind == EdgeKind::queue) ++in_queue;
    }
    EXPECT_EQ(found, expected) << describe(plan, instance);
    EXPECT_EQ(in_queue, 1) << describe(plan, instance);
  }
}

}  // namespace
}  // namespace weft
