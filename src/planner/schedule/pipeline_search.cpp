#include "planner/schedule/pipeline_search.hpp"

#include <algorithm>
#include <utility>

#include "graph/split_backward.hpp"
#include "graph/waves.hpp"
#include "planner/schedule/blocks.hpp"
#include "planner/schedule/pipeline_bytes.hpp"

namespace weft {
namespace {

constexpr BlockKind kForward = BlockKind::forward, kInputGrad = BlockKind::input_grad,
                    kWeightGrad = BlockKind::weight_grad;

// Returns whether a stage begins each pass behind the one that it needs of its own and holds no more than it may.
bool is_possible(const std::vector<PipelinePass>& order, const PipelineProblem& problem, std::int64_t stage,
                 std::int64_t most_held) {
  const PipelineShape& shape = problem.shape;
  struct Begun {
    std::int64_t forward = 0, input_grad = 0, weight_grad = 0;
  };
  std::vector<Begun> begun(static_cast<std::size_t>(shape.chunks));
  std::int64_t held = 0, room = problem.room_of(stage);
  for (const PipelinePass& pass : order) {
    Begun& chunk = begun[static_cast<std::size_t>(pass.chunk)];
    const PassBytes bytes = problem.bytes_of(shape.number_of(stage, pass.chunk), pass.slice);
    if (pass.kind == kForward) {
      ++chunk.forward;
      if (++held > most_held || bytes.forward > room) return false;
      room -= bytes.forward;
    } else if (pass.kind == kInputGrad) {
      // Behind the last slice of its micro-batch.
      if ((chunk.input_grad++ / shape.slices + 1) * shape.slices > chunk.forward) return false;
      if (bytes.while_input_grad() > room) return false;
      room -= bytes.input_grad - bytes.forward;
    } else {
      if (++chunk.weight_grad > chunk.input_grad) return false;
      --held;
      room += bytes.input_grad;
    }
  }
  return true;
}

// Each backward as its two halves, one behind the other.
PipelineOrders split(PipelineOrders orders) {
  for (std::vector<PipelinePass>& order : orders) {
    std::vector<PipelinePass> halves;
    for (PipelinePass pass : order) {
      const bool is_whole = pass.kind == BlockKind::backward;
      if (is_whole) pass.kind = kInputGrad;
      halves.push_back(pass);
      if (!is_whole) continue;
      pass.kind = kWeightGrad;
      halves.push_back(pass);
    }
    order = std::move(halves);
  }
  return orders;
}

// Times in multiples of a unit: passes that are almost as long as each other then take turns as if they were.
PipelineProblem in_multiples_of(const PipelineProblem& problem, std::int64_t unit) {
  PipelineProblem rounded = problem;
  const auto round = [&](std::int64_t time) { return std::max<std::int64_t>(1, (time + unit / 2) / unit); };
  for (PassTimes& times : rounded.times) {
    times = {round(times.forward), round(times.input_grad), round(times.weight_grad)};
  }
  rounded.message = 0;
  return rounded;
}

class PipelineSearcher {
 public:
  PipelineSearcher(const PipelineProblem& problem, std::int64_t most_held) : problem_(problem), most_held_(most_held) {}

  std::optional<PipelineOrders> best_in_pairs() {
    const PipelineOrders pairs = pipeline_orders(layout_with(unsplit_schedule()), true);
    for (const double patience : {0.0, 0.25, 0.5, 0.75, 1.0}) {
      auto orders =
          fill_with_weight_grads(problem_, {.most_held = std::vector<std::int64_t>(problem_.shape.stages, most_held_),
                                            .patience = patience,
                                            .given = pairs});
      if (orders) look_at(std::move(*orders));
    }
    return found_;
  }

  std::optional<PipelineOrders> best(std::int64_t visits) {
    try_named();
    try_filled();
    if (!found_) return {};
    improve(visits);
    return found_;
  }

 private:
  bool is_possible(const std::vector<PipelinePass>& order, std::size_t stage) const {
    return weft::is_possible(order, problem_, static_cast<std::int64_t>(stage), most_held_);
  }

  void look_at(PipelineOrders orders) {
    for (std::size_t stage = 0; stage < orders.size(); ++stage) {
      if (!is_possible(orders[stage], stage)) return;
    }
    const std::optional<std::int64_t> time = step_time(problem_, orders);
    if (!time || (found_ && *time >= shortest_)) return;
    shortest_ = *time;
    found_ = std::move(orders);
  }

  PipelineSchedule unsplit_schedule() const {
    return problem_.shape.chunks == 1 ? PipelineSchedule::one_f_one_b : PipelineSchedule::interleaved;
  }

  Layout layout_with(PipelineSchedule schedule) const {
    Layout layout{.pp = problem_.shape.stages, .vpp = problem_.shape.chunks};
    layout.global_batch = problem_.shape.micro_batches;
    layout.schedule = schedule;
    if (problem_.shape.slices > 1) layout.slice_tokens.assign(static_cast<std::size_t>(problem_.shape.slices), 1);
    return layout;
  }

  void try_named() {
    const PipelineShape& shape = problem_.shape;
    const auto look_at_named = [&](PipelineSchedule named) { look_at(split(pipeline_orders(layout_with(named)))); };
    if (shape.chunks == 1) {
      for (const auto named : {PipelineSchedule::one_f_one_b, PipelineSchedule::zb_h1, PipelineSchedule::zb_h2}) {
        look_at_named(named);
      }
    } else if (!shape.in_waves) {
      if (layout_with(PipelineSchedule::interleaved).has_whole_rounds()) look_at_named(PipelineSchedule::interleaved);
      look_at_named(PipelineSchedule::breadth_first);
    } else if (shape.chunks == 2) {
      look_at(zero_bubble_waves(shape));
      look_at(dual_pipe_waves(shape, false));
      for (const WaveSteps& steps :
           {WaveSteps{1, 1, 1, 1}, WaveSteps{1, 2, 1, 1}, WaveSteps{1, 2, 1, 2}, WaveSteps{1, 3, 1, 2},
            WaveSteps{1, 3, 1, 3}, WaveSteps{1, 4, 1, 3}, WaveSteps{2, 4, 1, 2}, WaveSteps{2, 4, 2, 4}}) {
        look_at(repeat_in_waves(shape, steps));
      }
    }
  }

  void try_filled() {
    std::int64_t shortest = INT64_MAX;
    for (const PassTimes& times : problem_.times) shortest = std::min({shortest, times.weight_grad, times.forward});
    std::vector<PipelineProblem> problems{problem_, problem_};
    problems.back().times = problem_in_units(problem_.shape).times;
    problems.back().message = 0;
    for (const std::int64_t parts : {1, 2, 4}) {
      problems.push_back(in_multiples_of(problem_, std::max<std::int64_t>(1, shortest / parts)));
    }
    for (const PipelineProblem& problem : problems) {
      for (const bool alternate : {true, false}) {
        for (const double patience : {0.0, 0.5, 1.0}) {
          auto orders = fill_with_weight_grads(
              problem, {.most_held = std::vector<std::int64_t>(problem_.shape.stages, most_held_),
                        .alternate = alternate,
                        .patience = patience});
          if (orders) look_at(std::move(*orders));
        }
      }
    }
  }

  // Moves single passes of a stage to other places and keeps what is no longer than before.
  void improve(std::int64_t visits) {
    const std::int64_t passes = 3 * problem_.shape.all_chunks() * problem_.shape.passes();
    PipelineOrders orders = *found_;
    for (std::int64_t tries = visits / passes; tries > 0; --tries) {
      const std::size_t stage = random_below(orders.size());
      std::vector<PipelinePass>& order = orders[stage];
      const std::vector<PipelinePass> before = order;
      const std::size_t from = random_below(order.size());
      const std::size_t reach =
          std::min<std::size_t>(order.size() - 1, 2 * static_cast<std::size_t>(problem_.shape.stages));
      const std::size_t first = from > reach ? from - reach : 0;
      const std::size_t to = std::min(order.size() - 1, first + random_below(2 * reach + 1));
      const auto at = [&](std::size_t place) { return order.begin() + static_cast<std::ptrdiff_t>(place); };
      if (from < to) std::rotate(at(from), at(from) + 1, at(to) + 1);
      if (to < from) std::rotate(at(to), at(from), at(from) + 1);
      number_in_turn(order);
      const bool possible = order != before && is_possible(order, stage);
      const auto time = possible ? step_time(problem_, orders) : std::nullopt;
      if (!time || *time > shortest_) {
        order = before;
        continue;
      }
      if (*time < shortest_) found_ = orders;
      shortest_ = *time;
    }
  }

  // Micro-batches of a kind and a chunk stay in their order, whichever of their passes was moved.
  void number_in_turn(std::vector<PipelinePass>& order) const {
    std::vector<std::int64_t> next(static_cast<std::size_t>(problem_.shape.chunks * kBlockKinds), 0);
    for (PipelinePass& pass : order) {
      const std::int64_t number = next[pass.chunk * kBlockKinds + static_cast<std::int32_t>(pass.kind)]++;
      pass = problem_.shape.nth_pass(pass.kind, pass.chunk, number);
    }
  }

  std::size_t random_below(std::size_t end) {
    random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::size_t>(random_ >> 33) % end;
  }

  const PipelineProblem& problem_;
  std::int64_t most_held_;
  std::optional<PipelineOrders> found_;
  std::int64_t shortest_ = 0;
  std::uint64_t random_ = 1;
};

}  // namespace

PipelineProblem pipeline_problem(const Plan& plan, const CostModel& cost) {
  PipelineProblem problem{shape_of(plan.layout), {}, 0};
  const std::int64_t slices = problem.shape.slices;
  std::vector<std::vector<PassTimes>> of_classes(
      plan.graph.classes.size(),
      std::vector<PassTimes>(static_cast<std::size_t>(plan.layout.vpp * slices), PassTimes{0, 0, 0}));
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (!op.per_micro_batch) continue;
    const std::int64_t time = cost.alone(op).value;
    if (op.communication && op.communication->collective == Collective::send_recv) {
      problem.message = std::max(problem.message, time);
    } else if (!op.is_transfer() || plan.issues[i].blocking) {
      const std::int64_t slice = plan.layout.has_slices() ? op.turn : 0;
      PassTimes& times = of_classes[op.rank_class.index()][static_cast<std::size_t>(op.chunk * slices + slice)];
      (op.phase == Phase::forward                                    ? times.forward
       : half_of_backward(op, plan.layout) == BlockKind::weight_grad ? times.weight_grad
                                                                     : times.input_grad) += time;
    }
  }
  problem.times.assign(static_cast<std::size_t>(problem.shape.all_chunks() * slices), {});
  for (std::size_t c = 0; c < of_classes.size(); ++c) {
    for (std::int64_t chunk = 0; chunk < plan.layout.vpp; ++chunk) {
      const std::int64_t number = problem.shape.number_of(plan.graph.classes[c].stage, chunk);
      for (std::int64_t slice = 0; slice < slices; ++slice) {
        PassTimes& slowest = problem.times[static_cast<std::size_t>(number * slices + slice)];
        const PassTimes& own = of_classes[c][static_cast<std::size_t>(chunk * slices + slice)];
        slowest = {std::max(slowest.forward, own.forward), std::max(slowest.input_grad, own.input_grad),
                   std::max(slowest.weight_grad, own.weight_grad)};
      }
    }
  }
  return problem;
}

std::optional<PipelineOrders> search_pipeline(const PipelineProblem& problem, std::int64_t most_held,
                                              std::int64_t visits) {
  return PipelineSearcher(problem, most_held).best(visits);
}

std::optional<PipelineOrders> search_paired_pipeline(const PipelineProblem& problem, std::int64_t most_held) {
  return PipelineSearcher(problem, most_held).best_in_pairs();
}

PipelineOrders chosen_pipeline(const Plan& plan, const CostModel& cost, const PipelineChoice& choice, bool paired) {
  Layout layout = plan.layout;
  layout.global_batch /= layout.group_size();  // a group passes its blocks as one micro-batch does
  if (choice.most_held > 0) {
    constexpr std::int64_t kVisits = 2'000'000;  // some tenths of a second
    PipelineProblem problem = pipeline_problem(plan, cost);
    if (choice.room_percent > 0) estimate_bytes(plan, choice.room_percent, problem);
    auto found = paired ? search_paired_pipeline(problem, choice.most_held)
                        : search_pipeline(problem, choice.most_held, kVisits);
    if (found) return std::move(*found);
  } else if (choice.named) {
    layout.schedule = *choice.named;
  }
  return pipeline_orders(layout, paired);
}

}  // namespace weft
