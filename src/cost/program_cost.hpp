// Times of the programs that a step graph's transfers name, and the choice of the fastest. Every question is answered
// once, by simulation (cost/program_time.hpp). An answer depends on the cluster and the members, not on the graph, so
// the hundreds of graphs of a search share them.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cluster/cluster.hpp"
#include "cost/made_program.hpp"
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
  // The profile says what a rank adds to its messages, and how long the transport library's own collectives take, if it
  // has any.
  ProgramCosts(const Cluster& cluster, const Profile& profile);

  // Returns whether its answers hold for this cluster and profile.
  bool answers_for(const Cluster& cluster, const Profile& profile) const;
  // `members` are the ranks of the transfer (ClassGroup::ranks). Returns nothing where no program is simulated: for
  // messages between two ranks (a closed form), groups of more than kListedMembers, `native` that was not measured, and
  // transfers that would take years. May be called from several threads.
  std::optional<ProgramCost> cost(const Operation& operation, const std::vector<Rank>& members);
  // Sets the fastest algorithm, part count and inner groups of the transfer. Returns false and changes nothing where
  // none is simulated (fastest_program() in cost/choose_program.hpp). `native` is a candidate where it was measured,
  // unless `programs_only`.
  bool choose(Operation& operation, const std::vector<Rank>& members, bool programs_only);
  // Gives the transfer the user's program for it (Profile::programs). Returns false where there is none.
  bool choose_given(Operation& operation, const std::vector<Rank>& members) const;
  // Gives the transfer the fastest program that is made for the cluster's topology. Returns false where it has none.
  bool choose_made(Operation& operation, const std::vector<Rank>& members);
  // All candidates for the transfer, fastest first, with their times; for people.
  std::vector<std::pair<std::string, Nanos>> candidates(const Operation& operation, const std::vector<Rank>& members);
  // How many questions were answered by simulation so far.
  std::size_t simulated_questions() const;

 private:
  struct Key {
    Collective collective = Collective::all_reduce;
    Algorithm algorithm = Algorithm::ring;
    std::int32_t parts = 0, inner = 0;  // 0: the question is which is best
    std::int64_t elements = 0, element_size = 0;
    std::vector<Rank> members;
    std::shared_ptr<const CarriedProgram> carried = {};
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Choice {
    Algorithm algorithm = Algorithm::ring;
    std::int32_t parts = 1, inner = 0;
    ProgramRef program = {};
    Nanos time;
  };
  // The first caller computes an answer without delaying callers with other questions; callers with the same question
  // wait.
  template <typename Answer>
  class Answers {
   public:
    template <typename Find>
    const Answer& get(const Key& key, const Find& find);
    std::size_t size() const;

   private:
    struct Entry {
      std::once_flag once;
      Answer answer;
    };
    mutable std::mutex mutex_;
    std::map<Key, std::unique_ptr<Entry>> entries_;
  };
  std::optional<Key> question(const Operation& operation, const std::vector<Rank>& members) const;
  std::optional<Nanos> library_time(const Key& key) const;
  ProgramCost of_library(const Key& key, Nanos time) const;
  static ProgramQuestion question_of(const Key& key);
  ProgramCost simulated(const Key& key) const;
  Choice fastest(const Key& key);
  std::optional<MadeProgram> made(const Key& key);

  Cluster cluster_;
  ProgramTimeOptions options_;
  LibraryProfile library_;
  std::vector<ProgramRef> given_;
  std::shared_ptr<ProgramStore> store_;
  double slowest_bytes_per_second_ = 0;  // of any link
  Answers<ProgramCost> costs_;
  Answers<Choice> choices_;
  Answers<std::optional<MadeProgram>> made_;
};

// Shared by the cost models of one cluster and profile. Null where a library makes the collectives and there are
// neither programs of the user's nor a topology to make some for, because then no program is simulated.
std::shared_ptr<ProgramCosts> shared_program_costs(const Cluster& cluster, const Profile& profile);

}  // namespace weft
