#include "cost/choose_program.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "base/error.hpp"
#include "cluster/topology_way.hpp"
#include "collective/collective.hpp"
#include "collective/verify/symbolic_run.hpp"

namespace weft {
namespace {

constexpr std::int64_t kParts[] = {1, 2, 4, 8, 16};
// Smaller parts cost more per message than they can hide.
constexpr std::int64_t kMinPartBytes = 16 << 10;
// Where a program would have more steps than this, only its coarser forms are tried.
constexpr std::int64_t kMaxMessages = 200'000;

// Candidates that need so many times the best one's time are left out.
constexpr std::int64_t kGiveUpFactor = 4;
constexpr Nanos kNever{std::numeric_limits<std::int64_t>::max() / 8};

bool is_worth_trying(const ProgramRequest& request, const ProgramQuestion& question) {
  if (request.parts == 1) return true;
  const std::int64_t bytes = question.elements * question.element_size.value;
  if (bytes / (request.ranks * request.parts) < kMinPartBytes) return false;
  return request.ranks * request.ranks * request.parts <= kMaxMessages;
}

// Returns nothing where the fastest link alone would need longer than `limit` for what the busiest rank sends. Most
// candidates for large buffers are dismissed here, without a simulation.
std::optional<Nanos> time_below(Nanos limit, const ProgramRequest& request, const ProgramQuestion& question,
                                const Cluster& cluster, const ProgramTimeOptions& options) {
  const Program program = make_program(request);
  const auto lowered =
      lower(program, run_symbolically(program), even_sizes(program.spec, question.elements), question.element_size);
  double fastest = 0;
  for (const Link& link : cluster.links()) fastest = std::max(fastest, link.bandwidth.bytes_per_second);
  if (cluster.spec().topology) {
    fastest = 0;
    for (const Rank member : question.members) {
      fastest = std::max(fastest, wiring_out_of(cluster, member).bytes_per_second);
    }
  }
  for (const LoweredRank& rank : lowered) {
    std::int64_t sent = 0;
    for (const LoweredStep& step : rank.steps) sent += step.kind == InstructionKind::send ? step.bytes : 0;
    if (nanos_from_seconds(static_cast<double>(sent) * options.slowdown / fastest) >= limit) return std::nullopt;
  }
  return program_time(lowered, cluster, question.members, options);
}

std::optional<ProgramRequest> request_of(Algorithm algorithm, const ProgramQuestion& question, const Cluster& cluster) {
  if (!supports(algorithm, question.kind)) return std::nullopt;
  ProgramRequest request{.algorithm = algorithm,
                         .kind = question.kind,
                         .ranks = std::ssize(question.members),
                         .root = question.root,
                         .in_place = question.in_place};
  if (algorithm == Algorithm::hierarchical) {
    request.inner = members_per_node(cluster, question.members);
    if (request.inner == 0) return std::nullopt;
  }
  return request;
}

// No message arrives sooner.
Nanos least_latency(const ProgramQuestion& question, const Cluster& cluster) {
  Nanos least = kNever;
  for (const Rank a : question.members) {
    for (const Rank b : question.members) {
      if (a == b) continue;
      Nanos latency;
      for (const LinkId link : cluster.path(cluster.common_fabric(a, b), a)) {
        latency += cluster.links()[link.index()].latency;
      }
      least = std::min(least, latency);
    }
  }
  return least;
}

// How long the least that members send on average keeps a link of each fabric busy. Where links differ, the link that
// finishes first counts, because an algorithm may send less over the others.
Nanos least_moving(const ProgramQuestion& question, const Cluster& cluster) {
  const GroupView view = group_views(cluster, question.members).front();
  if (!view.even || view.within.empty()) return Nanos{0};
  double slowest = 0;
  const Bytes bytes{question.elements * question.element_size.value};
  for (const FabricTraffic& traffic : minimum_traffic(cluster, question.kind, bytes, view)) {
    std::map<LinkId, double> load;
    for (const Rank member : question.members) load[cluster.link_of(traffic.fabric, member)] += traffic.bytes;
    double first = std::numeric_limits<double>::infinity();
    for (const auto& [link, sent] : load) {
      first = std::min(first, sent / cluster.links()[link.index()].bandwidth.bytes_per_second);
    }
    slowest = std::max(slowest, first);
  }
  return nanos_from_seconds(slowest);
}

// Finer parts are not tried once a program takes `enough`.
std::optional<ProgramChoice> best_below(Nanos limit, Algorithm algorithm, const ProgramQuestion& question,
                                        const Cluster& cluster, const ProgramTimeOptions& options,
                                        Nanos enough = Nanos{0}) {
  std::optional<ProgramRequest> request = request_of(algorithm, question, cluster);
  if (!request) return std::nullopt;
  std::optional<ProgramChoice> best;
  for (const std::int64_t parts : kParts) {
    request->parts = parts;
    if (!is_worth_trying(*request, question)) continue;
    const std::optional<Nanos> time = time_below(best ? best->time : limit, *request, question, cluster, options);
    if (!time || (best && *time >= best->time)) break;  // finer parts only add latencies from here on
    best = {*request, *time};
    if (*time <= enough) break;
  }
  return best;
}

}  // namespace

std::int64_t members_per_node(const Cluster& cluster, const std::vector<Rank>& members) {
  std::int64_t run = 0, common = 0;
  const auto count = std::ssize(members);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t at = i;
    ++run;
    const bool last = i + 1 == count || cluster.node_of(members[at]) != cluster.node_of(members[at + 1]);
    if (!last) continue;
    if (common != 0 && run != common) return 0;
    common = run;
    run = 0;
  }
  return common == 1 || common == count ? 0 : common;
}

std::optional<ProgramChoice> best_parts(Algorithm algorithm, const ProgramQuestion& question, const Cluster& cluster,
                                        const ProgramTimeOptions& options) {
  return best_below(kNever, algorithm, question, cluster, options);
}

std::optional<ProgramChoice> with_parts(Algorithm algorithm, std::int64_t parts, const ProgramQuestion& question,
                                        const Cluster& cluster, const ProgramTimeOptions& options) {
  std::optional<ProgramRequest> request = request_of(algorithm, question, cluster);
  if (!request) return std::nullopt;
  request->parts = parts;
  return ProgramChoice{*request, *time_below(kNever, *request, question, cluster, options)};
}

std::vector<ProgramChoice> rank_programs(const ProgramQuestion& question, const Cluster& cluster,
                                         const ProgramTimeOptions& options) {
  std::vector<ProgramChoice> choices;
  Nanos limit = kNever;
  for (const Algorithm algorithm : algorithms_for(question.kind)) {
    const auto choice = best_below(limit, algorithm, question, cluster, options);
    if (!choice) continue;
    choices.push_back(*choice);
    limit = std::min(limit, kGiveUpFactor * choice->time);
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const ProgramChoice& a, const ProgramChoice& b) { return a.time < b.time; });
  return choices;
}

ProgramChoice fastest_program(const ProgramQuestion& question, const Cluster& cluster,
                              const ProgramTimeOptions& options) {
  const Nanos least = least_latency(question, cluster) + least_moving(question, cluster);
  const auto slowed = static_cast<std::int64_t>(static_cast<double>(least.value) * options.slowdown);
  // What levels say is no bound where messages take other links.
  const Nanos enough{cluster.spec().topology ? 0 : slowed + slowed / 100'000};
  std::optional<ProgramChoice> best;
  for (const Algorithm algorithm : algorithms_for(question.kind)) {
    const auto choice = best_below(best ? best->time : kNever, algorithm, question, cluster, options, enough);
    if (!choice || (best && choice->time >= best->time)) continue;
    best = choice;
    if (best->time <= enough) break;
  }
  WEFT_CHECK(best.has_value());
  return *best;
}

}  // namespace weft
