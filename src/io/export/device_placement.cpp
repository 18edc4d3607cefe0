// Where the ranks of a plan are: files of launchers. A node's ranks are numbered as the launcher numbers them: in
// ascending order, so that the first of them has local rank 0.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "base/error.hpp"
#include "io/export/export_writers.hpp"

namespace weft {
namespace {

struct Seat {
  std::int64_t node, device;  // the device is counted in its node
};

std::vector<Seat> seats_of(const Plan& plan) {
  const Cluster cluster(plan.cluster);
  std::vector<Seat> seats;
  for (std::int64_t rank = 0; rank < cluster.device_count(); ++rank) {
    const auto id = make_id<Rank>(rank);
    seats.push_back({cluster.node_of(id).value, cluster.device_of(id) % plan.cluster.devices_per_node});
  }
  return seats;
}

}  // namespace

void write_rankfile(ExportSheet& sheet) {
  sheet.carries({Feature::device_map});
  const std::vector<Seat> seats = seats_of(sheet.plan());
  for (std::size_t rank = 0; rank < seats.size(); ++rank) {
    sheet.line(fmt::format("rank {}=+n{} slot={}", rank, seats[rank].node, seats[rank].device));
  }
  sheet.warn(
      "+n0, +n1, ... are the nodes of the allocation in its order; slots are processors, so a job on GPUs also "
      "needs --to cuda-visible-devices");
}

void write_hostfile(ExportSheet& sheet) {
  std::vector<std::int64_t> nodes;
  std::map<std::int64_t, std::int64_t> slots;
  bool in_order = true;  // inside nodes
  for (const Seat& seat : seats_of(sheet.plan())) {
    if (nodes.empty() || nodes.back() != seat.node) {
      if (slots.contains(seat.node)) {
        fail("the ranks of node {} do not follow each other, which a hostfile cannot say; export --to rankfile",
             seat.node);
      }
      nodes.push_back(seat.node);
    }
    in_order = in_order && seat.device == slots[seat.node];
    ++slots[seat.node];
  }
  for (const std::int64_t node : nodes) sheet.line(fmt::format("node{} slots={}", node, slots[node]));
  if (in_order) {
    sheet.carries({Feature::device_map});
  } else {
    sheet.leaves_out(Feature::device_map,
                     "a hostfile has nodes alone; --to cuda-visible-devices has the devices of each");
  }
  sheet.warn(
      "put the names of your hosts in the place of node0, node1, ...; the devices of a host are in --to "
      "cuda-visible-devices");
}

void write_cuda_visible_devices(ExportSheet& sheet) {
  std::map<std::int64_t, std::vector<std::int64_t>> devices;  // by node, in the order of its ranks
  for (const Seat& seat : seats_of(sheet.plan())) devices[seat.node].push_back(seat.device);
  sheet.line("# Source it on every node with NODE set to the node's number, before ranks are started.");
  sheet.line("case \"$NODE\" in");
  for (const auto& [node, of_node] : devices) {
    sheet.line(fmt::format("  {}) export CUDA_VISIBLE_DEVICES={} ;;", node, fmt::join(of_node, ",")));
  }
  sheet.line("  *) echo \"NODE='$NODE' is not a node of the plan\" >&2; return 2 ;;");
  sheet.line("esac");
  sheet.carries({Feature::device_map});
}

}  // namespace weft
