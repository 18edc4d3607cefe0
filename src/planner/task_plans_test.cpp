// Plans with users' tasks and with work that may wait: safe under every policy and every decision, in bubbles and in
// line, with windows kept by runs of random timings.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.hpp"
#include "base/test_effort.hpp"
#include "plan/happens_before.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/test_decisions.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

// One task of every kind: between two moments of a step, into the next step, of every micro-batch, of weights.
std::vector<ExtraTask> tasks_of_every_kind() {
  return {{.name = "once", .duration = Nanos{5000}, .release = "layer 0 qkv forward"},
          {.name = "into the next step",
           .duration = Nanos{90000},
           .release = "layer 1 ffn_in weight_grad",
           .deadline = "layer 0 attention forward",
           .deadline_steps = 1},
          {.name = "each",
           .duration = Nanos{700},
           .per_micro_batch = true,
           .release = "layer 0 ffn_out forward",
           .deadline = "layer 0 ffn_out input_grad"},
          {.name = "weights", .norm_of = "layer 1 ffn_in", .release = "layer 0 qkv forward"}};
}

WholePlan with_bubbles_filled(const PlanRequest& request) {
  Overlap overlap;
  overlap.order.fill_bubbles = true;
  return overlapped_plan(request, test::build(request), "test", overlap);
}

void expect_windows_kept(const Plan& plan, std::uint64_t seed) {
  const std::optional<Violation> violation = verify_plan(plan, {.check_memory = false});
  ASSERT_FALSE(violation) << violation->message;
  const auto damage = test::find_damage(plan, seed, 3);
  ASSERT_FALSE(damage) << *damage;
}

TEST(TaskPlans, AreSafeUnderEveryPolicy) {
  using enum PipelineSchedule;
  std::vector<test::NamedLayout> layouts = {
      {"dp", {}},
      {"tp", {.tp = 2, .sequence_parallel = true}},
      {"zero 1", {.pp = 2, .zero = 1}},
      {"gpipe", {.pp = 4, .schedule = gpipe}},
      {"1f1b, clipped", {.pp = 2, .clip_grad = 1}},
      {"recomputing", {.pp = 2, .recompute = Recompute::full}},
      {"interleaved", {.pp = 2, .vpp = 2, .schedule = interleaved}},
      {"split backward", {.pp = 2, .schedule = zb_h2}},
      {"K-FAC", {.pp = 2, .kfac_interval = 2}},
  };
  for (auto& [name, layout] : layouts) {
    layout.tasks = tasks_of_every_kind();
    if (layout.vpp > 1 || layout.pp == 4) {  // stage 0 has layer 0 and no layer 1
      layout.tasks.erase(layout.tasks.begin() + 1);
      layout.tasks.back().norm_of = "layer 0 ffn_in";
    }
    const PlanRequest request = test::request(test::small_llama(4), parse_cluster("dgx-a100:1"), layout, 4);
    const SharedGraph graph = test::build(request);
    for (const std::string& policy : policy_names()) {
      if (policy == "weft") continue;  // its decisions are below
      SCOPED_TRACE(fmt::format("{}, {}", name, policy));
      expect_windows_kept(make_whole_plan(request, graph, policy).plan(), 1);
    }
    SCOPED_TRACE(name + ", in bubbles");
    expect_windows_kept(with_bubbles_filled(request).plan(), 2);
  }
}

TEST(TaskPlans, AreSafeWithEveryDecision) {
  int planned = 0;
  for (int seed = 1; seed <= test::rounds(40); ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const auto draw = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    };
    Layout layout;
    layout.pp = std::int64_t{1} << draw(2);
    layout.tp = std::int64_t{1} << draw(2);
    layout.zero = static_cast<int>(draw(2));
    layout.clip_grad = static_cast<double>(draw(2));
    if (draw(2) == 0) layout.tasks = tasks_of_every_kind();
    using enum WorkThatWaits;
    for (const WorkThatWaits work : {weight_grads, updates, encodings}) {
      if (draw(2) == 0) layout.may_wait.push_back(work);
    }
    using enum PipelineSchedule;
    layout.schedule = std::vector{gpipe, one_f_one_b, zb_h1, zb_h2}[static_cast<std::size_t>(draw(4))];
    const PlanRequest request = test::request(draw(2) == 0 ? test::small_llama(4) : test::small_gpt(4),
                                              parse_cluster("local:4,nic=200Mb/s"), layout, 1 + draw(5));
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const WholePlan made = test::plan_of_drawn_decisions(request, test::build(request), draw);
    if (!find_run_order(made.unfolded()).cycle.empty()) continue;
    ++planned;
    expect_windows_kept(made.plan(), static_cast<std::uint64_t>(seed));
  }
  EXPECT_GE(planned, test::rounds(40) * 9 / 10);
}

TEST(TaskPlans, StateAWindowOfAllWorkInBubbles) {
  Layout layout{.pp = 2, .kfac_interval = 1};
  layout.may_wait = {WorkThatWaits::weight_grads, WorkThatWaits::updates};
  const PlanRequest request = test::request(test::small_gpt(4), parse_cluster("local:2,nic=1Gb/s"), layout, 4);
  const WholePlan whole = with_bubbles_filled(request);
  const Plan& plan = whole.plan();
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    if (plan.classes[op.rank_class].queues[plan.issues[id].queue].kind != QueueKind::extra) continue;
    const auto window = std::ranges::find(plan.windows, id, &TaskWindow::operation);
    ASSERT_NE(window, plan.windows.end()) << describe(op);
    EXPECT_TRUE(window->release.valid()) << describe(op);
    ASSERT_TRUE(window->deadline.valid()) << describe(op);
    const std::string due = describe(plan.graph.op(window->deadline));
    if (op.role == Role::inversion) {
      EXPECT_NE(due.find("precondition"), std::string::npos) << due;
    }
    if (op.role == Role::update) {
      EXPECT_TRUE(due.find("forward") != std::string::npos && window->steps == 1) << due;
    }
  }
  expect_windows_kept(plan, 5);
}

struct Mistake {
  ExtraTask task;
  std::string words;
};

TEST(TaskPlans, MistakesAreNamed) {
  const Mistake mistakes[] = {
      {{.name = "a", .duration = Nanos{1}, .release = "layer 9 qkv forward"}, "has no operation 'layer 9 qkv forward'"},
      {{.name = "a", .norm_of = "layer 9 qkv"}, "has no weights 'layer 9 qkv'"},
      {{.name = "a", .duration = Nanos{1}, .stage = 7}, "stage 7 is not in 0..1"},
      {{.name = "a"}, "needs either a duration"},
      {{.name = "a", .duration = Nanos{1}, .per_micro_batch = true}, "needs a release or a deadline"},
      {{.name = "a", .duration = Nanos{1}, .per_micro_batch = true, .release = "layer 0 qkv update optimizer"},
       "runs once a step, and the task in every micro-batch"},
      // With 1F1B the first backward comes before the last forward.
      {{.name = "a", .duration = Nanos{1}, .release = "layer 0 qkv forward", .deadline = "layer 0 ffn_out input_grad"},
       "its deadline 'layer 0 ffn_out input_grad' comes before its release 'layer 0 qkv forward' of the last"}};
  for (const auto& [task, words] : mistakes) {
    Layout layout{.pp = 2};
    layout.tasks = {task};
    PlanRequest request = test::request(test::small_gpt(4), parse_cluster("local:2,nic=1Gb/s"), layout, 4);
    try {
      validate(request.layout, request.model, 2);
      make_plan(request, test::build(request), "serial");
      ADD_FAILURE() << "accepted: " << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("task 'a'"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace weft
