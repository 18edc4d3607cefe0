// Mixtures of experts on ranks that are threads. Where every gate sees the same tokens, whatever spreads experts,
// layers and gradients over ranks trains what one rank trains, dropped tokens included. One rank agrees with PyTorch
// (tests/run_experts_test.py). Needs kernels.
#include <gtest/gtest.h>

#include "comm/test_ranks.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"
#include "exec/test_training.hpp"
#include "graph/operation_part.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"

namespace weft {
namespace {

using test::kGlobalBatch, test::kSteps, test::PlannedLayout;

struct ExpertCase {
  std::string name;
  Layout layout;
  std::int64_t ranks = 2;
  std::string policy = "serial";
};

std::vector<ExpertCase> expert_cases() {
  constexpr ExpertExchange kUneven = ExpertExchange::uneven;
  return {
      {"dp 2, ep 1", {}},
      {"ep 2", {.ep = 2}, 2, "priority"},
      {"ep 2, clipped", {.ep = 2, .clip_grad = 0.05}},
      {"ep 2, edp 2, zero 1, clipped", {.ep = 2, .zero = 1, .clip_grad = 0.05}, 4, "priority"},
      {"ep 4, zero 2", {.ep = 4, .zero = 2}, 4, "ddp"},
      {"ep 2, edp 2, zero 3", {.ep = 2, .zero = 3}, 4, "fsdp"},
      {"tp 2, etp 2, clipped", {.tp = 2, .clip_grad = 0.05}},
      {"tp 2, etp 2, ep 2", {.tp = 2, .ep = 2}, 4, "priority"},
      {"etp 2 over dp", {.etp = 2, .clip_grad = 0.05}},
      {"pp 2, ep 2", {.pp = 2, .ep = 2}, 4, "priority"},
      {"ep 2, all computed again", {.ep = 2, .recompute = Recompute::full}},
      {"uneven on one rank", {.expert_exchange = kUneven}, 1},
      {"ep 2, uneven", {.ep = 2, .expert_exchange = kUneven}, 2, "priority"},
      {"ep 4, uneven, zero 2", {.ep = 4, .expert_exchange = kUneven, .zero = 2}, 4},
      {"tp 2, etp 2, ep 2, uneven", {.tp = 2, .ep = 2, .expert_exchange = kUneven}, 4},
      {"pp 2, ep 2, uneven, all computed again",
       {.pp = 2, .ep = 2, .expert_exchange = kUneven, .recompute = Recompute::full},
       4,
       "priority"},
  };
}

// Half of the layers, drops, a balance loss; biases and GELU, or SwiGLU beside shared experts.
std::vector<Transformer> expert_models() {
  Transformer gpt = test::small_gpt(4), llama = test::small_llama(4);
  for (Transformer* model : {&gpt, &llama}) {
    model->hidden = 16;
    model->heads = 4;
    model->kv_heads = 2;
    model->head_dim = 4;
    model->ffn = 24;
    model->vocab = 256;
    model->max_seq = 16;
  }
  gpt.kv_heads = 4;
  gpt.experts = Experts{.count = 4, .top_k = 1, .ffn = 24, .capacity_factor = 1, .every = 2, .aux_loss_coeff = 0.02};
  llama.experts = Experts{.count = 8,
                          .top_k = 2,
                          .ffn = 12,
                          .shared_ffn = 8,
                          .capacity_factor = 1.25,
                          .every = 2,
                          .gate_order = GateOrder::gshard,
                          .aux_loss_coeff = 0.02};
  return {gpt, llama};
}

std::vector<double> losses_of(const PlannedLayout& planned, std::int64_t ranks, bool check = false) {
  TrainSettings settings;
  settings.steps = kSteps;
  const TrainJob job{planned.whole, settings, Corpus::generate(3, 4096), 1, true};
  std::vector<double> losses;
  local_ranks::on_ranks({.ranks = ranks}, {.check = check}, [&](Communicator& communicator) {
    const TrainResult own = train_rank(job, communicator, *make_kernels());
    if (communicator.rank() == 0) losses = own.losses;
  });
  return losses;
}

std::vector<double> losses_of(const Transformer& model, Layout layout, std::int64_t ranks, const std::string& policy,
                              bool check = false) {
  layout.micro_batch = 1;
  const std::int64_t replicas = ranks / (layout.tp * layout.cp * layout.pp);
  return losses_of(PlannedLayout(model, layout, ranks, policy, kGlobalBatch / replicas), ranks, check);
}

TEST(ExpertLayouts, TrainWhatOneRankTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const Transformer& model : expert_models()) {
    std::map<double, std::vector<double>> alone;  // by clipping
    for (const double clip : {0.0, 0.05}) alone[clip] = losses_of(model, {.clip_grad = clip}, 1, "serial");
    EXPECT_LT(alone[0].back(), alone[0].front());
    EXPECT_NE(alone[0].back(), alone[0.05].back());
    for (const ExpertCase& c : expert_cases()) {
      SCOPED_TRACE(fmt::format("{}, {}, {}", model.name, c.name, c.policy));
      const std::vector<double> losses = losses_of(model, c.layout, c.ranks, c.policy);
      const std::vector<double>& expected = alone.at(c.layout.clip_grad);
      ASSERT_EQ(losses.size(), expected.size());
      for (std::size_t step = 0; step < losses.size(); ++step) {
        EXPECT_NEAR(losses[step] / expected[step], 1, 1e-5) << "step " << step;
      }
    }
  }
}

// A gate that takes tokens in order goes on in each slice where it ended in the one before, so that slices have the
// drops, and the balance loss, of whole sequences. Slots for all tokens need no order.
std::vector<ExpertCase> slice_cases() {
  using enum PipelineSchedule;
  constexpr ExpertExchange kUneven = ExpertExchange::uneven;
  return {
      {"pp 2", {.pp = 2, .slice_tokens = {4, 4}}},
      {"pp 2, gpipe, uneven slices", {.pp = 2, .slice_tokens = {3, 1, 4}, .schedule = gpipe}, 2, "priority"},
      {"pp 2, zb-h1", {.pp = 2, .slice_tokens = {3, 1, 2, 2}, .schedule = zb_h1}, 2, "priority"},
      {"pp 2, zb-h2, all computed again",
       {.pp = 2, .slice_tokens = {5, 3}, .recompute = Recompute::full, .schedule = zb_h2}},
      {"pp 2, ep 2", {.pp = 2, .ep = 2, .slice_tokens = {4, 4}}, 4, "priority"},
      {"pp 2, ep 2, zero 1, clipped",
       {.pp = 2, .ep = 2, .zero = 1, .slice_tokens = {2, 3, 3}, .clip_grad = 0.05},
       4,
       "priority"},
      {"pp 2, ep 2, zb-h1, zero 1, uneven",
       {.pp = 2, .ep = 2, .expert_exchange = kUneven, .zero = 1, .slice_tokens = {3, 5}, .schedule = zb_h1},
       4,
       "priority"},
      {"pp 2, ep 2, zero 2, uneven, all computed again",
       {.pp = 2, .ep = 2, .expert_exchange = kUneven, .zero = 2, .slice_tokens = {4, 4}, .recompute = Recompute::full},
       4},
      {"tp 2, etp 2, pp 2", {.tp = 2, .pp = 2, .slice_tokens = {6, 2}, .clip_grad = 0.05}, 4, "priority"},
  };
}

TEST(ExpertLayouts, InSlicesTrainWhatWholeSequencesTrain) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (Transformer model : expert_models()) {
    for (const bool drops : {true, false}) {
      Experts& experts = *model.experts;
      experts.gate_order = drops ? GateOrder::position : GateOrder::probs;
      if (!drops) experts.capacity_factor = static_cast<double>(experts.count) / static_cast<double>(experts.top_k);
      std::map<double, std::vector<double>> alone;  // by clipping
      for (const double clip : {0.0, 0.05}) alone[clip] = losses_of(model, {.clip_grad = clip}, 1, "serial");
      EXPECT_LT(alone[0].back(), alone[0].front());
      for (const ExpertCase& c : slice_cases()) {
        SCOPED_TRACE(fmt::format("{}, {}, {}, drops {}", model.name, c.name, c.policy, drops));
        const std::vector<double> losses = losses_of(model, c.layout, c.ranks, c.policy);
        const std::vector<double>& expected = alone.at(c.layout.clip_grad);
        ASSERT_EQ(losses.size(), expected.size());
        for (std::size_t step = 0; step < losses.size(); ++step) {
          EXPECT_NEAR(losses[step] / expected[step], 1, 1e-5) << "step " << step;
        }
      }
    }
  }
}

// The tokens of a gate are those of a rank. Where there is room for all, and no loss that balances them, it does not
// matter which.
TEST(ExpertLayouts, InSlicesOverContextAndSequenceParallelRanksTrainWhatOneRankTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const std::vector<ExpertCase> cases{
      {"cp 2, pp 2, ep 2", {.cp = 2, .pp = 2, .ep = 2, .slice_tokens = {4, 4}}, 4, "priority"},
      {"cp 2, pp 2, zb-h1, zero 1",
       {.cp = 2, .pp = 2, .zero = 1, .slice_tokens = {2, 6}, .schedule = PipelineSchedule::zb_h1},
       4},
      {"tp 2 with sequence parallelism, pp 2",
       {.tp = 2, .pp = 2, .slice_tokens = {4, 2, 2}, .sequence_parallel = true},
       4,
       "priority"},
  };
  for (Transformer model : expert_models()) {
    Experts& experts = *model.experts;
    experts.aux_loss_coeff = 0;
    experts.capacity_factor = static_cast<double>(experts.count) / static_cast<double>(experts.top_k);
    const std::vector<double> alone = losses_of(model, {}, 1, "serial");
    for (const ExpertCase& c : cases) {
      SCOPED_TRACE(fmt::format("{}, {}, {}", model.name, c.name, c.policy));
      const std::vector<double> losses = losses_of(model, c.layout, c.ranks, c.policy);
      ASSERT_EQ(losses.size(), alone.size());
      for (std::size_t step = 0; step < losses.size(); ++step) {
        EXPECT_NEAR(losses[step] / alone[step], 1, 1e-5) << "step " << step;
      }
    }
  }
}

TEST(ExpertLayouts, ChecksOfCallsFindNothingInAnyLayout) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const Transformer model = expert_models().back();
  for (const ExpertCase& c : expert_cases()) {
    SCOPED_TRACE(fmt::format("{}, {}", c.name, c.policy));
    EXPECT_EQ(losses_of(model, c.layout, c.ranks, c.policy, true), losses_of(model, c.layout, c.ranks, c.policy));
  }
}

// Everything that may be, in forward or in backward.
LayerCuts all_cuts(const StepGraph& graph, std::int32_t parts, std::int32_t axis, bool forward) {
  LayerCuts cuts = no_cuts(graph);
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    const Operation& op = graph.operations[i];
    if (!op.per_micro_batch || (op.phase == Phase::input_grad) == forward) continue;
    if (!may_be_cut_into(graph, op, parts, axis)) continue;
    cuts.parts[i] = parts;
    cuts.axes[i] = axis;
  }
  return cuts;
}

struct ExpertCut {
  std::int32_t forward, forward_axis, backward, backward_axis;
};

// Capacity is passed on from part to part, so parts of tokens have the very slots and drops of the whole.
TEST(ExpertLayouts, CutByTokensOrByCapacityTrainWhatTheWholeTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const std::vector<std::pair<Layout, std::int64_t>> layouts{
      {{.ep = 2}, 2},
      {{.ep = 4, .zero = 2}, 4},
      {{.tp = 2, .ep = 2}, 4},
      {{.pp = 2, .ep = 2, .recompute = Recompute::full}, 4},
      {{.tp = 2, .ep = 2, .sequence_parallel = true}, 4},
  };
  const std::vector<ExpertCut> cuts{
      {2, kCapacityAxis, 2, kCapacityAxis}, {2, kTokenAxis, 2, kTokenAxis}, {4, kTokenAxis, 2, kTokenAxis},
      {4, kTokenAxis, 1, kTokenAxis},       {1, kTokenAxis, 4, kTokenAxis}, {2, kTokenAxis, 2, kCapacityAxis},
      {2, kCapacityAxis, 8, kTokenAxis},
  };
  for (Transformer model : expert_models()) {
    model.experts->gate_order = GateOrder::position;
    for (auto [layout, ranks] : layouts) {
      layout.micro_batch = 2;
      // Of 16 tokens, or 8 under sequence parallelism, an expert takes an even number.
      model.experts->capacity_factor = model.experts->top_k == 1 ? 1 : layout.sequence_parallel ? 2 : 1.5;
      PlannedLayout planned(model, layout, ranks, "priority", 2);
      const std::vector<double> whole = losses_of(planned, ranks);
      for (const ExpertCut& cut : cuts) {
        // Experts of ranks that gather each other's tokens are cut by capacity alone.
        const bool by_tokens = (cut.forward > 1 && cut.forward_axis == kTokenAxis) ||
                               (cut.backward > 1 && cut.backward_axis == kTokenAxis);
        if (layout.sequence_parallel && by_tokens) continue;
        SCOPED_TRACE(fmt::format("{}, ep {} tp {} pp {}, forward {} axis {}, backward {} axis {}", model.name,
                                 layout.ep, layout.tp, layout.pp, cut.forward, cut.forward_axis, cut.backward,
                                 cut.backward_axis));
        Overlap overlap = decide_overlap(planned.request, planned.whole.original(), "priority");
        overlap.partition.layers =
            merge_cuts(all_cuts(planned.whole.original(), cut.forward, cut.forward_axis, true),
                       all_cuts(planned.whole.original(), cut.backward, cut.backward_axis, false));
        overlap.beside.expert_parallel = overlap.order.parts_in_turn = true;
        planned.whole = overlapped_plan(planned.request, planned.whole.shared_original(), "weft", overlap);
        const auto violation = verify_plan(planned.whole);
        ASSERT_FALSE(violation.has_value()) << violation->message;
        EXPECT_TRUE(std::any_of(planned.whole.plan().graph.operations.begin(),
                                planned.whole.plan().graph.operations.end(),
                                [](const Operation& op) { return op.role == Role::expert_dispatch && is_part(op); }));
        const std::vector<double> losses = losses_of(planned, ranks);
        ASSERT_EQ(losses.size(), whole.size());
        for (std::size_t step = 0; step < losses.size(); ++step) {
          EXPECT_NEAR(losses[step] / whole[step], 1, 1e-6) << "step " << step;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
