#include "cost/cost_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "cluster/topology_way.hpp"
#include "cost/framework.hpp"
#include "cost/kernel_time.hpp"
#include "cost/library_time.hpp"
#include "cost/operation_time.hpp"
#include "cost/product_cast.hpp"

namespace weft {
namespace {

// A double binary tree keeps each link a little less busy than a ring does (0.92 as in NCCL's tuning model, from
// memory: not measured here).
constexpr double kTreeBandwidth = 0.92;

// Keeps `work` ascending by resource.
void add_work(std::vector<LinkWork>& work, ResourceId resource, double seconds) {
  const auto place = std::find_if(work.begin(), work.end(), [&](const LinkWork& w) { return w.resource >= resource; });
  if (place != work.end() && place->resource == resource) {
    place->seconds += seconds;
  } else {
    work.insert(place, {resource, seconds});
  }
}

// Makes the slowest link as busy as this, and the others in proportion.
void keep_busy(TransferCost& cost, double moving_seconds) {
  const double now = cost.bandwidth_seconds();
  if (now == 0) return;
  for (LinkWork& w : cost.work) w.seconds *= moving_seconds / now;
}

// Of groups that are too large to be simulated as programs, too, whose ranks are not listed.
std::int64_t member_count(const StepGraph& graph, const Operation& transfer) {
  const Communication& c = *transfer.communication;
  return graph.classes[transfer.rank_class.index()].group(c.group).scoped(c.scope, c.levels).view.size;
}

// How many groups of that scope send side by side over the links that join the members of one: those of other places.
std::int64_t places_beside(const ClassGroup& group, const Communication& c) {
  const LevelSizes levels = c.levels == kOwnLevels ? group.level_sizes() : c.levels;
  if (c.scope == Scope::top) return levels.inner * levels.middle;
  return c.scope == Scope::outer || c.scope == Scope::middle ? levels.inner : 1;
}

// A message over the cluster's topology takes as long as its links there need where levels say less.
void cross_topology(const Cluster& cluster, const std::vector<Rank>& ends, const Communication& c, TransferCost& cost) {
  if (ends.size() != 2 || c.bytes.value == 0) return;
  const Way way = c.sends ? wiring_way(cluster, ends[0], ends[1]) : wiring_way(cluster, ends[1], ends[0]);
  double seconds_per_byte = 0;
  for (std::size_t i = 0; i < way.links.size(); ++i) {
    const TopologyLink& link = (*cluster.spec().topology).links[way.links[i]];
    seconds_per_byte = std::max(seconds_per_byte, way.shares[i] / link.bandwidth.bytes_per_second);
  }
  cost.latency = std::max(cost.latency, way.latency);
  cost.own_seconds = std::max(cost.own_seconds, static_cast<double>(c.bytes.value) * seconds_per_byte);
}

}  // namespace

double TransferCost::bandwidth_seconds() const {
  double slowest = 0;
  for (const LinkWork& w : work) slowest = std::max(slowest, w.seconds);
  return slowest;
}

double TransferCost::moving_seconds() const {
  return std::max(own_seconds, bandwidth_seconds());
}

Nanos TransferCost::alone() const {
  return latency + nanos_from_seconds(moving_seconds());
}

CostModel::CostModel(const StepGraph& graph, const Cluster& cluster, Profile profile,
                     std::shared_ptr<ProgramCosts> programs)
    : graph_(graph), cluster_(cluster), profile_(std::move(profile)), expert_sizes_(graph, profile_.expert_load) {
  const Device& device = cluster.spec().device;
  for (const LinkClass& link : graph.links) {
    const LinkProfile& reached =
        profile_.link(device.name, cluster.level_name(link.link.level), cluster.spec().execution.links);
    link_seconds_per_byte_.push_back(1.0 / (link.link.bandwidth.bytes_per_second * reached.best()));
    burst_seconds_.push_back(static_cast<double>(link.link.burst.value) * link_seconds_per_byte_.back());
    half_duplex_.push_back(link.link.duplex == Duplex::half);
  }
  if (profile_.framework != nullptr) share_optimizer_loop();
  own_programs_ = cluster.spec().execution.collectives == CollectiveMaker::programs;
  const bool carries = std::ranges::any_of(graph.operations, [](const Operation& op) {
    return op.communication && op.communication->algorithm == Algorithm::carried;
  });
  if (programs && programs->answers_for(cluster, profile_)) {
    programs_ = std::move(programs);
  } else {
    programs_ = carries ? std::make_shared<ProgramCosts>(cluster, profile_) : shared_program_costs(cluster, profile_);
  }
}

const std::vector<Rank>& CostModel::members_of(const Operation& transfer) const {
  const Communication& c = *transfer.communication;
  return graph_.classes[transfer.rank_class.index()].group(c.group).scoped(c.scope, c.levels).ranks;
}

const DeviceProfile& CostModel::reached(ClassId rank_class) const {
  return profile_.device(graph_.classes[rank_class.index()].device.name);
}

Nanos CostModel::compute(const Operation& operation) const {
  WEFT_CHECK(!operation.is_transfer());
  const Device& device = graph_.classes[operation.rank_class.index()].device;
  double time = operation_seconds(operation.key, device, reached(operation.rank_class));
  if (operation.key.product != ProductFormat::stored && !is_measured(operation)) time += cast_seconds(operation);
  if (profile_.framework != nullptr && !is_measured(operation)) time += framework_seconds(operation);
  if (graph_.tokens.routed.experts > 0) time *= expert_sizes_.factor(operation, is_measured(operation));
  return nanos_from_seconds(time) + reached(operation.rank_class).operation_overhead;
}

Nanos CostModel::least_compute(const Operation& operation) const {
  if (operation.role != Role::update) return compute(operation);
  const DeviceProfile& device = reached(operation.rank_class);
  if (!is_measured(operation))
    return std::max(Nanos{0}, compute(operation) - device.kernel_gap - device.operation_overhead);
  return nanos_from_seconds(
      least_fused_seconds(operation.key, graph_.classes[operation.rank_class.index()].device, device));
}

Nanos CostModel::launch(const Operation& operation) const {
  const DeviceProfile& device = reached(operation.rank_class);
  if (operation.is_transfer()) {
    const Nanos checked = profile_.framework ? profile_.framework->check_per_member : Nanos{0};
    return device.transfer_launch + checked * member_count(graph_, operation);
  }
  if (is_measured(operation)) return Nanos{0};
  const std::int64_t own = kernel_count(operation.key);
  const Framework* framework = profile_.framework.get();
  const std::int64_t launched = framework ? framework_work(*framework, graph_, operation, own).launched : own;
  return device.launch * (launched + cast_work(operation).kernels);
}

// Clipping, clearing and what comes between steps takes its time beside the updates, which are once a step too.
void CostModel::share_optimizer_loop() {
  const OptimizerLoop& loop = profile_.framework->optimizer;
  std::vector<double> updates(graph_.classes.size(), 0), gradients(graph_.classes.size(), 0);
  for (const Operation& op : graph_.operations) updates[op.rank_class.index()] += op.role == Role::update ? 1 : 0;
  for (const Value& value : graph_.values) {
    if (value.kind == ValueKind::gradient && value.accumulated) {
      gradients[value.rank_class.index()] += static_cast<double>(value.elements());
    }
  }
  for (std::size_t c = 0; c < updates.size(); ++c) {
    const Device& device = graph_.classes[c].device;
    const double rate = device.memory_bandwidth.bytes_per_second * reached(make_id<ClassId>(c)).memory_efficiency;
    const double all = seconds(loop.fixed) + loop.bytes_per_parameter * gradients[c] / rate;
    seconds_beside_update_.push_back(all / std::max(1.0, updates[c]));
  }
}

double CostModel::cast_seconds(const Operation& operation) const {
  const CastWork work = cast_work(operation);
  const DeviceProfile& device = reached(operation.rank_class);
  const double rate =
      graph_.classes[operation.rank_class.index()].device.memory_bandwidth.bytes_per_second * device.memory_efficiency;
  return work.bytes / rate + static_cast<double>(work.kernels) * seconds(device.kernel_gap);
}

double CostModel::framework_seconds(const Operation& operation) const {
  if (operation.role == Role::update) return seconds_beside_update_[operation.rank_class.index()];
  const DeviceProfile& device = reached(operation.rank_class);
  const std::int64_t own = kernel_count(operation.key);
  const FrameworkWork work = framework_work(*profile_.framework, graph_, operation, own);
  const double rate =
      graph_.classes[operation.rank_class.index()].device.memory_bandwidth.bytes_per_second * device.memory_efficiency;
  return work.bytes / rate + static_cast<double>(work.launched - own) * seconds(device.kernel_gap);
}

bool CostModel::is_measured(const Operation& operation) const {
  const Device& device = graph_.classes[operation.rank_class.index()].device;
  return nearest_measured(operation.key, device, reached(operation.rank_class)) != nullptr;
}

CostModel::Interference CostModel::interference(ClassId rank_class) const {
  const Device& device = graph_.classes[rank_class.index()].device;
  const DeviceProfile& own = reached(rank_class);
  return {own.compute_slowdown.value_or(device.compute_slowdown),
          own.transfer_slowdown.value_or(device.transfer_slowdown), own.further_slowdown.value_or(0),
          own.waiting_slowdown.value_or(0)};
}

Nanos CostModel::resync(ClassId rank_class) const {
  return reached(rank_class).resync;
}

Nanos CostModel::wake(ClassId rank_class) const {
  return reached(rank_class).wake;
}

double CostModel::inefficiency(LevelId fabric, std::int64_t members, Bytes bytes) const {
  const LinkProfile& link =
      profile_.link(cluster_.spec().device.name, cluster_.level_name(fabric), cluster_.spec().execution.links);
  return link.best() / link.at(members, bytes);
}

TransferCost CostModel::from_traffic(const RankClass& rank_class, const std::vector<FabricTraffic>& traffic, bool sends,
                                     bool receives) const {
  TransferCost cost;
  for (const FabricTraffic& t : traffic) {
    for (const LinkId link : cluster_.path(t.fabric, rank_class.representative)) {
      const LinkUse& use = rank_class.links[cluster_.links()[link.index()].level.index()];
      const std::size_t index = use.link_class;
      const double busy = t.bytes * static_cast<double>(use.ranks_on_link) * link_seconds_per_byte_[index];
      const std::int32_t out = 2 * use.link_class;
      if (sends) add_work(cost.work, ResourceId{out}, busy);
      if (receives) add_work(cost.work, ResourceId{half_duplex_[index] ? out : out + 1}, busy);
    }
  }
  return cost;
}

TransferCost CostModel::transfer(const Operation& operation) const {
  const std::optional<ProgramCost> program =
      runs_program(operation) ? programs_->cost(operation, members_of(operation)) : std::nullopt;
  TransferCost cost = program ? from_program(operation, *program) : closed_form(operation);
  if (!own_programs_ && !program) fit_to_library(operation, cost);
  if (own_programs_ && cluster_.spec().topology && operation.communication->collective == Collective::send_recv) {
    cross_topology(cluster_, members_of(operation), *operation.communication, cost);
  }
  if (expert_sizes_.are_data(operation)) make_uneven(operation, cost);
  if (!operation.communication->mover.is_library()) let_move(operation, cost);
  const bool moves = cost.latency > Nanos{0} || !cost.work.empty();
  if (profile_.framework != nullptr && moves && !operation.per_micro_batch) {
    const Device& device = graph_.classes[operation.rank_class.index()].device;
    const double rate = device.memory_bandwidth.bytes_per_second * reached(operation.rank_class).memory_efficiency;
    cost.latency +=
        nanos_from_seconds(once_a_step_seconds(*profile_.framework, operation, member_count(graph_, operation), rate));
  }
  if (moves) cost.latency += reached(operation.rank_class).handoff;
  return cost;
}

// Its bytes move for all of the measured time but what the smallest size took, and keep the links as busy as one of
// several collectives does that run at once.
void CostModel::fit_to_library(const Operation& operation, TransferCost& cost) const {
  const Communication& c = *operation.communication;
  const double bytes_alone = cost.bandwidth_seconds();
  if (bytes_alone == 0) return;
  const std::int64_t members = std::ssize(members_of(operation));
  const std::optional<Nanos> time = profile_.library.time(c.collective, members, c.bytes);
  if (!time) return;
  cost.latency = std::min(*time, profile_.library.least_time(c.collective, members));
  cost.own_seconds = seconds(*time - cost.latency);
  for (LinkWork& w : cost.work) w.seconds *= cost.own_seconds / profile_.library.at_once / bytes_alone;
}

Nanos CostModel::added_by_pause(const Operation& transfer) const {
  if (runs_program(transfer)) return Nanos{0};
  const Communication& c = *transfer.communication;
  return profile_.library.added_by_pause(c.collective, std::ssize(members_of(transfer)), c.bytes);
}

void CostModel::make_uneven(const Operation& operation, TransferCost& cost) const {
  const double factor = expert_sizes_.factor(operation, false);
  for (LinkWork& w : cost.work) w.seconds *= factor;
  cost.own_seconds *= factor;
  // In levels every leg tells them, because who passes rows on did not send them before.
  const bool tells_sizes = (operation.role == Role::expert_dispatch && operation.phase != Phase::input_grad) ||
                           operation.rule == Substitution::all_to_all_in_levels ||
                           operation.rule == Substitution::all_to_all_in_three_levels;
  if (tells_sizes) cost.latency += cost.latency;
}

// The bytes keep the links busy; the rest of the program's time, in which it waits for messages, counts as latency. So
// the transfer takes its simulated time alone, and longer where others use its links.
//
// Bounds (bound/) use the fewer of the least bytes on each link and the ring's. A program may use an inner link even
// less (direct messages cross it only for peers in its domain); it is then charged the least, so that no step comes out
// below its bound.
TransferCost CostModel::from_program(const Operation& operation, const ProgramCost& program) const {
  TransferCost cost =
      from_traffic(graph_.classes[operation.rank_class.index()], program.traffic, /*sends=*/true, /*receives=*/true);
  cost.latency = std::max(Nanos{0}, program.time - nanos_from_seconds(program.busy_seconds));
  if (operation.communication->algorithm == Algorithm::ring) return cost;
  for (const LinkWork& least : least_of_sizes(operation).work) {
    const auto own = std::find_if(cost.work.begin(), cost.work.end(),
                                  [&](const LinkWork& w) { return w.resource == least.resource; });
    if (own == cost.work.end()) {
      add_work(cost.work, least.resource, least.seconds);
    } else {
      own->seconds = std::max(own->seconds, least.seconds);
    }
  }
  return cost;
}

bool CostModel::library_has_rings_alone() const {
  const Execution& execution = cluster_.spec().execution;
  return execution.collectives == CollectiveMaker::library && execution.links == LinkTiming::paced;
}

// Where a library makes the collectives, it makes all but the programs that the plan carries.
bool CostModel::runs_program(const Operation& transfer) const {
  return programs_ && (own_programs_ || transfer.communication->algorithm == Algorithm::carried);
}

bool CostModel::choose_program(Operation& operation) const {
  Communication& c = *operation.communication;
  if (c.algorithm == Algorithm::carried) {  // of an earlier choice
    c.algorithm = Algorithm::ring;
    c.program = {};
  }
  if (!programs_) return false;
  const std::vector<Rank>& members = members_of(operation);
  const bool are_data = expert_sizes_.are_data(operation);  // no program has such sizes
  if (!are_data && programs_->choose_given(operation, members)) return true;
  if (own_programs_) return programs_->choose(operation, members, /*programs_only=*/are_data);
  return !are_data && choose_before_library(operation);
}

bool CostModel::choose_before_library(Operation& operation) const {
  Operation made = operation, library = operation;
  if (!programs_->choose_made(made, members_of(operation))) return false;
  const Nanos time = transfer(made).alone();
  library.communication->algorithm = Algorithm::ring;
  if (transfer(library).alone() <= time) return false;
  library.communication->algorithm = Algorithm::tree;
  const bool has_trees = library.communication->collective == Collective::all_reduce && !library_has_rings_alone();
  if (has_trees && transfer(library).alone() <= time) return false;
  operation = std::move(made);
  return true;
}

TransferCost CostModel::closed_form(const Operation& operation) const {
  const Communication& c = *operation.communication;
  const RankClass& rank_class = graph_.classes[operation.rank_class.index()];
  const GroupView& view = rank_class.group(c.group).scoped(c.scope, c.levels).view;
  const CollectiveTraffic traffic = is_forwarded(c)
                                        ? forwarded_traffic(cluster_, c.bytes, view, distinct_rows(view))
                                        : collective_traffic(cluster_, c.collective, c.algorithm, c.bytes, view);
  if (traffic.fabrics.empty() || c.bytes.value == 0) return {};
  const bool message = c.collective == Collective::send_recv;
  if (c.collective == Collective::all_to_all) return exchange(rank_class, traffic, rank_class.group(c.group), c);
  TransferCost cost = from_traffic(rank_class, traffic.fabrics, !message || c.sends, !message || !c.sends);
  if (c.algorithm == Algorithm::tree) {
    for (LinkWork& w : cost.work) w.seconds /= kTreeBandwidth;
  }
  cost.latency = latency_of(rank_class, traffic);
  const bool crosses = traffic.fabrics.size() > 1;
  const double outermost = from_traffic(rank_class, {traffic.fabrics.back()}, true, true).bandwidth_seconds();
  const LibraryCall call{c, view, traffic, cost.latency, cost.bandwidth_seconds(), outermost};
  if (const auto known = library_time(cluster_, profile_, call)) {
    cost.latency = known->latency;
    keep_busy(cost, std::max(known->moving_seconds, least_of_sizes(operation).bandwidth_seconds()));
  } else if (!crosses) {
    // Measured efficiencies include the latency, so the bytes take what the latency leaves.
    const double best = cost.bandwidth_seconds();
    const double factor = inefficiency(traffic.fabrics.front().fabric, view.size, c.bytes);
    keep_busy(cost, std::max(best, best * factor - seconds(cost.latency)));
  }
  if (crosses && profile_.framework != nullptr && c.group == GroupKind::tp) {
    cost.latency += profile_.framework->tensor_parallel_message * traffic.fabrics.back().steps;
  }
  return cost;
}

Nanos CostModel::latency_of(const RankClass& rank_class, const CollectiveTraffic& traffic) const {
  Nanos latency{0};
  for (const FabricTraffic& fabric : traffic.fabrics) {
    Nanos hop{0};
    for (const LinkId link : cluster_.path(fabric.fabric, rank_class.representative)) {
      hop += cluster_.links()[link.index()].latency;
    }
    latency += hop * fabric.steps;
  }
  return latency;
}

// Each fabric is as fast as all-to-alls of that size were measured on it, fixed time included: the bytes take what the
// latency leaves, and are never faster than the links at their best.
//
// A leg between equal places sends messages that are as many times as large as those of the whole group's exchange as
// places lie beside it (the ranks of a node; in a top group those below a switch), over the same links and as many of
// them at once. So it reaches what all ranks that its links join do with a buffer that is so much larger. What was
// measured for 32, 64 and 128 ranks allows that: at messages of 512 KiB all three reach 0.66 to 0.67, at 1 MiB 0.68 to
// 0.82, at 4 MiB 0.81 to 0.90 (default_profile.cpp).
TransferCost CostModel::exchange(const RankClass& rank_class, const CollectiveTraffic& traffic, const ClassGroup& group,
                                 const Communication& c) const {
  const std::int64_t beside = places_beside(group, c);
  const std::int64_t members = beside * group.scoped(c.scope, c.levels).view.size;
  const Bytes bytes{beside * c.bytes.value};
  const TransferCost best = from_traffic(rank_class, traffic.fabrics, true, true);
  std::vector<FabricTraffic> slower = traffic.fabrics;
  for (FabricTraffic& fabric : slower) {
    const LinkProfile& link =
        profile_.link(cluster_.spec().device.name, cluster_.level_name(fabric.fabric), cluster_.spec().execution.links);
    fabric.bytes *= std::max(1.0, link.best() / link.all_to_all_at(members, bytes));
  }
  TransferCost cost = from_traffic(rank_class, slower, true, true);
  cost.latency = latency_of(rank_class, traffic);
  const double all = cost.bandwidth_seconds();
  const double moving = std::max(best.bandwidth_seconds(), all - seconds(cost.latency));
  if (all > 0) {
    for (LinkWork& w : cost.work) w.seconds *= moving / all;
  }
  return cost;
}

TransferCost CostModel::least_transfer(const Operation& operation) const {
  TransferCost least = least_of_sizes(operation);
  const double factor = expert_sizes_.factor(operation, false);
  for (LinkWork& w : least.work) w.seconds *= factor;
  return least;
}

TransferCost CostModel::least_of_sizes(const Operation& operation) const {
  const Communication& c = *operation.communication;
  const RankClass& rank_class = graph_.classes[operation.rank_class.index()];
  const GroupView& view = rank_class.group(c.group).scoped(c.scope, c.levels).view;
  const bool message = c.collective == Collective::send_recv;
  const std::vector<FabricTraffic> traffic =
      is_forwarded(c) ? minimum_forwarded_traffic(cluster_, c.bytes, view, distinct_rows(view))
                      : minimum_traffic(cluster_, c.collective, c.bytes, view);
  return from_traffic(rank_class, traffic, !message || c.sends, !message || !c.sends);
}

bool CostModel::is_forwarded(const Communication& communication) const {
  return graph_.tokens.routed.forwarded && communication.collective == Collective::all_to_all &&
         communication.group == GroupKind::ep;
}

double CostModel::distinct_rows(const GroupView& view) const {
  const std::int64_t inner = forwarding_domain(cluster_, view);
  return inner == 0 ? 1.0 : distinct_share(graph_.tokens.routed, view.size / inner);
}

Nanos CostModel::alone(const Operation& operation) const {
  return operation.is_transfer() ? transfer(operation).alone() : compute(operation);
}

std::string CostModel::resource_name(ResourceId resource) const {
  const std::size_t link = resource.index() / 2;
  const std::string& level = cluster_.level_name(graph_.links[link].link.level);
  return half_duplex_[link] ? level : fmt::format("{} {}", level, resource.value % 2 == 0 ? "out" : "in");
}

TransferCost joined(const TransferCost& a, const TransferCost& b) {
  TransferCost cost = a;
  cost.latency = std::max(a.latency, b.latency);
  cost.own_seconds = std::max(a.own_seconds, b.own_seconds);
  for (const LinkWork& w : b.work) add_work(cost.work, w.resource, w.seconds);
  return cost;
}

}  // namespace weft
