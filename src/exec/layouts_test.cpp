// Layouts beyond data parallelism on ranks that are threads: whatever cuts model, sequence and steps apart, the losses
// are those of one rank. Small enough for the sanitizers, which see every path of the executor here. Needs kernels.
#include <gtest/gtest.h>

#include "comm/test_ranks.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"
#include "exec/test_training.hpp"
#include "graph/operation_part.hpp"
#include "graph/own_rows.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"

namespace weft {
namespace {

using test::kGlobalBatch, test::kSteps, test::PlannedLayout;

struct LayoutCase {
  std::string name;
  Layout layout;
  std::int64_t ranks = 2;
  std::vector<std::string> policies = {"serial", "priority"};
};

std::vector<LayoutCase> layout_cases() {
  using enum PipelineSchedule;
  return {
      {"tp 2", {.tp = 2}},
      {"tp 2, sequence parallel", {.tp = 2, .sequence_parallel = true}},
      {"cp 2", {.cp = 2}},
      {"tp 2, unfused", {.tp = 2, .attention = AttentionKernel::unfused}, 2, {"serial"}},
      {"pp 2, gpipe", {.pp = 2, .schedule = gpipe}},
      {"pp 2, 1f1b", {.pp = 2, .schedule = one_f_one_b}},
      {"pp 2, interleaved", {.pp = 2, .vpp = 2, .schedule = interleaved}},
      {"pp 2, zb-h1", {.pp = 2, .schedule = zb_h1}},
      {"pp 2, zb-h2", {.pp = 2, .schedule = zb_h2}, 2, {"serial"}},
      {"pp 2, zbv", {.pp = 2, .vpp = 2, .schedule = zbv}},
      {"pp 2, v-half", {.pp = 2, .vpp = 2, .schedule = v_half}, 2, {"serial"}},
      {"pp 2, v-min", {.pp = 2, .vpp = 2, .schedule = v_min}, 2, {"priority"}},
      {"pp 2, warm-up of 1", {.pp = 2, .warm_up_depth = 1}, 2, {"serial"}},
      {"pp 2, warm-up of 4", {.pp = 2, .warm_up_depth = 4}, 2, {"priority"}},
      {"pp 2, hanayo", {.pp = 2, .vpp = 2, .schedule = hanayo}},
      {"pp 2, dualpipev", {.pp = 2, .vpp = 2, .schedule = dualpipev}},
      {"tp 2, pp 2, dualpipev", {.tp = 2, .pp = 2, .vpp = 2, .schedule = dualpipev}, 4, {"priority"}},
      {"pp 2, auto-waves", {.pp = 2, .vpp = 2, .schedule = searched_waves}, 2, {"priority"}},
      {"pp 2, auto-loops", {.pp = 2, .vpp = 2, .schedule = searched_loops}},
      {"tp 2, pp 2, auto-loops", {.tp = 2, .pp = 2, .vpp = 2, .schedule = searched_loops}, 4, {"priority"}},
      {"pp 2, dp 2, auto-loops, zero 3", {.pp = 2, .vpp = 2, .zero = 3, .schedule = searched_loops}, 4, {"fsdp"}},
      {"pp 2, dp 2, hanayo, zero 1", {.pp = 2, .vpp = 2, .zero = 1, .schedule = hanayo}, 4, {"priority"}},
      {"pp 2, dp 2, dualpipev, zero 3", {.pp = 2, .vpp = 2, .zero = 3, .schedule = dualpipev}, 4, {"fsdp"}},
      {"pp 2, dualpipe", {.pp = 2, .vpp = 2, .schedule = dualpipe}},
      {"pp 4, dualpipe", {.pp = 4, .vpp = 2, .schedule = dualpipe}, 4, {"priority"}},
      {"tp 2, pp 2, dualpipe", {.tp = 2, .pp = 2, .vpp = 2, .schedule = dualpipe}, 4, {"serial"}},
      {"pp 2, dp 2, dualpipe, zero 1, clipped",
       {.pp = 2, .vpp = 2, .zero = 1, .clip_grad = 1e9, .schedule = dualpipe},
       4,
       {"priority"}},
      {"pp 2, dp 2, dualpipe, zero 3", {.pp = 2, .vpp = 2, .zero = 3, .schedule = dualpipe}, 4, {"fsdp"}},
      {"tp 2, pp 2, zbv", {.tp = 2, .pp = 2, .vpp = 2, .schedule = zbv}, 4, {"priority"}},
      {"pp 4, zb-h2", {.pp = 4, .schedule = zb_h2}, 4, {"priority"}},
      {"pp 2, dp 2, zb-h1, zero 2", {.pp = 2, .zero = 2, .schedule = zb_h1}, 4, {"priority"}},
      {"pp 2, dp 2, zbv, zero 3", {.pp = 2, .vpp = 2, .zero = 3, .schedule = zbv}, 4, {"fsdp"}},
      {"pp 2, slices, gpipe", {.pp = 2, .slice_tokens = {4, 4}, .schedule = gpipe}},
      {"pp 2, uneven slices", {.pp = 2, .slice_tokens = {3, 1, 2, 2}}},
      {"pp 4, slices, unfused",
       {.pp = 4, .slice_tokens = {5, 3}, .attention = AttentionKernel::unfused},
       4,
       {"priority"}},
      {"tp 2, pp 2, slices", {.tp = 2, .pp = 2, .slice_tokens = {2, 4, 2}, .sequence_parallel = true}, 4, {"serial"}},
      {"pp 2, slices, zb-h1", {.pp = 2, .slice_tokens = {3, 1, 2, 2}, .schedule = zb_h1}},
      {"pp 4, slices, zb-h2", {.pp = 4, .slice_tokens = {4, 4}, .schedule = zb_h2}, 4, {"priority"}},
      {"pp 2, dp 2, slices, zero 2", {.pp = 2, .zero = 2, .slice_tokens = {3, 1, 4}}, 4},
      {"pp 2, dp 2, slices, zb-h1, zero 2",
       {.pp = 2, .zero = 2, .slice_tokens = {4, 4}, .schedule = zb_h1},
       4,
       {"priority"}},
      {"pp 2, uneven", {.pp = 2, .stage_layers = {1, 3}}},
      {"pp 2, some recomputed", {.pp = 2, .recompute = Recompute::full, .recompute_layers = {1}}},
      {"tp 2, pp 2, zbv, some recomputed",
       {.tp = 2,
        .pp = 2,
        .vpp = 2,
        .sequence_parallel = true,
        .recompute = Recompute::full,
        .recompute_layers = {1, 0, 0, 1},
        .schedule = zbv},
       4,
       {"priority"}},
      {"dp 2, zero 3, some recomputed",
       {.zero = 3, .recompute = Recompute::full, .recompute_layers = {3}},
       2,
       {"fsdp", "priority"}},
      {"tp 2, pp 2", {.tp = 2, .pp = 2}, 4, {"priority"}},
      {"tp 2, cp 2", {.tp = 2, .cp = 2}, 4, {"priority"}},
      {"pp 2, dp 2, zero 2", {.pp = 2, .zero = 2}, 4, {"priority"}},
      {"tp 2, dp 2, zero 3", {.tp = 2, .zero = 3}, 4, {"fsdp"}},
  };
}

// A GPT without and with dropout, a Llama with norms on queries and keys, one whose ranks hold copies of its only
// key/value head, one with latent attention.
std::vector<Transformer> some_models() {
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
  Transformer copied = llama;
  copied.name = "one key head";
  copied.kv_heads = 1;
  copied.qkv_bias = true;
  llama.qk_norm = true;  // the others have none
  Transformer dropping = gpt;
  dropping.name = "dropout";
  dropping.dropout = {.embedding = 0.05, .attention = 0.1, .hidden = 0.2};
  Transformer latent = copied;
  latent.name = "latent";
  latent.kv_heads = 4;
  latent.qkv_bias = false;
  latent.head_dim = 5;
  latent.latent =
      LatentAttention{.q_rank = 6, .kv_rank = 3, .nope_head_dim = 3, .rope_head_dim = 2, .value_head_dim = 4};
  return {gpt, dropping, llama, copied, latent};
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

void expect_losses(const std::vector<double>& alone, const Transformer& model, const std::vector<LayoutCase>& cases) {
  for (const LayoutCase& c : cases) {
    for (const std::string& policy : c.policies) {
      SCOPED_TRACE(fmt::format("{}, {}, {}", model.name, c.name, policy));
      const std::vector<double> losses = losses_of(model, c.layout, c.ranks, policy);
      ASSERT_EQ(losses.size(), alone.size());
      for (std::size_t step = 0; step < losses.size(); ++step) {
        EXPECT_NEAR(losses[step] / alone[step], 1, 1e-5) << "step " << step;
      }
    }
  }
}

// One rank agrees with PyTorch (tests/run_oracle_test.py).
TEST(Layouts, TrainWhatOneRankTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const Transformer& model : some_models()) {
    const std::vector<double> alone = losses_of(model, {}, 1, "serial");
    ASSERT_EQ(std::ssize(alone), kSteps);
    EXPECT_LT(alone.back(), alone.front());
    expect_losses(alone, model, layout_cases());
  }
}

// Every slice is shared out over ranks, which keep the keys that they gather of it for the slices behind it.
TEST(Layouts, SlicesOverContextParallelRanksTrainWhatOneRankTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  using enum PipelineSchedule;
  const std::vector<LayoutCase> cases = {
      {"cp 2, pp 2, slices", {.cp = 2, .pp = 2, .slice_tokens = {2, 6}}, 4},
      {"cp 2, pp 2, slices, gpipe, unfused",
       {.cp = 2, .pp = 2, .slice_tokens = {4, 4}, .attention = AttentionKernel::unfused, .schedule = gpipe},
       4,
       {"serial"}},
      {"cp 2, pp 2, slices, zb-h1, zero 1",
       {.cp = 2, .pp = 2, .zero = 1, .slice_tokens = {4, 2, 2}, .schedule = zb_h1},
       4,
       {"priority"}},
      {"cp 2, pp 2, slices, zb-h2, zero 2, recomputed",
       {.cp = 2, .pp = 2, .zero = 2, .slice_tokens = {4, 4}, .recompute = Recompute::full, .schedule = zb_h2},
       4,
       {"priority"}},
  };
  for (const Transformer& model : some_models()) {
    const std::vector<double> alone = losses_of(model, {}, 1, "serial");
    expect_losses(alone, model, cases);
  }
}

// Two waves are four chunks a stage, so eight layers.
TEST(Layouts, SeveralWavesTrainWhatOneRankTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  Transformer model = some_models().front();
  model.layers = 8;
  const std::vector<double> alone = losses_of(model, {}, 1, "serial");
  const Layout waves{.pp = 2, .vpp = 4, .schedule = PipelineSchedule::hanayo};
  for (const std::string policy : {"serial", "priority"}) {
    const std::vector<double> losses = losses_of(model, waves, 2, policy);
    ASSERT_EQ(losses.size(), alone.size());
    for (std::size_t step = 0; step < losses.size(); ++step) EXPECT_NEAR(losses[step] / alone[step], 1, 1e-5) << policy;
  }
}

// Three chunks a stage, in the order of the interleaved schedule and in searched ones; without whole rounds
// breadth-first.
TEST(Layouts, SearchedLoopsTrainWhatOneRankTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  Transformer model = some_models().front();
  model.layers = 6;
  struct LoopsCase {
    std::int64_t ranks, micro_batches, most_held;
    Layout layout = {};
  };
  for (const LoopsCase& c : {LoopsCase{2, 6, 0}, {2, 6, 4}, {2, 6, 8}, {2, 5, 0}, {2, 5, 8}, {4, 4, 7, {.tp = 2}}}) {
    SCOPED_TRACE(fmt::format("{} ranks, {} micro-batches, {} held", c.ranks, c.micro_batches, c.most_held));
    Layout layout = c.layout;
    layout.pp = 2;
    layout.vpp = 3;
    layout.schedule = PipelineSchedule::searched_loops;
    const std::vector<double> alone = losses_of(PlannedLayout(model, {}, 1, "serial", c.micro_batches), 1);
    PlannedLayout planned(model, layout, c.ranks, "priority", c.micro_batches);
    Overlap overlap = decide_overlap(planned.request, planned.whole.original(), "priority");
    overlap.order.pipeline.most_held = c.most_held;
    planned.whole = overlapped_plan(planned.request, planned.whole.shared_original(), "weft", overlap);
    const auto violation = verify_plan(planned.whole);
    ASSERT_FALSE(violation.has_value()) << violation->message;
    const std::vector<double> losses = losses_of(planned, c.ranks);
    ASSERT_EQ(losses.size(), alone.size());
    for (std::size_t step = 0; step < losses.size(); ++step) EXPECT_NEAR(losses[step] / alone[step], 1, 1e-5);
  }
}

// Ranks that compare their calls find them alike, also where the two ends of a message have names of their own and
// where ranks of several classes (tied embeddings, norms over stages) make one transfer of different operations.
TEST(Layouts, ChecksOfCallsFindNothingInAnyLayout) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const Transformer model = some_models().front();
  ASSERT_TRUE(model.tied_embeddings);
  std::vector<LayoutCase> cases = layout_cases();
  cases.insert(
      cases.end(),
      {{"dp 2", {}, 2, {"serial", "ddp", "priority"}},
       {"dp 2, zero 1, clipped", {.zero = 1, .clip_grad = 0.1}, 2, {"megatron-dist", "megatron-param"}},
       {"dp 2, zero 3", {.zero = 3}, 2, {"fsdp", "priority"}},
       {"pp 2, zbv, clipped, recomputed",
        {.pp = 2, .vpp = 2, .recompute = Recompute::full, .clip_grad = 0.1, .schedule = PipelineSchedule::zbv},
        2,
        {"serial", "priority"}},
       {"pp 2, dp 2, slices, zero 1, clipped, recomputed",
        {.pp = 2, .zero = 1, .slice_tokens = {3, 5}, .recompute = Recompute::full, .clip_grad = 0.1},
        4,
        {"serial", "priority"}},
       {"pp 2, clipped, recomputed", {.pp = 2, .recompute = Recompute::full, .clip_grad = 0.1}, 2, {"priority"}},
       {"tp 2, pp 2, interleaved",
        {.tp = 2, .pp = 2, .vpp = 2, .sequence_parallel = true, .schedule = PipelineSchedule::interleaved},
        4,
        {"centauri", "priority"}}});
  for (const LayoutCase& c : cases) {
    for (const std::string& policy : c.policies) {
      SCOPED_TRACE(fmt::format("{}, {}", c.name, policy));
      EXPECT_EQ(losses_of(model, c.layout, c.ranks, policy, true), losses_of(model, c.layout, c.ranks, policy));
    }
  }
}

// Parts of rows compute what the whole does, whatever is cut with them: products, norms, attention where parts are
// whole sequences, the traffic between them, head and loss; with what is computed again; in pieces of what
// sequence-parallel ranks hold.
TEST(Layouts, CutByRowsTrainWhatTheWholeTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  struct CutCase {
    Layout layout;
    std::int64_t ranks;
    std::int32_t forward, backward;
  };
  const std::vector<CutCase> cases{
      {{.tp = 2, .micro_batch = 2}, 2, 2, 2},
      {{.tp = 2, .micro_batch = 1, .recompute = Recompute::full}, 2, 4, 8},
      {{.tp = 2, .micro_batch = 4, .sequence_parallel = true, .recompute = Recompute::selective}, 2, 2, 4},
      {{.tp = 2, .micro_batch = 2, .sequence_parallel = true}, 2, 8, 4},
      {{.tp = 2, .pp = 2, .micro_batch = 2, .sequence_parallel = true}, 4, 4, 2},
      {{.tp = 2, .cp = 2, .micro_batch = 2}, 4, 2, 4},
      {{.tp = 2, .micro_batch = 2, .zero = 3}, 4, 2, 2},
      {{.micro_batch = 4}, 2, 4, 8},  // the loss too
      {{.cp = 2, .pp = 2, .micro_batch = 2}, 4, 2, 4},
  };
  for (const Transformer& model : some_models()) {
    for (const CutCase& c : cases) {
      SCOPED_TRACE(fmt::format("{}, tp {} cp {} pp {}, micro-batch {}, {} and {} parts", model.name, c.layout.tp,
                               c.layout.cp, c.layout.pp, c.layout.micro_batch, c.forward, c.backward));
      PlannedLayout planned(model, c.layout, c.ranks, "priority", 2);
      const std::vector<double> whole = losses_of(planned, c.ranks);
      Overlap overlap = decide_overlap(planned.request, planned.whole.original(), "priority");
      overlap.partition.forward_rows = c.forward;
      overlap.partition.backward_rows = c.backward;
      overlap.beside.tensor_parallel = overlap.weave.enabled = true;
      planned.whole = overlapped_plan(planned.request, planned.whole.shared_original(), "weft", overlap);
      const auto violation = verify_plan(planned.whole);
      ASSERT_FALSE(violation.has_value()) << violation->message;
      EXPECT_TRUE(std::any_of(planned.whole.plan().graph.operations.begin(),
                              planned.whole.plan().graph.operations.end(),
                              [](const Operation& op) { return op.per_micro_batch && is_part(op); }));
      const std::vector<double> cut = losses_of(planned, c.ranks);
      ASSERT_EQ(cut.size(), whole.size());
      if (c.layout.pp > 1) {
        EXPECT_EQ(losses_of(planned, c.ranks, true), cut);  // checks of calls find nothing
      }
      for (std::size_t step = 0; step < cut.size(); ++step) {
        EXPECT_NEAR(cut[step] / whole[step], 1, 1e-6) << "step " << step;
      }
    }
  }
}

// What Megatron lets run beside compute changes no loss: collectives of linears' backward, and a layer's other ones in
// parts (the cost model, which says how many, would leave such small products whole).
TEST(Layouts, MegatronsTensorParallelOverlapTrainsWhatSerialTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  for (const Transformer& model : some_models()) {
    for (const bool sequence_parallel : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, sequence parallel: {}", model.name, sequence_parallel));
      const Layout layout{.tp = 2, .zero = 1, .sequence_parallel = sequence_parallel};
      PlannedLayout planned(model, layout, 4, "serial", 2);
      const std::vector<double> expected = losses_of(planned, 4);
      for (const std::int32_t parts : {1, 2}) {
        Overlap overlap = decide_overlap(planned.request, planned.whole.original(), "megatron-param");
        EXPECT_TRUE(overlap.beside.linear_backward);
        overlap.partition.layers = no_cuts(planned.whole.original());
        overlap.beside.cut_transfers = overlap.order.parts_in_turn = parts > 1;
        for (std::size_t i = 0; i < overlap.partition.layers.parts.size(); ++i) {
          const Operation& op = planned.whole.original().operations[i];
          if (op.phase == Phase::forward && op.layer >= 0 && may_be_cut(planned.whole.original(), op)) {
            overlap.partition.layers.parts[i] = parts;
          }
        }
        planned.whole = overlapped_plan(planned.request, planned.whole.shared_original(), "megatron-param", overlap);
        const auto violation = verify_plan(planned.whole);
        ASSERT_FALSE(violation.has_value()) << violation->message;
        const std::vector<double> losses = losses_of(planned, 4);
        ASSERT_EQ(losses.size(), expected.size());
        for (std::size_t step = 0; step < losses.size(); ++step) {
          EXPECT_NEAR(losses[step] / expected[step], 1, 1e-6) << "step " << step;
        }
      }
    }
  }
}

// Products that begin with a rank's own rows, beside whole gathers (nanotron) and beside gathers in parts (userbuffers,
// which the cost model would not choose for such small products): sequences of several micro-batches lie apart in a
// shard and in the whole.
TEST(Layouts, OwnRowsFirstTrainWhatSerialTrains) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  struct OwnRowsCase {
    Layout layout;
    std::int64_t ranks;
    std::int32_t pieces;
  };
  const std::vector<OwnRowsCase> cases{
      {{.tp = 2, .micro_batch = 2, .sequence_parallel = true}, 2, 1},
      {{.tp = 2, .micro_batch = 2, .sequence_parallel = true, .recompute = Recompute::full}, 2, 4},
      {{.tp = 4, .micro_batch = 2, .zero = 1, .sequence_parallel = true}, 4, 2},
      {{.tp = 2, .pp = 2, .micro_batch = 1, .sequence_parallel = true}, 4, 1},
      {{.tp = 2, .cp = 2, .micro_batch = 2, .sequence_parallel = true}, 4, 2},
  };
  for (const Transformer& model : some_models()) {
    for (const OwnRowsCase& c : cases) {
      SCOPED_TRACE(
          fmt::format("{}, tp {} cp {} pp {}, {} parts", model.name, c.layout.tp, c.layout.cp, c.layout.pp, c.pieces));
      PlannedLayout planned(model, c.layout, c.ranks, "serial", 2);
      const std::vector<double> expected = losses_of(planned, c.ranks);
      const StepGraph& graph = planned.whole.original();
      Overlap overlap = decide_overlap(planned.request, graph, "nanotron");
      for (std::size_t i = 0; i < graph.operations.size(); ++i) {
        const bool own = overlap.partition.layers.axes[i] == kOwnFirstAxis;
        if (own) overlap.partition.layers.parts[i] = c.pieces + 1;
        if (gathers_rows_of_others(graph.operations[i])) overlap.partition.layers.parts[i] = c.pieces;
      }
      planned.whole = overlapped_plan(planned.request, planned.whole.shared_original(), "nanotron", overlap);
      const auto violation = verify_plan(planned.whole);
      ASSERT_FALSE(violation.has_value()) << violation->message;
      const auto& operations = planned.whole.plan().graph.operations;
      EXPECT_TRUE(std::any_of(operations.begin(), operations.end(),
                              [](const Operation& op) { return is_own_piece(op.origins.front()); }));
      const std::vector<double> losses = losses_of(planned, c.ranks);
      ASSERT_EQ(losses.size(), expected.size());
      for (std::size_t step = 0; step < losses.size(); ++step) {
        EXPECT_NEAR(losses[step] / expected[step], 1, 1e-6) << "step " << step;
      }
    }
  }
}

// A forward and a backward that take turns piece by piece compute what they compute one after the other.
TEST(Layouts, ForwardAndBackwardInPairsTrainWhatTheyTrainApart) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  struct PairCase {
    Layout layout;
    std::int64_t ranks;
    std::int64_t most_held = 0;  // above 0: of a searched pipeline
  };
  const std::vector<PairCase> cases{
      {{.tp = 2}, 2},
      {{.tp = 2, .zero = 1, .sequence_parallel = true, .recompute = Recompute::selective}, 4},
      {{.tp = 2, .pp = 2, .sequence_parallel = true}, 4},
      {{.tp = 2, .pp = 2, .schedule = PipelineSchedule::searched}, 4, 4},
      {{.tp = 2, .pp = 2, .vpp = 2, .schedule = PipelineSchedule::interleaved}, 4},
      {{.tp = 2, .pp = 2, .vpp = 2, .schedule = PipelineSchedule::searched_loops}, 4, 6},
      {{.tp = 2, .pp = 2, .vpp = 2, .schedule = PipelineSchedule::dualpipev}, 4},
      {{.tp = 2, .pp = 2, .vpp = 2, .schedule = PipelineSchedule::dualpipe}, 4},
  };
  for (const Transformer& model : some_models()) {
    for (const PairCase& c : cases) {
      SCOPED_TRACE(fmt::format("{}, tp {} pp {} vpp {}", model.name, c.layout.tp, c.layout.pp, c.layout.vpp));
      PlannedLayout planned(model, c.layout, c.ranks, "priority", 6);
      const std::vector<double> apart = losses_of(planned, c.ranks);
      Overlap overlap = decide_overlap(planned.request, planned.whole.original(), "priority");
      overlap.beside.tensor_parallel = overlap.weave.enabled = overlap.weave.pairs = true;
      overlap.order.pipeline.most_held = c.most_held;
      planned.whole = overlapped_plan(planned.request, planned.whole.shared_original(), "weft", overlap);
      const auto violation = verify_plan(planned.whole);
      ASSERT_FALSE(violation.has_value()) << violation->message;
      EXPECT_TRUE(std::any_of(planned.whole.plan().classes.begin(), planned.whole.plan().classes.end(), has_sections));
      const std::vector<double> paired = losses_of(planned, c.ranks);
      ASSERT_EQ(paired.size(), apart.size());
      for (std::size_t step = 0; step < paired.size(); ++step) {
        EXPECT_NEAR(paired[step] / apart[step], 1, 1e-6) << "step " << step;
      }
    }
  }
}

// Weight gradients between the operations of other passes.
TEST(Layouts, WeightGradsInGapsTrainWhatTheyTrainApart) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  using enum PipelineSchedule;
  struct GapCase {
    Layout layout;
    GapRule rule;
    bool pairs = false;
  };
  const std::vector<GapCase> cases{
      {{.tp = 2, .pp = 2, .schedule = zb_h1}, GapRule::early},
      {{.tp = 2, .pp = 2, .sequence_parallel = true, .schedule = zb_h2}, GapRule::held_back},
      {{.tp = 2, .pp = 2, .vpp = 2, .schedule = zbv}, GapRule::held_back},
      {{.tp = 2,
        .pp = 2,
        .vpp = 2,
        .zero = 1,
        .sequence_parallel = true,
        .recompute = Recompute::full,
        .schedule = zbv},
       GapRule::spare_at_end},
      {{.tp = 2, .pp = 2, .vpp = 2, .schedule = v_half}, GapRule::early},
      {{.tp = 2, .pp = 2, .vpp = 2, .schedule = dualpipev}, GapRule::spare_at_end, true},
  };
  for (const Transformer& model : some_models()) {
    for (const GapCase& c : cases) {
      SCOPED_TRACE(fmt::format("{}, {}, rule {}", model.name, name_of(c.layout.schedule), static_cast<int>(c.rule)));
      PlannedLayout planned(model, c.layout, 4, "priority", 6);
      const std::vector<double> apart = losses_of(planned, 4);
      Overlap overlap = decide_overlap(planned.request, planned.whole.original(), "priority");
      overlap.beside.tensor_parallel = overlap.weave.enabled = true;
      overlap.weave.pairs = c.pairs;
      overlap.order.gaps = c.rule;
      planned.whole = overlapped_plan(planned.request, planned.whole.shared_original(), "weft", overlap);
      const auto violation = verify_plan(planned.whole);
      ASSERT_FALSE(violation.has_value()) << violation->message;
      const Plan& plan = planned.whole.plan();
      EXPECT_TRUE(std::any_of(plan.classes.begin(), plan.classes.end(), [&](const ClassPlan& own) {
        return std::any_of(own.order.begin(), own.order.end(), [&](const IssueSlot& slot) {
          return slot.begin > 0 && block_of(own, slot).kind == BlockKind::weight_grad;
        });
      }));
      const std::vector<double> woven = losses_of(planned, 4);
      ASSERT_EQ(woven.size(), apart.size());
      for (std::size_t step = 0; step < woven.size(); ++step) {
        EXPECT_NEAR(woven[step] / apart[step], 1, 1e-6) << "step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace weft
