#include "timeline/trace/one_job.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr std::string_view kAdvice = "give the traces of one job, or compare two with --against";

[[noreturn]] void fail_as_different(const DeviceTrace& a, const DeviceTrace& b, const std::string& why) {
  fail("{} and {} cannot be of one job: {}; {}", a.file, b.file, why, kAdvice);
}

void require_one_world(std::span<const DeviceTrace> traces) {
  const DeviceTrace* first = nullptr;  // that says how large its world is
  for (const DeviceTrace& trace : traces) {
    if (trace.world_size <= 0) continue;
    if (first == nullptr) first = &trace;
    if (trace.world_size != first->world_size) {
      fail_as_different(*first, trace, fmt::format("world sizes {} and {}", first->world_size, trace.world_size));
    }
  }
  if (first == nullptr) return;
  for (const DeviceTrace& trace : traces) {
    if (trace.file != first->file && trace.rank.value >= first->world_size) {
      fail_as_different(*first, trace, fmt::format("rank {} in a world of {}", trace.rank.value, first->world_size));
    }
  }
}

// A trace of ours holds every rank that it knows of.
void require_one_own_file(std::span<const DeviceTrace> traces) {
  const auto own =
      std::find_if(traces.begin(), traces.end(), [](const DeviceTrace& t) { return t.source == TraceSource::weft; });
  if (own == traces.end()) return;
  for (const DeviceTrace& trace : traces) {
    if (trace.file != own->file) fail_as_different(*own, trace, "a trace of weft holds all ranks of its job");
  }
}

// Disjoint groups may share a name; a rank belongs to one group of each name.
void require_equal_groups(std::span<const DeviceTrace> traces) {
  struct Members {
    const DeviceTrace* trace = nullptr;
    const std::vector<std::int32_t>* ranks = nullptr;
    bool contains(const DeviceTrace& other) const {
      return std::find(ranks->begin(), ranks->end(), other.rank.value) != ranks->end();
    }
  };
  std::map<std::string, std::vector<Members>> by_name;  // each list once
  for (const DeviceTrace& trace : traces) {
    for (const CollectiveFacts& facts : trace.collectives) {
      if (facts.group_name == kAbsent || facts.group_ranks == kAbsent) continue;
      const std::string& name = trace.names[facts.group_name];
      const Members members{&trace, &trace.rank_lists[facts.group_ranks]};
      std::vector<Members>& known = by_name[name];
      bool is_new = true;
      for (const Members& other : known) {
        if (*other.ranks == *members.ranks) {
          is_new = false;
        } else if (other.trace != &trace && (other.contains(trace) || members.contains(*other.trace))) {
          fail_as_different(*other.trace, trace,
                            fmt::format("process group '{}' has ranks {} and {}", name, *other.ranks, *members.ranks));
        }
      }
      if (is_new) known.push_back(members);
    }
  }
}

}  // namespace

void require_one_job(std::span<const DeviceTrace> traces) {
  require_one_own_file(traces);
  require_one_world(traces);
  require_equal_groups(traces);
}

}  // namespace weft
