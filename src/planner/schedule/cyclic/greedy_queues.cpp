#include "planner/schedule/cyclic/greedy_queues.hpp"

#include <algorithm>

namespace weft {

namespace {

std::size_t at(std::int32_t index) {
  return index;
}

}  // namespace

bool GreedyQueues::LessUrgent::operator()(std::int32_t a, std::int32_t b) const {
  const double x = (*urgency)[at(a)], y = (*urgency)[at(b)];
  return x != y ? x < y : a > b;
}

GreedyQueues::GreedyQueues(const CyclicGraph& graph, std::vector<double> urgency)
    : graph_(graph),
      urgency_(std::move(urgency)),
      free_(graph.resources(), 0),
      ends_(graph.size(), 0),
      previous_ends_(graph.size(), 0),
      missing_(graph.size(), 0),
      waiting_(graph.resources()),
      is_touched_(at(graph.queues()), 0) {
  for (std::int32_t queue = 0; queue < graph.queues(); ++queue) ready_.emplace_back(LessUrgent{&urgency_});
}

void GreedyQueues::touch(std::int32_t queue) {
  if (is_touched_[at(queue)] != 0) return;
  is_touched_[at(queue)] = 1;
  touched_.push_back(queue);
}

// All it waits for in this iteration has ended; what it needs of the previous one may still run.
void GreedyQueues::may_start(std::int32_t operation, double now) {
  double when = now;
  for (const CyclicNeighbour& n : graph_.before(operation)) {
    if (n.distance == 1) when = std::max(when, previous_ends_[at(n.operation)]);
  }
  events_.push({when, Kind::may_start, operation});
}

void GreedyQueues::ended(std::int32_t operation, double now) {
  for (const CyclicNeighbour& n : graph_.after(operation)) {
    if (n.distance == 0 && --missing_[at(n.operation)] == 0) may_start(n.operation, now);
  }
  freed(graph_.queue(operation));
  if (graph_.link(operation) >= 0) freed(graph_.link(operation));
}

void GreedyQueues::freed(std::int32_t resource) {
  if (resource < graph_.queues()) touch(resource);
  for (std::int32_t queue : waiting_[at(resource)]) touch(queue);
  waiting_[at(resource)].clear();
}

// The most urgent over all queues first: they may want the same link.
void GreedyQueues::start_what_can(double now) {
  std::erase_if(touched_, [&](std::int32_t queue) {
    is_touched_[at(queue)] = 0;
    return ready_[at(queue)].empty() || free_[at(queue)] > now;
  });
  const LessUrgent less{&urgency_};
  std::sort(touched_.begin(), touched_.end(),
            [&](std::int32_t a, std::int32_t b) { return less(ready_[at(b)].top(), ready_[at(a)].top()); });
  for (std::int32_t queue : touched_) {
    const std::int32_t i = ready_[at(queue)].top();
    const std::int32_t link = graph_.link(i);
    if (link >= 0 && free_[at(link)] > now) {
      waiting_[at(link)].push_back(queue);
      continue;
    }
    ready_[at(queue)].pop();
    ends_[at(i)] = now + graph_.ns(i);
    free_[at(queue)] = ends_[at(i)];
    if (link >= 0) free_[at(link)] = ends_[at(i)];
    started_.push_back(i);
    events_.push({ends_[at(i)], Kind::ended, i});
  }
  touched_.clear();
}

std::vector<std::int32_t> GreedyQueues::run_iteration() {
  started_.clear();
  previous_ends_ = ends_;
  const auto count = static_cast<std::int32_t>(graph_.size());
  for (std::int32_t i = 0; i < count; ++i) {
    missing_[at(i)] = 0;
    for (const CyclicNeighbour& n : graph_.before(i)) missing_[at(i)] += n.distance == 0 ? 1 : 0;
    if (missing_[at(i)] == 0) may_start(i, 0);
  }
  for (std::size_t r = 0; r < free_.size(); ++r) events_.push({free_[r], Kind::free, static_cast<std::int32_t>(r)});
  while (!events_.empty()) {
    const double now = events_.top().time;
    // Everything that happens now, before anything starts: a queue chooses among all that is ready.
    for (; !events_.empty() && events_.top().time == now; events_.pop()) {
      const Event event = events_.top();
      if (event.kind == Kind::free) freed(event.which);
      if (event.kind == Kind::ended) ended(event.which, now);
      if (event.kind == Kind::may_start) {
        ready_[at(graph_.queue(event.which))].push(event.which);
        touch(graph_.queue(event.which));
      }
    }
    start_what_can(now);
  }
  return started_;
}

}  // namespace weft
