#include "sim/memory_curve.hpp"

#include <algorithm>

#include "plan/memory/lifetimes.hpp"
#include "plan/unfold.hpp"
#include "timeline/folded_spans.hpp"

namespace weft {
namespace {

class Curves {
 public:
  Curves(const Plan& plan, const Timeline& timeline)
      : plan_(plan),
        unfolded_(plan),
        lifetimes_(find_lifetimes(plan)),
        change_(plan.classes.size()),
        base_(plan.classes.size(), 0),
        window_(expanded(timeline, timeline.steady_first, timeline.steady_first + timeline.periods).spans),
        instances_(unfolded_.instances().size()) {}

  std::vector<std::vector<MemorySample>> find() {
    const std::vector<ValueId> storage = find_storage(plan_);
    for (std::size_t v = 0; v < plan_.graph.values.size(); ++v) {
      const Value& value = plan_.graph.values[v];
      if (value.per_micro_batch) {
        add_copies(v);
      } else if (storage[v].index() == v) {
        base_[value.rank_class.index()] += value.bytes().value;
      }
    }
    std::vector<std::vector<MemorySample>> curves(change_.size());
    for (std::size_t c = 0; c < change_.size(); ++c) curves[c] = add_up(c);
    return curves;
  }

 private:
  void add_copies(std::size_t v) {
    const Lifetime& lifetime = lifetimes_[v];
    if (lifetime.writers.empty()) return;
    const Value& value = plan_.graph.values[v];
    auto& change = change_[value.rank_class.index()];
    const std::int64_t bytes = value.bytes().value;
    for (std::size_t first = 0; first + instances_ <= window_.size(); first += instances_) {
      for (const MicroBatch mb : IdRange<MicroBatch>(plan_.graph.micro_batches)) {
        const auto span = [&](OpId op) -> const Span& {
          return window_[first + unfolded_.instance_of(op, mb).index()];
        };
        Nanos begin = span(lifetime.writers.front()).start, end = begin;
        for (const OpId writer : lifetime.writers) {
          begin = std::min(begin, span(writer).start);
          end = std::max(end, span(writer).end);
        }
        for (const OpId reader : lifetime.readers) end = std::max(end, span(reader).end);
        change.emplace_back(begin.value, bytes);
        change.emplace_back(end.value, -bytes);
      }
    }
  }

  std::vector<MemorySample> add_up(std::size_t rank_class) {
    auto& change = change_[rank_class];
    std::sort(change.begin(), change.end());
    std::vector<MemorySample> curve;
    std::int64_t bytes = base_[rank_class];
    for (std::size_t i = 0; i < change.size(); ++i) {
      bytes += change[i].second;
      const bool last_at_this_time = i + 1 == change.size() || change[i + 1].first != change[i].first;
      if (last_at_this_time) curve.push_back({Nanos{change[i].first}, Bytes{bytes}});
    }
    return curve;
  }

  const Plan& plan_;
  Unfolded unfolded_;
  std::vector<Lifetime> lifetimes_;
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> change_;  // by class: (time, bytes)
  std::vector<std::int64_t> base_;                                          // by class: what persists
  std::vector<Span> window_;                                                // complete iterations, each by operation
  std::size_t instances_;                                                   // operations of an iteration
};

}  // namespace

std::vector<std::vector<MemorySample>> memory_curve(const Plan& plan, const Timeline& timeline) {
  return Curves(plan, timeline).find();
}

}  // namespace weft
