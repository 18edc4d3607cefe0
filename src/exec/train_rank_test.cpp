// The executor on ranks that are threads, with models so small that a step takes a millisecond: every policy and ZeRO
// stage trains the same, in the order that the plan asks for. Needs kernels.
#include "exec/train_rank.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.hpp"
#include "exec/test_training.hpp"
#include "timeline/accounting.hpp"

namespace weft {
namespace {

using test::kSteps, test::tiny_gpt, test::TinyRun;
using Case = test::TinyCase;

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::int64_t ranks : {2, 3}) {
    for (const std::string& policy : policy_names()) {
      if (searches(policy)) continue;
      for (int zero = 0; zero <= 3; ++zero) cases.push_back({policy, zero, ranks});
    }
  }
  return cases;
}

// Instances of a rank's class: first and count.
std::pair<std::size_t, std::size_t> instances_of(const Unfolded& unfolded, ClassId rank_class) {
  std::size_t first = 0, count = 0;
  for (std::size_t i = unfolded.instances().size(); i-- > 0;) {
    if (unfolded.instances()[i].rank_class != rank_class.value) continue;
    first = i;
    ++count;
  }
  return {first, count};
}

// Whatever an execution waits for has ended when it starts, and all have run.
void expect_plan_order(const TinyRun& tiny, const MeasuredRun& run) {
  for (const MeasuredRank& rank : run.ranks) {
    const auto [first, count] = instances_of(tiny.whole.unfolded(), rank.rank_class);
    ASSERT_EQ(rank.spans.size(), count * kSteps);
    for (std::size_t step = 0; step < kSteps; ++step) {
      for (std::size_t i = 0; i < count; ++i) {
        const RankSpan& span = rank.spans[step * count + i];
        const std::string what = fmt::format("rank {}, step {}, {}", rank.rank.value, step,
                                             describe(tiny.whole.plan(), tiny.whole.unfolded().instances()[first + i]));
        ASSERT_GT(span.start, 0) << what << " has not run";
        ASSERT_LE(span.start, span.end) << what;
        for (const Edge& edge : tiny.whole.unfolded().waits_for(first + i)) {
          if (static_cast<std::size_t>(edge.distance) > step) continue;
          const std::size_t from = static_cast<std::size_t>(edge.from) - first;
          const RankSpan& before = rank.spans[(step - static_cast<std::size_t>(edge.distance)) * count + from];
          ASSERT_LE(before.end, span.start)
              << what << " has not waited for "
              << describe(tiny.whole.plan(), tiny.whole.unfolded().instances()[first + from]);
        }
      }
    }
  }
}

// One worker for compute and extra; a communication queue runs one transfer at a time.
void expect_one_at_a_time(const TinyRun& tiny, const MeasuredRun& run) {
  for (const MeasuredRank& rank : run.ranks) {
    const auto [first, count] = instances_of(tiny.whole.unfolded(), rank.rank_class);
    const auto& queues = tiny.whole.plan().classes[rank.rank_class.index()].queues;
    std::map<std::int32_t, std::vector<RankSpan>> lanes;
    for (std::size_t k = 0; k < rank.spans.size(); ++k) {
      const std::int32_t queue = tiny.whole.unfolded().instances()[first + k % count].queue;
      const QueueKind kind = queues[queue].kind;
      lanes[kind == QueueKind::extra ? 0 : queue].push_back(rank.spans[k]);
    }
    for (auto& [queue, spans] : lanes) {
      std::sort(spans.begin(), spans.end(), [](const RankSpan& a, const RankSpan& b) {
        return std::pair(a.start, a.end) < std::pair(b.start, b.end);
      });
      for (std::size_t k = 1; k < spans.size(); ++k) {
        ASSERT_LE(spans[k - 1].end, spans[k].start) << "rank " << rank.rank.value << ", queue " << queue;
      }
    }
  }
}

// The accounting splits every rank's step without rest, and transfers have as many members as ranks.
void expect_sound_timeline(const TinyRun& tiny, const MeasuredRun& run) {
  const std::vector<Nanos> alone(tiny.whole.plan().graph.operations.size(), Nanos{1000});
  const Timeline timeline = measured_timeline(tiny.whole, alone, run);
  EXPECT_NO_THROW(check_timeline(timeline));
  EXPECT_TRUE(timeline.measured);
  EXPECT_EQ(timeline.steady_first, 1);
  EXPECT_EQ(timeline.periods, kSteps - 2);
  EXPECT_EQ(timeline.ranks.size(), run.ranks.size());
  for (const RankAccount& a : account(timeline).ranks) {
    const double sum = a.compute_s + a.slowdown_s + a.exposed_s + a.bubble_s + a.idle_s;
    EXPECT_NEAR(sum, a.step_s, 1e-9 * a.step_s + 1e-12);
    EXPECT_NEAR(a.step_s, timeline.period_ns * 1e-9, 1e-8);
    EXPECT_GT(a.comm_s, 0);
  }
  std::map<std::int32_t, std::size_t> members;
  for (const TimelineOperation& op : timeline.operations) {
    if (op.activity == Activity::transfer) ++members[op.transfer];
  }
  for (const auto& [transfer, count] : members) EXPECT_EQ(count, run.ranks.size()) << "transfer " << transfer;
}

void expect_same_losses(const std::vector<double>& losses, const std::vector<double>& expected) {
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t step = 0; step < losses.size(); ++step) {
    EXPECT_NEAR(losses[step] / expected[step], 1, 1e-5) << "step " << step;
  }
}

// One rank with nothing to send is the reference; it agrees with PyTorch (tests/run_oracle_test.py).
TEST(TrainRank, TrainsTheSameInThePlansOrderWhateverPolicyAndSharding) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const std::vector<double> alone = TinyRun({.ranks = 1}).train().losses;
  ASSERT_EQ(std::ssize(alone), kSteps);
  EXPECT_NEAR(alone.front(), std::log(256.0), 0.1);  // knows nothing: all bytes alike
  EXPECT_LT(alone.back(), alone.front());
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name());
    const TinyRun tiny(c);
    const TrainResult result = tiny.train();
    expect_same_losses(result.losses, alone);
    ASSERT_EQ(std::ssize(result.run.ranks), c.ranks);
    expect_plan_order(tiny, result.run);
    expect_one_at_a_time(tiny, result.run);
    expect_sound_timeline(tiny, result.run);
    if (HasFatalFailure()) return;
  }
}

// Clipping makes every update wait for all gradients of all ranks; with a limit that bites, losses differ from those
// without it.
TEST(TrainRank, ClipsByTheNormOfAllRanks) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const std::vector<double> alone = TinyRun({.ranks = 1, .clip_grad = 1e-3}).train().losses;
  for (const Case& c : {Case{"serial", 0, 2, 1e-3}, Case{"megatron-param", 1, 3, 1e-3}, Case{"priority", 2, 2, 1e-3},
                        Case{"fsdp", 3, 3, 1e-3}}) {
    SCOPED_TRACE(c.name());
    const TinyRun tiny(c);
    const TrainResult result = tiny.train();
    expect_same_losses(result.losses, alone);
    expect_plan_order(tiny, result.run);
  }
}

TEST(TrainRank, ShowsEveryStepOnce) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const TinyRun tiny({.policy = "ddp"});
  std::vector<std::int64_t> steps;
  std::vector<double> losses;
  const TrainResult result = tiny.train(5, [&](std::int64_t step, double loss, const StepGlance& glance) {
    steps.push_back(step);
    losses.push_back(loss);
    EXPECT_GT(glance.nanos, 0);
    EXPECT_GE(glance.hidden, 0);  // there are transfers, so it is a number
    EXPECT_LE(glance.hidden, 1);
  });
  EXPECT_EQ(steps, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(losses, result.losses);
}

TEST(RequireTrainable, NamesWhatItRefuses) {
  const auto words = [](const Transformer& model, const Layout& layout) -> std::string {
    try {
      require_trainable(model, layout, Runtime::cpu);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  Layout plain;
  plain.precision = plain.grad_dtype = ElementType::fp32;
  plain.dropout = false;
  EXPECT_EQ(words(tiny_gpt(), plain), "");
  const auto with = [&](auto change) {
    Layout layout = plain;
    change(layout);
    return words(tiny_gpt(), layout);
  };
  EXPECT_NE(with([](Layout& l) { l.precision = ElementType::bf16; }).find("--precision bf16"), std::string::npos);
  Transformer moe = test::small_moe();
  EXPECT_EQ(words(moe, plain), "");
  // Experts would sum what ranks with different tokens made.
  Layout crossed = plain;
  crossed.tp = crossed.etp = crossed.dp = 2;
  EXPECT_EQ(words(moe, crossed), "");
  crossed.mesh_order = {Axis::dp, Axis::tp, Axis::cp, Axis::pp};
  EXPECT_NE(words(moe, crossed).find("--mesh-order"), std::string::npos);
  moe.experts->capacity_factor = 1e9;
  Layout with_tokens = plain;
  with_tokens.seq = 64;
  EXPECT_NE(words(moe, with_tokens).find("--capacity-factor 1e+09: makes"), std::string::npos);
  moe.experts->capacity_factor = 0;
  EXPECT_NE(words(moe, plain).find("--capacity-factor"), std::string::npos);
  Transformer latent = test::small_mla();
  latent.experts.reset();
  EXPECT_EQ(words(latent, plain), "");
}

}  // namespace
}  // namespace weft
