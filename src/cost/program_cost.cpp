#include "cost/program_cost.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "collective/verify/symbolic_run.hpp"
#include "cost/choose_program.hpp"
#include "graph/transfer_program.hpp"

namespace weft {
namespace {

std::vector<FabricTraffic> average_traffic(const std::vector<LoweredRank>& program, const Cluster& cluster,
                                           const std::vector<Rank>& members) {
  std::map<LevelId, double> sent;
  for (std::size_t rank = 0; rank < program.size(); ++rank) {
    for (const LoweredStep& step : program[rank].steps) {
      if (step.kind != InstructionKind::send || step.bytes == 0) continue;
      const Rank peer = members[step.peer];
      sent[cluster.common_fabric(members[rank], peer)] += static_cast<double>(step.bytes);
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
      slowest_bytes_per_second_(std::numeric_limits<double>::infinity()) {
  for (const Link& link : cluster.links()) {
    slowest_bytes_per_second_ = std::min(slowest_bytes_per_second_, link.bandwidth.bytes_per_second);
  }
}

bool ProgramCosts::answers_for(const Cluster& cluster, const Profile& profile) const {
  const ProgramTimeOptions asked = options_of(cluster, profile);
  return asked.reduce == options_.reduce && asked.per_message == options_.per_message &&
         cluster.spec() == cluster_.spec() && profile.library == library_;
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
  const std::optional<ProgramRequest> request =
      program_of({.collective = key.collective, .algorithm = key.algorithm, .parts = key.parts, .inner = key.inner},
                 std::ssize(key.members));
  WEFT_CHECK(request.has_value());
  const Program program = make_program(*request);
  const std::vector<LoweredRank> lowered =
      lower(program, run_symbolically(program), even_sizes(program.spec, key.elements), Bytes{key.element_size});
  ProgramCost cost;
  cost.time = program_time(lowered, cluster_, key.members, options_);
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
  if (!key || !program_of(c, std::ssize(key->members))) return std::nullopt;
  key->algorithm = c.algorithm;
  key->parts = c.parts;
  key->inner = c.inner;
  return costs_.get(*key, [&] { return simulated(*key); });
}

ProgramCosts::Choice ProgramCosts::fastest(const Key& key) const {
  const ProgramChoice found = fastest_program({.kind = key.collective,
                                               .elements = key.elements,
                                               .element_size = Bytes{key.element_size},
                                               .in_place = works_in_place(key.collective),
                                               .members = key.members},
                                              cluster_, options_);
  const ProgramRequest& best = found.request;
  return {best.algorithm, static_cast<std::int32_t>(best.parts), static_cast<std::int32_t>(best.inner), found.time};
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
    return true;
  }
  c.algorithm = choice.algorithm;
  c.parts = choice.parts;
  c.inner = choice.inner;
  return true;
}

std::shared_ptr<ProgramCosts> shared_program_costs(const Cluster& cluster, const Profile& profile) {
  return cluster.spec().execution.collectives == CollectiveMaker::programs
             ? std::make_shared<ProgramCosts>(cluster, profile)
             : nullptr;
}

}  // namespace weft
