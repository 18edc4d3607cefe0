#include "timeline/trace/rank_match.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <tuple>

#include "timeline/trace/transfer_match.hpp"

namespace weft {
namespace {

// How far the beginnings of lists of different length may be apart.
constexpr std::int64_t kMaxShift = 256;
constexpr std::size_t kMaxCompared = 4096;
// Profilers count from 1970, and the clocks of machines that work together differ by less than a second. What fits only
// with more than this is another run.
constexpr double kMaxClockDifferenceSeconds = 60;

struct Listed {
  std::int32_t activity = 0;
  std::int32_t op = 0;
  std::int64_t bytes = -1, sequence = -1;
  Nanos end;  // on the first rank's clock, as far as base times tell
  // In an all_to_all ranks may send different amounts.
  bool same_as(const Listed& other) const {
    const auto what = static_cast<CollectiveOp>(op);
    const bool any_size = what == CollectiveOp::all_to_all || what == CollectiveOp::send_recv;
    return op == other.op && (any_size || bytes == other.bytes);
  }
};

// The members of one group among the ranks given, and what each did in it, in order.
struct GroupLists {
  std::vector<std::int32_t> ranks;  // ascending
  std::vector<std::vector<Listed>> lists;
};

std::string group_key(const TraceGroup& group) {
  std::string key = fmt::format("{}|{}|", group.name, group.size);
  for (const std::int32_t rank : group.ranks) key += fmt::format("{},", rank);
  return key;
}

// Base times that no clock shows would overflow differences.
std::int64_t base_of(const DeviceTrace& trace) {
  constexpr std::int64_t kMaxTime = std::int64_t{1} << 62;
  return trace.base_time_ns > kMaxTime || trace.base_time_ns < -kMaxTime ? 0 : trace.base_time_ns;
}

std::map<std::string, GroupLists> list_groups(const std::vector<RankCommunications>& ranks,
                                              const std::vector<bool>& left_out) {
  std::map<std::string, GroupLists> groups;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (left_out[r]) continue;
    const DeviceTrace& trace = *ranks[r].trace;
    const CommunicationTable& table = *ranks[r].table;
    const Nanos base{base_of(trace) - base_of(*ranks[0].trace)};
    std::vector<GroupLists*> of_group;
    for (const TraceGroup& group : table.groups) of_group.push_back(&groups[group_key(group)]);
    for (const std::int32_t i : ranks[r].order->activities) {
      const std::size_t index = i;
      if (trace.device[index].kind != KernelKind::communication) continue;
      const TracedCommunication& what = table.of[index];
      const TraceGroup& group = table.groups[what.group];
      // A message concerns two; in a larger group its order says nothing about others.
      if (what.op == CollectiveOp::send_recv && what.group != 0 && group.size != 2) continue;
      GroupLists& lists = *of_group[what.group];
      if (lists.ranks.empty() || lists.ranks.back() != static_cast<std::int32_t>(r)) {
        lists.ranks.push_back(static_cast<std::int32_t>(r));
        lists.lists.emplace_back();
      }
      lists.lists.back().push_back(
          {i, static_cast<std::int32_t>(what.op), what.bytes, what.sequence, trace.device[index].end + base});
    }
  }
  return groups;
}

Nanos median(std::vector<Nanos> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// How much the differences of ends vary about their median.
struct EndSpread {
  Nanos median_difference, deviation;
};
EndSpread spread_of(const std::vector<Listed>& a, const std::vector<Listed>& b, std::int64_t shift) {
  std::vector<Nanos> differences;
  // A sample of long lists: many shifts may have to be compared.
  const std::size_t stride = 1 + b.size() / kMaxCompared;
  for (std::size_t i = 0; i < b.size(); i += stride) {
    const std::int64_t j = static_cast<std::int64_t>(i) + shift;
    if (j >= 0 && j < static_cast<std::int64_t>(a.size())) differences.push_back(a[j].end - b[i].end);
  }
  EndSpread spread;
  if (differences.empty()) return spread;
  spread.median_difference = median(differences);
  for (Nanos& difference : differences) {
    difference = std::max(difference - spread.median_difference, spread.median_difference - difference);
  }
  spread.deviation = median(std::move(differences));
  return spread;
}

// Finds where list b begins in list a such that both agree wherever they overlap, which must be at least half of the
// shorter one; of several such places, the one where the ends agree best.
std::optional<std::int64_t> find_shift(const std::vector<Listed>& a, const std::vector<Listed>& b) {
  const auto agree = [&](std::int64_t shift) {
    std::int64_t common = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
      const std::int64_t j = static_cast<std::int64_t>(i) + shift;
      if (j < 0 || j >= static_cast<std::int64_t>(a.size())) continue;
      if (!a[j].same_as(b[i])) return false;
      ++common;
    }
    return 2 * common >= static_cast<std::int64_t>(std::min(a.size(), b.size())) && common > 0;
  };
  if (a.size() == b.size() && agree(0)) return 0;
  std::optional<std::int64_t> best;
  std::tuple<Nanos, Nanos, std::int64_t> best_cost;
  for (std::int64_t shift = -kMaxShift; shift <= kMaxShift; ++shift) {
    if (!agree(shift)) continue;
    const EndSpread spread = spread_of(a, b, shift);
    const std::tuple cost{spread.deviation, std::max(spread.median_difference, Nanos{0} - spread.median_difference),
                          std::max(shift, -shift)};
    if (!best || cost < best_cost) {
      best = shift;
      best_cost = cost;
    }
  }
  return best;
}

// All have sequence numbers, so equal numbers match; several with one number (coalesced) keep their order.
bool numbered(const GroupLists& group) {
  for (const std::vector<Listed>& list : group.lists) {
    for (const Listed& entry : list) {
      if (entry.sequence < 0) return false;
    }
  }
  return true;
}

// By collective: the members, as positions of `ranks` and activities.
using Matches = std::map<std::pair<std::int64_t, std::int64_t>, std::vector<CollectiveMember>>;

Matches match_numbered(const GroupLists& group) {
  Matches matches;
  for (std::size_t m = 0; m < group.ranks.size(); ++m) {
    std::map<std::int64_t, std::int64_t> repeats;
    for (const Listed& entry : group.lists[m]) {
      matches[{entry.sequence, repeats[entry.sequence]++}].push_back({group.ranks[m], entry.activity});
    }
  }
  return matches;
}

Matches match_by_order(const GroupLists& group, bool must_agree, std::vector<std::int32_t>& left_out) {
  Matches matches;
  for (std::size_t m = 0; m < group.ranks.size(); ++m) {
    std::optional<std::int64_t> shift = 0;
    if (m > 0) shift = find_shift(group.lists[0], group.lists[m]);
    if (must_agree && m > 0 && group.lists[0].size() != group.lists[m].size()) shift.reset();
    if (!shift) {
      left_out.push_back(group.ranks[m]);
      continue;
    }
    for (std::size_t i = 0; i < group.lists[m].size(); ++i) {
      matches[{static_cast<std::int64_t>(i) + *shift, 0}].push_back({group.ranks[m], group.lists[m][i].activity});
    }
  }
  return matches;
}

class RankMatcher {
 public:
  explicit RankMatcher(const std::vector<RankCommunications>& ranks) : ranks_(ranks) {}

  RankMatch match() {
    result_.begin.push_back(0);
    leave_out_other_devices();
    for (const auto& [key, group] : list_groups(ranks_, left_out_)) {
      if (group.ranks.size() > 1) add(group, key == group_key(TraceGroup{}));
    }
    align();
    leave_out_impossible_clocks();
    return std::move(result_);
  }

 private:
  const DeviceTrace& trace(std::size_t rank) const { return *ranks_[rank].trace; }
  Nanos base_offset(std::size_t rank) const { return Nanos{base_of(trace(rank)) - base_of(trace(0))}; }

  void leave_out_other_devices() {
    left_out_.assign(ranks_.size(), false);
    for (std::size_t r = 1; r < ranks_.size(); ++r) {
      if (trace(0).devices.empty() || trace(r).devices.empty()) continue;
      const std::string &first = trace(0).devices.front().name, &other = trace(r).devices.front().name;
      if (first == other) continue;
      left_out_[r] = true;
      result_.remarks.push_back(
          fmt::format("rank {} ({}) is not matched with rank {} ({}): other devices, most likely another job",
                      trace(r).rank.value, other, trace(0).rank.value, first));
    }
  }

  // Collectives of two runs of one program agree in order and size. Their clocks tell them apart.
  void leave_out_impossible_clocks() {
    std::vector<bool> impossible(ranks_.size(), false);
    for (std::size_t r = 1; r < ranks_.size(); ++r) {
      const double moved_s = std::abs(seconds(result_.offset[r]) - seconds(base_offset(r)));
      if (!result_.aligned[r] || moved_s <= kMaxClockDifferenceSeconds) continue;
      impossible[r] = true;
      result_.aligned[r] = false;
      result_.offset[r] = base_offset(r);
      result_.remarks.push_back(
          fmt::format("rank {} is not matched with rank {}: their collectives fit only with a clock moved by {:.0f} s "
                      "(allowed: {:.0f} s), most likely another run",
                      trace(r).rank.value, trace(0).rank.value, moved_s, kMaxClockDifferenceSeconds));
    }
    if (std::find(impossible.begin(), impossible.end(), true) != impossible.end()) drop(impossible);
  }

  // Removes ranks from all collectives; a member that is left alone has no counterpart.
  void drop(const std::vector<bool>& ranks) {
    std::vector<CollectiveMember> members;
    std::vector<std::size_t> begin = {0};
    for (std::size_t c = 0; c < result_.collectives(); ++c) {
      for (std::size_t m = result_.begin[c]; m < result_.begin[c + 1]; ++m) {
        if (!ranks[result_.members[m].rank]) members.push_back(result_.members[m]);
      }
      if (members.size() - begin.back() < 2) members.resize(begin.back());
      if (members.size() > begin.back()) begin.push_back(members.size());
    }
    result_.unmatched += std::ssize(result_.members) - std::ssize(members);
    result_.members = std::move(members);
    result_.begin = std::move(begin);
  }

  void add(const GroupLists& group, bool unknown) {
    std::vector<std::int32_t> left_out;
    const Matches matches = numbered(group) ? match_numbered(group) : match_by_order(group, unknown, left_out);
    if (!left_out.empty()) {
      result_.remarks.push_back(fmt::format(
          "{} of {} ranks could not be matched in {}: their collectives differ in order or size", left_out.size(),
          group.ranks.size(), unknown ? "a group that the traces do not name" : "a group"));
    }
    std::int64_t listed = 0;
    for (const std::vector<Listed>& list : group.lists) listed += static_cast<std::int64_t>(list.size());
    for (const auto& [number, members] : matches) {
      if (members.size() < 2) continue;
      listed -= static_cast<std::int64_t>(members.size());
      result_.members.insert(result_.members.end(), members.begin(), members.end());
      result_.begin.push_back(result_.members.size());
    }
    result_.unmatched += listed;
  }

  const DeviceActivity& activity(const CollectiveMember& member) const {
    return ranks_[member.rank].trace->device[member.activity];
  }
  // The root of a broadcast or reduction may be done before others.
  bool ends_together(const CollectiveMember& member) const {
    const CollectiveOp op = ranks_[member.rank].table->of[member.activity].op;
    return op != CollectiveOp::broadcast && op != CollectiveOp::reduce && op != CollectiveOp::gather &&
           op != CollectiveOp::scatter;
  }

  // Collects differences of ends between ranks that meet, then propagates clocks from the first rank.
  void align() {
    std::map<std::pair<std::int32_t, std::int32_t>, std::pair<std::vector<Nanos>, std::vector<Nanos>>> differences;
    for (std::size_t c = 0; c < result_.collectives(); ++c) {
      // Against the first member: as many pairs as members, not their square.
      const CollectiveMember& first = result_.members[result_.begin[c]];
      for (std::size_t m = result_.begin[c] + 1; m < result_.begin[c + 1]; ++m) {
        const CollectiveMember& other = result_.members[m];
        auto& [together, rooted] = differences[{first.rank, other.rank}];
        (ends_together(first) ? together : rooted).push_back(activity(first).end - activity(other).end);
      }
    }
    std::vector<std::vector<std::pair<std::int32_t, Nanos>>> neighbours(ranks_.size());
    for (const auto& [pair, ends] : differences) {
      const Nanos difference = median(ends.first.empty() ? ends.second : ends.first);
      neighbours[pair.first].emplace_back(pair.second, difference);
      neighbours[pair.second].emplace_back(pair.first, Nanos{0} - difference);
    }
    result_.offset.resize(ranks_.size());
    result_.aligned.assign(ranks_.size(), false);
    for (std::size_t r = 0; r < ranks_.size(); ++r) result_.offset[r] = base_offset(r);
    if (ranks_.empty()) return;
    result_.aligned[0] = true;
    std::deque<std::int32_t> known = {0};
    while (!known.empty()) {
      const std::size_t from = known.front();
      known.pop_front();
      for (const auto& [to, difference] : neighbours[from]) {
        if (result_.aligned[to]) continue;
        result_.aligned[to] = true;
        result_.offset[to] = result_.offset[from] + difference;
        known.push_back(to);
      }
    }
  }

  const std::vector<RankCommunications>& ranks_;
  std::vector<bool> left_out_;  // by rank
  RankMatch result_;
};

}  // namespace

RankMatch match_ranks(const std::vector<RankCommunications>& ranks) {
  return !ranks.empty() && ranks.front().trace->source == TraceSource::weft ? match_transfers(ranks)
                                                                            : RankMatcher(ranks).match();
}

}  // namespace weft
