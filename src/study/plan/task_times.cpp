#include "study/plan/task_times.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "plan/task_windows.hpp"
#include "timeline/folded_spans.hpp"

namespace weft {
namespace {

struct StartAndEnd {
  Nanos start, end;
};

// Spans by rank class, name, micro-batch and iteration.
class SpansByName {
 public:
  explicit SpansByName(const PolicyStudy& study) : first_(study.timeline.steady_first) {
    const Timeline timeline = expanded(study.timeline, first_, first_ + 1);
    for (const Span& span : timeline.spans) {
      const TimelineOperation& op = timeline.operations[static_cast<std::size_t>(span.operation)];
      const std::string& where = timeline.ranks[static_cast<std::size_t>(op.rank)].name;
      const std::string& name = timeline.names[static_cast<std::size_t>(op.name)];
      spans_[{where, name, op.micro_batch, span.iteration - first_}] = {span.start, span.end};
    }
    begin_ = timeline.steady_begin;
  }
  std::optional<StartAndEnd> find(const std::string& where, const std::string& name, MicroBatch mb, int step) const {
    const auto found = spans_.find({where, name, mb, step});
    return found == spans_.end() ? std::nullopt : std::optional(found->second);
  }
  double since_begin(Nanos at) const { return seconds(at - begin_); }

 private:
  std::int32_t first_ = 0;
  Nanos begin_;
  std::map<std::tuple<std::string, std::string, MicroBatch, int>, StartAndEnd> spans_;
};

// The micro-batches of an operation that bound one execution of a task.
std::vector<MicroBatch> bounding(const StepGraph& graph, const Operation& op, MicroBatch of_task) {
  if (!op.per_micro_batch) return {kOncePerStep};
  if (of_task.valid()) return {of_task};
  std::vector<MicroBatch> all;
  for (const MicroBatch mb : IdRange<MicroBatch>(graph.micro_batches)) all.push_back(mb);
  return all;
}

}  // namespace

std::vector<TaskTime> task_times(const PolicyStudy& study) {
  const Plan& plan = study.plan();
  std::vector<TaskTime> times;
  if (plan.layout.tasks.empty()) return times;
  const SpansByName spans(study);
  const std::vector<TaskWindow> windows = windows_of_tasks(plan, study.whole->original());
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    if (op.role != Role::task) continue;
    const std::string& where = plan.graph.classes[op.rank_class].name;
    for (const MicroBatch mb : bounding(plan.graph, op, kOncePerStep)) {
      const std::optional<StartAndEnd> own = spans.find(where, describe(op), mb, 0);
      if (!own) continue;
      TaskTime time{describe(op), where, mb};
      time.in_bubbles = plan.classes[op.rank_class].queues[plan.issues[id].queue].kind == QueueKind::extra;
      time.start_s = spans.since_begin(own->start);
      time.end_s = spans.since_begin(own->end);
      for (const TaskWindow& window : windows) {
        if (window.operation != id) continue;
        const auto for_spans = [&](OpId other, int step, auto use) {
          if (!other.valid()) return;
          const Operation& bound = plan.graph.op(other);
          for (const MicroBatch of : bounding(plan.graph, bound, mb)) {
            if (const auto found = spans.find(where, describe(bound), of, step)) use(*found);
          }
        };
        for_spans(window.release, 0, [&](const StartAndEnd& span) {
          time.released_s = std::max(time.released_s.value_or(0), spans.since_begin(span.end));
        });
        for_spans(window.deadline, window.steps, [&](const StartAndEnd& span) {
          const double at = spans.since_begin(span.start);
          time.due_s = std::min(time.due_s.value_or(at), at);
        });
      }
      times.push_back(time);
    }
  }
  const auto place = [&](const TaskTime& time) {
    return std::ranges::find(plan.layout.tasks, time.name, &ExtraTask::name);
  };
  std::ranges::stable_sort(times, {}, place);
  return times;
}

}  // namespace weft
