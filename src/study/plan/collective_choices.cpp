#include "study/plan/collective_choices.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "cost/cost_model.hpp"
#include "graph/transfer_program.hpp"

namespace weft {
namespace {

// A library's ring and tree, as closed forms price them, and the program made for the topology.
std::vector<std::pair<std::string, Nanos>> beside_library(const Operation& op, const CostModel& cost,
                                                          ProgramCosts& programs, const std::vector<Rank>& members) {
  std::vector<std::pair<std::string, Nanos>> found;
  Operation other = op;
  other.communication->program = {};
  other.communication->algorithm = Algorithm::ring;
  found.emplace_back("library, ring", cost.alone(other));
  if (op.communication->collective == Collective::all_reduce && !cost.library_has_rings_alone()) {
    other.communication->algorithm = Algorithm::tree;
    found.emplace_back("library, tree", cost.alone(other));
  }
  if (programs.choose_made(other, members)) {
    found.emplace_back(program_in_words(*other.communication), cost.alone(other));
  }
  std::ranges::stable_sort(found, {}, &std::pair<std::string, Nanos>::second);
  return found;
}

}  // namespace

bool has_program_choice(const Inputs& inputs) {
  return inputs.cluster.topology || !inputs.programs.empty();
}

std::vector<CollectiveChoice> collective_choices(const PlanStudy& study, std::size_t policy, const Profile& known) {
  const Profile profile = with_programs(known, study.inputs);
  const Cluster cluster(study.inputs.cluster);
  const StepGraph& graph = study.policies[policy].plan().graph;
  auto programs = study.policies[policy].programs;
  if (!programs || !programs->answers_for(cluster, profile))
    programs = std::make_shared<ProgramCosts>(cluster, profile);
  const CostModel cost(graph, cluster, profile, programs);
  const bool library = cluster.spec().execution.collectives == CollectiveMaker::library;
  using Transfers = std::tuple<Collective, GroupKind, Scope, LevelSizes, std::int64_t>;
  std::map<std::tuple<Transfers, std::string, Nanos>, CollectiveChoice> choices;
  for (const Operation& op : graph.operations) {
    if (!op.communication || op.communication->collective == Collective::send_recv) continue;
    const Communication& c = *op.communication;
    const ClassGroup& group = graph.classes[op.rank_class.index()].group(c.group).scoped(c.scope, c.levels);
    if (group.ranks.size() < 2 || c.bytes.value == 0) continue;
    const std::string chosen = program_in_words(c);
    const Nanos time = cost.alone(op);
    CollectiveChoice& choice = choices[{{c.collective, c.group, c.scope, c.levels, c.bytes.value}, chosen, time}];
    const std::string& class_name = graph.classes[op.rank_class.index()].name;
    if (std::ranges::find(choice.classes, class_name) == choice.classes.end()) choice.classes.push_back(class_name);
    if (choice.transfers++ > 0) continue;
    choice.collective = name_of(c.collective);
    choice.group = name_of(c.group);
    choice.members = std::ssize(group.ranks);
    choice.bytes = c.bytes;
    choice.chosen = library && c.algorithm != Algorithm::carried ? "library, " + chosen : chosen;
    choice.time = time;
    choice.spans_classes = group.spans_classes();
    choice.wanted = c.program && std::ranges::find(study.inputs.programs, c.program) != study.inputs.programs.end();
    choice.candidates =
        library ? beside_library(op, cost, *programs, group.ranks) : programs->candidates(op, group.ranks);
  }
  std::map<Transfers, int> kinds;  // how many lines each gets
  for (const auto& [key, choice] : choices) ++kinds[std::get<0>(key)];
  std::vector<CollectiveChoice> listed;
  for (auto& [key, choice] : choices) {
    if (kinds[std::get<0>(key)] == 1) choice.classes.clear();
    listed.push_back(std::move(choice));
  }
  std::ranges::stable_sort(listed, std::greater<>(), &CollectiveChoice::bytes);
  return listed;
}

}  // namespace weft
