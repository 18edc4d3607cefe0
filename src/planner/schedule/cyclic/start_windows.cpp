#include "planner/schedule/cyclic/start_windows.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"

namespace weft {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

}  // namespace

StartWindows::StartWindows(const CyclicGraph& graph, double period)
    : graph_(&graph), period_(period), tolerance_(1e-12 * graph.total_ns()) {
  WEFT_CHECK(graph.size() <= at(kMaxExactOperations));
  for (auto& row : apart_) row.fill(kNever);
  after_.fill(0);
  const auto count = static_cast<std::int32_t>(graph.size());
  for (std::int32_t i = 0; i < count; ++i) apart_[at(i)][at(i)] = 0;
  for (std::int32_t i = 0; i < count; ++i) {
    add(i, i, graph.ns(i) - period);
    for (const CyclicNeighbour& n : graph.after(i)) {
      if (n.distance == 0) add_order(i, n.operation);
      add(i, n.operation, graph.ns(i) - period * n.distance);
    }
  }
}

bool StartWindows::add(std::int32_t from, std::int32_t to, double length) {
  if (!feasible_ || apart_[at(from)][at(to)] >= length) return false;
  if (apart_[at(to)][at(from)] + length > tolerance_) {
    feasible_ = false;
    return true;
  }
  const std::size_t count = graph_->size();
  const auto onwards = apart_[at(to)];
  for (std::size_t a = 0; a < count; ++a) {
    const double until = apart_[a][at(from)] + length;
    if (until == kNever) continue;
    for (std::size_t b = 0; b < count; ++b) apart_[a][b] = std::max(apart_[a][b], until + onwards[b]);
  }
  return true;
}

bool StartWindows::add_order(std::int32_t from, std::int32_t to) {
  if (is_before(from, to)) return false;
  if (from == to || is_before(to, from)) {
    feasible_ = false;
    return true;
  }
  const std::uint32_t then = after_[at(to)] | 1U << to;
  for (std::size_t a = 0; a < graph_->size(); ++a) {
    if (a == at(from) || is_before(static_cast<std::int32_t>(a), from)) after_[a] |= then;
  }
  return true;
}

bool StartWindows::put_before(std::int32_t i, std::int32_t j) {
  const bool order = add_order(i, j);
  const bool within = add(i, j, graph_->ns(i));
  const bool around = add(j, i, graph_->ns(j) - period_);
  return order || within || around;
}

double StartWindows::slack_before(std::int32_t i, std::int32_t j) const {
  if (is_before(j, i)) return kNever;
  const double within = -(apart_[at(j)][at(i)] + graph_->ns(i));
  const double around = -(apart_[at(i)][at(j)] + graph_->ns(j) - period_);
  const double slack = std::min(within, around);
  return slack < 0 && slack >= -tolerance_ ? 0 : slack;
}

// Of the operations that may start `first` after v at the earliest and must end by `last`, the work has to fit between.
bool StartWindows::work_fits(std::int32_t v, std::uint32_t members) const {
  const auto count = static_cast<std::int32_t>(graph_->size());
  const auto start = [&](std::int32_t i) { return apart_[at(v)][at(i)]; };
  const auto end = [&](std::int32_t i) { return graph_->ns(i) - apart_[at(i)][at(v)]; };
  for (std::int32_t first = 0; first < count; ++first) {
    if ((members >> first & 1U) == 0 || start(first) == kNever) continue;
    for (std::int32_t last = 0; last < count; ++last) {
      if ((members >> last & 1U) == 0 || apart_[at(last)][at(v)] == kNever) continue;
      double work = 0;
      for (std::int32_t i = 0; i < count; ++i) {
        if ((members >> i & 1U) != 0 && start(i) >= start(first) && end(i) <= end(last)) work += graph_->ns(i);
      }
      if (work > end(last) - start(first) + tolerance_ && work > 0) return false;
    }
  }
  return true;
}

bool StartWindows::work_fits() const {
  const auto count = static_cast<std::int32_t>(graph_->size());
  for (std::int32_t r = 0; at(r) < graph_->resources(); ++r) {
    std::uint32_t members = 0;
    for (std::int32_t i = 0; i < count; ++i) {
      if (graph_->queue(i) == r || graph_->link(i) == r) members |= 1U << i;
    }
    for (std::int32_t v = 0; v < count; ++v) {
      if (!work_fits(v, members)) return false;
    }
  }
  return true;
}

}  // namespace weft
