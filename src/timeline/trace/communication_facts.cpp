#include "timeline/trace/communication_facts.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <tuple>

namespace weft {
namespace {

constexpr std::array<std::string_view, 11> kOpNames = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                                       "broadcast",  "reduce",     "gather",         "scatter",
                                                       "send_recv",  "barrier",    "other"};
constexpr std::array<std::string_view, kSizeClasses> kSizeNames = {"< 64 KiB", "< 1 MiB", "< 16 MiB", "< 256 MiB",
                                                                   ">= 256 MiB"};

constexpr std::int64_t kMaxElements = std::int64_t{1} << 36;
constexpr std::int64_t kMaxRanks = 1 << 20;

// The buffer size as nccl-tests count it: what all ranks together end with (gathers) or begin with (scatters), else
// what one rank has.
std::int64_t buffer_bytes(CollectiveOp op, const CollectiveFacts& facts) {
  if (facts.element_bytes <= 0) return -1;
  const std::int64_t in = facts.in_elements, out = facts.out_elements, ranks = facts.group_size;
  // Larger sizes exceed any memory; below them the products stay within 64 bits.
  if (std::max(in, out) > kMaxElements || ranks > kMaxRanks) return -1;
  std::int64_t elements = std::max(in, out);
  if (op == CollectiveOp::gather && in >= 0 && ranks > 0) elements = std::max(elements, in * ranks);
  if (op == CollectiveOp::scatter && out >= 0 && ranks > 0) elements = std::max(elements, out * ranks);
  if (op == CollectiveOp::all_to_all && in >= 0) elements = in;
  return elements < 0 ? -1 : elements * facts.element_bytes;
}

class Interner {
 public:
  explicit Interner(std::vector<std::string>& names) : names_(names) {}
  std::int32_t operator()(std::string_view name) {
    const auto [at, added] = numbers_.try_emplace(std::string(name), static_cast<std::int32_t>(names_.size()));
    if (added) names_.emplace_back(name);
    return at->second;
  }

 private:
  std::vector<std::string>& names_;
  std::map<std::string, std::int32_t> numbers_;
};

class TableBuilder {
 public:
  explicit TableBuilder(const DeviceTrace& trace) : trace_(trace), labels_(table_.labels) {
    table_.groups.emplace_back();
    for (const CollectiveFacts& facts : trace.collectives) by_facts_.push_back(from_facts(facts));
    by_name_.resize(trace.names.size());
  }

  CommunicationTable build() && {
    table_.of.resize(trace_.device.size());
    for (std::size_t i = 0; i < trace_.device.size(); ++i) {
      const DeviceActivity& activity = trace_.device[i];
      if (activity.kind == KernelKind::communication) table_.of[i] = of_activity(activity);
    }
    return std::move(table_);
  }

 private:
  const std::string& name(std::int32_t index) const { return trace_.names[index]; }

  TracedCommunication of_activity(const DeviceActivity& activity) {
    TracedCommunication result;
    if (activity.collective != kAbsent) {
      result = by_facts_[activity.collective];
    } else {
      Known& known = by_name_[activity.name];
      if (!known.known) {
        known.known = true;
        known.communication.op = collective_op(name(activity.name));
        known.communication.label = label(known.communication.op, name(activity.name));
      }
      result = known.communication;
    }
    if (result.bytes < 0) result.bytes = activity.bytes;
    return result;
  }

  TracedCommunication from_facts(const CollectiveFacts& facts) {
    TracedCommunication result;
    result.op = collective_op(name(facts.name));
    result.label = label(result.op, name(facts.name));
    result.bytes = buffer_bytes(result.op, facts);
    result.sequence = facts.sequence;
    result.group = group(facts);
    return result;
  }

  std::int32_t label(CollectiveOp op, std::string_view raw) {
    // Names of kernels go on with their arguments.
    return labels_(op == CollectiveOp::other ? raw.substr(0, raw.find_first_of("(<")) : name_of(op));
  }

  std::int32_t group(const CollectiveFacts& facts) {
    if (facts.group_name == kAbsent && facts.group_ranks == kAbsent && facts.group_size == 0) return 0;
    const auto [at, added] = groups_.try_emplace({facts.group_name, facts.group_ranks, facts.group_size},
                                                 static_cast<std::int32_t>(table_.groups.size()));
    if (!added) return at->second;
    TraceGroup group;
    if (facts.group_name != kAbsent) group.name = name(facts.group_name);
    if (facts.group_ranks != kAbsent) group.ranks = trace_.rank_lists[facts.group_ranks];
    group.size = facts.group_size > 0 ? facts.group_size : static_cast<std::int64_t>(group.ranks.size());
    if (!group.name.empty()) group.label = group.name;
    if (facts.group_description != kAbsent) {
      const std::string& description = name(facts.group_description);
      if (!description.empty() && description != "undefined") group.label = description;
    }
    table_.groups.push_back(std::move(group));
    return at->second;
  }

  struct Known {
    bool known = false;
    TracedCommunication communication;
  };
  const DeviceTrace& trace_;
  CommunicationTable table_;
  Interner labels_;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::int32_t> groups_;
  std::vector<TracedCommunication> by_facts_;
  std::vector<Known> by_name_;
};

}  // namespace

std::string_view name_of(CollectiveOp op) {
  return kOpNames[static_cast<std::size_t>(op)];
}

CollectiveOp collective_op(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c == '(' || c == '<') break;
    if (c != '_' && c != ' ') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  // Longer words first: each contains those below it.
  constexpr std::pair<std::string_view, CollectiveOp> kWords[] = {{"reducescatter", CollectiveOp::reduce_scatter},
                                                                  {"allreduce", CollectiveOp::all_reduce},
                                                                  {"allgather", CollectiveOp::all_gather},
                                                                  {"alltoall", CollectiveOp::all_to_all},
                                                                  {"broadcast", CollectiveOp::broadcast},
                                                                  {"gather", CollectiveOp::gather},
                                                                  {"scatter", CollectiveOp::scatter},
                                                                  {"barrier", CollectiveOp::barrier},
                                                                  {"send", CollectiveOp::send_recv},
                                                                  {"recv", CollectiveOp::send_recv},
                                                                  {"receive", CollectiveOp::send_recv},
                                                                  {"reduce", CollectiveOp::reduce}};
  for (const auto& [word, op] : kWords) {
    if (plain.find(word) != std::string::npos) return op;
  }
  return CollectiveOp::other;
}

double bus_factor(CollectiveOp op, std::int64_t ranks) {
  if (ranks <= 0) return 1;
  const auto n = static_cast<double>(ranks);
  switch (op) {
    case CollectiveOp::all_reduce:
      return 2 * (n - 1) / n;
    case CollectiveOp::all_gather:
    case CollectiveOp::reduce_scatter:
    case CollectiveOp::all_to_all:
    case CollectiveOp::gather:
    case CollectiveOp::scatter:
      return (n - 1) / n;
    default:
      return 1;
  }
}

int size_class(std::int64_t bytes) {
  if (bytes < 0) return -1;
  int size = 0;
  for (std::int64_t limit = 64 << 10; size + 1 < kSizeClasses && bytes >= limit; limit *= 16) ++size;
  return size;
}

std::string_view size_class_name(int size) {
  return size < 0 ? "?" : kSizeNames[size];
}

CommunicationTable communication_table(const DeviceTrace& trace) {
  return TableBuilder(trace).build();
}

}  // namespace weft
