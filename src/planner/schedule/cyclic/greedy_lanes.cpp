#include "planner/schedule/cyclic/greedy_lanes.hpp"

#include <algorithm>

namespace weft {

namespace {

std::size_t at(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

bool GreedyLanes::LessUrgent::operator()(std::int32_t a, std::int32_t b) const {
  const double x = (*urgency)[at(a)], y = (*urgency)[at(b)];
  return x != y ? x < y : a > b;
}

GreedyLanes::GreedyLanes(const CyclicGraph& graph, std::vector<double> urgency)
    : graph_(graph),
      urgency_(std::move(urgency)),
      free_(graph.resources(), 0),
      ends_(graph.size(), 0),
      previous_ends_(graph.size(), 0),
      missing_(graph.size(), 0),
      waiting_(graph.resources()),
      is_touched_(at(graph.lanes()), 0) {
  for (std::int32_t lane = 0; lane < graph.lanes(); ++lane) ready_.emplace_back(LessUrgent{&urgency_});
}

void GreedyLanes::touch(std::int32_t lane) {
  if (is_touched_[at(lane)] != 0) return;
  is_touched_[at(lane)] = 1;
  touched_.push_back(lane);
}

// All it waits for in this iteration has ended; what it needs of the previous one may still run.
void GreedyLanes::may_start(std::int32_t operation, double now) {
  double when = now;
  for (const CyclicNeighbour& n : graph_.before(operation)) {
    if (n.distance == 1) when = std::max(when, previous_ends_[at(n.operation)]);
  }
  events_.push({when, Kind::may_start, operation});
}

void GreedyLanes::ended(std::int32_t operation, double now) {
  for (const CyclicNeighbour& n : graph_.after(operation)) {
    if (n.distance == 0 && --missing_[at(n.operation)] == 0) may_start(n.operation, now);
  }
  freed(graph_.lane(operation));
  if (graph_.link(operation) >= 0) freed(graph_.link(operation));
}

void GreedyLanes::freed(std::int32_t resource) {
  if (resource < graph_.lanes()) touch(resource);
  for (std::int32_t lane : waiting_[at(resource)]) touch(lane);
  waiting_[at(resource)].clear();
}

// The most urgent over all lanes first: they may want the same link.
void GreedyLanes::start_what_can(double now) {
  std::erase_if(touched_, [&](std::int32_t lane) {
    is_touched_[at(lane)] = 0;
    return ready_[at(lane)].empty() || free_[at(lane)] > now;
  });
  const LessUrgent less{&urgency_};
  std::sort(touched_.begin(), touched_.end(),
            [&](std::int32_t a, std::int32_t b) { return less(ready_[at(b)].top(), ready_[at(a)].top()); });
  for (std::int32_t lane : touched_) {
    const std::int32_t i = ready_[at(lane)].top();
    const std::int32_t link = graph_.link(i);
    if (link >= 0 && free_[at(link)] > now) {
      waiting_[at(link)].push_back(lane);
      continue;
    }
    ready_[at(lane)].pop();
    ends_[at(i)] = now + graph_.ns(i);
    free_[at(lane)] = ends_[at(i)];
    if (link >= 0) free_[at(link)] = ends_[at(i)];
    started_.push_back(i);
    events_.push({ends_[at(i)], Kind::ended, i});
  }
  touched_.clear();
}

std::vector<std::int32_t> GreedyLanes::run_iteration() {
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
    // Everything that happens now, before anything starts: a lane chooses among all that is ready.
    for (; !events_.empty() && events_.top().time == now; events_.pop()) {
      const Event event = events_.top();
      if (event.kind == Kind::free) freed(event.which);
      if (event.kind == Kind::ended) ended(event.which, now);
      if (event.kind == Kind::may_start) {
        ready_[at(graph_.lane(event.which))].push(event.which);
        touch(graph_.lane(event.which));
      }
    }
    start_what_can(now);
  }
  return started_;
}

}  // namespace weft
