#include "exec/measured_timeline.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "graph/group_levels.hpp"
#include "plan/describe_operations.hpp"

namespace weft {
namespace {

class Assembly {
 public:
  Assembly(const WholePlan& whole, const MeasuredRun& run)
      : plan_(whole.plan()), unfolded_(whole.unfolded()), run_(run) {}

  Timeline make(const std::vector<Nanos>& alone) {
    Timeline timeline;
    timeline.measured = true;
    templates_ = describe_operations(plan_, alone, true, timeline);
    zero_ = first_start();
    timeline.dependency_begin.push_back(0);
    for (std::size_t r = 0; r < run_.ranks.size(); ++r) add_rank(r, timeline);
    add_spans(timeline);
    align_transfers(timeline);
    set_steady_window(timeline);
    return timeline;
  }

 private:
  IdRange<InstanceId> instances_of(const MeasuredRank& rank) const { return unfolded_.instances_of(rank.rank_class); }

  std::int64_t first_start() const {
    std::int64_t first = INT64_MAX;
    for (const MeasuredRank& rank : run_.ranks) {
      for (const RankSpan& span : rank.spans) first = std::min(first, span.start);
    }
    return first;
  }

  void add_rank(std::size_t r, Timeline& timeline) {
    const MeasuredRank& rank = run_.ranks[r];
    const IdRange<InstanceId> own = instances_of(rank);
    TimelineRank described{fmt::format("rank {}", rank.rank.value), rank.rank, 1, {}};
    for (const Queue& queue : plan_.classes[rank.rank_class].queues) described.queues.push_back(queue.name);
    timeline.ranks.push_back(std::move(described));
    const auto first = static_cast<std::int32_t>(timeline.operations.size());
    first_operation_.push_back(first);
    for (const InstanceId i : own) {
      const Instance& instance = unfolded_.instances()[i];
      TimelineOperation op = templates_[instance.operation.index()];
      op.rank = static_cast<std::int32_t>(r);
      op.micro_batch = instance.micro_batch;
      op.transfer = transfer_number(rank.rank, instance);
      timeline.operations.push_back(op);
      for (const Edge& edge : unfolded_.waits_for(i)) {
        const bool order = edge.kind == EdgeKind::queue || edge.kind == EdgeKind::blocking;
        const bool memory = edge.kind == EdgeKind::reuse || edge.kind == EdgeKind::wait;
        timeline.dependencies.push_back({first + own.position_of(edge.from), edge.distance, order, memory});
      }
      timeline.dependency_begin.push_back(static_cast<std::int32_t>(timeline.dependencies.size()));
    }
  }

  // Members of one transfer share a number: the same operation (or, across classes, the same joint) in the same group.
  std::int32_t transfer_number(Rank rank, const Instance& instance) {
    const Operation& op = plan_.graph.op(instance.operation);
    if (!op.communication) return -1;
    const Communication& c = *op.communication;
    std::vector<Rank> members = group_members(plan_.layout, model_groups(plan_.model, plan_.layout), c.group, rank);
    if (c.scope != Scope::whole) {
      const ClassGroup& group = plan_.graph.classes[op.rank_class].group(c.group);
      const LevelSizes levels = c.levels == kOwnLevels ? group.level_sizes() : c.levels;
      members = scoped_members(members, levels, rank, c.scope);
    }
    std::sort(members.begin(), members.end());
    const bool joint = instance.joint.valid();
    return numbers_
        .try_emplace({instance.joint, joint ? OpId{} : instance.operation, joint ? kOncePerStep : instance.micro_batch,
                      members.front()},
                     static_cast<std::int32_t>(numbers_.size()))
        .first->second;
  }

  void add_spans(Timeline& timeline) const {
    for (std::int64_t step = 0; step < run_.steps; ++step) {
      for (std::size_t r = 0; r < run_.ranks.size(); ++r) {
        const std::size_t count = instances_of(run_.ranks[r]).size();
        for (std::size_t i = 0; i < count; ++i) {
          const RankSpan& span = run_.ranks[r].spans[step * count + i];
          const Nanos ready{std::max<std::int64_t>(0, span.ready - zero_)};
          timeline.spans.push_back({first_operation_[r] + static_cast<std::int32_t>(i), static_cast<std::int32_t>(step),
                                    Nanos{0}, ready, Nanos{span.start - zero_}, Nanos{span.end - zero_}});
        }
      }
    }
    issue_in_queue_order(timeline);
  }

  // An operation is issued when the one before it in its queue has ended.
  static void issue_in_queue_order(Timeline& timeline) {
    std::map<std::pair<std::int32_t, QueueId>, Nanos> last_end;  // by rank and queue
    for (Span& span : timeline.spans) {
      const TimelineOperation& op = timeline.operations[span.operation];
      Nanos& last = last_end.try_emplace({op.rank, op.queue}, Nanos{0}).first->second;
      span.issued = std::min(last, span.start);
      span.ready = std::min(span.ready, span.start);
      last = span.end;
    }
  }

  // A transfer starts when its last member has begun it.
  static void align_transfers(Timeline& timeline) {
    std::map<std::pair<std::int32_t, std::int32_t>, Nanos> start;  // by iteration and transfer
    const auto transfer_of = [&](const Span& span) { return timeline.operations[span.operation].transfer; };
    for (const Span& span : timeline.spans) {
      if (transfer_of(span) < 0) continue;
      Nanos& latest = start.try_emplace({span.iteration, transfer_of(span)}, Nanos{0}).first->second;
      latest = std::max(latest, span.start);
    }
    for (Span& span : timeline.spans) {
      if (transfer_of(span) >= 0) span.start = std::min(span.end, start.at({span.iteration, transfer_of(span)}));
    }
  }

  // The window goes from the first compute of the first step that counts to that of the end, on the first rank.
  void set_steady_window(Timeline& timeline) const {
    const IdRange<InstanceId> own = instances_of(run_.ranks.front());
    const std::vector<RankSpan>& spans = run_.ranks.front().spans;
    std::size_t first_compute = 0;
    while (plan_.graph.op(unfolded_.instances()[own[first_compute]].operation).is_transfer()) ++first_compute;
    const auto begin_of = [&](std::int64_t step) { return spans[step * own.size() + first_compute].start - zero_; };
    WEFT_CHECK(run_.warm_up < run_.steps);
    timeline.steady_first = static_cast<std::int32_t>(run_.warm_up);
    timeline.steady_begin = Nanos{begin_of(run_.warm_up)};
    // A step ends where the next begins, so the last one does not count, unless it is all there is.
    const std::int64_t counted = run_.steps - 1 - run_.warm_up;
    timeline.periods = static_cast<std::int32_t>(std::max<std::int64_t>(counted, 1));
    Nanos end{counted > 0 ? begin_of(run_.steps - 1) : 0};
    if (counted <= 0) {
      for (const Span& span : timeline.spans) end = std::max(end, span.end);
    }
    timeline.period_ns = static_cast<double>((end - timeline.steady_begin).value) / timeline.periods;
  }

  const Plan& plan_;
  const Unfolded& unfolded_;
  const MeasuredRun& run_;
  std::vector<TimelineOperation> templates_;
  std::vector<std::int32_t> first_operation_;  // by rank
  std::map<std::tuple<JointId, OpId, MicroBatch, Rank>, std::int32_t> numbers_;
  std::int64_t zero_ = 0;
};

}  // namespace

Timeline measured_timeline(const WholePlan& whole, const std::vector<Nanos>& alone, const MeasuredRun& run) {
  return Assembly(whole, run).make(alone);
}

}  // namespace weft
