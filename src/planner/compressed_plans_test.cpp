// Compressed gradients under every policy: plans are safe, sums lie where the gradients were, and what one parameter
// waits for others use.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "plan/verify/verify_plan.hpp"
#include "plan/woven_passes.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

class CompressedPlans : public ::testing::TestWithParam<std::string> {};

std::vector<test::NamedLayout> compressed_layouts() {
  return {{"dp 16", {}},
          {"dp 16, zero 1, clipped", {.zero = 1, .clip_grad = 1}},
          {"tp 2", {.tp = 2, .etp = 2, .sequence_parallel = true}},
          {"cp 4, zero 1", {.cp = 4, .zero = 1}},
          {"pp 4, clipped", {.pp = 4, .clip_grad = 1}},
          {"pp 2 interleaved, zero 1", {.pp = 2, .vpp = 2, .zero = 1, .schedule = PipelineSchedule::interleaved}}};
}

TEST_P(CompressedPlans, AreSafeInEveryLayout) {
  const std::vector<ClusterSpec> clusters{test::uneven_nics(), parse_cluster("dgx-a100:2"),
                                          parse_cluster("local:16,nic=200Mb/s")};
  std::size_t turn = GetParam().size();
  for (const auto& [name, base] : compressed_layouts()) {
    ++turn;
    Layout layout = base;
    layout.compress = {static_cast<CompressionFormat>(1 + turn % (kCompressionFormats - 1)), 1000};
    const Transformer model = turn % 2 == 0 ? test::small_gpt(4) : test::small_llama(4);
    SCOPED_TRACE(fmt::format("{}, {}, {}", name, model.name, name_of(layout.compress.format)));
    PlanRequest r = test::request(model, clusters[turn % 3], layout, layout.pp == 1 ? 2 : 4);
    const Plan plan = make_plan(r, test::build(r), GetParam());
    const std::optional<Violation> found = verify_plan(plan, {.memory_limit = {}, .check_memory = false});
    ASSERT_FALSE(found) << found->message;
    // The sum that the update reads lies where backward left the gradient.
    for (const Operation& op : plan.graph.operations) {
      if (op.role != Role::grad_encode || op.part != 0) continue;
      const auto reads_sum = std::ranges::find_if(plan.graph.operations, [&](const Operation& other) {
        const Role last = layout.zero == 1 ? Role::grad_merge : Role::grad_decode;
        return other.role == last && other.layer == op.layer && other.subject == op.subject &&
               other.rank_class == op.rank_class;
      });
      ASSERT_NE(reads_sum, plan.graph.operations.end());
      EXPECT_EQ(address(plan, write_of(*reads_sum, Operand::gradient), kOncePerStep),
                address(plan, read_of(op, Operand::gradient), kOncePerStep));
    }
  }
}

// Sequence parallelism sums gradients of norms over tensor-parallel ranks at the end of the step. At ZeRO 2 and 3 they
// are reduced in backward, in buckets with gradients that are finished later.
TEST_P(CompressedPlans, AreSafeBetweenNodesWhereShardsAreReducedInBackward) {
  for (const int zero : {2, 3}) {
    for (const std::int64_t tp : {1, 2}) {
      for (const std::int64_t least : {100, 1 << 20}) {  // all large parameters are encoded, none is
        SCOPED_TRACE(fmt::format("zero {}, tp {}, from {} elements on", zero, tp, least));
        Layout layout{.tp = tp, .etp = tp, .zero = zero, .sequence_parallel = tp > 1, .clip_grad = 1};
        layout.compress = {.format = CompressionFormat::int8, .min_elements = least, .between_nodes = true};
        const PlanRequest r = test::request(test::small_gpt(2), parse_cluster("dgx-a100:2"), layout, 2);
        const Plan plan = make_plan(r, test::build(r), GetParam());
        const std::optional<Violation> found = verify_plan(plan, {.memory_limit = {}, .check_memory = false});
        EXPECT_FALSE(found) << found->message;
      }
    }
  }
}

// Returns the place of every operation in the order of a class, with transfers.
std::map<OpId, std::size_t> issue_places(const Plan& plan) {
  std::map<OpId, std::size_t> places;
  for (const IssueSlot& slot : plan.classes.front().order) {
    for (const OpId id : operations_of(plan.classes.front(), slot)) places.emplace(id, places.size());
  }
  return places;
}

// Nothing of backward stands between the last operation that writes a gradient and its encoding.
TEST_P(CompressedPlans, EncodeAGradientAsSoonAsBackwardHasFinishedIt) {
  if (GetParam() == "serial") GTEST_SKIP() << "reduces when backward has ended";
  for (const std::int64_t ranks : {2, 4}) {
    for (const int zero : {0, 1}) {
      SCOPED_TRACE(fmt::format("{} ranks, zero {}", ranks, zero));
      Layout layout{.zero = zero};
      layout.compress = {CompressionFormat::int8, 1000};
      PlanRequest r =
          test::request(test::small_gpt(4), parse_cluster(fmt::format("local:{},nic=200Mb/s", ranks)), layout, 1);
      const Plan plan = make_plan(r, test::build(r), GetParam());
      const std::optional<Violation> found = verify_plan(plan, {.memory_limit = {}, .check_memory = false});
      ASSERT_FALSE(found) << found->message;
      // No forward lies between sections of backward, so both may still share their scratch memory.
      EXPECT_TRUE(has_sections(plan.classes.front()));
      EXPECT_FALSE(has_woven_passes(plan.classes.front()));
      const std::map<OpId, std::size_t> places = issue_places(plan);
      std::vector<bool> is_backward(places.size(), false);
      for (const auto& [id, place] : places) is_backward[place] = plan.graph.op(id).per_micro_batch;
      std::size_t encodings = 0;
      for (const auto& [id, place] : places) {
        const Operation& op = plan.graph.op(id);
        if (op.role != Role::grad_encode || op.part != 0) continue;
        ++encodings;
        std::size_t written = 0;
        for (const auto& [other, at] : places) {
          const Operation& writer = plan.graph.op(other);
          if (writer.per_micro_batch && writes_value(writer, read_of(op, Operand::gradient))) {
            written = std::max(written, at);
          }
        }
        EXPECT_GT(place, written) << describe(op);
        EXPECT_EQ(std::count(is_backward.begin() + static_cast<std::ptrdiff_t>(written) + 1,
                             is_backward.begin() + static_cast<std::ptrdiff_t>(place), true),
                  0)
            << describe(op);
      }
      EXPECT_GE(encodings, 4U * 4U);
    }
  }
}

// Links of many speeds make `priority` put weight gradients where the link wants them.
TEST_P(CompressedPlans, AreSafeWhateverTheLinkWants) {
  for (const char* const nic : {"20Mb/s", "200Mb/s", "1Gb/s", "4Gb/s", "20Gb/s"}) {
    for (const std::int64_t ranks : {2, 3}) {
      for (const std::int64_t least : {1, 5000, 20000}) {
        SCOPED_TRACE(fmt::format("{} ranks, {}, from {} elements on", ranks, nic, least));
        Layout layout;
        layout.compress = {CompressionFormat::int8, least};
        const Transformer model = least == 1 ? test::small_llama(2) : test::small_gpt(3);
        PlanRequest r = test::request(model, parse_cluster(fmt::format("local:{},nic={}", ranks, nic)), layout, 1);
        const Plan plan = make_plan(r, test::build(r), GetParam());
        const std::optional<Violation> found = verify_plan(plan, {.memory_limit = {}, .check_memory = false});
        ASSERT_FALSE(found) << found->message;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, CompressedPlans,
                         ::testing::Values("serial", "ddp", "megatron", "megatron-param", "centauri", "priority"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace weft
