#include "graph/pipeline_run.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "graph/layout.hpp"

namespace weft {

PipelineShape shape_of(const Layout& layout) {
  const ScheduleRow& row = row_of(layout.schedule);
  return {.stages = layout.pp,
          .chunks = layout.vpp,
          .micro_batches = layout.micro_batches() / layout.directions(),
          .in_waves = row.in_waves,
          .slices = layout.slices(),
          .two_directions = row.two_directions};
}

PipelineProblem problem_in_units(const PipelineShape& shape) {
  return {shape, std::vector<PassTimes>(static_cast<std::size_t>(shape.all_chunks() * shape.slices)), 0};
}

PipelineRun::PipelineRun(const PipelineProblem& problem)
    : problem_(problem),
      chunks_(static_cast<std::size_t>(problem.shape.all_chunks())),
      free_at_(static_cast<std::size_t>(problem.shape.stages), 0),
      held_(free_at_.size(), 0),
      bytes_held_(free_at_.size(), 0),
      orders_(free_at_.size()) {}

const PassTimes& PipelineRun::times(std::int64_t stage, const PipelinePass& pass) const {
  return problem_.times_of(problem_.shape.number_of(stage, pass.chunk), pass.slice);
}

PassBytes PipelineRun::bytes(std::int64_t stage, const PipelinePass& pass) const {
  return problem_.bytes_of(problem_.shape.number_of(stage, pass.chunk), pass.slice);
}

std::int64_t PipelineRun::begun(BlockKind kind, std::int64_t stage, std::int64_t chunk) const {
  const Chunk& c = chunks_[problem_.shape.number_of(stage, chunk)];
  return kind == BlockKind::forward      ? std::ssize(c.forward)
         : kind == BlockKind::input_grad ? std::ssize(c.input_grad)
                                         : c.weight_grads;
}

std::optional<std::int64_t> PipelineRun::arrival(const std::vector<std::int64_t>& ends, std::int64_t pass,
                                                 bool by_message) const {
  if (pass >= std::ssize(ends)) return {};
  return ends[static_cast<std::size_t>(pass)] + (by_message ? problem_.message : 0);
}

std::optional<std::int64_t> PipelineRun::ready_at(BlockKind kind, std::int64_t stage, std::int64_t chunk) const {
  const PipelineShape& shape = problem_.shape;
  const std::int64_t number = shape.number_of(stage, chunk), next = begun(kind, stage, chunk);
  if (next == shape.passes()) return {};
  const Chunk& own = chunks_[number];
  const auto by_message = [&](std::int64_t other) { return shape.stage_of(other) != stage; };
  if (kind == BlockKind::forward) {
    if (shape.is_first(number)) return 0;
    return arrival(chunks_[number - 1].forward, next, by_message(number - 1));
  }
  if (kind == BlockKind::weight_grad) return arrival(own.input_grad, next, false);
  if (shape.is_last(number)) return arrival(own.forward, shape.forward_of(next), false);
  return arrival(chunks_[number + 1].input_grad, next, by_message(number + 1));
}

std::optional<PipelinePass> PipelineRun::ready_pass(BlockKind kind, std::int64_t stage, std::int64_t chunk) const {
  const std::optional<std::int64_t> at = ready_at(kind, stage, chunk);
  if (!at || *at > now_) return {};
  return problem_.shape.nth_pass(kind, chunk, begun(kind, stage, chunk));
}

void PipelineRun::begin(std::int64_t stage, const PipelinePass& pass, std::int64_t beside) {
  const std::int64_t number = problem_.shape.number_of(stage, pass.chunk);
  const PassTimes& times = problem_.times_of(number, pass.slice);
  const PassBytes bytes = problem_.bytes_of(number, pass.slice);
  Chunk& chunk = chunks_[number];
  std::int64_t end = now_ + beside;
  switch (pass.kind) {
    case BlockKind::forward:
      chunk.forward.push_back(end += times.forward);
      ++held_[stage];
      bytes_held_[stage] += bytes.forward;
      break;
    case BlockKind::input_grad:
      chunk.input_grad.push_back(end += times.input_grad);
      bytes_held_[stage] += bytes.input_grad - bytes.forward;
      break;
    case BlockKind::weight_grad:
      end += times.weight_grad;
      ++chunk.weight_grads;
      --held_[stage];
      bytes_held_[stage] -= bytes.input_grad;
      break;
    default:
      WEFT_CHECK(false);
  }
  free_at_[stage] = end;
  orders_[stage].push_back(pass);
  moments_.insert(end);
  if (problem_.message > 0 && pass.kind != BlockKind::weight_grad) moments_.insert(end + problem_.message);
}

bool PipelineRun::run(const Rule& rule) {
  std::int64_t left = 3 * problem_.shape.all_chunks() * problem_.shape.passes();
  for (moments_.insert(0); !moments_.empty();) {
    now_ = *moments_.begin();
    moments_.erase(moments_.begin());
    for (std::int64_t stage = 0; stage < problem_.shape.stages; ++stage) {
      if (free_at_[stage] > now_) continue;
      const std::optional<PipelinePass> pass = rule(stage);
      if (!pass) continue;
      --left;
      if (!pass->with_next) {
        begin(stage, *pass);
        continue;
      }
      const PipelinePass backward = rule(stage).value();
      begin(stage, *pass, times(stage, backward).input_grad);
      begin(stage, backward, times(stage, *pass).forward);
      --left;
    }
  }
  return left == 0;
}

std::int64_t PipelineRun::end() const {
  return *std::max_element(free_at_.begin(), free_at_.end());
}

namespace {

// Repeats the orders of all stages without a pause between steps.
class RepeatedSteps {
 public:
  RepeatedSteps(const PipelineProblem& problem, const PipelineOrders& orders)
      : problem_(problem), orders_(orders), free_at_(orders.size(), 0) {}

  // Returns when each stage has ended one more step; nothing where they wait for each other.
  std::optional<std::vector<std::int64_t>> next() {
    const std::size_t passes = problem_.shape.all_chunks() * problem_.shape.passes();
    forward_.assign(passes, -1);
    input_grad_.assign(passes, -1);
    std::vector<std::size_t> at(orders_.size(), 0);
    for (bool moves = true; moves;) {
      moves = false;
      for (std::size_t stage = 0; stage < orders_.size(); ++stage) {
        while (const std::size_t executed = execute_next(stage, at[stage])) {
          at[stage] += executed;
          moves = true;
        }
      }
    }
    for (std::size_t stage = 0; stage < orders_.size(); ++stage) {
      if (at[stage] < orders_[stage].size()) return {};
    }
    return free_at_;
  }

 private:
  // Returns how many passes it has executed: one, a pair, or none where they are not ready.
  std::size_t execute_next(std::size_t stage, std::size_t at) {
    const std::vector<PipelinePass>& order = orders_[stage];
    if (at == order.size()) return 0;
    const std::size_t passes = order[at].with_next ? 2 : 1;
    std::int64_t begin = free_at_[stage], length = 0;
    for (std::size_t i = at; i < at + passes; ++i) {
      const std::int64_t ready = ready_at(stage, order[i]);
      if (ready < 0) return 0;
      begin = std::max(begin, ready);
      length += length_of(stage, order[i]);
    }
    for (std::size_t i = at; i < at + passes; ++i) end_at(stage, order[i], begin + length);
    return passes;
  }

  std::int64_t number_of(std::size_t stage, const PipelinePass& pass) const {
    return problem_.shape.number_of(static_cast<std::int64_t>(stage), pass.chunk);
  }
  std::int64_t& end_of(std::vector<std::int64_t>& ends, std::int64_t chunk, const PipelinePass& pass) const {
    const PipelineShape& shape = problem_.shape;
    return ends[chunk * shape.passes() + pass.micro_batch.value * shape.slices + pass.slice];
  }
  std::int64_t length_of(std::size_t stage, const PipelinePass& pass) const {
    const PassTimes& times = problem_.times_of(number_of(stage, pass), pass.slice);
    return pass.kind == BlockKind::forward      ? times.forward
           : pass.kind == BlockKind::input_grad ? times.input_grad
                                                : times.weight_grad;
  }
  void end_at(std::size_t stage, const PipelinePass& pass, std::int64_t end) {
    free_at_[stage] = end;
    if (pass.kind == BlockKind::forward) end_of(forward_, number_of(stage, pass), pass) = end;
    if (pass.kind == BlockKind::input_grad) end_of(input_grad_, number_of(stage, pass), pass) = end;
  }

  // Returns when all that a pass reads has come; -1 where some of it is yet to be made.
  std::int64_t ready_at(std::size_t stage, const PipelinePass& pass) {
    const PipelineShape& shape = problem_.shape;
    const std::int64_t number = number_of(stage, pass);
    const auto arrival = [&](std::vector<std::int64_t>& ends, std::int64_t chunk) {
      const std::int64_t end = end_of(ends, chunk, pass);
      return end < 0 || shape.stage_of(chunk) == static_cast<std::int64_t>(stage) ? end : end + problem_.message;
    };
    if (pass.kind == BlockKind::forward) return shape.is_first(number) ? 0 : arrival(forward_, number - 1);
    if (pass.kind == BlockKind::weight_grad) return end_of(input_grad_, number, pass);
    const std::int64_t own_forward = end_of(forward_, number, pass);
    return own_forward < 0 || shape.is_last(number) ? own_forward : arrival(input_grad_, number + 1);
  }

  const PipelineProblem& problem_;
  const PipelineOrders& orders_;
  std::vector<std::int64_t> free_at_;               // by stage
  std::vector<std::int64_t> forward_, input_grad_;  // by chunk and pass: when it ends; -1: not begun
};

}  // namespace

std::optional<std::int64_t> step_time(const PipelineProblem& problem, const PipelineOrders& orders) {
  // Waiting times settle when every stage has once waited for every other.
  constexpr int kStepsUntilSteady = 3;
  RepeatedSteps steps(problem, orders);
  std::vector<std::int64_t> before, after;
  for (int step = 0; step < kStepsUntilSteady; ++step) {
    const auto ends = steps.next();
    if (!ends) return {};
    before = std::move(after);
    after = *ends;
  }
  std::int64_t longest = 0;
  for (std::size_t stage = 0; stage < after.size(); ++stage) longest = std::max(longest, after[stage] - before[stage]);
  return longest;
}

}  // namespace weft
