#include "study/chakra/traced_costs.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.hpp"

namespace weft {
namespace {

bool is_transfer_of_ranks(const TracedOperation& operation) {
  return operation.kind == TracedKind::collective || operation.kind == TracedKind::message;
}

SimCost as_traced(const TracedOperation& operation) {
  const bool computes = operation.kind == TracedKind::compute || operation.kind == TracedKind::host;
  return computes ? SimCost{operation.duration, Nanos{0}, {}} : SimCost{Nanos{0}, operation.duration, {}};
}

SimCost over_links(const TransferCost& cost) {
  SimCost result;
  result.fixed = cost.latency;
  const double alone = cost.moving_seconds();
  result.moving = nanos_from_seconds(alone);
  for (const LinkWork& work : cost.work) {
    if (work.seconds > 0) result.use.push_back({work.resource.value, work.seconds / alone});
  }
  return result;
}

// A graph with nothing but one transfer, every member a class of its own and every link of the cluster a class of its
// own, so that the cost model prices it as it prices those of plans.
StepGraph graph_of_transfer(const Cluster& cluster, const std::vector<Rank>& members, Collective collective,
                            Bytes bytes, Rank sender) {
  StepGraph graph;
  for (const Link& link : cluster.links()) graph.links.push_back({link, cluster.level_name(link.level)});
  const std::vector<GroupView> views = group_views(cluster, members);
  std::vector<ClassId> classes;
  for (std::size_t m = 0; m < members.size(); ++m) classes.push_back(make_id<ClassId>(m));
  for (std::size_t m = 0; m < members.size(); ++m) {
    RankClass own;
    own.representative = members[m];
    own.ranks = 1;
    own.device = cluster.device(members[m]);
    own.groups.resize(group_kinds().size());
    ClassGroup& group = own.groups[GroupKind::dp.number];
    group.view = views[m];
    group.members = classes;
    if (std::ssize(members) <= kListedMembers) group.ranks = members;
    for (std::size_t level = 0; level < cluster.level_count(); ++level) {
      own.links.push_back({cluster.link_of(make_id<LevelId>(level), members[m]).value, 1});
    }
    graph.classes.push_back(std::move(own));
    Operation operation;
    operation.rank_class = make_id<ClassId>(m);
    operation.role = operation.subject = Role::grad_reduce;
    operation.per_micro_batch = false;
    operation.key.kind = OpKind::transfer;
    operation.communication = Communication{
        .collective = collective, .group = GroupKind::dp, .bytes = bytes, .transfer = 0, .sends = members[m] == sender};
    graph.operations.push_back(std::move(operation));
  }
  return graph;
}

struct PricedTransfer {
  SimCost cost, least;
};

PricedTransfer price(const Cluster& cluster, const Profile& profile, const std::vector<Rank>& members,
                     const TracedOperation& operation, Rank sender) {
  const bool message = operation.kind == TracedKind::message;
  const Collective collective = message ? Collective::send_recv : *operation.collective;
  StepGraph graph = graph_of_transfer(cluster, members, collective, operation.bytes, sender);
  const CostModel model(graph, cluster, profile);
  choose_algorithms(graph, model);
  TransferCost all = model.transfer(graph.operations[0]), least = model.least_transfer(graph.operations[0]);
  for (std::size_t m = 1; m < members.size(); ++m) {
    all = joined(all, model.transfer(graph.operations[m]));
    least = joined(least, model.least_transfer(graph.operations[m]));
  }
  return {over_links(all), over_links(least)};
}

class ClusterCosts {
 public:
  ClusterCosts(const TracedStep& step, const Cluster& cluster, const Profile& profile)
      : step_(step), cluster_(cluster), profile_(profile) {}

  TracedCosts costs() {
    TracedCosts costs = traced_costs(step_);
    costs.warnings.clear();
    costs.resources = static_cast<std::int32_t>(2 * cluster_.links().size());
    const Device& device = cluster_.spec().device;
    const DeviceProfile& own = profile_.device(device.name);
    costs.device = {.compute_slowdown = own.compute_slowdown.value_or(device.compute_slowdown),
                    .transfer_slowdown = own.transfer_slowdown.value_or(device.transfer_slowdown),
                    .wake = own.wake,
                    .further_slowdown = own.further_slowdown.value_or(0),
                    .waiting_slowdown = own.waiting_slowdown.value_or(0)};
    for (const TracedRank& rank : step_.ranks) require_rank(rank.rank, rank.file);
    for (std::size_t i = 0; i < step_.operations.size(); ++i) {
      if (!is_transfer_of_ranks(step_.operations[i])) continue;
      if (const PricedTransfer* priced = find(step_.operations[i])) {
        costs.operations[i] = priced->cost;
        costs.least[i] = priced->least;
      } else {
        ++as_traced_;
      }
    }
    if (as_traced_ > 0) {
      costs.warnings.push_back(fmt::format(
          "{} transfers take as long as in the trace: their group has one rank here, or what they do is not said; "
          "--comm-groups names the members of groups",
          as_traced_));
    }
    return costs;
  }

 private:
  void require_rank(Rank rank, const std::string& what) const {
    if (rank.value < cluster_.device_count()) return;
    fail("{}: rank {} is not on the cluster, which has {} devices", what, rank.value, cluster_.device_count());
  }

  const PricedTransfer* find(const TracedOperation& operation) {
    const TracedQueue& queue = step_.queues[static_cast<std::size_t>(operation.queue)];
    const bool message = operation.kind == TracedKind::message;
    if (queue.members.size() < 2 || (!message && !operation.collective)) return nullptr;
    const auto [found, is_new] = priced_.try_emplace(
        {operation.queue, operation.collective.value_or(Collective::send_recv), operation.bytes.value});
    if (is_new) {
      for (const Rank member : queue.members) require_rank(member, "group '" + queue.name + "'");
      found->second = price(cluster_, profile_, queue.members, operation, sender_of(operation, queue));
    }
    return &found->second;
  }

  // Either end of a message says which one it is.
  Rank sender_of(const TracedOperation& operation, const TracedQueue& queue) const {
    const TracedMember& end = operation.members.front();
    const Rank own = step_.ranks[static_cast<std::size_t>(end.rank)].rank;
    if (!end.receives) return own;
    return queue.members.front() == own ? queue.members.back() : queue.members.front();
  }

  const TracedStep& step_;
  const Cluster& cluster_;
  const Profile& profile_;
  std::map<std::tuple<std::int32_t, Collective, std::int64_t>, PricedTransfer> priced_;
  std::int64_t as_traced_ = 0;
};

}  // namespace

TracedCosts traced_costs(const TracedStep& step) {
  TracedCosts costs;
  std::int64_t timeless = 0;
  for (const TracedOperation& operation : step.operations) {
    costs.operations.push_back(as_traced(operation));
    timeless += is_transfer_of_ranks(operation) && operation.duration == Nanos{0} && operation.bytes > Bytes{0} ? 1 : 0;
  }
  costs.least = costs.operations;
  if (timeless > 0) {
    costs.warnings.push_back(
        fmt::format("{} transfers take no time in the trace: --cluster says how long they take", timeless));
  }
  return costs;
}

TracedCosts costs_on_cluster(const TracedStep& step, const Cluster& cluster, const Profile& profile) {
  return ClusterCosts(step, cluster, profile).costs();
}

}  // namespace weft
