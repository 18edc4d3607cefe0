// Times of the programs that a step graph's transfers name, and which programs are the fastest. Every question is
// answered by simulation (cost/program_time.hpp) once.
#pragma once

#include <compare>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "cluster/cluster.hpp"
#include "cost/profile.hpp"
#include "cost/program_time.hpp"
#include "graph/step_graph.hpp"

namespace weft {

struct ProgramCost {
  Nanos time;                          // of the group alone
  std::vector<FabricTraffic> traffic;  // what a member sends into each fabric, on average; `steps` is not counted
  double busy_seconds = 0;             // the slowest link, if every member sent and received that average
};

class ProgramCosts {
 public:
  // Graph and cluster must outlive it. `options`: what a rank adds to its messages. `library`: how long the transport
  // library's own collectives take, where it has any.
  ProgramCosts(const StepGraph& graph, const Cluster& cluster, const ProgramTimeOptions& options = {},
               LibraryProfile library = {});

  // Nothing where no program is simulated: messages between two ranks (one latency and the bytes, a closed form),
  // groups of more than kListedMembers, `native` that was not measured, and what would take years. May be called from
  // several threads.
  std::optional<ProgramCost> cost(const Operation& operation);
  // Gives the transfer the fastest algorithm, part count and inner groups. False, and nothing changed, where none is
  // simulated (fastest_program() in cost/choose_program.hpp). `native` is a candidate where it was measured, unless
  // `programs_only`.
  bool choose(Operation& operation, bool programs_only);

 private:
  struct Key {
    Collective collective = Collective::all_reduce;
    Algorithm algorithm = Algorithm::ring;
    std::int32_t parts = 0, inner = 0;  // 0: the question is which is best
    std::int64_t elements = 0, element_size = 0;
    std::vector<Rank> members;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Choice {
    Algorithm algorithm = Algorithm::ring;
    std::int32_t parts = 1, inner = 0;
    Nanos time;
  };
  std::optional<Key> question(const Operation& operation) const;
  std::optional<Nanos> library_time(const Key& key) const;
  ProgramCost of_library(const Key& key, Nanos time) const;
  ProgramCost simulated(const Key& key) const;

  const StepGraph& graph_;
  const Cluster& cluster_;
  ProgramTimeOptions options_;
  LibraryProfile library_;
  double slowest_bytes_per_second_ = 0;  // of any link
  std::mutex mutex_;
  std::map<Key, ProgramCost> costs_;
  std::map<Key, Choice> choices_;
};

}  // namespace weft
