// Two questions to every exposed transfer. Why did it not start earlier: what it waited for after its data was there is
// the reason of as much of its exposed time as it was late. Why did nothing run beside the rest: compute that was ready
// and ran later could have; each such operation fills exposed time once.
#include "timeline/exposure_reasons.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace weft {
namespace {

std::size_t at(std::int32_t index) {
  return index;
}

// Before all times that check_timeline allows; differences to them do not overflow.
constexpr Nanos kNever{-(std::int64_t{1} << 62)};

struct Latest {
  Nanos end = kNever;
  std::int32_t operation = -1;
  ExposureReason reason = ExposureReason::dependency;  // why waiting for it delays

  void add(const Latest& other) {
    if (other.end > end) *this = other;
  }
};

// What one member of a transfer waited for.
struct Holds {
  Latest data, other;
};

class RankReasons {
 public:
  RankReasons(const Timeline& timeline, const SpanIndex& index, const RankHistory& history,
              const std::vector<Nanos>& fixed)
      : timeline_(timeline), index_(index), history_(history), fixed_(fixed) {}

  std::vector<ReasonedTime> find() {
    for (const ExposedPart& part : history_.exposed) {
      Instance& instance = instances_[key(part.transfer)];
      instance.rest += part.transfer.end - part.transfer.begin;
      instance.waiting = part.waiting;
    }
    latest_end_.reserve(history_.transfers.size());
    for (const Span& span : history_.transfers) {
      latest_end_.push_back(latest_end_.empty() ? span.end : std::max(latest_end_.back(), span.end));
    }
    for (auto& [execution, instance] : instances_) {
      const auto [iteration, operation] = execution;
      take_delay(operation, iteration, instance);
      take_sharing(operation, iteration, instance);
    }
    sort_by_readiness();
    for (const ExposedPart& part : history_.exposed) {
      // An earlier start would have removed the end of the exposed time; so what is left is its beginning.
      Instance& instance = instances_[key(part.transfer)];
      const Nanos left = std::min(instance.rest, part.transfer.end - part.transfer.begin);
      instance.rest -= left;
      if (left > Nanos{}) explain_rest(part, left, instance);
    }
    return std::move(found_);
  }

 private:
  struct Instance {
    Nanos rest;                 // exposed time without a reason so far
    std::int32_t waiting = -1;  // operation
    std::int32_t producer = -1;
  };
  static std::pair<std::int32_t, std::int32_t> key(const TransferPart& part) {
    return {part.iteration, part.operation};
  }

  const TimelineOperation& operation(std::int32_t id) const { return timeline_.operations[at(id)]; }

  Holds holds_of(std::int32_t member, std::int32_t iteration) const {
    Holds holds;
    for (const Dependency& wait : index_.dependencies(member)) {
      const TimelineOperation& before = operation(wait.operation);
      const bool itself = wait.distance == 0 && before.transfer >= 0 && before.transfer == operation(member).transfer;
      const std::int32_t execution = index_.find(wait.operation, std::int64_t{iteration} - wait.distance);
      if (itself || execution < 0) continue;
      Latest found{index_[execution].end, wait.operation};
      if (wait.memory) {
        found.reason = ExposureReason::memory;
      } else if (wait.order) {
        const bool same_queue = before.queue == operation(member).queue && before.activity == Activity::transfer;
        found.reason = same_queue ? ExposureReason::queue_busy : ExposureReason::issue_order;
      }
      (found.reason == ExposureReason::dependency ? holds.data : holds.other).add(found);
    }
    return holds;
  }

  void take(std::int32_t transfer, Instance& instance, ExposureReason reason, Nanos time, std::int32_t cause,
            std::int32_t cause_rank = -1) {
    const Nanos taken = std::min(time, instance.rest);
    if (taken <= Nanos{}) return;
    instance.rest -= taken;
    found_.push_back({transfer, reason, cause, cause_rank, instance.waiting, taken});
  }

  void take_delay(std::int32_t transfer, std::int32_t iteration, Instance& instance) {
    const Holds own = holds_of(transfer, iteration);
    Latest data = own.data, peer;
    for (const std::int32_t member : index_.members(transfer)) {
      if (member == transfer) continue;
      const Holds holds = holds_of(member, iteration);
      data.add(holds.data);
      peer.add(holds.data);
      peer.add(holds.other);
    }
    instance.producer = data.operation;
    const Nanos own_last = std::max(own.data.end, own.other.end);
    if (peer.end > own_last) {
      return take(transfer, instance, ExposureReason::late_peer, peer.end - own_last, peer.operation,
                  operation(peer.operation).rank);
    }
    if (own.other.end <= data.end) return;
    Nanos delay = own.other.end - data.end;
    if (own.other.reason == ExposureReason::queue_busy) {
      const Nanos busy = queue_busy(transfer, iteration, {data.end, own.other.end}, instance.rest);
      take(transfer, instance, ExposureReason::queue_busy, busy, own.other.operation);
      delay -= busy;
    }
    const bool queue = own.other.reason == ExposureReason::queue_busy;
    take(transfer, instance, queue ? ExposureReason::issue_order : own.other.reason, delay, own.other.operation);
  }

  // How long within `wait` the queue's earlier transfers ran; `enough` suffices.
  Nanos queue_busy(std::int32_t transfer, std::int64_t iteration, const Interval& wait, Nanos enough) const {
    Nanos busy;
    while (busy < enough) {
      std::int32_t before = -1;
      for (const Dependency& d : index_.dependencies(transfer)) {
        const bool queue = d.order && operation(d.operation).queue == operation(transfer).queue &&
                           operation(d.operation).activity == Activity::transfer;
        if (!queue) continue;
        before = index_.find(d.operation, iteration - d.distance);
        iteration -= d.distance;
        break;
      }
      if (before < 0) break;
      const Span span = index_[before];
      if (span.end <= wait.begin) break;
      busy += std::max(Nanos{}, std::min(span.end, wait.end) - std::max(span.start, wait.begin));
      transfer = span.operation;
    }
    return std::min(busy, wait.end - wait.begin);
  }

  void take_sharing(std::int32_t transfer, std::int32_t iteration, Instance& instance) {
    const Span span = index_[index_.find(transfer, iteration)];
    const Nanos stretched = span.end - span.start - operation(transfer).alone;
    if (stretched <= Nanos{} || instance.rest <= Nanos{}) return;
    // The other transfer of this rank that ran beside it longest.
    Nanos longest;
    std::int32_t other = -1;
    const auto& transfers = history_.transfers;
    auto i = static_cast<std::size_t>(
        std::partition_point(transfers.begin(), transfers.end(), [&](const Span& s) { return s.start < span.end; }) -
        transfers.begin());
    while (i > 0 && latest_end_[i - 1] > span.start) {
      const Span& s = transfers[--i];
      const Nanos together = std::min(s.end, span.end) - std::max(s.start, span.start);
      const bool itself = s.operation == span.operation && s.iteration == span.iteration;
      if (!itself && together > longest) {
        longest = together;
        other = s.operation;
      }
    }
    if (other >= 0) return take(transfer, instance, ExposureReason::link_busy, std::min(stretched, longest), other);
    // With no compute in its way either, it is a transfer of other ranks that it shares a link with.
    const auto first = std::partition_point(history_.computing.begin(), history_.computing.end(),
                                            [&](const ReadyCompute& c) { return c.end <= span.start; });
    const bool beside_compute = first != history_.computing.end() && first->start < span.end;
    if (!beside_compute) take(transfer, instance, ExposureReason::link_busy, stretched, -1);
  }

  void sort_by_readiness() {
    const auto& computing = history_.computing;
    left_.reserve(computing.size());
    for (std::size_t i = 0; i < computing.size(); ++i) {
      left_.push_back(computing[i].end - computing[i].start);
      if (left_.back() > Nanos{} && computing[i].ready < computing[i].start) by_readiness_.push_back(i);
    }
    std::stable_sort(by_readiness_.begin(), by_readiness_.end(),
                     [&](std::size_t a, std::size_t b) { return computing[a].ready < computing[b].ready; });
  }

  // `left` from the part's begin on: the operations that were ready and would have run first fill it.
  void explain_rest(const ExposedPart& part, Nanos left, const Instance& instance) {
    const Nanos begin = part.transfer.begin, end = begin + left;
    while (next_ready_ < by_readiness_.size() && history_.computing[by_readiness_[next_ready_]].ready < end) {
      pool_.insert(by_readiness_[next_ready_++]);
    }
    while (!pool_.empty() && history_.computing[*pool_.begin()].start < part.transfer.end) pool_.erase(pool_.begin());
    Nanos now = begin, unfilled = left;
    for (auto next = pool_.begin(); next != pool_.end() && now < end;) {
      const ReadyCompute& compute = history_.computing[*next];
      const Nanos from = std::max(now, compute.ready);
      if (from >= end) {
        ++next;
        continue;
      }
      const Nanos used = std::min(left_[*next], end - from);
      now = from + used;
      unfilled -= used;
      found_.push_back({part.transfer.operation, ExposureReason::held_back, compute.operation, -1, part.waiting, used});
      left_[*next] -= used;
      next = left_[*next] > Nanos{} ? std::next(next) : pool_.erase(next);
    }
    if (unfilled <= Nanos{}) return;
    const Nanos fixed = fixed_[at(part.transfer.operation)];
    const bool idle_links = fixed + fixed > operation(part.transfer.operation).alone;
    found_.push_back({part.transfer.operation, idle_links ? ExposureReason::latency : ExposureReason::dependency,
                      instance.producer, -1, part.waiting, unfilled});
  }

  const Timeline& timeline_;
  const SpanIndex& index_;
  const RankHistory& history_;
  const std::vector<Nanos>& fixed_;
  std::map<std::pair<std::int32_t, std::int32_t>, Instance> instances_;  // by iteration and operation
  std::vector<Nanos> latest_end_;                                        // of transfers 0..i
  std::vector<Nanos> left_;                                              // by compute operation: what fills nothing yet
  std::vector<std::size_t> by_readiness_;                                // those that were ready before they ran
  std::size_t next_ready_ = 0;
  std::set<std::size_t> pool_;  // ready and not yet run; ascending, so by start
  std::vector<ReasonedTime> found_;
};

}  // namespace

std::vector<ReasonedTime> find_reasons(const Timeline& timeline, const SpanIndex& index, const RankHistory& history,
                                       const std::vector<Nanos>& fixed) {
  return RankReasons(timeline, index, history, fixed).find();
}

Nanos ready_at(const SpanIndex& index, std::int32_t operation, std::int32_t iteration) {
  Nanos ready = kNever;
  for (const Dependency& wait : index.dependencies(operation)) {
    if (wait.order) continue;
    const std::int32_t execution = index.find(wait.operation, std::int64_t{iteration} - wait.distance);
    if (execution >= 0) ready = std::max(ready, index[execution].end);
  }
  return ready;
}

}  // namespace weft
