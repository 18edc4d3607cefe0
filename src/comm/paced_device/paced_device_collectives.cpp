#include "comm/paced_device/paced_device_collectives.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "base/error.hpp"
#include "comm/nccl/nccl_collectives.hpp"
#include "comm/paced_device/modelled_time.hpp"

namespace weft {
namespace {

// What a thread block keeps up with, as bytes per second on the link, with room to spare: an estimate from the loads
// that it has under way (32 KiB and more) and the memory's latency (about 0.8 us).
constexpr double kLinkRateOfThreadBlock = 15e9;

// Those of all queues wait at the same time, and compute must find room.
int most_thread_blocks(const Cluster& cluster) {
  return std::max(1, cluster.spec().device.compute_units / 8);
}

bool is_message(const NcclCall& call) {
  return call.kind == NcclCall::Kind::send || call.kind == NcclCall::Kind::receive;
}

class PacedDeviceLinks final : public NcclLinks {
 public:
  PacedDeviceLinks(const PacedDeviceOptions& options, std::unique_ptr<PacedDevice> device)
      : options_(options), device_(std::move(device)), blocks_(thread_blocks_for(*options.cluster)) {}

  std::string version() override { return "none: copies on one GPU"; }
  std::string make_identity() override { return options_.world->make_identity(); }
  void join(const std::string& identity) override {
    fabric_ = options_.world->join(identity, *device_, options_.ranks);
  }

  std::int64_t split(int color, int position, int thread_blocks, const std::string& words) override {
    const int number = splits_++;
    if (color < 0) return -1;
    const int blocks = thread_blocks > 0 ? std::min(thread_blocks, most_thread_blocks(*options_.cluster)) : blocks_;
    groups_.push_back({fabric_->group(number, color, words, *device_), position, blocks});
    return std::ssize(groups_) - 1;
  }
  void connect_pairs(std::int64_t /*communicator*/, int /*members*/) override {}

  std::byte* allocate(std::int64_t bytes) override { return device_->allocate(bytes); }
  void copy(std::span<const DeviceCopy> copies, void* stream) override { device_->copy(copies, stream); }
  void reduce(const DeviceReduction& how, std::span<const DeviceSum> sums, void* stream) override {
    device_->reduce(how, sums, stream);
  }

  void run(std::int64_t communicator, const PreparedCall& call, std::span<const NcclCall> calls,
           void* stream) override {
    if (fabric_->is_aborted()) throw RunFailed(fabric_->why_aborted());
    if (std::accumulate(call.sizes.begin(), call.sizes.end(), std::int64_t{0}) == 0) return;  // on all members alike
    if (call.program != nullptr) fail("{}: programs of our own are not paced on a GPU", call.label);
    if (call.type == ElementType::fp16) fail("{}: paced collectives have no elements of fp16", call.label);
    Member& member = groups_[communicator];
    std::vector<PacedLaunch> launches = launches_of(member, call, calls);
    set_pace(call, launches.back());
    for (PacedLaunch& launch : launches) {
      launch.arrived = member.arrived;
      member.arrived += launch.arrivals();
      device_->launch(launch, stream);
    }
  }

  std::int64_t least_bytes_of_a_call() const override { return 0; }  // a kernel takes them all
  bool needs_rehearsal() const override { return true; }
  // A launch says how many have come to the meetings before it, so none can be repeated.
  bool can_be_recorded() const override { return false; }
  std::string failure() override { return fabric_->late_group(); }
  void abort(const std::string& why) override {
    if (fabric_ != nullptr) fabric_->abort(why);
  }

 private:
  struct Member {
    PacedFabric::Group group;
    int position = 0;
    int blocks = 1;             // thread blocks of every member
    std::uint64_t arrived = 0;  // of the group, by all launches so far
  };

  PacedLaunch launch_for(const Member& member, const PreparedCall& call) const {
    PacedLaunch launch;
    launch.type = call.type;
    launch.op = call.op;
    launch.members = static_cast<std::int16_t>(call.members.size());
    launch.self = static_cast<std::int16_t>(member.position);
    launch.blocks = static_cast<std::int16_t>(member.blocks);
    launch.has_second_phase = call.spec.kind == Collective::all_reduce;
    launch.group_number = member.group.number;
    launch.longest_wait = std::chrono::nanoseconds(options_.timeout).count();
    launch.group = reinterpret_cast<PacedGroupMemory*>(member.group.memory.get());
    launch.signals = &fabric_->signals();
    return launch;
  }

  // As many launches on every member. Messages from one member to another are numbered: a launch has those with the
  // same numbers of all pairs.
  std::vector<PacedLaunch> launches_of(const Member& member, const PreparedCall& call,
                                       std::span<const NcclCall> calls) const {
    const int members = static_cast<int>(call.members.size()), in_one = kMaxPacedCalls / (2 * members);
    std::vector<PacedLaunch> launches(1, launch_for(member, call));
    std::map<std::pair<NcclCall::Kind, int>, int> messages;
    for (const NcclCall& each : calls) {
      int entry = launches.front().call_count, launch = 0;
      if (is_message(each)) {
        const int number = messages[{each.kind, each.peer}]++;
        launch = number / in_one;
        entry = (each.kind == NcclCall::Kind::send ? each.peer : member.position) * in_one + number % in_one;
      }
      if (launch == std::ssize(launches)) launches.push_back(launch_for(member, call));
      PacedLaunch& to = launches[static_cast<std::size_t>(launch)];
      WEFT_CHECK(to.call_count < kMaxPacedCalls);
      to.calls[to.call_count++] = {.kind = each.kind,
                                   .peer = static_cast<std::int16_t>(each.peer),
                                   .entry = static_cast<std::int16_t>(entry),
                                   .src = each.src,
                                   .dst = each.dst,
                                   .elements = each.elements};
    }
    return launches;
  }

  void set_pace(const PreparedCall& call, PacedLaunch& launch) {
    const auto [known, is_new] = times_.try_emplace(&call);
    if (is_new) known->second = modelled_time(*options_.cluster, call);
    launch.is_paced = true;
    Pace& pace = launch.pace;
    pace.latency = known->second.latency.value;
    pace.moving = known->second.moving.value;
    pace.collectives = fabric_->collectives_by_link();
    for (std::size_t i = 0; i < call.members.size(); ++i) {
      const bool is_of_message = call.spec.kind == Collective::send_recv;
      const bool sends = !is_of_message || static_cast<std::int64_t>(i) == call.spec.root;
      const bool receives = !is_of_message || !sends;
      const std::int64_t leaving = 2 * call.members[i];
      if (sends) pace.links[pace.link_count++] = static_cast<std::int16_t>(leaving);
      if (receives) pace.links[pace.link_count++] = static_cast<std::int16_t>(leaving + 1);
    }
  }

  PacedDeviceOptions options_;
  std::unique_ptr<PacedDevice> device_;
  int blocks_;
  std::shared_ptr<PacedFabric> fabric_;
  int splits_ = 0;
  std::vector<Member> groups_;
  std::map<const PreparedCall*, ModelledTime> times_;  // prepared calls stay where they are
};

}  // namespace

int thread_blocks_for(const Cluster& cluster) {
  double rate = 0;
  for (const Link& link : cluster.links()) rate = std::max(rate, link.bandwidth.bytes_per_second);
  return static_cast<int>(
      std::clamp(std::ceil(rate / kLinkRateOfThreadBlock), 1.0, static_cast<double>(most_thread_blocks(cluster))));
}

std::unique_ptr<StreamCollectives> paced_collectives_over(
    const PacedDeviceOptions& options, Exchange exchange,
    const std::function<std::unique_ptr<PacedDevice>()>& make_device) {
  if (options.ranks > kMaxPacedRanks) fail("{} ranks on one GPU; {} are possible", options.ranks, kMaxPacedRanks);
  NcclOptions of_world;
  of_world.rank = options.rank;
  of_world.ranks = options.ranks;
  return collectives_over(of_world, std::move(exchange),
                          [&] { return std::make_unique<PacedDeviceLinks>(options, make_device()); });
}

}  // namespace weft
