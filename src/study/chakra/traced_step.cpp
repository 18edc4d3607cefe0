#include "study/chakra/traced_step.hpp"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "base/error.hpp"

namespace weft {
namespace {

// Neighbours of every operation, as two arrays.
struct Successors {
  Successors(std::size_t operations, const std::vector<TracedEdge>& edges) : begin(operations + 1, 0) {
    for (const TracedEdge& edge : edges) ++begin[static_cast<std::size_t>(edge.from) + 1];
    for (std::size_t i = 0; i < operations; ++i) begin[i + 1] += begin[i];
    to.resize(edges.size());
    std::vector<std::size_t> next(begin.begin(), begin.end() - 1);
    for (const TracedEdge& edge : edges) to[next[static_cast<std::size_t>(edge.from)]++] = edge.to;
  }
  std::vector<std::size_t> begin;
  std::vector<std::int32_t> to;
};

// Returns all of 0..count-1 in an order that respects the edges, lowest key first; shorter where they form a cycle.
template <class Key>
std::vector<std::int32_t> lowest_first(std::size_t count, const std::vector<TracedEdge>& edges, Key key) {
  std::vector<std::int32_t> missing(count, 0), order;
  for (const TracedEdge& edge : edges) ++missing[static_cast<std::size_t>(edge.to)];
  const Successors after(count, edges);
  const auto later = [&](std::int32_t a, std::int32_t b) { return key(a) > key(b); };
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, decltype(later)> ready(later);
  for (std::size_t i = 0; i < count; ++i) {
    if (missing[i] == 0) ready.push(static_cast<std::int32_t>(i));
  }
  order.reserve(count);
  while (!ready.empty()) {
    const std::int32_t next = ready.top();
    ready.pop();
    order.push_back(next);
    const auto at = static_cast<std::size_t>(next);
    for (std::size_t i = after.begin[at]; i < after.begin[at + 1]; ++i) {
      if (--missing[static_cast<std::size_t>(after.to[i])] == 0) ready.push(after.to[i]);
    }
  }
  return order;
}

void sort_edges(std::vector<TracedEdge>& edges) {
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
}

// Dependencies between the nodes of a file, by their positions.
std::vector<TracedEdge> node_edges(const ChakraFile& file, bool data, bool control) {
  std::unordered_map<std::uint64_t, std::int32_t> position;
  for (std::size_t i = 0; i < file.nodes.size(); ++i) position[file.nodes[i].id] = static_cast<std::int32_t>(i);
  std::vector<TracedEdge> edges;
  for (std::size_t i = 0; i < file.nodes.size(); ++i) {
    const auto add = [&](const std::vector<std::uint64_t>& ids) {
      for (const std::uint64_t id : ids) edges.push_back({position.at(id), static_cast<std::int32_t>(i)});
    };
    if (data) add(file.nodes[i].data);
    if (control) add(file.nodes[i].control);
  }
  sort_edges(edges);
  return edges;
}

struct NodeOrder {
  std::vector<std::int32_t> nodes;
  bool control = true;  // control dependencies could be kept
};

// The order in which a rank's nodes ran: by start and id as far as its dependencies allow. Control dependencies of
// PyTorch's traces are calls; where they contradict the data dependencies they do not count, as in Chakra's own feeder.
NodeOrder order_of_nodes(const ChakraFile& file) {
  NodeOrder order;
  for (const bool control : {true, false}) {
    order.control = control;
    order.nodes = lowest_first(file.nodes.size(), node_edges(file, true, control), [&](std::int32_t i) {
      const ChakraNode& node = file.nodes[static_cast<std::size_t>(i)];
      return std::pair(node.start, node.id);
    });
    if (order.nodes.size() == file.nodes.size()) return order;
  }
  std::vector<bool> ran(file.nodes.size(), false);
  for (const std::int32_t i : order.nodes) ran[static_cast<std::size_t>(i)] = true;
  const auto stuck = std::find(ran.begin(), ran.end(), false) - ran.begin();
  fail("{}: node {} ({}) and {} others can never run: their data dependencies form a cycle", file.name,
       file.nodes[static_cast<std::size_t>(stuck)].id, file.nodes[static_cast<std::size_t>(stuck)].name,
       file.nodes.size() - order.nodes.size() - 1);
}

TracedKind kind_of(const ChakraNode& node) {
  if (node.on_host || node.type == ChakraType::metadata) return TracedKind::host;
  switch (node.type) {
    case ChakraType::send:
    case ChakraType::receive:
      return TracedKind::message;
    case ChakraType::collective:
      return TracedKind::collective;
    case ChakraType::memory_load:
    case ChakraType::memory_store:
      return TracedKind::memory;
    default:
      return TracedKind::compute;
  }
}

class Joiner {
 public:
  Joiner(const std::vector<ChakraFile>& files, const std::vector<ChakraGroup>& groups) : files_(files) {
    for (const ChakraGroup& group : groups) stated_[group.name] = group.members;
    for (const ChakraFile& file : files) {
      const auto rank = chakra_rank(file.name);
      step_.ranks.push_back({rank ? *rank : Rank{static_cast<std::int32_t>(step_.ranks.size())}, file.name, false});
      step_.operation_of.emplace_back(file.nodes.size(), -1);
    }
  }

  TracedStep join() {
    find_members();
    for (std::size_t r = 0; r < files_.size(); ++r) add_rank(static_cast<std::int32_t>(r));
    check_members();
    for (std::size_t r = 0; r < files_.size(); ++r) {
      add_edges(r, true, step_.data);
      if (has_control_[r]) add_edges(r, false, step_.control);
    }
    sort_edges(step_.data);
    sort_edges(step_.control);
    warn();
    return std::move(step_);
  }

 private:
  // Ranks whose files name a group are its members, where no file of groups says more.
  void find_members() {
    for (std::size_t r = 0; r < files_.size(); ++r) {
      for (const ChakraNode& node : files_[r].nodes) {
        if (kind_of(node) != TracedKind::collective) continue;
        std::vector<std::int32_t>& named = named_by_[node.group];
        if (named.empty() || named.back() != static_cast<std::int32_t>(r))
          named.push_back(static_cast<std::int32_t>(r));
      }
    }
    for (const auto& [group, named] : named_by_) {
      const auto stated = stated_.find(group);
      if (stated == stated_.end()) continue;
      for (const std::int32_t r : named) {
        const TracedRank& rank = step_.ranks[static_cast<std::size_t>(r)];
        if (!std::binary_search(stated->second.begin(), stated->second.end(), rank.rank)) {
          fail("{}: has a collective of group '{}', whose members do not include rank {}", rank.file, group,
               rank.rank.value);
        }
      }
    }
  }

  std::int32_t queue(TracedKind kind, std::int32_t rank, const std::string& name, std::vector<Rank> members) {
    const auto [found, is_new] =
        queues_.try_emplace({kind, rank, name}, static_cast<std::int32_t>(step_.queues.size()));
    if (is_new) step_.queues.push_back({kind, name, std::move(members)});
    return found->second;
  }

  void add_rank(std::int32_t r) {
    const ChakraFile& file = files_[static_cast<std::size_t>(r)];
    std::vector<std::int32_t>& order = step_.order.emplace_back();
    const NodeOrder nodes = order_of_nodes(file);
    has_control_.push_back(nodes.control);
    for (const std::int32_t node : nodes.nodes) {
      const std::int32_t operation = add_node(r, node);
      step_.operation_of[static_cast<std::size_t>(r)][static_cast<std::size_t>(node)] = operation;
      order.push_back(operation);
    }
  }

  std::int32_t add_operation(const ChakraNode& node, TracedKind kind, std::int32_t queue, TracedMember member) {
    step_.operations.push_back({node.name, kind, queue, node.collective, node.bytes, node.duration, {member}});
    return static_cast<std::int32_t>(step_.operations.size()) - 1;
  }

  std::int32_t add_node(std::int32_t r, std::int32_t index) {
    const ChakraNode& node = files_[static_cast<std::size_t>(r)].nodes[static_cast<std::size_t>(index)];
    const TracedKind kind = kind_of(node);
    const TracedMember member{r, index, node.type == ChakraType::receive};
    switch (kind) {
      case TracedKind::collective:
        return add_collective(node, member);
      case TracedKind::message:
        return add_message(node, member);
      case TracedKind::host:
        step_.ranks[static_cast<std::size_t>(r)].has_host = true;
        return add_operation(node, kind, queue(kind, r, "host", {}), member);
      case TracedKind::memory:
        return add_operation(node, kind, queue(kind, r, "memory", {}), member);
      case TracedKind::compute:
        break;
    }
    return add_operation(node, kind, queue(kind, r, "compute", {}), member);
  }

  Rank rank_of(std::int32_t r) const { return step_.ranks[static_cast<std::size_t>(r)].rank; }

  // The n-th collective of a communicator is the same one on all of its ranks.
  std::int32_t add_collective(const ChakraNode& node, TracedMember member) {
    std::vector<Rank> members;
    if (const auto stated = stated_.find(node.group); stated != stated_.end()) {
      members = stated->second;
    } else {
      for (const std::int32_t r : named_by_[node.group]) members.push_back(rank_of(r));
    }
    const std::int32_t own_queue =
        queue(TracedKind::collective, -1, node.group.empty() ? "all" : node.group, std::move(members));
    std::vector<std::int32_t>& all = collectives_[own_queue];
    const std::size_t n = count_[{own_queue, member.rank}]++;
    if (n == all.size()) {
      all.push_back(add_operation(node, TracedKind::collective, own_queue, member));
      return all.back();
    }
    TracedOperation& operation = step_.operations[static_cast<std::size_t>(all[n])];
    if (operation.collective != node.collective || operation.bytes != node.bytes) {
      fail("{}: node {} ({}) is number {} of group '{}': {} of {} bytes, but {} of {} bytes in {}",
           step_.ranks[static_cast<std::size_t>(member.rank)].file, node.id, node.name, n + 1, node.group,
           words(node.collective), node.bytes.value, words(operation.collective), operation.bytes.value,
           step_.ranks[static_cast<std::size_t>(operation.members.front().rank)].file);
    }
    operation.members.push_back(member);
    operation.duration = std::min(operation.duration, node.duration);
    return all[n];
  }

  static std::string_view words(std::optional<Collective> collective) {
    return collective ? name_of(*collective) : "an unnamed collective";
  }

  std::int32_t add_message(const ChakraNode& node, TracedMember member) {
    const Rank own = rank_of(member.rank);
    const std::int64_t other = member.receives ? node.source : node.destination;
    const bool known = other >= 0 && other <= INT32_MAX && other != own.value;
    if (!known) {
      ++unknown_ends_;
      return add_operation(node, TracedKind::message, queue(TracedKind::message, member.rank, "messages", {}), member);
    }
    const Rank peer{static_cast<std::int32_t>(other)};
    const Rank from = member.receives ? peer : own, to = member.receives ? own : peer;
    const std::int32_t own_queue = queue(TracedKind::message, -1, fmt::format("{} to {}", from.value, to.value),
                                         {std::min(from, to), std::max(from, to)});
    auto& ends = messages_[{own_queue, node.tag}];
    std::vector<std::int32_t>& waiting = member.receives ? ends.sent : ends.received;
    std::size_t& taken = member.receives ? ends.sent_taken : ends.received_taken;
    if (taken == waiting.size()) {
      const std::int32_t operation = add_operation(node, TracedKind::message, own_queue, member);
      (member.receives ? ends.received : ends.sent).push_back(operation);
      return operation;
    }
    const std::int32_t operation = waiting[taken++];
    TracedOperation& joined = step_.operations[static_cast<std::size_t>(operation)];
    joined.members.push_back(member);
    joined.duration = std::min(joined.duration, node.duration);
    return operation;
  }

  // Every rank that has a file and is a member takes part.
  void check_members() {
    for (const TracedOperation& operation : step_.operations) {
      const TracedQueue& queue = step_.queues[static_cast<std::size_t>(operation.queue)];
      const auto takes_part = [&](std::int32_t r) {
        return std::any_of(operation.members.begin(), operation.members.end(),
                           [&](const TracedMember& m) { return m.rank == r; });
      };
      for (const Rank member : queue.members) {
        const auto found = std::lower_bound(step_.ranks.begin(), step_.ranks.end(), member,
                                            [](const TracedRank& rank, Rank value) { return rank.rank < value; });
        if (found == step_.ranks.end() || found->rank != member) continue;
        if (takes_part(static_cast<std::int32_t>(found - step_.ranks.begin()))) continue;
        const TracedMember& has = operation.members.front();
        const TracedRank& rank = step_.ranks[static_cast<std::size_t>(has.rank)];
        const ChakraNode& node = files_[static_cast<std::size_t>(has.rank)].nodes[static_cast<std::size_t>(has.node)];
        fail("{}: node {} ({}): rank {} never takes part in it ({} has no such node)", rank.file, node.id, node.name,
             member.value, found->file);
      }
    }
  }

  void add_edges(std::size_t r, bool data, std::vector<TracedEdge>& edges) const {
    const std::vector<std::int32_t>& operation = step_.operation_of[r];
    for (const TracedEdge& edge : node_edges(files_[r], data, !data)) {
      edges.push_back({operation[static_cast<std::size_t>(edge.from)], operation[static_cast<std::size_t>(edge.to)]});
    }
  }

  void warn() {
    const auto contradicted = std::count(has_control_.begin(), has_control_.end(), false);
    if (contradicted > 0) {
      step_.warnings.push_back(
          fmt::format("control dependencies of {} of {} files contradict their data dependencies: they are left out",
                      contradicted, has_control_.size()));
    }
    if (unknown_ends_ > 0) {
      step_.warnings.push_back(
          fmt::format("{} messages do not say where they go (comm_src, comm_dst): they are simulated with no other end",
                      unknown_ends_));
    }
    std::int64_t timeless = 0;
    for (const TracedOperation& operation : step_.operations) {
      timeless += operation.kind == TracedKind::compute && operation.duration == Nanos{0} ? 1 : 0;
    }
    if (timeless > 0) {
      step_.warnings.push_back(
          fmt::format("{} compute operations take no time (duration_micros is 0 or missing)", timeless));
    }
  }

  // Ends of messages of one queue and tag whose other end has not been seen.
  struct Ends {
    std::vector<std::int32_t> sent, received;
    std::size_t sent_taken = 0, received_taken = 0;
  };

  const std::vector<ChakraFile>& files_;
  std::map<std::string, std::vector<Rank>> stated_;
  std::map<std::string, std::vector<std::int32_t>> named_by_;
  std::map<std::tuple<TracedKind, std::int32_t, std::string>, std::int32_t> queues_;
  std::map<std::int32_t, std::vector<std::int32_t>> collectives_;       // by queue
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> count_;  // by queue and rank
  std::map<std::pair<std::int32_t, std::int64_t>, Ends> messages_;      // by queue and tag
  std::vector<bool> has_control_;                                       // by rank
  std::int64_t unknown_ends_ = 0;
  TracedStep step_;
};

}  // namespace

TracedStep join_traces(const std::vector<ChakraFile>& files, const std::vector<ChakraGroup>& groups) {
  return Joiner(files, groups).join();
}

std::vector<TracedEdge> edges_of(const TracedStep& step, const OrderRules& rules) {
  std::vector<TracedEdge> edges = step.data;
  if (rules.control) edges.insert(edges.end(), step.control.begin(), step.control.end());
  for (const std::vector<std::int32_t>& order : step.order) {
    std::map<std::int32_t, std::int32_t> last;  // by queue; all of a device are one where it does one thing at a time
    for (const std::int32_t operation : order) {
      const TracedOperation& own = step.operations[static_cast<std::size_t>(operation)];
      const bool is_host = own.kind == TracedKind::host;
      if (!rules.in_order && !rules.one_by_one && !is_host) continue;
      const std::int32_t queue = rules.one_by_one && !is_host ? -1 : own.queue;
      const auto [before, is_first] = last.try_emplace(queue, operation);
      if (!is_first) edges.push_back({before->second, operation});
      before->second = operation;
    }
  }
  sort_edges(edges);
  return edges;
}

std::vector<std::int32_t> run_order(const TracedStep& step, const std::vector<TracedEdge>& edges) {
  std::vector<std::int32_t> position(step.operations.size(), 0);
  for (const std::vector<std::int32_t>& order : step.order) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      std::int32_t& own = position[static_cast<std::size_t>(order[i])];
      own = std::max(own, static_cast<std::int32_t>(i));
    }
  }
  return lowest_first(step.operations.size(), edges,
                      [&](std::int32_t i) { return std::pair(position[static_cast<std::size_t>(i)], i); });
}

std::string describe_cycle(const TracedStep& step, const std::vector<TracedEdge>& edges) {
  std::vector<bool> ran(step.operations.size(), false);
  for (const std::int32_t i : run_order(step, edges)) ran[static_cast<std::size_t>(i)] = true;
  // Whoever never ran waits for another one that never ran: going back from one of them ends in a cycle.
  std::vector<std::int32_t> waits_for(step.operations.size(), -1);
  for (const TracedEdge& edge : edges) {
    const auto from = static_cast<std::size_t>(edge.from), to = static_cast<std::size_t>(edge.to);
    if (!ran[from] && !ran[to]) waits_for[to] = edge.from;
  }
  auto at = static_cast<std::int32_t>(std::find(ran.begin(), ran.end(), false) - ran.begin());
  for (std::size_t i = 0; i < ran.size(); ++i) at = waits_for[static_cast<std::size_t>(at)];
  std::string words;
  const std::int32_t first = at;
  constexpr int kMostNamed = 4;
  for (int named = 0; named == 0 || at != first; ++named) {
    if (named == kMostNamed) return words + ", ...";
    const TracedOperation& own = step.operations[static_cast<std::size_t>(at)];
    const std::int32_t rank = own.members.front().rank;
    words += fmt::format("{}'{}' ({} of rank {})", named == 0 ? "" : " waits for ", own.name,
                         step.queues[static_cast<std::size_t>(own.queue)].name,
                         step.ranks[static_cast<std::size_t>(rank)].rank.value);
    at = waits_for[static_cast<std::size_t>(at)];
  }
  return words + fmt::format(" waits for '{}'", step.operations[static_cast<std::size_t>(first)].name);
}

}  // namespace weft
