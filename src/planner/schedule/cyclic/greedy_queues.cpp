#include "planner/schedule/cyclic/greedy_queues.hpp"

#include <algorithm>
#include <limits>
#include <optional>

namespace weft {

namespace {

constexpr std::int32_t kCompute = 0;  // its queue
constexpr double kNever = std::numeric_limits<double>::lowest();

std::size_t at(std::int32_t index) {
  return index;
}

}  // namespace

bool GreedyQueues::LessUrgent::operator()(std::int32_t a, std::int32_t b) const {
  const double x = (*urgency)[at(a)], y = (*urgency)[at(b)];
  return x != y ? x < y : a > b;
}

GreedyQueues::GreedyQueues(const CyclicGraph& graph, std::vector<double> urgency, bool feeds_busiest)
    : graph_(graph),
      urgency_(std::move(urgency)),
      free_(graph.resources(), 0),
      ends_(graph.size(), 0),
      previous_ends_(graph.size(), 0),
      waits_(graph.size(), 0),
      waiting_(graph.resources()),
      is_touched_(at(graph.queues()), 0),
      nearest_(LessUrgent{&feeding_.nearness}),
      taken_(graph.size(), 0) {
  for (std::int32_t queue = 0; queue < graph.queues(); ++queue) ready_.emplace_back(LessUrgent{&urgency_});
  for (std::int32_t i = 0; at(i) < graph.size(); ++i) {
    for (const CyclicNeighbour& n : graph.before(i)) waits_[at(i)] += n.distance == 0 ? 1 : 0;
  }
  if (feeds_busiest) find_ways();
}

void GreedyQueues::find_ways() {
  const std::optional<std::vector<std::int32_t>> sequence = graph_.any_sequence();
  if (graph_.busiest() == kCompute || !sequence) return;
  feeding_.resource = graph_.busiest();
  feeding_.nearness.assign(graph_.size(), kNever);
  for (auto i = sequence->rbegin(); i != sequence->rend(); ++i) {
    double& nearness = feeding_.nearness[at(*i)];
    for (const CyclicNeighbour& n : graph_.after(*i)) {
      if (n.distance == 0) nearness = std::max(nearness, feeding_.nearness[at(n.operation)] - graph_.ns(*i));
    }
    if (is_fed(*i)) nearness = 0;
  }
}

bool GreedyQueues::is_fed(std::int32_t operation) const {
  return feeding_.resource >= 0 &&
         (graph_.link(operation) == feeding_.resource || graph_.queue(operation) == feeding_.resource);
}

// Returns what a queue, for which something is ready, takes next.
std::int32_t GreedyQueues::next_of(std::int32_t queue, double now) const {
  const std::int32_t urgent = ready_[at(queue)].top();
  if (queue != kCompute || feeding_.resource < 0) return urgent;
  const double nearness = feeding_.nearness[at(nearest_.top())];
  const double left = std::max(0.0, free_[at(feeding_.resource)] - now) + feeding_.ready_ns;
  return nearness > kNever && left < -nearness ? nearest_.top() : urgent;
}

void GreedyQueues::discard_taken(Ready& ready) const {
  while (!ready.empty() && taken_[at(ready.top())] != 0) ready.pop();
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
  if (when == now) return put_ready(operation);
  events_.push({when, Kind::may_start, operation});
}

void GreedyQueues::put_ready(std::int32_t operation) {
  ready_[at(graph_.queue(operation))].push(operation);
  if (feeding_.resource >= 0 && graph_.queue(operation) == kCompute) nearest_.push(operation);
  if (is_fed(operation)) feeding_.ready_ns += graph_.ns(operation);
  touch(graph_.queue(operation));
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
    const std::int32_t i = next_of(queue, now);
    const std::int32_t link = graph_.link(i);
    if (link >= 0 && free_[at(link)] > now) {
      waiting_[at(link)].push_back(queue);
      continue;
    }
    taken_[at(i)] = 1;
    discard_taken(ready_[at(queue)]);
    if (queue == kCompute) discard_taken(nearest_);
    if (is_fed(i)) feeding_.ready_ns -= graph_.ns(i);
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
  taken_.assign(graph_.size(), 0);
  previous_ends_ = ends_;
  missing_ = waits_;
  for (std::int32_t i = 0; at(i) < graph_.size(); ++i) {
    if (missing_[at(i)] == 0) may_start(i, 0);
  }
  for (std::size_t r = 0; r < free_.size(); ++r) events_.push({free_[r], Kind::free, static_cast<std::int32_t>(r)});
  while (!events_.empty()) {
    const double now = events_.top().time;
    // Everything that happens now, before anything starts: a queue chooses among all that is ready.
    while (!events_.empty() && events_.top().time == now) {
      const Event event = events_.top();
      events_.pop();
      if (event.kind == Kind::free) freed(event.which);
      if (event.kind == Kind::ended) ended(event.which, now);
      if (event.kind == Kind::may_start) put_ready(event.which);
    }
    start_what_can(now);
  }
  return started_;
}

}  // namespace weft
