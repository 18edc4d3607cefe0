// What may go wrong with buckets and gathers that run beside compute is rejected by its rule.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

class RejectsOverlap : public ::testing::Test {
 protected:
  Plan plan_ = [] {
    PlanRequest r = test::request(test::small_llama(4), test::uneven_nics(), {.zero = 1, .clip_grad = 1}, 2);
    r.options.bucket_parameters = 30'000;
    return make_plan(r, test::build(r), "megatron-param");
  }();

  std::vector<OpId>& update(std::size_t rank_class) {
    return block_of(plan_.classes[rank_class], BlockKind::update).operations;
  }
  OpId nth(std::size_t rank_class, Role role, std::size_t n) {
    for (const OpId id : update(rank_class)) {
      if (plan_.graph.op(id).role == role && n-- == 0) return id;
    }
    ADD_FAILURE() << "no such operation";
    return OpId{0};
  }
  void expect(Rule rule, std::string_view words) const {
    const std::optional<Violation> found = verify_plan(plan_);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(name_of(found->rule), name_of(rule)) << found->message;
    EXPECT_NE(found->message.find(words), std::string::npos) << found->message;
  }
};

TEST_F(RejectsOverlap, NothingOfTheOriginal) {
  ASSERT_EQ(plan_.classes.size(), 2u);
  EXPECT_FALSE(verify_plan(plan_).has_value()) << verify_plan(plan_)->message;
  EXPECT_EQ(test::find_damage(plan_, 3, 5).value_or("safe"), "safe");
}

// The gather of the first layers' parameters moved before the update that it sends the result of.
TEST_F(RejectsOverlap, AGatherBeforeTheUpdate) {
  for (std::size_t c = 0; c < 2; ++c) {
    const OpId gather = nth(c, Role::param_gather, 0);
    std::erase(update(c), gather);
    update(c).insert(update(c).begin(), gather);
  }
  expect(Rule::deadlock, "it reads what it writes");
}

// Issued among the forwards of the step whose update it carries: what it sends is not there yet, and the forward before
// it ran without it.
TEST_F(RejectsOverlap, AGatherAfterItsUse) {
  for (std::size_t c = 0; c < 2; ++c) {
    ClassPlan& rank_class = plan_.classes[c];
    const OpId gather = nth(c, Role::param_gather, 0);
    std::erase(update(c), gather);
    plan_.issues[gather].queue = rank_class.queues.next_id();
    rank_class.queues.push_back({"late", QueueKind::communication});
    rank_class.blocks.push_back({BlockKind::extra, -1, {gather}});
    const IssueSlot late{rank_class.blocks.last_id(), kOncePerStep};
    rank_class.order.insert(rank_class.order.begin() + 1, late);
  }
  expect(Rule::hazard, "before anything has written it");
}

TEST_F(RejectsOverlap, GathersInAnotherOrderInOneClass) {
  const OpId a = nth(1, Role::param_gather, 0), b = nth(1, Role::param_gather, 1);
  std::iter_swap(std::find(update(1).begin(), update(1).end(), a), std::find(update(1).begin(), update(1).end(), b));
  expect(Rule::collective_order, "the other way round");
}

// Forward would read the weights of an iteration before.
TEST_F(RejectsOverlap, AForwardThatDoesNotWaitForItsGather) {
  const OpId gather = nth(0, Role::param_gather, 0);
  const ValueId weight = plan_.graph.op(gather).writes.front().value;
  for (Operation& op : plan_.graph.operations) {
    std::erase_if(op.reads, [&](const Read& read) { return read.value == weight; });
  }
  expect(Rule::provenance, "does not read what its origins read");
}

// One class cuts its buckets elsewhere: the numbers fit, what they carry does not.
TEST_F(RejectsOverlap, ABucketThatHoldsOtherParametersInOneClass) {
  Operation& first = plan_.graph.operations[nth(1, Role::grad_reduce, 0).index()];
  Operation& second = plan_.graph.operations[nth(1, Role::grad_reduce, 1).index()];
  ASSERT_GT(second.origins.size(), 1u);
  // Moves the last gradient of the second bucket into the first.
  const StepGraph whole = build_step_graph(plan_.model, Cluster(plan_.cluster), plan_.layout);
  const Operation& moved = whole.op(second.origins.back().operation);
  first.origins.push_back(second.origins.back());
  first.reads.push_back(moved.reads.front());
  first.writes.push_back(moved.writes.front());
  first.key.dims[0] += moved.key.dims[0];
  first.communication->bytes += moved.communication->bytes;
  second.origins.pop_back();
  std::erase(second.reads, moved.reads.front());
  std::erase(second.writes, moved.writes.front());
  second.key.dims[0] -= moved.key.dims[0];
  second.communication->bytes = second.communication->bytes - moved.communication->bytes;
  expect(Rule::provenance, "are one transfer, but carry out different ones of the model");
}

TEST_F(RejectsOverlap, ABucketUnderAnothersNumber) {
  Operation& first = plan_.graph.operations[nth(1, Role::grad_reduce, 0).index()];
  Operation& second = plan_.graph.operations[nth(1, Role::grad_reduce, 1).index()];
  std::swap(first.communication->transfer, second.communication->transfer);
  expect(Rule::provenance, "is numbered as transfer");
}

// Backward adds to a gradient whose bytes another's bucket is being reduced in.
TEST_F(RejectsOverlap, GradientsThatLieOnEachOther) {
  const Operation& reduce = plan_.graph.op(nth(0, Role::grad_reduce, 0));
  const Operation& other = plan_.graph.op(nth(0, Role::grad_reduce, 1));
  plan_.placements[reduce.reads.front().value.index()].offset =
      plan_.placements[other.reads.front().value.index()].offset;
  expect(Rule::hazard, "");
}

}  // namespace
}  // namespace weft
