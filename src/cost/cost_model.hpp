// The duration of operations: compute from key and device, transfers from traffic over links.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster.hpp"
#include "cost/expert_sizes.hpp"
#include "cost/movers.hpp"
#include "cost/profile.hpp"
#include "cost/program_cost.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// Time that a transfer alone keeps one direction of a link class busy.
struct LinkWork {
  ResourceId resource;
  double seconds = 0;
};

struct TransferCost {
  Nanos latency;                     // no bytes move yet
  std::vector<LinkWork> work;        // by resource, ascending
  double own_seconds = 0;            // that its bytes take however free the links are; 0: only links hold it up
  double bandwidth_seconds() const;  // the slowest link's work
  double moving_seconds() const;     // alone
  Nanos alone() const;
};

class CostModel {
 public:
  // `programs` may hold answers of other models for the same cluster and profile (program_cost.hpp).
  CostModel(const StepGraph& graph, const Cluster& cluster, Profile profile,
            std::shared_ptr<ProgramCosts> programs = nullptr);

  // Returns the measured time where the profile has it or one of its kind to scale from, otherwise the modelled time.
  Nanos compute(const Operation& operation) const;
  // For bounds: updates may be fused into one kernel, so their launches do not count.
  Nanos least_compute(const Operation& operation) const;
  // Returns what one member class contributes; the links of all members of a multi-class transfer add up. Where Weft's
  // own programs run, the time is that of the simulated program which the transfer names (cost/program_cost.hpp).
  TransferCost transfer(const Operation& operation) const;
  // The same with the least bytes that any algorithm moves and no latency, for bounds.
  TransferCost least_transfer(const Operation& operation) const;
  // On top of that, where compute waits for it on the spot: its links were idle before.
  Nanos added_by_pause(const Operation& transfer) const;
  const ExpertSizes& expert_sizes() const { return expert_sizes_; }
  // Returns the duration of an operation that runs alone on its rank.
  Nanos alone(const Operation& operation) const;
  // Whether collectives are those that comm/paced_device carries out, which take the time of rings.
  bool library_has_rings_alone() const;
  // Gives the transfer its fastest program. False where none is simulated.
  bool choose_program(Operation& operation) const;
  // Returns the host's time to issue the operation; zero where it was measured, because that includes the launch.
  Nanos launch(const Operation& operation) const;
  // Mutual slowdown: while a transfer is under way on a rank of the class, its compute takes (1 + compute) times as
  // long, and `further` longer for every other one; while it computes, a transfer takes (1 + transfer) times as long.
  struct Interference {
    double compute = 0, transfer = 0, further = 0, waiting = 0;
  };
  Interference interference(ClassId rank_class) const;
  // The same beside this transfer, whose mover may take less.
  Interference interference(const Operation& transfer) const;
  // The least of it while something moves over a link, whoever moves it; for bounds.
  Interference least_interference(ClassId rank_class, ResourceId resource) const;
  // Returns who may move the bytes of a transfer, the library first: others where a library carries it out inside a
  // node (cost/movers.hpp).
  std::vector<Mover> possible_movers(const Operation& transfer) const;
  // Returns the time from the end of a pipeline message to the first kernel that the receiver issues after it.
  Nanos resync(ClassId rank_class) const;
  // Returns how much longer a transfer takes where compute waits for it.
  Nanos wake(ClassId rank_class) const;

  // Resources: each link class has two directions, one where it is half duplex.
  std::size_t link_resources() const { return 2 * link_seconds_per_byte_.size(); }
  // Returns how long a link direction takes for the bytes that it lets through at once after a pause (Link::burst).
  double burst_seconds(ResourceId resource) const { return burst_seconds_[resource.index() / 2]; }
  // The level and direction: "nic out".
  std::string resource_name(ResourceId resource) const;

 private:
  TransferCost from_traffic(const RankClass& rank_class, const std::vector<FabricTraffic>& traffic, bool sends,
                            bool receives) const;
  TransferCost closed_form(const Operation& operation) const;
  // Makes of the closed form of a library's collective what was measured of it.
  void fit_to_library(const Operation& operation, TransferCost& cost) const;
  Nanos latency_of(const RankClass& rank_class, const CollectiveTraffic& traffic) const;
  TransferCost exchange(const RankClass& rank_class, const CollectiveTraffic& traffic, const ClassGroup& group,
                        const Communication& communication) const;
  TransferCost least_of_sizes(const Operation& operation) const;
  bool is_forwarded(const Communication& communication) const;
  double distinct_rows(const GroupView& view) const;
  void make_uneven(const Operation& operation, TransferCost& cost) const;
  std::optional<NodeCollective> inside_node(const Operation& transfer) const;
  void let_move(const Operation& operation, TransferCost& cost) const;
  double copy_slowdown(ClassId rank_class) const;
  bool runs_program(const Operation& transfer) const;
  bool choose_before_library(Operation& operation) const;
  TransferCost from_program(const Operation& operation, const ProgramCost& program) const;

  const StepGraph& graph_;
  const Cluster& cluster_;
  Profile profile_;
  ExpertSizes expert_sizes_;
  const std::vector<Rank>& members_of(const Operation& transfer) const;
  const DeviceProfile& reached(ClassId rank_class) const;
  bool is_measured(const Operation& operation) const;
  // Returns the time in which the operands of a product are rounded.
  double cast_seconds(const Operation& operation) const;
  // Returns what the framework adds to the time of an operation on the device.
  double framework_seconds(const Operation& operation) const;
  void share_optimizer_loop();
  // Returns how much slower than its best rate a transfer uses the links of a fabric, by its size and members.
  double inefficiency(LevelId fabric, std::int64_t members, Bytes bytes) const;

  std::vector<double> seconds_beside_update_;  // by class, what the framework does once a step, over its updates
  std::vector<double> link_seconds_per_byte_;  // by link class, at the best rate
  std::vector<double> burst_seconds_;          // by link class
  std::vector<bool> half_duplex_;
  bool own_programs_ = false;               // Weft's own programs run, unless a library is faster
  std::shared_ptr<ProgramCosts> programs_;  // where any program may run
};

// Adds up the links of several member classes; the latency is the longest.
TransferCost joined(const TransferCost& a, const TransferCost& b);

// Chooses algorithms: the fastest program of every collective where Weft's own programs run; elsewhere, and for groups
// whose programs are not simulated, ring or tree for every all_reduce, whichever the model finds faster.
void choose_algorithms(StepGraph& graph, const CostModel& cost);

}  // namespace weft
