#include "sim/memory_curve.hpp"

#include <algorithm>

#include "plan/late.hpp"
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
        instances_(unfolded_.instances().size()),
        period_{static_cast<std::int64_t>(timeline.period_ns)},
        window_begin_(timeline.steady_begin) {}

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
        // Late readers run in the next pass, which lies a period behind this one.
        const auto passes = [&](OpId reader) { return passes_between(plan_, lifetime.writers.front(), reader, 0); };
        Nanos held_over{-1};
        for (const OpId reader : lifetime.readers) {
          const Nanos ended = span(reader).end;
          if (lifetime.carried && passes(reader) > 0) {
            held_over = std::max(held_over, ended);
            end = std::max(end, ended + period_);
          } else {
            end = std::max(end, ended);
          }
        }
        if (first == 0 && held_over > window_begin_) {
          change.emplace_back(window_begin_.value, bytes);
          change.emplace_back(held_over.value, -bytes);
        }
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
  Nanos period_, window_begin_;
};

}  // namespace

std::vector<std::vector<MemorySample>> memory_curve(const Plan& plan, const Timeline& timeline) {
  return Curves(plan, timeline).find();
}

}  // namespace weft
