// Searched orders of pipelines: the best of all of them where these can be listed, the bubbles that the authors of Zero
// Bubble computed, and never longer than a named schedule that holds no more.
#include "planner/schedule/pipeline_search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "graph/layout.hpp"
#include "graph/split_backward.hpp"

namespace weft {
namespace {

PipelineProblem equal_stages(std::int64_t stages, std::int64_t micro_batches, const PassTimes& times,
                             std::int64_t message = 0) {
  return {{stages, 1, micro_batches}, std::vector<PassTimes>(static_cast<std::size_t>(stages), times), message};
}

// All orders of a stage with one chunk: at every point the next forward, input gradient or weight gradient.
std::vector<std::vector<PipelinePass>> all_orders(std::int64_t micro_batches, std::int64_t most_held) {
  std::vector<std::vector<PipelinePass>> result;
  std::vector<PipelinePass> order;
  const std::function<void(std::int64_t, std::int64_t, std::int64_t)> extend = [&](std::int64_t f, std::int64_t b,
                                                                                   std::int64_t w) {
    if (w == micro_batches) result.push_back(order);
    const auto go_on = [&](bool may, BlockKind kind, std::int64_t micro_batch, std::int64_t f2, std::int64_t b2,
                           std::int64_t w2) {
      if (!may) return;
      order.push_back({kind, 0, make_id<MicroBatch>(micro_batch)});
      extend(f2, b2, w2);
      order.pop_back();
    };
    go_on(f < micro_batches && f - w < most_held, BlockKind::forward, f, f + 1, b, w);
    go_on(b < f, BlockKind::input_grad, b, f, b + 1, w);
    go_on(w < b, BlockKind::weight_grad, w, f, b, w + 1);
  };
  extend(0, 0, 0);
  return result;
}

// The most bytes that a stage holds at one time: what a pass has of its forward until its input gradients have ended,
// what it has of these from their begin on, and while they run the more of both.
std::int64_t most_bytes(const PassBytes& bytes, const std::vector<PipelinePass>& order) {
  std::int64_t most = 0;
  for (std::size_t now = 0; now < order.size(); ++now) {
    std::map<MicroBatch, std::int64_t> held;
    for (std::size_t i = 0; i <= now; ++i) {
      const bool runs = i == now;
      std::int64_t& own = held[order[i].micro_batch];
      if (order[i].kind == BlockKind::forward) own = bytes.forward;
      if (order[i].kind == BlockKind::input_grad) own = runs ? std::max(own, bytes.input_grad) : bytes.input_grad;
      if (order[i].kind == BlockKind::weight_grad && !runs) own = 0;
    }
    std::int64_t sum = 0;
    for (const auto& [micro_batch, own] : held) sum += own;
    most = std::max(most, sum);
  }
  return most;
}

std::int64_t shortest_of_all(const PipelineProblem& problem, std::int64_t most_held) {
  const auto of_stage = all_orders(problem.shape.micro_batches, most_held);
  PipelineOrders orders(static_cast<std::size_t>(problem.shape.stages));
  std::int64_t shortest = INT64_MAX;
  const std::function<void(std::size_t)> choose = [&](std::size_t stage) {
    if (stage == orders.size()) {
      shortest = std::min(shortest, step_time(problem, orders).value_or(INT64_MAX));
      return;
    }
    const auto number = static_cast<std::int64_t>(stage);
    for (const auto& order : of_stage) {
      if (!problem.bytes.empty() && most_bytes(problem.bytes_of(number, 0), order) > problem.room_of(number)) continue;
      orders[stage] = order;
      choose(stage + 1);
    }
  };
  choose(0);
  return shortest;
}

TEST(PipelineSearch, FindsTheShortestOfAllOrdersOfSmallPipelines) {
  std::mt19937 random(7);
  std::uniform_int_distribution<std::int64_t> time(1, 20), message(0, 6), of_stages(2, 3), held(1, 4);
  for (int i = 0; i < 100; ++i) {
    const std::int64_t stages = of_stages(random), micro_batches = stages == 2 ? 3 : 2;
    PipelineProblem problem = equal_stages(stages, micro_batches, {}, message(random));
    for (PassTimes& times : problem.times) times = {time(random), time(random), time(random)};
    const std::int64_t most_held = held(random);
    const auto found = search_pipeline(problem, most_held, 200'000);
    ASSERT_TRUE(found.has_value());
    const std::int64_t shortest = shortest_of_all(problem, most_held), step = step_time(problem, *found).value();
    EXPECT_GE(step, shortest);
    EXPECT_LE(static_cast<double>(step), 1.01 * static_cast<double>(shortest)) << "case " << i;
  }
}

// Where recomputation keeps little from forward to backward, weight gradients that wait are what takes memory.
TEST(PipelineSearch, FindsTheShortestOfAllOrdersThatFit) {
  std::mt19937 random(11);
  std::uniform_int_distribution<std::int64_t> time(1, 20), message(0, 6), of_stages(2, 3), bytes(1, 8), more(0, 12);
  for (int i = 0; i < 100; ++i) {
    const std::int64_t stages = of_stages(random), micro_batches = stages == 2 ? 3 : 2;
    PipelineProblem problem = equal_stages(stages, micro_batches, {}, message(random));
    for (PassTimes& times : problem.times) times = {time(random), time(random), time(random)};
    for (std::int64_t stage = 0; stage < stages; ++stage) {
      const PassBytes own = problem.bytes.emplace_back(PassBytes{bytes(random), bytes(random)});
      problem.room.push_back(std::max(own.forward, own.input_grad) + more(random));
    }
    const auto found = search_pipeline(problem, micro_batches, 200'000);
    ASSERT_TRUE(found.has_value()) << "case " << i;
    for (std::int64_t stage = 0; stage < stages; ++stage) {
      EXPECT_LE(most_bytes(problem.bytes_of(stage, 0), (*found)[static_cast<std::size_t>(stage)]),
                problem.room_of(stage));
    }
    const std::int64_t shortest = shortest_of_all(problem, micro_batches);
    const std::int64_t step = step_time(problem, *found).value();
    EXPECT_GE(step, shortest);
    EXPECT_LE(static_cast<double>(step), 1.01 * static_cast<double>(shortest)) << "case " << i;
  }
}

TEST(PipelineSearch, HasNoOrderWhereNotOnePassFits) {
  PipelineProblem problem = equal_stages(2, 3, {10, 10, 10});
  problem.bytes = {{4, 6}, {4, 6}};
  problem.room = {6, 5};
  EXPECT_FALSE(search_pipeline(problem, 3, 0).has_value());
  EXPECT_FALSE(search_paired_pipeline(problem, 3).has_value());
}

// Qi et al. 2024 (Zero Bubble), tables 5 and 6: the share of a step in which GPT 1.5B idles on eight stages, computed
// by its authors from the profiled milliseconds of a forward, its two gradients and a message.
struct PublishedRate {
  std::int64_t micro_batches;
  double forward, input_grad, weight_grad, message, of_h1, of_h2;
};
constexpr PublishedRate kPublished[] = {{24, 18.522, 18.086, 9.337, 0.601, 0.1585, 0.1083},
                                        {32, 18.513, 18.086, 9.331, 0.626, 0.1242, 0.0837},
                                        {64, 18.546, 18.097, 9.321, 0.762, 0.0674, 0.0444}};

PipelineProblem problem_of(const PublishedRate& row) {
  const auto ns = [](double ms) { return static_cast<std::int64_t>(ms * 1e6); };
  return equal_stages(8, row.micro_batches, {ns(row.forward), ns(row.input_grad), ns(row.weight_grad)},
                      ns(row.message));
}

double bubble_rate(const PipelineProblem& problem, const PipelineOrders& orders) {
  const PassTimes& t = problem.times.front();
  const auto step = static_cast<double>(step_time(problem, orders).value());
  return 1 - static_cast<double>(problem.shape.micro_batches * (t.forward + t.input_grad + t.weight_grad)) / step;
}

TEST(ZeroBubble, HasThePublishedBubbleRates) {
  for (const PublishedRate& row : kPublished) {
    Layout layout{.pp = 8, .global_batch = row.micro_batches};
    layout.schedule = PipelineSchedule::zb_h1;
    EXPECT_NEAR(bubble_rate(problem_of(row), pipeline_orders(layout)), row.of_h1, 0.0005) << row.micro_batches;
    layout.schedule = PipelineSchedule::zb_h2;
    EXPECT_NEAR(bubble_rate(problem_of(row), pipeline_orders(layout)), row.of_h2, 0.0005) << row.micro_batches;
  }
}

TEST(PipelineSearch, IsNeverLongerThanANamedScheduleThatHoldsNoMore) {
  for (const PublishedRate& row : kPublished) {
    const PipelineProblem problem = problem_of(row);
    const auto with = [&](std::int64_t held) {
      return bubble_rate(problem, search_pipeline(problem, held, 0).value());
    };
    EXPECT_LE(with(8), row.of_h1 + 0.0005);
    EXPECT_LE(with(15), row.of_h2 + 0.0005);
    EXPECT_LE(with(20), with(8));
  }
}

// Where passes take as long on every stage, the interleaved schedule and breadth-first idle for a forward and a whole
// backward of one chunk for every other stage (Narayanan et al. 2021, section 2.2).
TEST(PipelineSearch, InLoopsIsNeverLongerThanANamedSchedule) {
  for (const PassTimes& times : {PassTimes{10, 10, 9}, PassTimes{10, 14, 4}, PassTimes{7, 3, 11}}) {
    for (const std::int64_t chunks : {2, 3}) {
      for (const std::int64_t micro_batches : {4, 6, 8, 12}) {
        PipelineProblem problem = equal_stages(4, micro_batches, times, 0);
        problem.shape.chunks = chunks;
        problem.times.resize(static_cast<std::size_t>(4 * chunks), times);
        const std::int64_t all = chunks * micro_batches;
        const std::optional<PipelineOrders> found = search_pipeline(problem, all, 0);
        ASSERT_TRUE(found.has_value());
        EXPECT_LE(step_time(problem, *found).value(),
                  (all + 3) * (times.forward + times.input_grad + times.weight_grad))
            << chunks << " chunks, " << micro_batches << " micro-batches";
      }
    }
  }
}

// Forwards and input gradients keep the pairs of 1F1B, whose ramp then idles at most for what weight gradients cannot
// fill: never longer than with each of them right behind its input gradient.
TEST(PipelineSearch, FillsTheRampOfPairs) {
  for (const std::int64_t p : {2, 4, 8}) {
    for (const std::int64_t m : {2 * p, 4 * p}) {
      const PipelineProblem problem = equal_stages(p, m, {10, 10, 9}, 1);
      const PipelineOrders found = search_paired_pipeline(problem, 2 * p).value();
      const PipelineOrders pairs = pipeline_orders(Layout{.pp = p, .global_batch = m}, true);
      for (std::size_t stage = 0; stage < found.size(); ++stage) {
        std::vector<PipelinePass> kept = found[stage];
        std::erase_if(kept, [](const PipelinePass& pass) { return pass.kind == BlockKind::weight_grad; });
        for (PipelinePass& pass : kept) {
          if (pass.kind == BlockKind::input_grad) pass.kind = BlockKind::backward;
        }
        EXPECT_EQ(kept, pairs[stage]);
      }
      const auto step = static_cast<double>(step_time(problem, found).value());
      const auto ramp = static_cast<double>((p - 1) * 29), work = static_cast<double>(m * 29);
      EXPECT_LT(step - work, 0.6 * ramp) << p << " stages, " << m << " micro-batches";
    }
  }
}

TEST(PipelineSearch, HoldsNoMorePassesThanItMay) {
  for (const std::int64_t held : {1, 2, 3, 5, 8}) {
    for (const auto& [chunks, in_waves] : {std::pair{1, false}, {2, true}, {2, false}, {3, false}}) {
      PipelineProblem problem = equal_stages(4, 8, {10, 12, 8}, 1);
      problem.shape.chunks = chunks;
      problem.shape.in_waves = in_waves;
      problem.times.resize(static_cast<std::size_t>(4 * chunks), {10, 12, 8});
      const auto orders = search_pipeline(problem, held, 500'000);
      if (held < chunks) {
        EXPECT_FALSE(orders.has_value());
        continue;
      }
      ASSERT_TRUE(orders.has_value()) << held << " of " << chunks;
      for (const std::vector<PipelinePass>& order : *orders) {
        std::int64_t now = 0;
        for (const PipelinePass& pass : order) {
          now += pass.kind == BlockKind::forward ? 1 : pass.kind == BlockKind::weight_grad ? -1 : 0;
          EXPECT_LE(now, held);
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
