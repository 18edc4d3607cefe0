#include "planner/schedule/cyclic/fitted_order.hpp"

#include <algorithm>
#include <limits>

namespace weft {

FittedOrder::FittedOrder(const CyclicGraph& graph)
    : graph_(graph),
      tolerance_(1e-13 * graph.total_ns()),
      mover_(graph),
      place_(graph.size()),
      touched_at_(graph.resources(), -1),
      listed_(graph.size(), 0),
      raised_by_(graph.size(), -1),
      mark_(graph.size(), 0) {}

void FittedOrder::set(std::vector<std::int32_t> sequence, std::vector<double> ends) {
  sequence_ = std::move(sequence);
  ends_ = std::move(ends);
  visits_ += static_cast<std::int64_t>(sequence_.size());
  for (std::size_t p = 0; p < sequence_.size(); ++p) place_[at(sequence_[p])] = static_cast<std::int32_t>(p);
  for (Kind kind : {queue, link}) {
    Ring& ring = rings_[kind];
    ring.before.assign(sequence_.size(), -1);
    ring.after.assign(sequence_.size(), -1);
    std::vector<std::int32_t> first(graph_.resources(), -1), last(graph_.resources(), -1);
    const auto join = [&](std::int32_t from, std::int32_t to) {
      ring.after[at(from)] = to;
      ring.before[at(to)] = from;
    };
    for (std::int32_t i : sequence_) {
      const std::int32_t r = resource(kind, i);
      if (r < 0) continue;
      if (first[at(r)] < 0) first[at(r)] = i;
      if (last[at(r)] >= 0) join(last[at(r)], i);
      last[at(r)] = i;
    }
    for (std::size_t r = 0; r < first.size(); ++r) {
      if (first[r] >= 0) join(last[r], first[r]);
    }
  }
}

// The resources of a part of the sequence, and who stands around that part on each of them.
void FittedOrder::find_touched(std::size_t first, std::size_t length) {
  for (const Touched& touched : touched_) touched_at_[at(touched.resource)] = -1;
  touched_.clear();
  for (std::size_t p = first; p < first + length; ++p) {
    const std::int32_t i = sequence_[p];
    for (Kind kind : {queue, link}) {
      const std::int32_t r = resource(kind, i);
      if (r < 0) continue;
      if (touched_at_[at(r)] < 0) {
        touched_at_[at(r)] = static_cast<std::int32_t>(touched_.size());
        touched_.push_back({r, rings_[kind].before[at(i)], -1, kind});
      }
      touched_[at(touched_at_[at(r)])].after = rings_[kind].after[at(i)];
    }
  }
  // Where the ring lies within the part altogether, nothing is around it.
  for (Touched& touched : touched_) {
    const auto place = at(place_[at(touched.before)]);
    if (place >= first && place < first + length) touched.before = touched.after = -1;
  }
}

// Writes a part of the sequence and joins the rings of the resources in touched_ anew.
void FittedOrder::arrange(std::size_t first, std::span<const std::int32_t> operations) {
  std::vector<std::pair<std::int32_t, std::int32_t>>& ends_of = part_ends_;
  ends_of.assign(touched_.size(), {-1, -1});
  const auto join = [&](Ring& ring, std::int32_t from, std::int32_t to) {
    ring.after[at(from)] = to;
    ring.before[at(to)] = from;
  };
  for (std::size_t k = 0; k < operations.size(); ++k) {
    const std::int32_t i = operations[k];
    sequence_[first + k] = i;
    place_[at(i)] = static_cast<std::int32_t>(first + k);
    for (Kind kind : {queue, link}) {
      const std::int32_t r = resource(kind, i);
      if (r < 0) continue;
      auto& [head, tail] = ends_of[at(touched_at_[at(r)])];
      if (head < 0) {
        head = i;
      } else {
        join(rings_[kind], tail, i);
      }
      tail = i;
    }
  }
  for (std::size_t t = 0; t < touched_.size(); ++t) {
    const Touched& touched = touched_[t];
    const auto [head, tail] = ends_of[t];
    join(rings_[touched.kind], touched.before < 0 ? tail : touched.before, head);
    join(rings_[touched.kind], tail, touched.after < 0 ? head : touched.after);
  }
}

bool FittedOrder::try_move(const SequenceMove& move, double period) {
  const SequenceMover::Change change = mover_.change(move, sequence_, place_);
  visits_ += static_cast<std::int64_t>(change.arranged.size());
  if (change.arranged.empty()) return false;
  const auto begin = sequence_.begin() + static_cast<std::ptrdiff_t>(change.first);
  old_part_.assign(begin, begin + static_cast<std::ptrdiff_t>(change.arranged.size()));
  find_touched(change.first, old_part_.size());
  arrange(change.first, change.arranged);
  for (std::int32_t i : old_part_) look_at(i, false);
  for (const Touched& touched : touched_) {
    if (touched.after >= 0) look_at(touched.after, false);
  }
  const bool fits = settle(period);
  forget(!fits);
  if (!fits) arrange(change.first, old_part_);
  return fits;
}

void FittedOrder::look_at(std::int32_t operation, bool next_iteration) {
  const char bit = next_iteration ? 2 : 1;
  if ((listed_[at(operation)] & bit) != 0) return;
  listed_[at(operation)] = static_cast<char>(listed_[at(operation)] | bit);
  if (next_iteration) {
    later_.push_back(operation);
  } else {
    places_.push(place_[at(operation)]);
  }
}

// Raises end times until nothing is violated, as PeriodSearch does, but looks only at what may be.
bool FittedOrder::settle(double period) {
  while (true) {
    while (!places_.empty()) {
      const std::int32_t i = sequence_[at(places_.top())];
      places_.pop();
      listed_[at(i)] = static_cast<char>(listed_[at(i)] & ~1);
      ++visits_;
      if (raise(i, period)) look_at_followers(i);
    }
    if (later_.empty()) return true;
    if (cycle_among_raised()) return false;
    for (std::int32_t i : later_) {
      listed_[at(i)] = 0;
      look_at(i, false);
    }
    later_.clear();
  }
}

bool FittedOrder::raise(std::int32_t operation, double period) {
  double start = -std::numeric_limits<double>::infinity();
  std::int32_t by = -1;
  const auto wait = [&](std::int32_t from, std::int32_t iterations) {
    const double end = ends_[at(from)] - period * iterations;
    if (end > start) {
      start = end;
      by = from;
    }
  };
  for (const CyclicNeighbour& n : graph_.before(operation)) wait(n.operation, n.distance);
  for (const Ring& ring : rings_) {
    const std::int32_t from = ring.before[at(operation)];
    if (from >= 0) wait(from, distance(from, operation));
  }
  const double end = start + graph_.ns(operation);
  if (end <= ends_[at(operation)] + tolerance_) return false;
  if (raised_by_[at(operation)] < 0) raised_.emplace_back(operation, ends_[at(operation)]);
  raised_by_[at(operation)] = by;
  ends_[at(operation)] = end;
  return true;
}

void FittedOrder::look_at_followers(std::int32_t operation) {
  for (const CyclicNeighbour& n : graph_.after(operation)) look_at(n.operation, n.distance == 1);
  for (const Ring& ring : rings_) {
    const std::int32_t to = ring.after[at(operation)];
    if (to >= 0) look_at(to, distance(operation, to) == 1);
  }
}

// Operations that raised each other in a circle would do so for ever.
bool FittedOrder::cycle_among_raised() {
  const std::int64_t first_mark = last_mark_ + 1;
  for (const auto& [operation, end] : raised_) {
    const std::int64_t mark = ++last_mark_;
    std::int32_t i = operation;
    for (; i >= 0 && mark_[at(i)] < first_mark; i = raised_by_[at(i)]) mark_[at(i)] = mark;
    if (i >= 0 && mark_[at(i)] == mark) return true;
  }
  return false;
}

void FittedOrder::forget(bool undo) {
  for (const auto& [operation, end] : raised_) {
    raised_by_[at(operation)] = -1;
    if (undo) ends_[at(operation)] = end;
  }
  raised_.clear();
  for (std::int32_t i : later_) listed_[at(i)] = 0;
  later_.clear();
}

}  // namespace weft
