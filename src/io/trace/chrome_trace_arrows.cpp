#include "io/trace/chrome_trace_arrows.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "timeline/span_index.hpp"

namespace weft {
namespace {

std::size_t at(std::int32_t index) {
  return index;
}

class ArrowChooser {
 public:
  ArrowChooser(const Timeline& timeline, const TraceLanes& lanes, std::int64_t most)
      : t_(timeline), lanes_(lanes), most_(most) {
    const auto ranks = static_cast<std::int64_t>(timeline.ranks.size());
    room_.assign(timeline.ranks.size(), ranks == 0 ? 0 : (most + ranks - 1) / ranks);
  }

  std::vector<TraceArrow> choose() {
    add_messages();
    add_gatherings();
    add_dependencies();
    return std::move(arrows_);
  }

 private:
  void add_dependencies() {
    if (t_.dependency_begin.empty()) return;
    SpanIndex index(t_);
    std::vector<std::int32_t> sources;
    for (const bool deciding : {true, false}) {
      for (const std::int32_t span : lanes_.order) {
        const Span& to = t_.spans[at(span)];
        const std::int32_t decided_by = index.last_predecessor(span);
        sources.clear();  // data and order may both wait for the same span: one arrow
        for (const Dependency& dependency : index.dependencies(to.operation)) {
          const std::int32_t from = index.find(dependency.operation, std::int64_t{to.iteration} - dependency.distance);
          if (from < 0 || (from == decided_by) != deciding) continue;
          if (std::find(sources.begin(), sources.end(), from) != sources.end()) continue;
          sources.push_back(from);
          add_flow(from, span);
        }
      }
    }
  }
  void add_messages() {
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> sender;  // (transfer, iteration) -> span
    for (const bool receiving : {false, true}) {
      for (const std::int32_t id : lanes_.order) {
        const Span& span = t_.spans[at(id)];
        const TimelineOperation& operation = t_.operations[at(span.operation)];
        if (operation.transfer < 0 || operation.receives != receiving) continue;
        const std::pair key{operation.transfer, span.iteration};
        if (!receiving) {
          sender.try_emplace(key, id);
        } else if (const auto found = sender.find(key); found != sender.end()) {
          add_flow(found->second, id);
        }
      }
    }
  }
  // Arrows from the member that kept the others of a collective waiting.
  void add_gatherings() {
    struct Gathering {
      std::int32_t last = -1;  // the span that was ready last; ties: the lowest rank
      Nanos ready;
      bool is_message = false;
    };
    std::map<std::pair<std::int32_t, std::int32_t>, Gathering> gatherings;  // by (transfer, iteration)
    const auto of = [&](std::int32_t id) -> Gathering* {
      const Span& span = t_.spans[at(id)];
      const std::int32_t transfer = t_.operations[at(span.operation)].transfer;
      return transfer < 0 ? nullptr : &gatherings[{transfer, span.iteration}];
    };
    for (const std::int32_t id : lanes_.order) {
      Gathering* gathering = of(id);
      if (gathering == nullptr) continue;
      const Span& span = t_.spans[at(id)];
      if (t_.operations[at(span.operation)].receives) gathering->is_message = true;
      const Nanos ready = std::max(span.issued, span.ready);
      if (gathering->last < 0 || ready > gathering->ready) *gathering = {id, ready, gathering->is_message};
    }
    for (const std::int32_t id : lanes_.order) {
      const Gathering* gathering = of(id);
      if (gathering == nullptr || gathering->is_message || gathering->last == id) continue;
      const Span& source = t_.spans[at(gathering->last)];
      const Span& target = t_.spans[at(id)];
      const Nanos when = std::max(source.start, target.start);
      if (when < std::min(source.end, target.end)) add(gathering->last, id, when, when);
    }
  }
  void add_flow(std::int32_t from, std::int32_t to) {
    const Span& source = t_.spans[at(from)];
    const Span& target = t_.spans[at(to)];
    const TimelineOperation& sender = t_.operations[at(source.operation)];
    const TimelineOperation& receiver = t_.operations[at(target.operation)];
    if (lanes_.tid[at(from)] == TraceLanes::kNotWritten) return;
    if (sender.rank == receiver.rank && sender.queue == receiver.queue) return;
    // An arrow binds to the slice that encloses its time. A zero-length slice encloses none, and a slice's end lies
    // outside of it. Skewed clocks must not reverse an arrow.
    if (source.start == source.end || target.start == target.end || source.start > target.start) return;
    add(from, to, std::min(source.end - Nanos{1}, target.start), target.start);
  }
  void add(std::int32_t from, std::int32_t to, Nanos leaves, Nanos arrives) {
    std::int64_t& room = room_[at(t_.operations[at(t_.spans[at(to)].operation)].rank)];
    if (std::ssize(arrows_) >= most_ || room <= 0) return;
    arrows_.push_back({from, to, leaves, arrives});
    --room;
  }

  const Timeline& t_;
  const TraceLanes& lanes_;
  std::int64_t most_;
  std::vector<std::int64_t> room_;  // arrows that may still lead to each rank
  std::vector<TraceArrow> arrows_;
};

}  // namespace

std::vector<TraceArrow> trace_arrows(const Timeline& timeline, const TraceLanes& lanes, std::int64_t most) {
  return ArrowChooser(timeline, lanes, most).choose();
}

}  // namespace weft
