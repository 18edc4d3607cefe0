#include "calibrate/library_times.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <span>

#include "collective/piece_sizes.hpp"
#include "exec/rank_exchange.hpp"

namespace weft {
namespace {

constexpr std::int64_t kQueue = 999;  // a number that no plan uses
// Elements of the whole buffer. Longer ones are extrapolated from the last two.
constexpr std::array<std::int64_t, 4> kSizes = {1 << 10, 16 << 10, 256 << 10, 1 << 20};
constexpr int kExecutions = 3;  // after a first one that does not count; the median is taken
// A size that takes longer than this is the last one.
constexpr double kMinSeconds = 0.5;
constexpr double kNanos = 1e9;

// Uses two segments per buffer, as a plan's buffers are scattered too.
class TimedCall {
 public:
  TimedCall(Communicator& communicator, Collective collective, std::vector<std::int64_t> members, std::int64_t elements)
      : communicator_(communicator) {
    PreparedCall call;
    const auto ranks = std::ssize(members);
    call.spec = {.kind = collective, .ranks = ranks, .pieces = is_divided(collective) ? ranks : 1};
    call.sizes = even_sizes(call.spec, elements);
    const std::int64_t self = std::find(members.begin(), members.end(), communicator.rank()) - members.begin();
    input_.resize(input_elements(call.spec, call.sizes, self));
    output_.resize(output_elements(call.spec, call.sizes, self));
    in_place_ = collective == Collective::all_reduce;
    call.members = std::move(members);
    call.queue = kQueue;
    call.segments = 2;
    call.label = "timed";
    call.on_done = [this](Transport::Clock::time_point began, Transport::Clock::time_point ended) {
      const std::lock_guard lock(mutex_);
      times_.push_back(std::chrono::duration<double>(ended - began).count());
      ended_.notify_all();
    };
    call_ = &communicator.prepare(std::move(call));
  }

  double median_seconds() {
    const std::array<Segment, 2> from = halves(in_place_ ? output_ : input_), to = halves(output_);
    for (std::size_t execution = 1; execution <= kExecutions + 1; ++execution) {
      communicator_.wait(communicator_.start(*call_, from, to));
      std::unique_lock lock(mutex_);
      ended_.wait(lock, [&] { return times_.size() == execution; });  // on_done comes a little later
    }
    std::sort(times_.begin() + 1, times_.end());
    return times_[1 + kExecutions / 2];
  }

 private:
  static std::array<Segment, 2> halves(std::vector<float>& of) {
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(of));
    const auto all = std::ssize(bytes), first = all / 8 * 4;  // whole elements
    return {Segment{bytes.data(), first}, Segment{bytes.data() + first, all - first}};
  }

  Communicator& communicator_;
  std::vector<float> input_, output_;
  bool in_place_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<double> times_;  // seconds
  Communicator::Prepared* call_ = nullptr;
};

}  // namespace

std::map<LibraryProfile::Group, GroupKind> groups_to_time(const StepGraph& graph) {
  std::map<LibraryProfile::Group, GroupKind> groups;
  for (const Operation& op : graph.operations) {
    if (!op.communication || op.communication->scope != Scope::whole) continue;
    const Communication& c = *op.communication;
    const std::int64_t members = graph.classes[op.rank_class.index()].group(c.group).view.size;
    if (members < 2 || c.collective == Collective::send_recv) continue;
    std::vector<Collective> collectives{c.collective};
    if (c.collective == Collective::all_reduce) {
      collectives.insert(collectives.end(), {Collective::reduce_scatter, Collective::all_gather});
    }
    for (const Collective collective : collectives) {
      const auto [found, is_new] = groups.try_emplace({collective, members}, c.group);
      if (!is_new) found->second = std::min(found->second, c.group);
    }
  }
  return groups;
}

bool is_timed_on(const RankView& view, LibraryProfile::Group group, GroupKind kind) {
  const StepGraph& graph = view.plan().graph;
  const RankClass& own = graph.classes[view.rank_class().index()];
  return std::any_of(graph.operations.begin(), graph.operations.end(), [&](const Operation& op) {
    return op.communication && op.rank_class == view.rank_class() && op.communication->group == kind &&
           own.group(kind).view.size == group.members;
  });
}

LibraryProfile measure_library(const RankView& view, Communicator& communicator) {
  LibraryProfile profile;
  if (!communicator.has_library()) return profile;
  SharedSum sum(communicator);
  const auto sum_of_ranks = [&](double own) {
    sum.start(own);
    return sum.take();
  };
  const StepGraph& graph = view.plan().graph;
  for (const auto& [group, kind] : groups_to_time(graph)) {
    const bool member = is_timed_on(view, group, kind);
    for (const std::int64_t elements : kSizes) {
      double own = 0;
      if (member) own = TimedCall(communicator, group.collective, view.members(kind), elements).median_seconds();
      const double took = sum_of_ranks(own * kNanos) / std::max(1.0, sum_of_ranks(member ? 1 : 0)) / kNanos;
      profile.measured[group].push_back({Bytes{elements * std::int64_t{sizeof(float)}}, nanos_from_seconds(took)});
      if (took > kMinSeconds) break;
    }
  }
  return profile;
}

}  // namespace weft
