#include "timeline/trace/exposed_communication.hpp"

#include <algorithm>
#include <array>

#include "timeline/trace/device_waits.hpp"
#include "timeline/trace/transfer_match.hpp"

namespace weft {
namespace {

constexpr std::array<std::string_view, kExposedReasons> kReasonNames = {"late_peer",   "nothing_left", "host_wait",
                                                                        "late_launch", "one_stream",   "stream_order",
                                                                        "dependency",  "launch_delay", "other_wait"};

const DeviceActivity& activity_of(const DeviceTrace& trace, std::int32_t i) {
  return trace.device[i];
}

CoveredTime covered_by(const DeviceTrace& trace, const DeviceOrder& order, KernelKind kind) {
  std::vector<TimeInterval> intervals;
  for (const std::int32_t i : order.activities) {
    const DeviceActivity& activity = activity_of(trace, i);
    if (activity.kind == kind) intervals.push_back({activity.start, activity.end});
  }
  return CoveredTime(std::move(intervals));
}

// Decides which communication is charged for an instant: of those running, the one that ends last.
struct Charged {
  Nanos begin, end;
  std::int32_t activity = 0;
};

std::vector<Charged> charge_communication(const DeviceTrace& trace, const DeviceOrder& order) {
  std::vector<Charged> result;
  // The one charged now runs until `charged.end`; a later one that ends later takes over when it starts.
  for (const std::int32_t i : order.activities) {
    const DeviceActivity& activity = activity_of(trace, i);
    if (activity.kind != KernelKind::communication || activity.end <= activity.start) continue;
    if (!result.empty() && result.back().end > activity.start) {
      if (activity.end <= result.back().end) continue;
      result.back().end = activity.start;
      if (result.back().end <= result.back().begin) result.pop_back();
    }
    result.push_back({activity.start, activity.end, i});
  }
  return result;
}

class ReasonFinder {
 public:
  ReasonFinder(const DeviceTrace& trace, const DeviceOrder& order, const DevicePrecedence& precedence,
               const std::vector<PeerStart>& peers, ExposedCommunication& result)
      : trace_(trace), order_(order), precedence_(precedence), peers_(peers), result_(result) {
    for (const std::int32_t i : order.activities) {
      const DeviceActivity& activity = activity_of(trace, i);
      if (activity.kind == KernelKind::computation && activity.end > activity.start) computing_.push_back(i);
    }
  }

  void run() {
    for (const Charged& charged : charge_communication(trace_, order_)) {
      for (const TimeInterval& gap : result_.computation.gaps(charged.begin, charged.end))
        explain(charged.activity, gap);
    }
    while_it_waited_its_turn();
  }

 private:
  // Explains the stretch from its beginning on; `from_` is the end of what is explained so far.
  void explain(std::int32_t communication, TimeInterval stretch) {
    from_ = stretch.begin;
    end_ = stretch.end;
    current_ = {};
    current_.activity = communication;
    current_.next = next_computation(stretch.end);
    if (const PeerStart* peer = peer_of(communication)) {
      current_.peer = peer->peer;
      until(peer->start, ExposedReason::late_peer);
      current_.peer = kAbsent;
    }
    if (current_.next == kAbsent) return until(end_, ExposedReason::nothing_left);
    const DeviceActivity& next = activity_of(trace_, current_.next);
    before_launch(next);
    const std::int32_t previous = order_.previous_on_stream(current_.next);
    const bool same_stream = order_.stream[communication] == order_.stream[current_.next];
    if (!same_stream && previous != kAbsent) {
      const DeviceActivity& front = activity_of(trace_, previous);
      const bool communicates = front.kind == KernelKind::communication;
      current_.cause = previous;
      until(front.end, communicates ? ExposedReason::one_stream : ExposedReason::stream_order);
      current_.cause = kAbsent;
    }
    if (same_stream) current_.cause = communication;
    const bool waited = order_.source == WaitSource::recorded ? precedence_.precedes(communication, current_.next)
                                                              : next.start >= activity_of(trace_, communication).end ||
                                                                    precedence_.precedes(communication, current_.next);
    if (trace_.source == TraceSource::weft && !same_stream && !waited) return without_arrow(next, communication);
    until(end_, same_stream ? ExposedReason::one_stream
                : waited    ? ExposedReason::dependency
                            : ExposedReason::launch_delay);
  }

  // Our own traces leave out arrows where there are many, but they say when an operation was ready to begin.
  void without_arrow(const DeviceActivity& next, std::int32_t communication) {
    const Nanos ready = ready_to_begin(next);
    const bool waited = ready == activity_of(trace_, communication).end;
    until(ready, waited ? ExposedReason::dependency : ExposedReason::other_wait);
    until(end_, ExposedReason::launch_delay);
  }

  // Explains the time up to the launch of the next computation: the host waited for the device, or was busy otherwise.
  void before_launch(const DeviceActivity& next) {
    const Nanos launch = launched_at(trace_, next);
    if (launch == kNoTime || launch <= from_) return;
    if (next.launch != kAbsent) {
      const std::span<const HostWait> waits = order_.host_waits_of(trace_.host[next.launch].thread);
      auto wait =
          std::upper_bound(waits.begin(), waits.end(), from_, [](Nanos t, const HostWait& w) { return t < w.end; });
      for (; wait != waits.end() && wait->start < std::min(launch, end_); ++wait) {
        until(wait->start, ExposedReason::late_launch);
        current_.cause = wait->activity;
        until(std::min(wait->end, launch), ExposedReason::host_wait);
        current_.cause = kAbsent;
      }
    }
    until(launch, ExposedReason::late_launch);
  }

  // What is not explained yet, up to t.
  void until(Nanos t, ExposedReason reason) {
    const Nanos end = std::min(t, end_);
    if (end <= from_) return;
    current_.begin = from_;
    current_.end = end;
    current_.reason = reason;
    from_ = end;
    result_.stretches.push_back(current_);
  }

  std::int32_t next_computation(Nanos t) {
    const auto found = std::lower_bound(computing_.begin(), computing_.end(), t, [&](std::int32_t i, Nanos time) {
      return activity_of(trace_, i).start < time;
    });
    return found == computing_.end() ? kAbsent : *found;
  }

  const PeerStart* peer_of(std::int32_t activity) const {
    const auto found = std::lower_bound(peers_.begin(), peers_.end(), activity,
                                        [](const PeerStart& peer, std::int32_t i) { return peer.activity < i; });
    return found == peers_.end() || found->activity != activity ? nullptr : &*found;
  }

  // A communication whose data was ready and that was launched, but that had to wait for another one on its stream,
  // could have been hidden by the computation that ran meanwhile. That much of its waits for data is attributed to
  // stream order.
  Nanos hidden_by_earlier_start(std::int32_t communication, std::int32_t& front) const {
    front = order_.previous_on_stream(communication);
    if (front == kAbsent || activity_of(trace_, front).kind == KernelKind::computation) return {0};
    Nanos there = launched_at(trace_, activity_of(trace_, communication));
    for (const DeviceDependency& wait : order_.waits_of(communication)) {
      there = std::max(there, activity_of(trace_, wait.before).end);
    }
    if (there == kNoTime) return {0};
    return result_.computation.within(there, activity_of(trace_, front).end);
  }

  void while_it_waited_its_turn() {
    std::vector<DeviceExposure> whole;
    whole.swap(result_.stretches);
    std::int32_t communication = kAbsent, front = kAbsent;
    Nanos left{0};
    for (DeviceExposure stretch : whole) {
      if (stretch.activity != communication) {
        communication = stretch.activity;
        left = hidden_by_earlier_start(communication, front);
      }
      const bool waits_for_data =
          stretch.reason == ExposedReason::dependency || stretch.reason == ExposedReason::nothing_left;
      if (waits_for_data && left > Nanos{0}) {
        DeviceExposure part = stretch;
        part.end = std::min(stretch.end, stretch.begin + left);
        part.reason = ExposedReason::stream_order;
        part.cause = front;
        left -= part.end - part.begin;
        stretch.begin = part.end;
        result_.stretches.push_back(part);
      }
      if (stretch.begin < stretch.end) result_.stretches.push_back(stretch);
    }
  }

  const DeviceTrace& trace_;
  const DeviceOrder& order_;
  const DevicePrecedence& precedence_;
  const std::vector<PeerStart>& peers_;
  ExposedCommunication& result_;
  std::vector<std::int32_t> computing_;  // by start
  DeviceExposure current_;
  Nanos from_, end_;
};

}  // namespace

std::string_view name_of(ExposedReason reason) {
  return kReasonNames[static_cast<std::size_t>(reason)];
}

Nanos ExposedCommunication::total() const {
  Nanos sum{0};
  for (const DeviceExposure& stretch : stretches) sum += stretch.end - stretch.begin;
  return sum;
}

ExposedCommunication find_exposed(const DeviceTrace& trace, const DeviceOrder& order,
                                  const DevicePrecedence& precedence, const std::vector<PeerStart>& peers) {
  ExposedCommunication result;
  result.computation = covered_by(trace, order, KernelKind::computation);
  result.communication = covered_by(trace, order, KernelKind::communication);
  ReasonFinder(trace, order, precedence, peers, result).run();
  return result;
}

}  // namespace weft
