#include "cost/profile.hpp"

#include <algorithm>
#include <cmath>

#include "cluster/device_kind.hpp"

namespace weft {
namespace {

double log_size(Bytes bytes) {
  return std::log2(static_cast<double>(std::max<std::int64_t>(1, bytes.value)));
}

// Below the first point the time stays that of the first point, so efficiency falls with size.
double at_size(const std::vector<MeasuredEfficiency>& points, Bytes bytes) {
  const auto above = std::lower_bound(points.begin(), points.end(), bytes,
                                      [](const MeasuredEfficiency& p, Bytes size) { return p.bytes < size; });
  if (above == points.end()) return points.back().efficiency;
  if (above == points.begin()) {
    return above->efficiency * static_cast<double>(bytes.value) / static_cast<double>(above->bytes.value);
  }
  const auto below = above - 1;
  const double part = (log_size(bytes) - log_size(below->bytes)) / (log_size(above->bytes) - log_size(below->bytes));
  return below->efficiency + part * (above->efficiency - below->efficiency);
}

double at_members(const std::map<std::int64_t, std::vector<MeasuredEfficiency>>& measured, std::int64_t members,
                  Bytes bytes) {
  const auto above = measured.lower_bound(members);
  if (above == measured.end()) return at_size(measured.rbegin()->second, bytes);
  if (above->first == members || above == measured.begin()) return at_size(above->second, bytes);
  const auto below = std::prev(above);
  const auto log = [](std::int64_t n) { return std::log2(static_cast<double>(n)); };
  const double part = (log(members) - log(below->first)) / (log(above->first) - log(below->first));
  const double low = at_size(below->second, bytes), high = at_size(above->second, bytes);
  return low + part * (high - low);
}

}  // namespace

double LinkProfile::best() const {
  double most = measured.empty() ? efficiency : 0;
  for (const auto& [members, points] : measured) {
    for (const MeasuredEfficiency& point : points) most = std::max(most, point.efficiency);
  }
  for (const auto& [collective, tables] : collectives) {
    for (const auto& [joined, points] : tables) {
      for (const MeasuredEfficiency& point : points) most = std::max(most, std::min(1.0, point.efficiency));
    }
  }
  return std::max(most, efficiency);
}

double LinkProfile::at(std::int64_t members, Bytes bytes) const {
  return measured.empty() ? efficiency : at_members(measured, members, bytes);
}

double LinkProfile::all_to_all_at(std::int64_t members, Bytes bytes) const {
  return all_to_all.empty() ? at(members, bytes) : at_members(all_to_all, members, bytes);
}

namespace {

using LibraryPoint = LibraryProfile::Point;

// Of one of a point's times.
Nanos interpolated(const std::vector<LibraryPoint>& points, Bytes bytes, Nanos LibraryPoint::* time) {
  const LibraryPoint& first = points.front();
  if (bytes <= first.bytes) return first.*time;
  if (points.size() == 1) {
    const double times = static_cast<double>(bytes.value) / static_cast<double>(first.bytes.value);
    return nanos_from_seconds(seconds(first.*time) * times);
  }
  auto above =
      std::find_if(points.begin() + 1, points.end(), [&](const LibraryPoint& point) { return point.bytes >= bytes; });
  if (above == points.end()) --above;
  const LibraryPoint &from = *(above - 1), &to = *above;
  const double part =
      static_cast<double>((bytes - from.bytes).value) / static_cast<double>((to.bytes - from.bytes).value);
  const double slope = seconds(to.*time) - seconds(from.*time);
  // A larger size may have been measured as faster; the extrapolated line never falls.
  return nanos_from_seconds(seconds(from.*time) + (part > 1 ? std::max(0.0, slope) : slope) * part);
}

}  // namespace

std::optional<double> LinkProfile::collective_at(Collective collective, std::int64_t joined, Bytes bytes) const {
  using enum Collective;
  const bool in_steps = collective != send_recv && collective != all_to_all && collective != barrier;
  for (const Collective table : {collective, all_gather, reduce_scatter, all_reduce}) {
    const auto found = collectives.find(table);
    if (found != collectives.end() && (table == collective || in_steps)) {
      return at_members(found->second, joined, bytes);
    }
  }
  return std::nullopt;
}

std::optional<Nanos> LibraryProfile::time(Collective collective, std::int64_t members, Bytes bytes) const {
  const auto found = measured.find({collective, members});
  if (found == measured.end() || found->second.empty()) return std::nullopt;
  return interpolated(found->second, bytes, &Point::time);
}

Nanos LibraryProfile::added_by_pause(Collective collective, std::int64_t members, Bytes bytes) const {
  const auto found = measured.find({collective, members});
  if (found == measured.end() || found->second.empty()) return Nanos{0};
  const std::vector<Point>& points = found->second;
  if (std::ranges::any_of(points, [](const Point& point) { return point.after_pause == Nanos{0}; })) return Nanos{0};
  return std::max(Nanos{0},
                  interpolated(points, bytes, &Point::after_pause) - interpolated(points, bytes, &Point::time));
}

Nanos LibraryProfile::least_time(Collective collective, std::int64_t members) const {
  return measured.at({collective, members}).front().time;
}

std::optional<LibraryLink> link_of(const LibraryProfile& library) {
  std::optional<LibraryLink> link;
  for (const auto& [group, points] : library.measured) {
    const std::int64_t steps = (group.collective == Collective::all_reduce ? 2 : 1) * (group.members - 1);
    // Of the buffer's bytes, what a member of a ring sends and receives; of a message all.
    const double share = group.collective == Collective::send_recv
                             ? 1.0
                             : static_cast<double>(steps) / static_cast<double>(group.members);
    if (!link) link.emplace(LibraryLink{{0}, points.front().time});
    for (std::size_t i = 0; i < points.size(); ++i) {
      const auto rate = [&](Bytes bytes, Nanos time) {
        return time > Nanos{0} ? share * static_cast<double>(bytes.value) / seconds(time) : 0.0;
      };
      double& best = link->bandwidth.bytes_per_second;
      best = std::max(best, rate(points[i].bytes, points[i].time));
      // Sizes between two points, and beyond the last, grow at this rate.
      if (i > 0)
        best = std::max(best, rate(points[i].bytes - points[i - 1].bytes, points[i].time - points[i - 1].time));
    }
    const Nanos step = nanos_from_seconds(seconds(points.front().time) / static_cast<double>(steps));
    link->latency = std::min(link->latency, step);
  }
  if (link) link->bandwidth.bytes_per_second *= library.at_once;
  return link;
}

const DeviceProfile& Profile::device(std::string_view name) const {
  static const DeviceProfile unknown{};
  auto found = devices.find(name);
  if (found == devices.end()) found = devices.find(kind_of_device(name));
  if (found == devices.end()) found = devices.find("default");
  return found == devices.end() ? unknown : found->second;
}

const LinkProfile& Profile::link(std::string_view device_name, std::string_view level, LinkTiming timing) const {
  static const LinkProfile as_stated{1.0, {}};
  static const LinkProfile unknown{};
  if (timing != LinkTiming::nominal) return as_stated;
  const DeviceProfile& own = device(device_name);
  if (const auto found = own.links.find(level); found != own.links.end()) return found->second;
  const auto found = links.find(level);
  return found == links.end() ? unknown : found->second;
}

void remove_overheads(Profile& profile) {
  for (auto& [name, device] : profile.devices) {
    device.kernel_gap = device.launch = device.transfer_launch = device.resync = Nanos{0};
    device.operation_overhead = device.handoff = device.wake = device.message_overhead = Nanos{0};
    device.reduce = {};
    device.tiled = false;
    device.links.clear();
    device.operations.clear();
  }
  for (auto& [level, link] : profile.links) link = {1.0, {}};
}

}  // namespace weft
