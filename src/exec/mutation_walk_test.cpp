// A walk over plans: change after change, and every plan that the verifier calls safe trains on real ranks, over paced
// links of random speeds. None may hang, and all train what the first one trained. Needs kernels.
//
// The short walk runs with the other tests; tools/mutation_walk.sh runs the long one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <future>
#include <random>

#include "base/test_effort.hpp"
#include "comm/test_ranks.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"
#include "exec/train_rank.hpp"
#include "plan/happens_before.hpp"
#include "plan/test_mutator.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/search/decisions.hpp"

namespace weft {
namespace {

constexpr std::int64_t kWalkSteps = 3;
// Sums of gradients may be added up in another order: that much, relative, losses and weights may differ.
constexpr double kRounding = 2e-5;
// A run of a few milliseconds that takes so long hangs.
constexpr std::chrono::seconds kHangs{test::kSanitized ? 240 : 60};

struct WalkCase {
  std::string name;
  Layout layout;
  std::int64_t ranks = 2;
  bool experts = false;
};

std::vector<WalkCase> walk_cases() {
  using enum PipelineSchedule;
  return {
      {"dp", {}},
      {"dp, zero 1, clipped", {.zero = 1, .clip_grad = 0.05}},
      {"dp, zero 2", {.zero = 2}},
      {"dp, zero 3", {.zero = 3}, 4},
      {"tp, sequence parallel", {.tp = 2, .micro_batch = 2, .sequence_parallel = true}},
      {"tp, computed again", {.tp = 2, .micro_batch = 2, .recompute = Recompute::full}, 4},
      {"cp", {.cp = 2, .zero = 1}, 4},
      {"pp, gpipe", {.pp = 2, .schedule = gpipe}},
      {"pp, 1f1b, clipped", {.pp = 4, .clip_grad = 0.05}, 4},
      {"pp, interleaved", {.pp = 2, .vpp = 2, .schedule = interleaved}},
      {"pp, zero 2, selective", {.pp = 2, .zero = 2, .recompute = Recompute::selective}, 4},
      {"tp, pp, sequence parallel", {.tp = 2, .pp = 2, .sequence_parallel = true, .schedule = gpipe}, 4},
      {"ep", {.ep = 2, .micro_batch = 2}, 2, true},
      {"ep, zero 3", {.ep = 2, .zero = 3}, 4, true},
      {"pp, ep", {.pp = 2, .ep = 2}, 4, true},
  };
}

Transformer walk_model(bool experts) {
  Transformer model = experts ? test::small_moe(4) : test::small_gpt(4);
  model.hidden = 16;
  model.heads = model.kv_heads = 4;
  model.head_dim = 4;
  model.ffn = 24;
  model.vocab = 256;
  model.max_seq = 16;
  if (experts) model.experts = Experts{.count = 4, .top_k = 2, .ffn = 16, .capacity_factor = 1.25, .every = 2};
  return model;
}

// What a run leaves: losses, and the weights at its end.
struct Trained {
  std::vector<double> losses;
  std::vector<NamedTensor> weights;
};

// Links between 2 MB/s and 500 MB/s, of every rank another.
ClusterSpec random_links(std::int64_t ranks, std::mt19937_64& random) {
  const auto speed = [&] { return 2e6 * std::pow(250, static_cast<double>(random() % 1000) / 1000); };
  ClusterSpec spec = parse_cluster(fmt::format("local:{},nic={:.0f}B/s", ranks, speed()));
  for (std::int64_t node = 0; node < spec.nodes; ++node) {
    spec.overrides.push_back({.node = node,
                              .level = spec.levels.front().name,
                              .bandwidth = Bandwidth{speed()},
                              .latency = {},
                              .device = {}});
  }
  return spec;
}

Trained train(const WholePlan& whole, std::int64_t ranks, std::mt19937_64& random) {
  const Cluster links(random_links(ranks, random));
  TrainSettings settings;
  settings.steps = kWalkSteps;
  settings.optimizer = Optimizer::sgd;  // in proportion to gradients: a wrong one shows, rounding does not grow
  settings.sgd.learning_rate = 0.5;
  KeptTensors kept;
  const TrainJob job{whole, settings, Corpus::generate(3, 4096), 1, true, &kept};
  Trained trained;
  local_ranks::on_ranks({.ranks = ranks, .cluster = &links}, {.timeout = std::chrono::seconds(20)},
                        [&](Communicator& communicator) {
                          TrainResult own = train_rank(job, communicator, *make_kernels());
                          if (communicator.rank() == 0) trained.losses = own.losses;
                        });
  trained.weights = kept.last.take();
  return trained;
}

std::string difference(const Trained& expected, const Trained& actual) {
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    if (std::abs(actual.losses.at(i) / expected.losses[i] - 1) <= kRounding) continue;
    return fmt::format("loss {} instead of {} at step {}", actual.losses[i], expected.losses[i], i + 1);
  }
  for (std::size_t t = 0; t < expected.weights.size(); ++t) {
    const NamedTensor &a = expected.weights[t], &b = actual.weights.at(t);
    for (std::size_t i = 0; i < a.data.size(); ++i) {
      if (std::abs(b.data.at(i) - a.data[i]) <= kRounding * std::max(1.0F, std::abs(a.data[i]))) continue;
      return fmt::format("element {} of {} is {} instead of {}", i, a.name, b.data[i], a.data[i]);
    }
  }
  return "";
}

struct WalkTally {
  int changes = 0, accepted = 0;
};

class Walk {
 public:
  Walk(const WalkCase& c, std::uint64_t seed)
      : case_(c),
        random_(seed),
        request_(test::PlannedLayout::request_of(walk_model(c.experts), c.layout, c.ranks, 4)),
        original_(test::build(request_)) {
    first_ = make_first();
    expected_ = train({first_, original_}, c.ranks, random_);
  }

  // Changes that follow each other; now and then back to the first plan, so that not all of them are on a bad one.
  void go(int changes, WalkTally& tally) {
    constexpr int kChangesInARow = 6;
    Plan plan = first_;
    int in_a_row = 0;
    std::string way;
    for (int i = 0; i < changes; ++i) {
      Plan changed = plan;
      const std::uint64_t seed = random_();
      const std::string kind = test::Mutator(changed, seed).mutate();
      ++tally.changes;
      if (verify_plan(changed)) continue;
      ++tally.accepted;
      const std::string so_far = way + (way.empty() ? "" : ", ") + kind;
      const std::string fault = run(changed, so_far);
      ASSERT_EQ(fault, "") << case_.name << ": " << so_far << " (last seed " << seed << ")";
      const bool onward = ++in_a_row < kChangesInARow;
      plan = onward ? changed : first_;
      way = onward ? so_far : "";
      if (!onward) in_a_row = 0;
    }
  }

 private:
  // As a policy has it, or as the search might: any decision that can run.
  Plan make_first() {
    const DecisionSpace space(request_, original_);
    for (;;) {
      Decisions decisions = space.start();
      for (std::size_t& chosen : decisions.chosen) {
        const std::size_t d = &chosen - decisions.chosen.data();
        if (random_() % 2 == 0) chosen = static_cast<std::size_t>(random_() % space.options(d));
      }
      const WholePlan made = overlapped_plan(request_, original_, "weft", space.overlap(decisions));
      if (find_run_order(made.unfolded()).cycle.empty()) return made.plan();
    }
  }

  // What went wrong, or nothing.
  std::string run(const Plan& plan, const std::string& way) {
    auto running = std::async(std::launch::async, [&] { return train({plan, original_}, case_.ranks, random_); });
    if (running.wait_for(kHangs) == std::future_status::timeout) {
      fmt::print(stderr, "{}: {}: the run hangs\n", case_.name, way);
      std::_Exit(1);
    }
    try {
      return difference(expected_, running.get());
    } catch (const std::exception& exception) {
      return exception.what();
    }
  }

  WalkCase case_;
  std::mt19937_64 random_;
  PlanRequest request_;
  SharedGraph original_;
  Plan first_;
  Trained expected_;
};

void walk(int changes_of_a_plan, std::uint64_t first_seed, int rounds) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  WalkTally all;
  for (int round = 0; round < rounds; ++round) {
    for (const WalkCase& c : walk_cases()) {
      WalkTally tally;
      Walk(c, first_seed + static_cast<std::uint64_t>(round)).go(changes_of_a_plan, tally);
      if (testing::Test::HasFatalFailure()) return;
      all.changes += tally.changes, all.accepted += tally.accepted;
    }
    fmt::print("round {} of {}: {} changes, {} accepted and trained\n", round + 1, rounds, all.changes, all.accepted);
    std::fflush(stdout);
  }
  EXPECT_GT(all.accepted, all.changes / 20);
}

TEST(MutationWalk, WhatTheVerifierAcceptsTrainsTheSame) {
  walk(12, 1, 1);
}

std::int64_t from_environment(const char* name, std::int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::strtoll(text, nullptr, 10) : otherwise;
}

// tools/mutation_walk.sh
TEST(MutationWalk, DISABLED_Long) {
  walk(60, static_cast<std::uint64_t>(from_environment("WEFT_WALK_SEED", 100)),
       static_cast<int>(from_environment("WEFT_WALK_ROUNDS", 10)));
}

}  // namespace
}  // namespace weft
