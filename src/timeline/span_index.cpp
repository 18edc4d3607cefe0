// Spans are sorted once by iteration and operation; a complete iteration without folded spans is then found without a
// search.
#include "timeline/span_index.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr std::int32_t kNone = -1;
constexpr std::int32_t kUnknown = -2;

std::size_t at(std::int32_t index) {
  return index;
}

}  // namespace

SpanIndex::SpanIndex(const Timeline& timeline)
    : timeline_(timeline), remembered_(timeline.spans.size() + timeline.folded.size(), kUnknown) {
  WEFT_CHECK(!timeline.dependency_begin.empty());
  group_transfers();
  check_acyclic();
  number_executions();
}

void SpanIndex::group_transfers() {
  const auto& operations = timeline_.operations;
  // Operations without a transfer number keep their own order at the front, each a group of its own.
  std::vector<std::int32_t> shared;
  members_.reserve(operations.size());
  for (std::int32_t i = 0; at(i) < operations.size(); ++i) {
    (operations[at(i)].transfer < 0 ? members_ : shared).push_back(i);
  }
  std::stable_sort(shared.begin(), shared.end(), [&](std::int32_t a, std::int32_t b) {
    return operations[at(a)].transfer < operations[at(b)].transfer;
  });
  members_.insert(members_.end(), shared.begin(), shared.end());
  group_of_.resize(operations.size());
  group_begin_.reserve(operations.size() + 1);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const std::int32_t transfer = operations[at(members_[i])].transfer;
    const bool joins = i > 0 && transfer >= 0 && operations[at(members_[i - 1])].transfer == transfer;
    if (!joins) group_begin_.push_back(static_cast<std::int32_t>(i));
    group_of_[at(members_[i])] = static_cast<std::int32_t>(group_begin_.size()) - 1;
  }
  group_begin_.push_back(static_cast<std::int32_t>(members_.size()));
}

void SpanIndex::number_executions() {
  const auto& spans = timeline_.spans;
  const auto& folded = timeline_.folded;
  items_.reserve(spans.size() + folded.size());
  for (const Span& span : spans) {
    items_.push_back({span.iteration, span.operation, 1, static_cast<std::int32_t>(items_.size())});
  }
  folded_from_ = static_cast<std::int32_t>(spans.size());
  std::int32_t next = folded_from_;
  for (const FoldedSpan& span : folded) {
    folded_begin_.push_back(next);
    items_.push_back({span.iteration, span.first, span.count, next});
    next += span.count;
  }
  folded_begin_.push_back(next);
  if (!folded.empty()) {
    alone_before_.reserve(timeline_.operations.size() + 1);
    alone_before_.push_back(0);
    for (const TimelineOperation& op : timeline_.operations) {
      alone_before_.push_back(alone_before_.back() + op.alone.value);
    }
  }
  const auto key = [](const Item& item) { return std::pair(item.iteration, item.first); };
  const auto less = [&](const Item& a, const Item& b) { return key(a) < key(b); };
  // Both lists are sorted as a rule.
  const auto folded_items = items_.begin() + folded_from_;
  for (const auto& [first, last] : {std::pair(items_.begin(), folded_items), std::pair(folded_items, items_.end())}) {
    if (!std::is_sorted(first, last, less)) std::sort(first, last, less);
  }
  std::inplace_merge(items_.begin(), folded_items, items_.end(), less);
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    if (iterations_.empty() || iterations_.back() != item.iteration) {
      iterations_.push_back(item.iteration);
      iteration_begin_.push_back(static_cast<std::int32_t>(i));
    } else if (items_[i - 1].first + items_[i - 1].count > item.first) {
      fail("timeline: operation {} has two spans in iteration {}, one is allowed", item.first, item.iteration);
    }
  }
  iteration_begin_.push_back(static_cast<std::int32_t>(items_.size()));
  remember_places();
}

void SpanIndex::remember_places() {
  const auto operations = static_cast<std::int32_t>(timeline_.operations.size());
  for (std::size_t block = 0; block < iterations_.size(); ++block) {
    std::int32_t item = iteration_begin_[block];
    for (std::int32_t operation = 0; operation < operations; operation += kStep) {
      while (item + 1 < iteration_begin_[block + 1] && items_[at(item + 1)].first <= operation) ++item;
      item_near_.push_back(item);
    }
  }
  std::int32_t folded = 0;
  for (std::int32_t execution = folded_from_; execution < folded_begin_.back(); execution += kStep) {
    while (folded_begin_[at(folded + 1)] <= execution) ++folded;
    folded_near_.push_back(folded);
  }
}

// By operation: itself, or the first of those that every walk goes through from here: inside folded spans of all
// iterations the way back is known.
std::vector<std::int32_t> SpanIndex::find_walked_through() const {
  std::vector<std::int32_t> first(timeline_.operations.size());
  std::iota(first.begin(), first.end(), 0);
  if (timeline_.folded.empty()) return first;
  std::vector<bool> inside(timeline_.operations.size(), false), begins(timeline_.operations.size(), false);
  std::int32_t least = timeline_.folded.front().iteration;
  for (const FoldedSpan& span : timeline_.folded) least = std::min(least, span.iteration);
  for (const FoldedSpan& span : timeline_.folded) {
    begins[at(span.first)] = true;
    if (span.iteration != least) continue;
    std::fill_n(inside.begin() + span.first + 1, span.count - 1, true);
  }
  for (const Span& span : timeline_.spans) begins[at(span.operation)] = true;
  for (std::size_t i = 1; i < first.size(); ++i) {
    if (inside[i] && !begins[i]) first[i] = first[i - 1];
  }
  return first;
}

// Strips operations (a transfer's members together) that nothing left waits for; what remains is a cycle. Without one,
// every walk ends: it descends in (iteration, position).
void SpanIndex::check_acyclic() const {
  const std::vector<std::int32_t> first = find_walked_through();
  std::vector<std::int32_t> waiting(group_begin_.size() - 1, 0);
  const auto for_each_predecessor = [&](std::int32_t group, auto&& visit) {
    for (std::int32_t i = group_begin_[at(group)]; i < group_begin_[at(group) + 1]; ++i) {
      const std::int32_t member = members_[at(i)];
      if (first[at(member)] != member) continue;
      for (const Dependency& dependency : dependencies(member)) {
        const std::int32_t predecessor = group_of_[at(first[at(dependency.operation)])];
        if (dependency.distance == 0 && predecessor != group) visit(predecessor);
      }
    }
  };
  std::vector<std::int32_t> groups;  // those that a walk looks at
  std::vector<bool> seen(waiting.size(), false);
  for (std::int32_t i = 0; at(i) < first.size(); ++i) {
    if (first[at(i)] != i || seen[at(group_of_[at(i)])]) continue;
    seen[at(group_of_[at(i)])] = true;
    groups.push_back(group_of_[at(i)]);
  }
  for (const std::int32_t g : groups) {
    for_each_predecessor(g, [&](std::int32_t predecessor) { ++waiting[at(predecessor)]; });
  }
  std::vector<std::int32_t> free;
  for (const std::int32_t g : groups) {
    if (waiting[at(g)] == 0) free.push_back(g);
  }
  std::size_t stripped = 0;
  while (!free.empty()) {
    const std::int32_t group = free.back();
    free.pop_back();
    ++stripped;
    for_each_predecessor(group, [&](std::int32_t predecessor) {
      if (--waiting[at(predecessor)] == 0) free.push_back(predecessor);
    });
  }
  if (stripped == groups.size()) return;
  const auto stuck = std::find_if(waiting.begin(), waiting.end(), [](std::int32_t count) { return count > 0; });
  fail("timeline: operation {} is on, or before, a cycle of dependencies within one iteration",
       members_[at(group_begin_[stuck - waiting.begin()])]);
}

std::int32_t SpanIndex::find(std::int32_t operation, std::int64_t iteration) const {
  const auto found = std::lower_bound(iterations_.begin(), iterations_.end(), iteration);
  if (found == iterations_.end() || *found != iteration) return kNone;
  const std::size_t block = found - iterations_.begin();
  const std::int32_t first = iteration_begin_[block], last = iteration_begin_[block + 1];
  const std::size_t operations = timeline_.operations.size();
  // A complete iteration in which nothing is folded needs no search.
  if (at(last - first) == operations) return items_[at(first + operation)].execution;
  const std::size_t steps = (operations + at(kStep) - 1) / at(kStep);
  std::int32_t i = item_near_[block * steps + at(operation / kStep)];
  while (i + 1 < last && items_[at(i + 1)].first <= operation) ++i;
  const Item& item = items_[at(i)];
  const bool holds = item.first <= operation && operation < item.first + item.count;
  return holds ? item.execution + (operation - item.first) : kNone;
}

std::size_t SpanIndex::folded_of(std::int32_t execution) const {
  std::int32_t folded = folded_near_[at((execution - folded_from_) / kStep)];
  while (folded_begin_[at(folded + 1)] <= execution) ++folded;
  return at(folded);
}

SpanIndex::Place SpanIndex::place(std::int32_t execution) const {
  if (!is_folded(execution)) {
    const Span& span = timeline_.spans[at(execution)];
    return {span, execution, span.start};
  }
  const std::size_t i = folded_of(execution);
  const FoldedSpan& folded = timeline_.folded[i];
  const std::int32_t operation = folded.first + (execution - folded_begin_[i]);
  const std::int64_t before = alone_before_[at(folded.first)];
  const Nanos start = folded.start + Nanos{alone_before_[at(operation)] - before};
  const Nanos end = folded.start + Nanos{alone_before_[at(operation) + 1] - before};
  return {{operation, folded.iteration, start, start, start, end}, folded_begin_[i], folded.start};
}

Nanos SpanIndex::folded_end(std::size_t i) const {
  const FoldedSpan& folded = timeline_.folded[i];
  return folded.start + Nanos{alone_before_[at(folded.first + folded.count)] - alone_before_[at(folded.first)]};
}

std::int32_t SpanIndex::last_predecessor(std::int32_t execution) {
  if (is_folded(execution)) {
    const std::size_t i = folded_of(execution);
    if (execution > folded_begin_[i]) return execution - 1;
    const FoldedSpan& folded = timeline_.folded[i];
    std::int32_t& remembered = remembered_[timeline_.spans.size() + i];
    if (remembered == kUnknown) remembered = search_predecessors(members(folded.first), folded.iteration);
    return remembered;
  }
  const std::int32_t iteration = timeline_.spans[at(execution)].iteration;
  const auto group = members(timeline_.spans[at(execution)].operation);
  // All members share one answer, remembered at the first of them that ran.
  std::int32_t keeper = execution;
  if (group.size() > 1) {
    for (const std::int32_t member : group) {
      keeper = find(member, iteration);
      if (keeper != kNone) break;
    }
  }
  std::int32_t& remembered = remembered_[at(keeper)];
  if (remembered == kUnknown) remembered = search_predecessors(group, iteration);
  return remembered;
}

std::int32_t SpanIndex::search_predecessors(std::span<const std::int32_t> member_operations,
                                            std::int32_t iteration) const {
  const std::int32_t own_group = group_of_[at(member_operations.front())];
  using Lateness = std::tuple<std::int64_t, std::int64_t, std::int32_t>;
  std::int32_t best = kNone;
  Lateness latest;
  for (const std::int32_t member : member_operations) {
    for (const Dependency& dependency : dependencies(member)) {
      if (dependency.distance == 0 && group_of_[at(dependency.operation)] == own_group) continue;
      const std::int32_t found = find(dependency.operation, std::int64_t{iteration} - dependency.distance);
      if (found == kNone) continue;
      const Span s = (*this)[found];
      const Lateness lateness(s.end.value, -static_cast<std::int64_t>(s.operation), s.iteration);
      if (best == kNone || lateness > latest) {
        best = found;
        latest = lateness;
      }
    }
  }
  return best;
}

std::span<const std::int32_t> SpanIndex::members(std::int32_t operation) const {
  const std::size_t group = at(group_of_[at(operation)]);
  return std::span(members_).subspan(at(group_begin_[group]), at(group_begin_[group + 1] - group_begin_[group]));
}

std::span<const Dependency> SpanIndex::dependencies(std::int32_t operation) const {
  const std::int32_t first = timeline_.dependency_begin[at(operation)];
  const std::int32_t last = timeline_.dependency_begin[at(operation) + 1];
  return std::span(timeline_.dependencies).subspan(at(first), at(last - first));
}

}  // namespace weft
