// Transfers cut into parts: accepted as they are, rejected with anything changed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/operation_part.hpp"
#include "graph/own_rows.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/overlap.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

// As `ddp` with a bucket for every parameter, each transfer in three parts.
Plan cut_plan(int zero, const ClusterSpec& cluster = test::uneven_nics(), Layout layout = {}) {
  layout.zero = zero;
  PlanRequest r = test::request(test::small_gpt(2), cluster, layout, 2);
  r.options = {.bucket_parameters = 1, .bucket_mib = 0};
  const SharedGraph graph = test::build(r);
  Overlap overlap = decide_overlap(r, graph, "megatron-param");
  for (const Operation& op : graph->operations) overlap.partition.parts.push_back(op.per_micro_batch ? 1 : 3);
  return make_whole_plan(r, graph, "megatron-param", overlap).plan();
}

std::string verdict(const Plan& plan) {
  const std::optional<Violation> found = verify_plan(plan, {.memory_limit = {}, .check_memory = false});
  return found ? fmt::format("{}: {}", name_of(found->rule), found->message) : "safe";
}

TEST(Parts, AreAcceptedAtEveryZeroStageAndRunAtRandomTimings) {
  for (int zero = 0; zero <= 3; ++zero) {
    const Plan plan = cut_plan(zero);
    EXPECT_EQ(std::any_of(plan.graph.operations.begin(), plan.graph.operations.end(), is_part), zero < 3);
    EXPECT_EQ(verdict(plan), "safe") << zero;
    EXPECT_EQ(test::find_damage(plan, 5, 5).value_or("safe"), "safe") << zero;
  }
  EXPECT_EQ(verdict(cut_plan(1, parse_cluster("dgx-a100:2"), {.tp = 2, .pp = 2, .sequence_parallel = true})), "safe");
}

class RejectsParts : public ::testing::Test {
 protected:
  Plan plan_ = cut_plan(1, parse_cluster("dgx-a100:1"));

  // The parts of a gradient's reduction.
  std::vector<OpId> parts() const {
    std::vector<OpId> found;
    for (std::size_t i = 0; i < plan_.graph.operations.size(); ++i) {
      const Operation& op = plan_.graph.operations[i];
      if (op.role == Role::grad_reduce && op.subject == Role::qkv && op.layer == 0) found.push_back(make_id<OpId>(i));
    }
    return found;
  }
  Operation& part(std::size_t i) { return plan_.graph.operations[parts()[i].index()]; }
  void set_bytes(std::size_t i, std::int64_t bytes) {
    part(i).communication->bytes = {bytes};
    part(i).key.dims[0] = bytes;
  }
  // Takes an operation out of the graph, the issues and the order.
  void drop(OpId gone) {
    plan_.graph.operations.erase(plan_.graph.operations.begin() + gone.value);
    plan_.issues.erase(plan_.issues.begin() + gone.value);
    for (IssueBlock& block : plan_.classes.front().blocks) {
      std::erase(block.operations, gone);
      for (OpId& id : block.operations) id.value -= id > gone ? 1 : 0;
    }
  }
  void expect(std::string_view rule, std::string_view words) const {
    EXPECT_EQ(verdict(plan_).substr(0, rule.size()), rule) << verdict(plan_);
    EXPECT_NE(verdict(plan_).find(words), std::string::npos) << verdict(plan_);
  }
};

TEST_F(RejectsParts, NothingOfTheOriginal) {
  ASSERT_EQ(parts().size(), 3u);
  EXPECT_EQ(verdict(plan_), "safe");
}

TEST_F(RejectsParts, APartThatIsMissing) {
  drop(parts()[1]);
  expect("provenance", "its parts do not follow each other: pieces 2..3 of 3 come after 1 of 3");
}

TEST_F(RejectsParts, ALastPartThatIsMissing) {
  drop(parts()[2]);
  expect("provenance", "its parts end with piece 2 of 3");
}

TEST_F(RejectsParts, APartTwice) {
  part(1).origins = part(0).origins;
  set_bytes(1, part(0).communication->bytes.value);
  expect("provenance", "pieces 0..1 of 3 come after 1 of 3");
}

TEST_F(RejectsParts, ABorderThatIsShifted) {
  part(1).origins.front().end = 3;
  set_bytes(1, part_size(plan_.graph, part(1), part(1).origins.front()));
  expect("provenance", "its parts do not follow each other");
}

TEST_F(RejectsParts, PiecesOfAnotherSize) {
  part(1).origins.front().of = 4;
  set_bytes(1, part_size(plan_.graph, part(1), part(1).origins.front()));
  expect("provenance", "its parts do not follow each other");
}

TEST_F(RejectsParts, BytesThatAreNotItsShare) {
  set_bytes(1, part(1).communication->bytes.value + 32);
  expect("provenance", "moves");
}

TEST_F(RejectsParts, AWholeBesideItsParts) {
  part(1).origins.front() = {part(1).origins.front().operation, 0, 0, 1, 1};
  expect("provenance", "");
}

TEST_F(RejectsParts, PiecesThatAreNone) {
  for (const Origin bad : {Origin{{}, 0, 2, 2, 3}, Origin{{}, 0, -1, 1, 3}, Origin{{}, 0, 2, 4, 3},
                           Origin{{}, 1, 1, 2, 3}, Origin{{}, 0, 1, 2, 1'000'000}, Origin{{}, 0, 0, 0, 0}}) {
    Plan changed = plan_;
    Origin& origin = changed.graph.operations[parts()[1].index()].origins.front();
    origin = {origin.operation, bad.axis, bad.begin, bad.end, bad.of};
    EXPECT_NE(verdict(changed), "safe") << bad.begin << " " << bad.end << " " << bad.of;
  }
}

TEST_F(RejectsParts, OneThatReadsOrWritesSomethingElse) {
  Plan changed = plan_;
  changed.graph.operations[parts()[1].index()].writes =
      part(2).reads.empty() ? std::vector<Write>{} : std::vector{Write{Operand::payload, part(2).reads.front().value}};
  EXPECT_NE(verdict(changed), "safe");
  part(1).reads.clear();
  expect("provenance", "does not read what its origins read");
}

// The update between the parts of what it reads: on the queue of compute it would wait for a part issued after it,
// which data allows; but in issue order its memory is not whole when it is read.
TEST_F(RejectsParts, AnUpdateBeforeTheLastPart) {
  std::vector<OpId>& order = block_of(plan_.classes.front(), BlockKind::update).operations;
  const OpId last = parts()[2];
  std::erase(order, last);
  order.push_back(last);
  EXPECT_NE(verdict(plan_), "safe");
}

// A part that goes to a queue of its own is still waited for by whoever uses its value next.
TEST_F(RejectsParts, NothingWherePartsHaveQueuesOfTheirOwn) {
  plan_.classes.front().queues.push_back({"another", QueueKind::communication});
  plan_.issues[parts()[1]].queue = plan_.classes.front().queues.last_id();
  EXPECT_EQ(verdict(plan_), "safe");
  EXPECT_EQ(test::find_damage(plan_, 7, 5).value_or("safe"), "safe");
}

// The product of rows that a rank holds itself, while a gather brings those of others.
class RejectsOwnRows : public ::testing::Test {
 protected:
  Plan plan_ = make_plan(request_, test::build(request_), "nanotron");

  Operation& own(Role role) {
    for (Operation& op : plan_.graph.operations) {
      if (op.role == role && op.layer == 0 && is_own_piece(op.origins.front())) return op;
    }
    ADD_FAILURE() << "no own rows";
    return plan_.graph.operations[OpId{0}];
  }

 private:
  static inline const PlanRequest request_ =
      test::request(test::small_gpt(2), parse_cluster("dgx-a100:1"), {.tp = 2, .sequence_parallel = true}, 2);
};

TEST_F(RejectsOwnRows, NothingOfTheOriginal) {
  EXPECT_EQ(verdict(plan_), "safe");
  EXPECT_EQ(test::find_damage(plan_, 5, 5).value_or("safe"), "safe");
}

TEST_F(RejectsOwnRows, OnesThatReadTheGatheredRows) {
  Operation& product = own(Role::qkv);
  product = reading_gathered_rows(plan_.graph, product);
  EXPECT_NE(verdict(plan_).find("does not read what its origins read"), std::string::npos) << verdict(plan_);
}

TEST_F(RejectsOwnRows, RowsOfOthersThatReadTheShard) {
  for (Operation& op : plan_.graph.operations) {
    const Origin& part = op.origins.front();
    if (op.role == Role::ffn_out && part.axis == kOwnFirstAxis && part.begin == 1)
      op = reading_own_shard(plan_.graph, op);
  }
  EXPECT_NE(verdict(plan_).find("does not read what its origins read"), std::string::npos) << verdict(plan_);
}

TEST_F(RejectsOwnRows, OnesOfAnotherSize) {
  own(Role::ffn_in).key.dims[0] -= 1;
  EXPECT_NE(verdict(plan_), "safe");
}

TEST_F(RejectsOwnRows, OwnAndOthersInOnePart) {
  Operation& product = own(Role::attention_out);
  product.origins.front().end = 2;
  product.origins.front().of = 3;
  EXPECT_NE(verdict(plan_).find("no part of it"), std::string::npos) << verdict(plan_);
}

TEST_F(RejectsOwnRows, AProductThatReadsNothingGathered) {
  for (Operation& op : plan_.graph.operations) {
    if (op.role != Role::attention_out || op.phase != Phase::forward || op.layer != 0) continue;
    op.origins.front().axis = kOwnFirstAxis;
    op.origins.front().of = 2;
  }
  EXPECT_NE(verdict(plan_), "safe");
}

TEST(RejectsPartsOfSeveralClasses, NumbersThatDoNotPairUp) {
  Plan plan = cut_plan(0);
  ASSERT_EQ(plan.graph.classes.size(), 2u);
  ASSERT_EQ(verdict(plan), "safe");
  // Second and third part of one transfer change places in one class.
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (op.rank_class.value == 0 && is_part(op) && op.layer == 0 && op.subject == Role::ffn_in) found.push_back(i);
  }
  ASSERT_EQ(found.size(), 3u);
  std::swap(plan.graph.operations[found[1]].communication->transfer,
            plan.graph.operations[found[2]].communication->transfer);
  EXPECT_EQ(verdict(plan).substr(0, 10), "provenance") << verdict(plan);
}

}  // namespace
}  // namespace weft
