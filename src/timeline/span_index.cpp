// Spans are sorted once by iteration and operation; a complete iteration is then found without a search.
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
  return static_cast<std::size_t>(index);
}

}  // namespace

SpanIndex::SpanIndex(const Timeline& timeline) : timeline_(timeline), remembered_(timeline.spans.size(), kUnknown) {
  WEFT_CHECK(!timeline.dependency_begin.empty());
  group_transfers();
  check_acyclic();
  sort_spans();
}

void SpanIndex::group_transfers() {
  const auto& operations = timeline_.operations;
  members_.resize(operations.size());
  std::iota(members_.begin(), members_.end(), 0);
  // Operations without a transfer number keep their own order at the front, each a group of its own.
  std::stable_sort(members_.begin(), members_.end(), [&](std::int32_t a, std::int32_t b) {
    return operations[at(a)].transfer < operations[at(b)].transfer;
  });
  group_of_.resize(operations.size());
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const std::int32_t transfer = operations[at(members_[i])].transfer;
    const bool joins = i > 0 && transfer >= 0 && operations[at(members_[i - 1])].transfer == transfer;
    if (!joins) group_begin_.push_back(static_cast<std::int32_t>(i));
    group_of_[at(members_[i])] = static_cast<std::int32_t>(group_begin_.size()) - 1;
  }
  group_begin_.push_back(static_cast<std::int32_t>(members_.size()));
}

void SpanIndex::sort_spans() {
  const auto& spans = timeline_.spans;
  const auto key = [&](std::int32_t i) { return std::pair(spans[at(i)].iteration, spans[at(i)].operation); };
  const auto less = [&](std::int32_t a, std::int32_t b) { return key(a) < key(b); };
  order_.resize(spans.size());
  std::iota(order_.begin(), order_.end(), 0);
  if (!std::is_sorted(order_.begin(), order_.end(), less)) std::sort(order_.begin(), order_.end(), less);
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const auto [iteration, operation] = key(order_[i]);
    if (i > 0 && key(order_[i - 1]) == key(order_[i])) {
      fail("timeline: operation {} has two spans in iteration {}, one is allowed", operation, iteration);
    }
    if (iterations_.empty() || iterations_.back() != iteration) {
      iterations_.push_back(iteration);
      iteration_begin_.push_back(static_cast<std::int32_t>(i));
    }
  }
  iteration_begin_.push_back(static_cast<std::int32_t>(order_.size()));
}

// Strips operations (a transfer's members together) that nothing left waits for; what remains is a cycle. Without one,
// every walk ends: it descends in (iteration, position).
void SpanIndex::check_acyclic() const {
  std::vector<std::int32_t> waiting(group_begin_.size() - 1, 0);
  const auto for_each_predecessor = [&](std::int32_t group, auto&& visit) {
    for (std::int32_t i = group_begin_[at(group)]; i < group_begin_[at(group) + 1]; ++i) {
      for (const Dependency& dependency : dependencies(members_[at(i)])) {
        const std::int32_t predecessor = group_of_[at(dependency.operation)];
        if (dependency.distance == 0 && predecessor != group) visit(predecessor);
      }
    }
  };
  const auto groups = static_cast<std::int32_t>(waiting.size());
  for (std::int32_t g = 0; g < groups; ++g) {
    for_each_predecessor(g, [&](std::int32_t predecessor) { ++waiting[at(predecessor)]; });
  }
  std::vector<std::int32_t> free;
  for (std::int32_t g = 0; g < groups; ++g) {
    if (waiting[at(g)] == 0) free.push_back(g);
  }
  std::int32_t stripped = 0;
  while (!free.empty()) {
    const std::int32_t group = free.back();
    free.pop_back();
    ++stripped;
    for_each_predecessor(group, [&](std::int32_t predecessor) {
      if (--waiting[at(predecessor)] == 0) free.push_back(predecessor);
    });
  }
  if (stripped == groups) return;
  const auto stuck = std::find_if(waiting.begin(), waiting.end(), [](std::int32_t count) { return count > 0; });
  fail("timeline: operation {} is on, or before, a cycle of dependencies within one iteration",
       members_[at(group_begin_[static_cast<std::size_t>(stuck - waiting.begin())])]);
}

std::int32_t SpanIndex::find(std::int32_t operation, std::int64_t iteration) const {
  const auto found = std::lower_bound(iterations_.begin(), iterations_.end(), iteration);
  if (found == iterations_.end() || *found != iteration) return kNone;
  const auto block = static_cast<std::size_t>(found - iterations_.begin());
  const auto first = order_.begin() + iteration_begin_[block];
  const auto last = order_.begin() + iteration_begin_[block + 1];
  const auto operation_of = [&](std::int32_t span) { return timeline_.spans[at(span)].operation; };
  // A complete iteration, the usual case, needs no search.
  if (static_cast<std::size_t>(last - first) == timeline_.operations.size()) return first[operation];
  const auto hit = std::lower_bound(
      first, last, operation, [&](std::int32_t span, std::int32_t wanted) { return operation_of(span) < wanted; });
  return hit != last && operation_of(*hit) == operation ? *hit : kNone;
}

std::int32_t SpanIndex::last_predecessor(std::int32_t span) {
  const std::int32_t iteration = timeline_.spans[at(span)].iteration;
  const auto group = members(timeline_.spans[at(span)].operation);
  // All members share one answer, remembered at the first of them that ran.
  std::int32_t keeper = span;
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
  const auto rank_of = [&](std::int32_t span) {
    const Span& s = timeline_.spans[at(span)];
    return std::tuple(s.end.value, -static_cast<std::int64_t>(s.operation), s.iteration);
  };
  std::int32_t best = kNone;
  for (const std::int32_t member : member_operations) {
    for (const Dependency& dependency : dependencies(member)) {
      if (dependency.distance == 0 && group_of_[at(dependency.operation)] == own_group) continue;
      const std::int32_t found = find(dependency.operation, std::int64_t{iteration} - dependency.distance);
      if (found != kNone && (best == kNone || rank_of(found) > rank_of(best))) best = found;
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
