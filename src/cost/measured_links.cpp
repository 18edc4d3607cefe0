#include "cost/measured_links.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

using Points = std::vector<MeasuredEfficiency>;

// Bus bandwidth counts a ring's bytes. Trees between two nodes and reductions in a switch move fewer: twice the rate of
// the links at most.
constexpr double kMostOfRing = 2;

// Where a group meets: the outermost level that it crosses, and how.
struct MeetingLevel {
  LevelId level;
  std::int64_t joined = 0;  // domains of the level below, or devices
  Bandwidth capacity{};     // of the links that its members in one such domain have
};

std::int64_t devices_in_domain(const Cluster& cluster, LevelId fabric) {
  std::int64_t count = 0;
  for (std::int64_t d = 0; d < cluster.device_count(); ++d) {
    count += cluster.domain_of(fabric, make_id<Rank>(d)) == cluster.domain_of(fabric, Rank{0}) ? 1 : 0;
  }
  return count;
}

std::optional<MeetingLevel> meeting_level(const Cluster& cluster, const MeasuredCollective& measured) {
  const std::int64_t node = cluster.spec().devices_per_node;
  const std::int64_t per_node = measured.per_node == 0 ? node : measured.per_node;
  const std::int64_t nodes = (measured.members + per_node - 1) / per_node;
  std::int64_t inner = 1;  // members in a domain of the level below
  for (const LevelId fabric : cluster.fabrics()) {
    const LevelSpec& level = cluster.spec().levels[fabric.index()];
    const bool joins_nodes = level.joins > Domain::node;
    const bool outermost = fabric == cluster.fabrics().back();
    const std::int64_t devices = devices_in_domain(cluster, fabric);
    const std::int64_t members = std::max<std::int64_t>(1, devices / node) * std::min(per_node, devices);
    const bool joins_all_of_node = level.joins != Domain::part || members >= measured.members;
    if ((nodes == 1 && joins_all_of_node) || (joins_nodes && (outermost || members >= measured.members))) {
      const std::int64_t links = std::max<std::int64_t>(1, inner / level.shared_by);
      return MeetingLevel{fabric,
                          (measured.members + inner - 1) / inner,
                          {static_cast<double>(links) * level.bandwidth.bytes_per_second}};
    }
    inner = members;
  }
  return std::nullopt;
}

// One size says how fast large buffers are; the sizes that the profile knows keep their relation to it.
Points shaped_like(const LinkProfile& known, std::int64_t joined, const MeasuredEfficiency& one) {
  Points points;
  if (!known.measured.empty()) {
    const double factor = one.efficiency / known.at(joined, one.bytes);
    for (const MeasuredEfficiency& point : known.measured.rbegin()->second) {
      points.push_back({point.bytes, std::min(kMostOfRing, known.at(joined, point.bytes) * factor)});
    }
    return points;
  }
  if (one.bytes > Bytes{1}) points.push_back({Bytes{1}, one.efficiency});
  points.push_back(one);
  return points;
}

Points efficiencies(const MeasuredCollective& measured, const MeetingLevel& at, const std::string& level) {
  Points points;
  for (const MeasuredCollective::Point& point : measured.points) {
    const double share = point.bus.bytes_per_second / at.capacity.bytes_per_second;
    if (share > kMostOfRing) {
      fail("{} of {} ranks: {:.4g} GB/s of {} is {:.1f} times the {:.4g} GB/s that its {} links carry in the cluster",
           name_of(measured.collective), measured.members, point.bus.bytes_per_second * 1e-9, format_bytes(point.bytes),
           share, at.capacity.bytes_per_second * 1e-9, level);
    }
    points.push_back({point.bytes, std::max(1e-6, share)});
  }
  return points;
}

}  // namespace

void scale_links(LinkProfile& link, double best) {
  const double factor = best / link.best();
  const auto scale = [&](std::map<std::int64_t, Points>& tables, double most) {
    for (auto& [members, points] : tables) {
      for (MeasuredEfficiency& point : points) point.efficiency = std::min(most, point.efficiency * factor);
    }
  };
  link.efficiency = std::min(1.0, link.efficiency * factor);
  scale(link.measured, 1);
  scale(link.all_to_all, 1);
  for (auto& [collective, tables] : link.collectives) scale(tables, kMostOfRing);
}

void apply_measured_links(Profile& profile, const Cluster& cluster, std::span<const MeasuredCollective> measured) {
  const std::string& device = cluster.spec().device.name;
  std::map<std::string, LinkProfile> levels;
  for (const MeasuredCollective& m : measured) {
    const auto at = meeting_level(cluster, m);
    if (!at || m.members < 2) continue;
    const std::string& name = cluster.level_name(at->level);
    const LinkProfile& known = profile.link(device, name, LinkTiming::nominal);
    LinkProfile& link = levels.try_emplace(name, known).first->second;
    Points points = efficiencies(m, *at, name);
    if (points.size() == 1) points = shaped_like(known, at->joined, points.front());
    if (m.collective == Collective::all_to_all) {
      for (MeasuredEfficiency& point : points) point.efficiency = std::min(1.0, point.efficiency);
      link.all_to_all[m.members] = std::move(points);
    } else {
      link.collectives[m.collective][at->joined] = std::move(points);
    }
  }
  for (auto& [name, link] : levels) {
    double best = 0;
    for (const auto& [collective, tables] : link.collectives) {
      for (const auto& [joined, points] : tables) {
        for (const MeasuredEfficiency& point : points) best = std::max(best, std::min(1.0, point.efficiency));
      }
    }
    // Messages, and whatever else was not measured, follow the rate of what was.
    LinkProfile others = profile.link(device, name, LinkTiming::nominal);
    if (best > 0) scale_links(others, best);
    link.efficiency = others.efficiency;
    link.measured = std::move(others.measured);
    profile.devices.try_emplace(device, profile.device(device)).first->second.links[name] = std::move(link);
  }
}

}  // namespace weft
