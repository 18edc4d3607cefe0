// Pipeline schedules as actions: what plans become, and what the verifier finds in broken ones.
#include "plan/pipeline/pipeline_actions.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cluster/presets.hpp"
#include "model/presets.hpp"
#include "plan/pipeline/receive_buffers.hpp"
#include "plan/pipeline/verify_actions.hpp"
#include "planner/policy/policy.hpp"

namespace weft {
namespace {

Plan plan_of(Layout layout, std::int64_t micro_batches) {
  PlanRequest request;
  request.model = model_preset("gpt2");
  request.cluster = parse_cluster("dgx-a100:1");
  layout.dp = 8 / layout.pp;
  layout.seq = 64;
  layout.global_batch = micro_batches * layout.dp;
  request.layout = layout;
  return make_plan(request, build_step_graph(request.model, Cluster(request.cluster), layout), "serial");
}

std::string text_of(const std::vector<PipelineAction>& actions) {
  std::string text;
  for (const PipelineAction& action : actions) {
    if (!text.empty()) text += ' ';
    text += name_of(action);
  }
  return text;
}

PipelineActions two_stages() {
  return passes_of(plan_of({.pp = 2}, 3));
}

// 1F1B on two stages (Narayanan et al., figure 4): the first stage is one forward ahead.
TEST(PipelineActions, OneForwardOneBackward) {
  const PipelineActions passes = two_stages();
  EXPECT_EQ(text_of(passes[0]), "0F0 0F1 0B0 0F2 0B1 0B2");
  EXPECT_EQ(text_of(passes[1]), "1F0 1B0 1F1 1B1 1F2 1B2");
}

// Chunk c of rank r is stage c * pp + r.
TEST(PipelineActions, StagesOfSeveralModelChunksAreInTheOrderOfTheModel) {
  const PipelineActions passes = passes_of(plan_of({.pp = 2, .vpp = 2, .schedule = PipelineSchedule::interleaved}, 2));
  EXPECT_EQ(text_of(passes[0]).substr(0, 15), "0F0 0F1 2F0 2F1");
  EXPECT_TRUE(text_of(passes[1]).starts_with("1F0 1F1 3F0"));
}

// Stages 0 and 3 are the first rank's, 1 and 2 the second's; gradients of inputs and of weights are actions of their
// own.
TEST(PipelineActions, WavesHaveBothEndsOnTheFirstRank) {
  const PipelineActions passes = passes_of(plan_of({.pp = 2, .vpp = 2, .schedule = PipelineSchedule::zbv}, 4));
  for (const PipelineAction& pass : passes[0]) EXPECT_TRUE(pass.stage == 0 || pass.stage == 3) << name_of(pass);
  for (const PipelineAction& pass : passes[1]) EXPECT_TRUE(pass.stage == 1 || pass.stage == 2) << name_of(pass);
  EXPECT_TRUE(text_of(passes[1]).starts_with("1F0 2F0"));
  EXPECT_EQ(text_of(passes[0]).find('B'), std::string::npos);
}

TEST(PipelineActions, EveryScheduleIsSafeWithAndWithoutMessages) {
  for (const auto& [schedule, vpp] : {std::pair{PipelineSchedule::gpipe, 1},
                                      {PipelineSchedule::one_f_one_b, 1},
                                      {PipelineSchedule::interleaved, 3},
                                      {PipelineSchedule::breadth_first, 3},
                                      {PipelineSchedule::zb_h1, 1},
                                      {PipelineSchedule::zb_h2, 1},
                                      {PipelineSchedule::zbv, 2},
                                      {PipelineSchedule::v_half, 2},
                                      {PipelineSchedule::v_min, 2},
                                      {PipelineSchedule::searched_waves, 2},
                                      {PipelineSchedule::searched_loops, 3}}) {
    const PipelineActions passes = passes_of(plan_of({.pp = 4, .vpp = vpp, .schedule = schedule}, 8));
    EXPECT_FALSE(verify_actions(passes)) << verify_actions(passes)->message;
    const auto lowered = with_messages(passes);
    ASSERT_TRUE(lowered);
    EXPECT_FALSE(verify_actions(*lowered)) << verify_actions(*lowered)->message;
    // 4 vpp - 1 borders of stages, 8 micro-batches, two directions, two ends. A wave turns on the last rank, without a
    // message.
    const bool is_wave = vpp == 2;
    std::size_t messages = 0;
    for (const auto& rank : *lowered) {
      for (const PipelineAction& action : rank) messages += is_message(action.kind) ? 1U : 0U;
    }
    EXPECT_EQ(messages, static_cast<std::size_t>((4 * vpp - (is_wave ? 2 : 1)) * 8 * 2 * 2));
  }
}

TEST(PipelineActions, GradientsAreReducedBehindTheLastBackwardOfAStage) {
  const PipelineActions actions = with_reductions(two_stages());
  EXPECT_EQ(text_of(actions[0]), "0F0 0F1 0B0 0F2 0B1 0B2 0REDUCE_GRAD");
  EXPECT_FALSE(verify_actions(actions));
  EXPECT_FALSE(verify_actions(*with_messages(actions)));
}

Rule rule_broken(const PipelineActions& actions) {
  const auto violation = verify_actions(actions);
  EXPECT_TRUE(violation);
  return violation ? violation->rule : Rule::memory;
}

TEST(VerifyActions, LostAndRepeatedPassesAreFound) {
  PipelineActions lost = two_stages(), twice = two_stages(), elsewhere = two_stages(), halved = two_stages();
  lost[0].pop_back();
  EXPECT_EQ(rule_broken(lost), Rule::provenance);
  twice[1].push_back({ActionKind::backward, 1, 0});
  EXPECT_EQ(rule_broken(twice), Rule::provenance);
  elsewhere[1].push_back({ActionKind::weight_grad, 0, 0});
  EXPECT_EQ(rule_broken(elsewhere), Rule::provenance);
  halved[1][1].kind = ActionKind::input_grad;  // without its weights
  EXPECT_EQ(rule_broken(halved), Rule::provenance);
}

TEST(VerifyActions, ABackwardBeforeItsForwardIsFound) {
  PipelineActions early = two_stages();
  std::swap(early[1][0], early[1][1]);
  EXPECT_EQ(rule_broken(early), Rule::hazard);
}

TEST(VerifyActions, GradientsThatAreReducedEarlyOrTwiceAreFound) {
  PipelineActions early = with_reductions(two_stages()), twice = early;
  std::swap(early[0][5], early[0][6]);
  EXPECT_EQ(rule_broken(early), Rule::hazard);
  twice[1].push_back({ActionKind::reduce_grad, 1, -1});
  EXPECT_EQ(rule_broken(twice), Rule::provenance);
}

// Rank 0 waits for the backward of micro-batch 0 before it sends micro-batch 1, for which rank 1 waits first.
TEST(VerifyActions, ACircleOfPassesIsADeadlock) {
  const auto forward = [](std::int64_t stage, std::int64_t i) { return PipelineAction{ActionKind::forward, stage, i}; };
  const auto backward = [](std::int64_t stage, std::int64_t i) {
    return PipelineAction{ActionKind::backward, stage, i};
  };
  EXPECT_EQ(rule_broken({{forward(0, 0), backward(0, 0), forward(0, 1), backward(0, 1)},
                         {forward(1, 0), forward(1, 1), backward(1, 0), backward(1, 1)}}),
            Rule::deadlock);
}

// Every rank's own order is right, and buffered messages would arrive; but both ends meet in different orders.
TEST(VerifyActions, MessagesInDifferentOrdersAreADeadlock) {
  PipelineActions actions = *with_messages(two_stages());
  std::vector<PipelineAction>& first = actions[0];
  const PipelineAction sent{ActionKind::send_forward, 0, 1}, received{ActionKind::receive_backward, 0, 0};
  const auto a = std::find(first.begin(), first.end(), sent), b = std::find(first.begin(), first.end(), received);
  ASSERT_TRUE(a != first.end() && b != first.end());
  EXPECT_FALSE(verify_actions(actions));
  std::iter_swap(a, b);
  const auto violation = verify_actions(actions);
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->rule, Rule::deadlock);
  EXPECT_NE(violation->message.find("different orders"), std::string::npos) << violation->message;
  // Activations and gradients in communicators of their own would pass each other, if both ran at the same time.
  EXPECT_NE(violation->message.find("which NCCL does not promise"), std::string::npos) << violation->message;
}

// Two activations in different orders at their ends: no communicator of their direction carries both.
TEST(VerifyActions, MessagesOfOneDirectionInDifferentOrdersAreADeadlockInAnyCase) {
  PipelineActions actions = *with_messages(two_stages());
  std::vector<PipelineAction>& second = actions[1];
  const auto a = std::ranges::find(second, PipelineAction{ActionKind::receive_forward, 1, 0}),
             b = std::ranges::find(second, PipelineAction{ActionKind::receive_forward, 1, 1});
  ASSERT_TRUE(a != second.end() && b != second.end());
  second.insert(second.begin(), *b);  // before the first of all
  second.erase(std::find(second.begin() + 1, second.end(), PipelineAction{ActionKind::receive_forward, 1, 1}));
  const auto violation = verify_actions(actions);
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->rule, Rule::deadlock);
  EXPECT_EQ(violation->message.find("which NCCL does not promise"), std::string::npos) << violation->message;
}

// Stage s of p holds min(p - s, m) micro-batches of 1F1B between forward and backward (Narayanan et al., 2021), and the
// next activation is received before the oldest of them has ended, or behind it. GPipe holds all of them.
TEST(ReceiveBuffers, AsManyAsMicroBatchesInFlight) {
  for (const std::int64_t micro_batches : {4, 8}) {
    const auto needed = [&](PipelineSchedule schedule) {
      return receive_buffers_needed(*with_messages(passes_of(plan_of({.pp = 4, .schedule = schedule}, micro_batches))));
    };
    EXPECT_EQ(needed(PipelineSchedule::gpipe), micro_batches);
    EXPECT_GE(needed(PipelineSchedule::one_f_one_b), 3);  // of stage 1
    EXPECT_LE(needed(PipelineSchedule::one_f_one_b), 4);
  }
}

// Rank 1 has 1F0 1B0 1F1 1B1 1F2 1B2. Where the activation of micro-batch 1 arrives before 1B0, one buffer is too few.
TEST(ReceiveBuffers, AMessageThatIsStillNeededIsFound) {
  const PipelineAction forward[] = {{ActionKind::forward, 1, 0}, {ActionKind::forward, 1, 1}},
                       backward[] = {{ActionKind::backward, 1, 0}, {ActionKind::backward, 1, 1}},
                       receive[] = {{ActionKind::receive_forward, 1, 0}, {ActionKind::receive_forward, 1, 1}};
  const PipelineActions early = {{}, {receive[0], forward[0], receive[1], backward[0], forward[1], backward[1]}};
  const PipelineActions late = {{}, {receive[0], forward[0], backward[0], receive[1], forward[1], backward[1]}};
  const auto violation = find_overwritten_message(early, 1);
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->rule, Rule::hazard);
  EXPECT_EQ(violation->message,
            "rank 1: 1RECV_F1 fills the receive buffer of micro-batch 0, which 1B0 still needs (1 for each stage and "
            "direction)");
  EXPECT_FALSE(find_overwritten_message(early, 2));
  EXPECT_FALSE(find_overwritten_message(late, 1));
  EXPECT_EQ(receive_buffers_needed(early), 2);
  EXPECT_EQ(receive_buffers_needed(late), 1);
  EXPECT_EQ(receive_buffers_needed({{forward[0]}}), 0);
}

TEST(VerifyActions, MessagesThatAreMissingOrTooManyAreFound) {
  PipelineActions lost = *with_messages(two_stages()), early = lost, stray = lost;
  std::erase(lost[1], PipelineAction{ActionKind::receive_forward, 1, 2});
  EXPECT_EQ(rule_broken(lost), Rule::collective_order);
  stray[0].push_back({ActionKind::send_backward, 0, 0});
  EXPECT_EQ(rule_broken(stray), Rule::collective_order);
  const auto send = std::find(early[0].begin(), early[0].end(), PipelineAction{ActionKind::send_forward, 0, 0});
  std::iter_swap(early[0].begin(), send);  // before its forward
  EXPECT_EQ(rule_broken(early), Rule::hazard);
}

TEST(VerifyActions, APassOnShardedParametersIsFound) {
  PipelineActions actions = two_stages();
  actions[0].insert(actions[0].begin() + 2, {{ActionKind::reshard, 0, -1}, {ActionKind::unshard, 0, -1}});
  EXPECT_EQ(rule_broken(actions), Rule::hazard);
  actions[0].insert(actions[0].begin(), {ActionKind::unshard, 0, -1});
  EXPECT_FALSE(verify_actions(actions));
}

// Carries out one action after the other, a message at both ends at once. It matters not which rank goes first: what
// can run once can run until it has.
bool comes_to_the_end(const PipelineActions& actions) {
  const StageRanks ranks = stage_ranks(actions);
  std::vector<std::vector<PipelineAction>> compute(actions.size()), messages(actions.size());
  for (std::size_t rank = 0; rank < actions.size(); ++rank) {
    for (const PipelineAction& action : actions[rank]) {
      (is_message(action.kind) ? messages : compute)[rank].push_back(action);
    }
  }
  std::set<PipelineAction> done;
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < actions.size(); ++rank) {
      if (!compute[rank].empty() && ranks.can_run(compute[rank].front(), done)) {
        done.insert(compute[rank].front());
        compute[rank].erase(compute[rank].begin());
        moved = true;
      }
      for (std::size_t other = 0; other < actions.size(); ++other) {
        if (messages[rank].empty() || messages[other].empty()) continue;
        const PipelineAction sent = messages[rank].front();
        if (sent.kind != ActionKind::send_forward && sent.kind != ActionKind::send_backward) continue;
        const ActionKind pass = sent.kind == ActionKind::send_forward ? ActionKind::forward : ActionKind::backward;
        if (messages[other].front() != counterpart(sent) || !done.contains({pass, sent.stage, sent.micro_batch}))
          continue;
        done.insert(counterpart(sent));
        messages[rank].erase(messages[rank].begin());
        messages[other].erase(messages[other].begin());
        moved = true;
      }
    }
  }
  return std::all_of(compute.begin(), compute.end(), [](const auto& rest) { return rest.empty(); }) &&
         std::all_of(messages.begin(), messages.end(), [](const auto& rest) { return rest.empty(); });
}

TEST(VerifyActions, SwappedActionsAreRefusedExactlyWhereTheyHang) {
  std::mt19937 random(3);
  const PipelineActions safe = *with_messages(passes_of(plan_of({.pp = 4}, 4)));
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    PipelineActions changed = safe;
    std::vector<PipelineAction>& rank = changed[random() % changed.size()];
    const std::size_t at = random() % (rank.size() - 1);
    std::swap(rank[at], rank[at + 1]);
    const auto violation = verify_actions(changed);
    if (violation && violation->rule == Rule::hazard) continue;  // a pass before what it needs
    EXPECT_EQ(!violation, comes_to_the_end(changed));
    refused += violation ? 1 : 0;
  }
  EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace weft
