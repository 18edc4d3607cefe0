// What CostModel says of those who move the bytes of transfers (cost/movers.hpp).
#include <algorithm>

#include "cost/cost_model.hpp"
#include "graph/transfer_mover.hpp"

namespace weft {
namespace {

// Where copy engines bring the summands of a reduction (graph/userbuffers.hpp), a kernel reads all of them and writes
// the sum.
double adding_up_seconds(const NodeCollective& what, double memory_bytes_per_second) {
  if (what.collective != Collective::reduce_scatter) return 0;
  const double moved = static_cast<double>(what.bytes.value) * (1 + 1 / static_cast<double>(what.ranks));
  return moved / memory_bytes_per_second;
}

}  // namespace

// Returns nothing where members lie in several nodes, where programs or exchanges of unknown sizes carry it out, or
// where the device is none that NCCL has figures of.
std::optional<NodeCollective> CostModel::inside_node(const Operation& transfer) const {
  const Communication& c = *transfer.communication;
  const RankClass& rank_class = graph_.classes[transfer.rank_class.index()];
  if (!stays_on_nvlink(cluster_, rank_class, c) || !gpu_generation(rank_class.device.name)) return std::nullopt;
  if (c.bytes.value == 0 || is_forwarded(c) || expert_sizes_.are_data(transfer)) return std::nullopt;
  return NodeCollective{c.collective, rank_class.group(c.group).scoped(c.scope, c.levels).view.size, c.bytes};
}

std::vector<Mover> CostModel::possible_movers(const Operation& transfer) const {
  std::vector<Mover> movers{{}};
  const std::optional<NodeCollective> what = inside_node(transfer);
  if (!what) return movers;
  const GpuGeneration generation = *gpu_generation(graph_.classes[transfer.rank_class.index()].device.name);
  if (const auto kernel = symmetric_kernel(*what, generation)) {
    movers.push_back({.thread_blocks = kernel->thread_blocks});
  }
  if (has_copy_engine_form(what->collective)) movers.push_back({.copy_engine = true});
  return movers;
}

// No mover is faster than the library's kernels were measured to be at this size: the links' work stays.
void CostModel::let_move(const Operation& operation, TransferCost& cost) const {
  const std::optional<NodeCollective> what = inside_node(operation);
  if (!what || cost.moving_seconds() == 0) return;
  const GpuGeneration generation = *gpu_generation(graph_.classes[operation.rank_class.index()].device.name);
  const Mover& mover = operation.communication->mover;
  if (mover.copy_engine && mover.thread_blocks > 0) {
    const Device& device = graph_.classes[operation.rank_class.index()].device;
    const double memory = device.memory_bandwidth.bytes_per_second * reached(operation.rank_class).memory_efficiency;
    cost.latency += nanos_from_seconds(adding_up_seconds(*what, memory));
    return;
  }
  std::optional<MoverTime> time;
  if (mover.copy_engine) {
    if (has_copy_engine_form(what->collective)) time = copy_engine_time(*what, generation);
  } else {
    time = time_with_blocks(*what, generation, mover.thread_blocks);
  }
  if (!time) return;
  cost.latency = std::max(cost.latency, nanos_from_seconds(time->latency_s));
  cost.own_seconds = std::max(cost.moving_seconds(), time->moving_s);
}

double CostModel::copy_slowdown(ClassId rank_class) const {
  const double library = interference(rank_class).compute;
  return std::min(library, reached(rank_class).copy_slowdown.value_or(kCopySlowdown));
}

CostModel::Interference CostModel::interference(const Operation& transfer) const {
  Interference own = interference(transfer.rank_class);
  const Mover& mover = transfer.communication->mover;
  if (mover.is_library() || !inside_node(transfer)) return own;
  const double copies = copy_slowdown(transfer.rank_class);
  if (mover.copy_engine) {
    own.transfer = std::min(own.transfer, copies);
    own.waiting = 0;
  }
  const auto generation = gpu_generation(graph_.classes[transfer.rank_class.index()].device.name);
  own.compute = slowdown_with_blocks(own.compute, copies, mover.thread_blocks, library_blocks(*generation));
  return own;
}

CostModel::Interference CostModel::least_interference(ClassId rank_class, ResourceId resource) const {
  const Interference library = interference(rank_class);
  if (profile_.movers == MoverWish::library) return library;
  const Execution& execution = cluster_.spec().execution;
  if (execution.collectives != CollectiveMaker::library || execution.links != LinkTiming::nominal) return library;
  if (!is_nvlink(cluster_, graph_.links[resource.index() / 2].link.level)) return library;
  if (!gpu_generation(graph_.classes[rank_class.index()].device.name)) return library;
  const double copies = copy_slowdown(rank_class);
  return {.compute = copies, .transfer = std::min(library.transfer, copies)};
}

}  // namespace weft
