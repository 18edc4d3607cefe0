#include "timeline/trace/device_critical_path.hpp"

#include <algorithm>

#include "timeline/trace/device_waits.hpp"
#include "timeline/trace/host_work.hpp"
#include "timeline/trace/transfer_match.hpp"

namespace weft {
namespace {

constexpr EnumArray<PathKind, std::string_view, kPathKinds> kPathKindNames = {
    "computation", "communication", "memory", "launch_delay", "device_gap", "host", "host_wake", "unknown"};

PathKind path_kind(KernelKind kind) {
  return kind == KernelKind::computation     ? PathKind::computation
         : kind == KernelKind::communication ? PathKind::communication
                                             : PathKind::memory;
}

// In a simulated trace an operation begins exactly when the last operation that it waits for ends. Large traces leave
// out arrows, but not ends.
class ActivityEnds {
 public:
  explicit ActivityEnds(const PathRank& rank) : trace_(*rank.trace) {
    if (trace_.source != TraceSource::weft) return;
    by_end_ = rank.order->activities;
    // Something that took no time cannot have been waited for; computation is preferred.
    std::erase_if(by_end_, [&](std::int32_t i) { return of(i).end <= of(i).start; });
    std::stable_sort(by_end_.begin(), by_end_.end(), [&](std::int32_t a, std::int32_t b) {
      return of(a).end != of(b).end ? of(a).end < of(b).end : of(a).kind < of(b).kind;
    });
  }

  std::int32_t ended_at(Nanos t) const {
    const auto found = std::lower_bound(by_end_.begin(), by_end_.end(), t,
                                        [&](std::int32_t i, Nanos time) { return of(i).end < time; });
    return found == by_end_.end() || of(*found).end != t ? kAbsent : *found;
  }

 private:
  const DeviceActivity& of(std::int32_t i) const { return trace_.device[i]; }
  const DeviceTrace& trace_;
  std::vector<std::int32_t> by_end_;
};

// Walks backwards. Positions are times on a rank's own clock; segments are reported on the first rank's clock.
class PathWalker {
 public:
  PathWalker(const std::vector<PathRank>& ranks, Nanos begin, Nanos end) : ranks_(ranks), begin_(begin), end_(end) {
    for (const PathRank& rank : ranks) {
      work_.emplace_back(*rank.trace);
      ends_.emplace_back(rank);
    }
    for (const PathRank& rank : ranks) {
      for (const std::int32_t i : rank.order->activities) {
        const DeviceActivity& activity = rank.trace->device[i];
        if (begin == kNoTime && (begin_ == kNoTime || activity.start + rank.offset < begin_)) {
          begin_ = activity.start + rank.offset;
        }
        if (end == kNoTime) end_ = std::max(end_, activity.end + rank.offset);
      }
    }
  }

  std::vector<PathSegment> walk() {
    std::int32_t activity = last_activity();
    if (activity == kAbsent || end_ <= begin_) return {};
    at_ = end_;
    // Times that contradict each other could lead in a circle; a true path passes no activity twice.
    std::size_t steps = 1;
    for (const PathRank& rank : ranks_) steps += rank.order->activities.size();
    while (activity != kAbsent && at_ > begin_ && steps-- > 0) activity = before(activity);
    if (at_ > begin_) go_to(begin_ - offset(), PathKind::unknown, kAbsent);
    std::reverse(path_.begin(), path_.end());
    return std::move(path_);
  }

 private:
  const PathRank& rank() const { return ranks_[rank_]; }
  Nanos offset() const { return rank().offset; }
  const DeviceActivity& device(std::int32_t i) const { return rank().trace->device[i]; }

  // Finds what ended last, at end_ or before it, where the path ends.
  std::int32_t last_activity() {
    std::int32_t best = kAbsent;
    Nanos best_end = kNoTime;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (const std::int32_t i : ranks_[r].order->activities) {
        const Nanos end = ranks_[r].trace->device[i].end + ranks_[r].offset;
        if (end > end_ || (best != kAbsent && end <= best_end)) continue;
        best = i;
        best_end = end;
        rank_ = static_cast<std::int32_t>(r);
      }
    }
    return best;
  }

  // Covers the time from t (of this rank) to where the path is.
  void go_to(Nanos t, PathKind kind, std::int32_t index, std::int32_t thread = kAbsent) {
    const Nanos to = std::max(t + offset(), begin_);
    if (to >= at_) return;
    if (!path_.empty() && path_.back().kind == kind && path_.back().rank == rank_ && path_.back().index == index &&
        path_.back().thread == thread) {
      path_.back().begin = to;
    } else {
      path_.push_back({kind, rank_, index, to, at_, thread});
    }
    at_ = to;
  }

  // Goes from the end of an activity to its start, or to that of its last member elsewhere, then to what decided that.
  std::int32_t before(std::int32_t i) {
    go_to(device(i).end, PathKind::unknown, kAbsent);
    if (const PeerStart* peer = peer_of(i)) {
      go_to(peer->start, path_kind(device(i).kind), i);
      rank_ = peer->peer;
      // The clocks agree to a few microseconds only; the path never goes forward.
      return decided(peer->peer_activity);
    }
    go_to(device(i).start, path_kind(device(i).kind), i);
    return decided(i);
  }

  // Finds the latest of: the activity before it on its stream, those it waited for, its launch. Kernels win ties.
  std::int32_t decided(std::int32_t i) {
    const Nanos start = std::min(device(i).start, at_ - offset());
    std::int32_t previous = rank().order->previous_on_stream(i);
    Nanos latest = previous == kAbsent ? kNoTime : device(previous).end;
    for (const DeviceDependency& wait : rank().order->waits_of(i)) {
      if (latest != kNoTime && device(wait.before).end <= latest) continue;
      latest = device(wait.before).end;
      previous = wait.before;
    }
    if (rank().trace->source == TraceSource::weft && latest < ready_to_begin(device(i))) {
      const std::int32_t awaited = ends_[rank_].ended_at(ready_to_begin(device(i)));
      if (awaited != kAbsent) {
        previous = awaited;
        latest = device(awaited).end;
      }
    }
    const Nanos launch = launched_at(*rank().trace, device(i));
    if (launch != kNoTime && (previous == kAbsent || launch > latest)) {
      go_to(std::min(launch, start), PathKind::launch_delay, i);
      return device(i).launch == kAbsent ? kAbsent : host_before(device(i).launch);
    }
    if (previous != kAbsent) go_to(std::min(latest, start), PathKind::device_gap, i);
    return previous;
  }

  // Follows the host back from the beginning of a call to its last wait for the device; kAbsent: there was none.
  std::int32_t host_before(std::int32_t call) {
    std::int32_t thread = rank().trace->host[call].thread;
    while (at_ > begin_) {
      const Nanos t = at_ - offset();
      const Nanos working_since = work_[rank_].work_begin(thread, t);
      const std::span<const HostWait> waits = rank().order->host_waits_of(thread);
      const auto after = std::upper_bound(waits.begin(), waits.end(), t,
                                          [](Nanos time, const HostWait& wait) { return time < wait.end; });
      if (after != waits.begin() && (after - 1)->end >= working_since) {
        const HostWait& wait = *(after - 1);
        go_to(wait.end, PathKind::host, kAbsent, thread);
        go_to(device(wait.activity).end, PathKind::host_wake, wait.call);
        return wait.activity;
      }
      go_to(working_since, PathKind::host, kAbsent, thread);
      // The thread was idle before, so the thread that worked last handed over to it (forward to backward, for
      // instance).
      const HostWork::Moment last = work_[rank_].last_work(thread, at_ - offset());
      if (last.thread == kAbsent) break;
      if (last.thread == thread && last.at == at_ - offset()) break;
      go_to(last.at, PathKind::host, kAbsent, thread);
      thread = last.thread;
    }
    go_to(begin_ - offset(), PathKind::host, kAbsent, thread);
    return kAbsent;
  }

  const PeerStart* peer_of(std::int32_t i) const {
    if (rank().peers == nullptr) return nullptr;
    const std::vector<PeerStart>& peers = *rank().peers;
    const auto found = std::lower_bound(peers.begin(), peers.end(), i,
                                        [](const PeerStart& peer, std::int32_t a) { return peer.activity < a; });
    return found == peers.end() || found->activity != i ? nullptr : &*found;
  }

  const std::vector<PathRank>& ranks_;
  Nanos begin_, end_;
  std::vector<HostWork> work_;
  std::vector<ActivityEnds> ends_;
  std::vector<PathSegment> path_;  // last to first
  std::int32_t rank_ = 0;
  Nanos at_;  // on the clock of the first rank; the path is known from here on
};

}  // namespace

std::string_view name_of(PathKind kind) {
  return kPathKindNames[kind];
}

std::vector<PathSegment> device_critical_path(const std::vector<PathRank>& ranks, Nanos begin, Nanos end) {
  return PathWalker(ranks, begin, end).walk();
}

EnumArray<PathKind, Nanos, kPathKinds> path_time_by_kind(const std::vector<PathSegment>& path) {
  EnumArray<PathKind, Nanos, kPathKinds> times{};
  for (const PathSegment& segment : path) times[segment.kind] += segment.end - segment.begin;
  return times;
}

}  // namespace weft
