#include "study/chakra/traced_simulation.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "sim/simulate_folded.hpp"

namespace weft {
namespace {

std::size_t at(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

// Names of process groups that say what they are for, as Megatron's and our own do; others are `other`.
TrafficKind traffic_of(const TracedOperation& operation, const std::string& group) {
  if (operation.kind == TracedKind::message) return TrafficKind::pp;
  static const std::vector<std::pair<std::string_view, TrafficKind>> kPrefixes{
      {"tp", TrafficKind::tp},        {"tensor", TrafficKind::tp},   {"dp", TrafficKind::dp_grad},
      {"data", TrafficKind::dp_grad}, {"edp", TrafficKind::dp_grad}, {"ep", TrafficKind::ep},
      {"expert", TrafficKind::ep},    {"cp", TrafficKind::cp},       {"context", TrafficKind::cp},
      {"pp", TrafficKind::pp},        {"pipeline", TrafficKind::pp}};
  for (const auto& [prefix, kind] : kPrefixes) {
    if (!group.starts_with(prefix)) continue;
    const bool gathers = operation.collective == Collective::all_gather && kind == TrafficKind::dp_grad;
    return gathers ? TrafficKind::param_gather : kind;
  }
  return TrafficKind::other;
}

class TracedSimulation {
 public:
  TracedSimulation(const TracedStep& step, const TracedCosts& costs, const TracedOrder& order)
      : step_(step), costs_(costs), order_(order), sim_of_(step.operations.size()) {}

  Timeline run() {
    add_ranks();
    add_operations();
    add_boundary();
    add_edges();
    Timeline timeline = std::move(timeline_);
    const FoldedResult result = simulate_folded(problem_, {});
    timeline.dependency_begin = std::move(problem_.edge_begin);
    timeline.dependencies = std::move(problem_.edges);
    add_simulated(result, timeline);
    return timeline;
  }

 private:
  // Ranks of the timeline: devices, each followed by its host where the trace has work of it.
  void add_ranks() {
    problem_.resources = costs_.resources;
    problem_.costs = costs_.operations;
    for (const TracedRank& rank : step_.ranks) {
      device_.push_back(add_rank(fmt::format("rank {}", rank.rank.value), rank.rank, "compute", costs_.device));
      host_.push_back(rank.has_host ? add_rank(fmt::format("rank {} host", rank.rank.value), rank.rank, "host", {})
                                    : -1);
    }
  }
  std::int32_t add_rank(std::string name, Rank rank, const char* queue, SimRank slowdown) {
    TimelineRank own{std::move(name), rank, 1, {}};
    own.queues.push_back(queue);
    timeline_.ranks.push_back(std::move(own));
    problem_.ranks.push_back(slowdown);
    members_.emplace_back();
    return static_cast<std::int32_t>(problem_.ranks.size()) - 1;
  }

  std::int32_t name(const std::string& text) {
    const auto [found, is_new] = names_.try_emplace(text, static_cast<std::int32_t>(timeline_.names.size()));
    if (is_new) timeline_.names.push_back(text);
    return found->second;
  }

  // Operations of a rank stand together and in their order, so that the engine can fold them.
  void add_operations() {
    struct Place {
      std::int32_t operation, member;
    };
    std::vector<std::vector<Place>> of_rank(problem_.ranks.size());
    for (const std::int32_t operation : order_.sequence) {
      const TracedOperation& own = step_.operations[at(operation)];
      for (std::size_t m = 0; m < own.members.size(); ++m) {
        const std::vector<std::int32_t>& places = own.kind == TracedKind::host ? host_ : device_;
        of_rank[at(places[at(own.members[m].rank)])].push_back({operation, static_cast<std::int32_t>(m)});
      }
    }
    for (std::size_t r = 0; r < of_rank.size(); ++r) {
      std::int32_t chain = 0;
      for (const Place& place : of_rank[r]) add(static_cast<std::int32_t>(r), place.operation, place.member, chain);
    }
  }

  void add(std::int32_t rank, std::int32_t operation, std::int32_t member, std::int32_t& chain) {
    const TracedOperation& own = step_.operations[at(operation)];
    const bool computes = own.kind == TracedKind::compute || own.kind == TracedKind::host;
    const bool in_chain = computes || order_.one_by_one;
    const JointId joint{own.members.size() > 1 ? operation : -1};
    const auto index = static_cast<std::int32_t>(problem_.operations.size());
    sim_of_[at(operation)].push_back(index);
    members_[at(rank)].push_back({index, operation});
    problem_.operations.push_back(
        {rank, computes ? SimQueue::compute : SimQueue::transfer, operation, joint, in_chain ? chain++ : -1});
    const std::string& group = step_.queues[at(own.queue)].name;
    TimelineOperation described;
    described.name = name(own.name.empty() ? std::string("node") : own.name);
    described.rank = rank;
    described.phase = name("traced");
    described.alone = costs_.operations[at(operation)].fixed + costs_.operations[at(operation)].moving;
    if (!computes) {
      described.activity = Activity::transfer;
      described.queue = queue_of(rank, own.queue);
      described.traffic = traffic_of(own, group);
      described.group = name(group);
      described.bytes = own.bytes;
      described.transfer = joint.value;
      described.receives = own.members[at(member)].receives;
      const std::size_t size = step_.queues[at(own.queue)].members.size();
      described.group_size = static_cast<std::int32_t>(size);
      if (own.kind == TracedKind::message) described.collective = name("send_recv");
      if (own.collective) described.collective = name(std::string(name_of(*own.collective)));
    }
    timeline_.operations.push_back(described);
  }

  QueueId queue_of(std::int32_t rank, std::int32_t queue) {
    auto& queues = timeline_.ranks[at(rank)].queues;
    const auto [found, is_new] = queues_.try_emplace({rank, queue}, queues.next_id());
    if (is_new) queues.push_back(step_.queues[at(queue)].name);
    return found->second;
  }

  // A transfer of all ranks that takes no time ends the step.
  void add_boundary() {
    const auto joint = static_cast<std::int32_t>(step_.operations.size());
    problem_.costs.push_back({});
    for (std::size_t r = 0; r < problem_.ranks.size(); ++r) {
      const JointId id{problem_.ranks.size() > 1 ? joint : -1};
      boundary_.push_back(static_cast<std::int32_t>(problem_.operations.size()));
      problem_.operations.push_back({static_cast<std::int32_t>(r), SimQueue::transfer, joint, id, -1});
      TimelineOperation described;
      described.name = name("end of the step");
      described.phase = name("traced");
      described.rank = static_cast<std::int32_t>(r);
      described.activity = Activity::transfer;
      described.queue = timeline_.ranks[r].queues.next_id();
      described.transfer = id.value;
      timeline_.ranks[r].queues.push_back("step");
      timeline_.operations.push_back(described);
    }
  }

  void add_edges() {
    std::vector<std::vector<Dependency>> waits(problem_.operations.size());
    const auto add_all = [&](const std::vector<TracedEdge>& edges, bool order) {
      for (const TracedEdge& edge : edges) {
        for (const std::int32_t to : sim_of_[at(edge.to)]) {
          for (const std::int32_t from : sim_of_[at(edge.from)]) {
            if (are_of_one_rank(from, to)) waits[at(to)].push_back({from, 0, order, false});
          }
        }
      }
    };
    add_all(step_.data, false);
    if (order_.control) add_all(step_.control, true);
    for (std::size_t r = 0; r < members_.size(); ++r) {
      std::map<std::int32_t, std::int32_t> last;
      for (const auto& [index, operation] : members_[r]) {
        const std::int32_t queue = order_.one_by_one ? -1 : step_.operations[at(operation)].queue;
        const auto [before, is_first] = last.try_emplace(queue, index);
        waits[at(index)].push_back(is_first ? Dependency{boundary_[r], 1, true, false}
                                            : Dependency{before->second, 0, true, false});
        before->second = index;
      }
      for (const auto& [queue, index] : last) waits[at(boundary_[r])].push_back({index, 0, false, false});
      waits[at(boundary_[r])].push_back({boundary_[r], 1, true, false});
    }
    problem_.edge_begin.push_back(0);
    for (const std::vector<Dependency>& own : waits) {
      problem_.edges.insert(problem_.edges.end(), own.begin(), own.end());
      problem_.edge_begin.push_back(static_cast<std::int32_t>(problem_.edges.size()));
    }
  }

  // A rank's operations wait for its own end of a transfer; a host and its device are two ranks of the timeline.
  bool are_of_one_rank(std::int32_t from, std::int32_t to) const {
    const auto rank_of = [&](std::int32_t index) {
      return timeline_.ranks[at(timeline_.operations[at(index)].rank)].rank;
    };
    return rank_of(from) == rank_of(to);
  }

  const TracedStep& step_;
  const TracedCosts& costs_;
  const TracedOrder& order_;
  SimProblem problem_;
  Timeline timeline_;
  std::vector<std::int32_t> device_, host_;        // ranks of the timeline, by rank of the step
  std::vector<std::vector<std::int32_t>> sim_of_;  // by operation of the step
  std::vector<std::vector<std::pair<std::int32_t, std::int32_t>>> members_;  // by rank: simulated, and of the step
  std::vector<std::int32_t> boundary_;                                       // by rank
  std::map<std::string, std::int32_t> names_;
  std::map<std::pair<std::int32_t, std::int32_t>, QueueId> queues_;
};

}  // namespace

Timeline simulate_traced(const TracedStep& step, const TracedCosts& costs, const TracedOrder& order) {
  return TracedSimulation(step, costs, order).run();
}

std::vector<std::vector<std::vector<std::int32_t>>> order_dependencies(const TracedStep& step,
                                                                       const TracedOrder& order) {
  std::vector<std::vector<std::vector<std::int32_t>>> control;
  for (const std::vector<std::int32_t>& nodes : step.operation_of) control.emplace_back(nodes.size());
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> last;  // node, by rank and queue
  for (const std::int32_t operation : order.sequence) {
    for (const TracedMember& member : step.operations[at(operation)].members) {
      const auto [before, is_first] =
          last.try_emplace({member.rank, step.operations[at(operation)].queue}, member.node);
      if (!is_first) control[at(member.rank)][at(member.node)].push_back(before->second);
      before->second = member.node;
    }
  }
  return control;
}

TracedBound bound_traced(const TracedStep& step, const TracedCosts& costs) {
  const std::size_t count = step.operations.size();
  const std::vector<std::int32_t> sequence = run_order(step, step.data);
  WEFT_CHECK(sequence.size() == count);
  std::vector<std::vector<std::int32_t>> before(count);
  for (const TracedEdge& edge : step.data) before[at(edge.to)].push_back(edge.from);
  const auto length = [&](std::size_t i) {
    return static_cast<double>((costs.least[i].fixed + costs.least[i].moving).value);
  };
  // The longest way of dependencies to the start of an operation, and from its end to the end of the step.
  std::vector<double> head(count, 0), tail(count, 0);
  TracedBound bound{0, "dependencies"};
  for (const std::int32_t i : sequence) {
    for (const std::int32_t b : before[at(i)]) head[at(i)] = std::max(head[at(i)], head[at(b)] + length(at(b)));
    bound.ns = std::max(bound.ns, head[at(i)] + length(at(i)));
  }
  for (auto i = sequence.rbegin(); i != sequence.rend(); ++i) {
    for (const std::int32_t b : before[at(*i)]) tail[at(b)] = std::max(tail[at(b)], tail[at(*i)] + length(at(*i)));
  }
  struct Work {
    double ns = 0, head = 1e300, tail = 1e300;
  };
  std::vector<Work> queues(step.queues.size());
  std::vector<double> links(at(costs.resources), 0);
  std::vector<std::int32_t> rank_of_queue(step.queues.size(), 0);
  for (std::size_t i = 0; i < count; ++i) {
    Work& own = queues[at(step.operations[i].queue)];
    own.ns += length(i);
    own.head = std::min(own.head, head[i]);
    own.tail = std::min(own.tail, tail[i]);
    rank_of_queue[at(step.operations[i].queue)] = step.operations[i].members.front().rank;
    for (const ResourceUse& use : costs.least[i].use) {
      links[at(use.resource)] += use.share * static_cast<double>(costs.least[i].moving.value);
    }
  }
  for (std::size_t q = 0; q < queues.size(); ++q) {
    const double ns = queues[q].head + queues[q].ns + queues[q].tail;
    if (queues[q].ns == 0 || ns <= bound.ns) continue;
    const TracedQueue& queue = step.queues[q];
    const bool of_group = queue.kind == TracedKind::collective || queue.kind == TracedKind::message;
    bound = {ns, of_group ? fmt::format("communicator {}", queue.name)
                          : fmt::format("{} of rank {}", queue.name, step.ranks[at(rank_of_queue[q])].rank.value)};
  }
  for (const double ns : links) {
    if (ns > bound.ns) bound = {ns, "the busiest link"};
  }
  return bound;
}

}  // namespace weft
