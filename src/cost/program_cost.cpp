#include "cost/program_cost.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.hpp"
#include "cluster/wiring_signature.hpp"
#include "collective/verify/symbolic_run.hpp"
#include "cost/choose_program.hpp"
#include "cost/switch_time.hpp"
#include "graph/transfer_program.hpp"

namespace weft {
namespace {

// By switch that takes part, the members that talk to it.
std::vector<std::vector<std::size_t>> members_at_switches(const std::vector<LoweredRank>& program,
                                                          std::size_t members) {
  std::vector<std::vector<std::size_t>> at_switch(program.size() - members);
  for (std::size_t rank = 0; rank < members; ++rank) {
    for (const LoweredStep& step : program[rank].steps) {
      const auto peer = static_cast<std::size_t>(step.peer);
      if (step.peer < 0 || peer < members) continue;
      std::vector<std::size_t>& known = at_switch[peer - members];
      if (known.empty() || known.back() != rank) known.push_back(rank);
    }
  }
  return at_switch;
}

// A switch is part of the fabric that joins a member with all others that talk to the switch.
LevelId fabric_of_switch(const Cluster& cluster, const std::vector<Rank>& members, std::size_t rank,
                         const std::vector<std::size_t>& at_switch) {
  LevelId outermost = cluster.fabrics().front();
  const auto place = [&](LevelId fabric) {
    return std::ranges::find(cluster.fabrics(), fabric) - cluster.fabrics().begin();
  };
  for (const std::size_t other : at_switch) {
    if (other == rank) continue;
    const LevelId fabric = cluster.common_fabric(members[rank], members[other]);
    if (place(fabric) > place(outermost)) outermost = fabric;
  }
  return outermost;
}

std::vector<FabricTraffic> average_traffic(const std::vector<LoweredRank>& program, const Cluster& cluster,
                                           const std::vector<Rank>& members) {
  std::map<LevelId, double> sent;
  const std::vector<std::vector<std::size_t>> at_switch = members_at_switches(program, members.size());
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    for (const LoweredStep& step : program[rank].steps) {
      if (step.kind != InstructionKind::send || step.bytes == 0) continue;
      const auto peer = static_cast<std::size_t>(step.peer);
      const LevelId fabric = peer < members.size()
                                 ? cluster.common_fabric(members[rank], members[peer])
                                 : fabric_of_switch(cluster, members, rank, at_switch[peer - members.size()]);
      sent[fabric] += static_cast<double>(step.bytes);
    }
  }
  std::vector<FabricTraffic> traffic;
  for (const LevelId fabric : cluster.fabrics()) {
    if (const auto found = sent.find(fabric); found != sent.end()) {
      traffic.push_back({.fabric = fabric, .bytes = found->second / static_cast<double>(members.size())});
    }
  }
  return traffic;
}

double busy_seconds(const std::vector<FabricTraffic>& traffic, const Cluster& cluster,
                    const std::vector<Rank>& members) {
  std::map<LinkId, double> bytes;
  for (const Rank member : members) {
    for (const FabricTraffic& t : traffic) {
      for (const LinkId link : cluster.path(t.fabric, member)) bytes[link] += t.bytes;
    }
  }
  double slowest = 0;
  for (const auto& [id, load] : bytes) {
    const Link& link = cluster.links()[id.index()];
    const double directions = link.duplex == Duplex::half ? 2 : 1;  // both on one
    slowest = std::max(slowest, directions * load / link.bandwidth.bytes_per_second);
  }
  return slowest;
}

// The time of a group's program while the groups that share links of the topology with it carry out the same program,
// as they do as a rule: tensor-parallel groups during a layer, reductions at the end of a step. Levels have that in the
// ranks on a link. It is at most what the group would take if every other one had its turn before it: the last of all
// may be on slower links.
Nanos time_beside_others(const Program& named, const std::vector<LoweredRank>& program, const Cluster& cluster,
                         const std::vector<Rank>& members, const ProgramTimeOptions& options) {
  if (switches_of(named) > 0) {
    std::vector<std::vector<Rank>> groups = WiringSignatures(cluster).groups_beside(members);
    groups.insert(groups.begin(), members);
    return switch_program_time_beside(named, program, cluster, groups, options);
  }
  const Nanos alone = program_time(program, cluster, members, options);
  const std::vector<std::vector<Rank>> others = WiringSignatures(cluster).groups_beside(members);
  if (others.empty()) return alone;
  std::vector<LoweredRank> all = program;
  std::vector<Rank> ranks = members;
  for (const std::vector<Rank>& other : others) {
    for (LoweredRank rank : program) {
      for (LoweredStep& step : rank.steps) {
        if (step.peer >= 0) step.peer += std::ssize(ranks);
      }
      all.push_back(std::move(rank));
    }
    ranks.insert(ranks.end(), other.begin(), other.end());
  }
  return std::min(program_time(all, cluster, ranks, options), alone * (std::ssize(others) + 1));
}

// Simulated time is in 64-bit nanoseconds, but files may name any size. A buffer for which one link needs longer is
// left to the closed form.
constexpr double kMaxSeconds = 1e6;

ProgramTimeOptions options_of(const Cluster& cluster, const Profile& profile) {
  const DeviceProfile& own = profile.device(cluster.spec().device.name);
  return {.reduce = own.reduce, .per_message = own.message_overhead};
}

}  // namespace

template <typename Answer>
template <typename Find>
const Answer& ProgramCosts::Answers<Answer>::get(const Key& key, const Find& find) {
  Entry* entry = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Entry>& slot = entries_[key];
    if (!slot) slot = std::make_unique<Entry>();
    entry = slot.get();
  }
  std::call_once(entry->once, [&] { entry->answer = find(); });
  return entry->answer;
}

template <typename Answer>
std::size_t ProgramCosts::Answers<Answer>::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

ProgramCosts::ProgramCosts(const Cluster& cluster, const Profile& profile)
    : cluster_(cluster),
      options_(options_of(cluster, profile)),
      library_(profile.library),
      given_(profile.programs),
      store_(profile.store),
      slowest_bytes_per_second_(std::numeric_limits<double>::infinity()) {
  for (const Link& link : cluster.links()) {
    slowest_bytes_per_second_ = std::min(slowest_bytes_per_second_, link.bandwidth.bytes_per_second);
  }
}

bool ProgramCosts::answers_for(const Cluster& cluster, const Profile& profile) const {
  const ProgramTimeOptions asked = options_of(cluster, profile);
  return asked.reduce == options_.reduce && asked.per_message == options_.per_message &&
         cluster.spec() == cluster_.spec() && profile.library == library_ && profile.programs == given_;
}

std::size_t ProgramCosts::simulated_questions() const {
  return costs_.size() + choices_.size();
}

std::optional<ProgramCosts::Key> ProgramCosts::question(const Operation& operation,
                                                        const std::vector<Rank>& members) const {
  const Communication& c = *operation.communication;
  if (c.collective == Collective::send_recv || c.bytes.value == 0 || members.size() < 2) return std::nullopt;
  if (static_cast<double>(c.bytes.value) > kMaxSeconds * slowest_bytes_per_second_) return std::nullopt;
  const std::int64_t width = size_of(c.format.type).value;
  const std::int64_t element = c.bytes.value % width == 0 ? width : 1;
  return Key{
      .collective = c.collective, .elements = c.bytes.value / element, .element_size = element, .members = members};
}

ProgramCost ProgramCosts::simulated(const Key& key) const {
  const Communication named{.collective = key.collective,
                            .algorithm = key.algorithm,
                            .parts = key.parts,
                            .inner = key.inner,
                            .program = ProgramRef(key.carried)};
  const std::optional<Program> found = transfer_program(named, std::ssize(key.members), works_in_place(key.collective));
  WEFT_CHECK(found.has_value());  // cost() has asked, and given programs are proven
  const Program& program = *found;
  if (const std::string fault = switch_fault(program, cluster_, key.members); !fault.empty()) {
    fail("program '{}' cannot carry out {} of {} ranks here: {}", key.carried->origin, name_of(key.collective),
         key.members.size(), fault);
  }
  const std::vector<LoweredRank> lowered =
      lower(program, run_symbolically(program), even_sizes(program.spec, key.elements), Bytes{key.element_size});
  ProgramCost cost;
  cost.time = time_beside_others(program, lowered, cluster_, key.members, options_);
  cost.traffic = average_traffic(lowered, cluster_, key.members);
  cost.busy_seconds = busy_seconds(cost.traffic, cluster_, key.members);
  return cost;
}

std::optional<Nanos> ProgramCosts::library_time(const Key& key) const {
  return library_.time(key.collective, std::ssize(key.members), Bytes{key.elements * key.element_size});
}

// It is unknown which messages a library sends, so the links are charged the least that any algorithm needs.
ProgramCost ProgramCosts::of_library(const Key& key, Nanos time) const {
  ProgramCost cost;
  cost.time = time;
  const GroupView view = group_views(cluster_, key.members).front();
  cost.traffic = minimum_traffic(cluster_, key.collective, Bytes{key.elements * key.element_size}, view);
  cost.busy_seconds = busy_seconds(cost.traffic, cluster_, key.members);
  return cost;
}

std::optional<ProgramCost> ProgramCosts::cost(const Operation& operation, const std::vector<Rank>& members) {
  std::optional<Key> key = question(operation, members);
  const Communication& c = *operation.communication;
  if (key && c.algorithm == Algorithm::native) {
    const std::optional<Nanos> time = library_time(*key);
    return time ? std::optional(of_library(*key, *time)) : std::nullopt;
  }
  if (!key || !program_fault(c, std::ssize(key->members)).empty()) return std::nullopt;
  key->carried = c.program.shared();
  key->algorithm = c.algorithm;
  key->parts = c.parts;
  key->inner = c.inner;
  return costs_.get(*key, [&] { return simulated(*key); });
}

ProgramQuestion ProgramCosts::question_of(const Key& key) {
  return {.kind = key.collective,
          .elements = key.elements,
          .element_size = Bytes{key.element_size},
          .in_place = works_in_place(key.collective),
          .members = key.members};
}

ProgramCosts::Choice ProgramCosts::fastest(const Key& key) {
  const ProgramChoice found = fastest_program(question_of(key), cluster_, options_);
  const ProgramRequest& best = found.request;
  const Choice generated{
      best.algorithm, static_cast<std::int32_t>(best.parts), static_cast<std::int32_t>(best.inner), {}, found.time};
  const std::optional<MadeProgram> own = made(key);
  return own && own->time < generated.time ? Choice{Algorithm::carried, 1, 0, own->program, own->time} : generated;
}

// Programs are made for buffers of a power of two, since what is best changes slowly with the size, and then timed for
// this one.
std::optional<MadeProgram> ProgramCosts::made(const Key& key) {
  if (!cluster_.spec().topology) return std::nullopt;
  Key rounded = key;
  rounded.elements = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(key.elements)));
  const std::optional<MadeProgram>& found =
      made_.get(rounded, [&] { return fastest_made(question_of(rounded), cluster_, options_, store_.get()); });
  if (!found || rounded.elements == key.elements) return found;
  Key exact = key;
  exact.algorithm = Algorithm::carried;
  exact.parts = 1;
  exact.carried = found->program.shared();
  return MadeProgram{found->program, costs_.get(exact, [&] { return simulated(exact); }).time};
}

bool ProgramCosts::choose_given(Operation& operation, const std::vector<Rank>& members) const {
  Communication& c = *operation.communication;
  const auto fits = std::ranges::find_if(given_, [&](const ProgramRef& given) {
    const CollectiveSpec& spec = given->program.spec;
    return spec.kind == c.collective && spec.ranks == std::ssize(members) && members.size() > 1;
  });
  if (fits == given_.end()) return false;
  c.algorithm = Algorithm::carried;
  c.parts = 1;
  c.inner = 0;
  c.program = *fits;
  return true;
}

bool ProgramCosts::choose_made(Operation& operation, const std::vector<Rank>& members) {
  const std::optional<Key> key = question(operation, members);
  if (!key || !cluster_.spec().topology) return false;
  const std::optional<MadeProgram> found = made(*key);
  if (!found) return false;
  Communication& c = *operation.communication;
  c.algorithm = Algorithm::carried;
  c.parts = 1;
  c.inner = 0;
  c.program = found->program;
  return true;
}

std::vector<std::pair<std::string, Nanos>> ProgramCosts::candidates(const Operation& operation,
                                                                    const std::vector<Rank>& members) {
  std::vector<std::pair<std::string, Nanos>> named;
  const std::optional<Key> key = question(operation, members);
  if (!key) return named;
  for (const ProgramChoice& choice : rank_programs(question_of(*key), cluster_, options_)) {
    const ProgramRequest& r = choice.request;
    named.emplace_back(program_in_words({.collective = r.kind,
                                         .algorithm = r.algorithm,
                                         .parts = static_cast<std::int32_t>(r.parts),
                                         .inner = static_cast<std::int32_t>(r.inner)}),
                       choice.time);
  }
  if (const auto own = made(*key)) named.emplace_back("program " + own->program->origin, own->time);
  if (const auto native = library_time(*key)) named.emplace_back("native", *native);
  std::ranges::stable_sort(named, {}, &std::pair<std::string, Nanos>::second);
  return named;
}

bool ProgramCosts::choose(Operation& operation, const std::vector<Rank>& members, bool programs_only) {
  const std::optional<Key> key = question(operation, members);
  if (!key) return false;
  const std::optional<Nanos> native = programs_only ? std::nullopt : library_time(*key);
  const Choice& choice = choices_.get(*key, [&] { return fastest(*key); });
  Communication& c = *operation.communication;
  if (native && (library_.always || *native < choice.time)) {
    c.algorithm = Algorithm::native;
    c.parts = 1;
    c.inner = 0;
    c.program = {};
    return true;
  }
  c.algorithm = choice.algorithm;
  c.parts = choice.parts;
  c.inner = choice.inner;
  c.program = choice.program;
  return true;
}

std::shared_ptr<ProgramCosts> shared_program_costs(const Cluster& cluster, const Profile& profile) {
  const bool some = cluster.spec().execution.collectives == CollectiveMaker::programs || !profile.programs.empty() ||
                    cluster.spec().topology;
  return some ? std::make_shared<ProgramCosts>(cluster, profile) : nullptr;
}

}  // namespace weft
