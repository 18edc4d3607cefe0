#include "io/topology/topology_svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include "io/xml_text.hpp"

namespace weft {
namespace {

// Pixels.
constexpr double kSpacing = 78, kMachineGap = 30, kBoxWidth = 64, kBoxHeight = 22, kMargin = 24;
constexpr double kThickestLine = 6, kThinnestLine = 0.8;
constexpr int kRows = 5;  // between machines, hosts, switches, NICs, devices

struct Spot2d {
  double x = 0, y = 0;
};

int row_of(const TopologyVertex& vertex) {
  if (vertex.node < 0 && vertex.kind != VertexKind::device) return 0;
  switch (vertex.kind) {
    case VertexKind::host:
      return 1;
    case VertexKind::network_switch:
      return 2;
    case VertexKind::nic:
      return 3;
    case VertexKind::device:
      break;
  }
  return 4;
}

std::string_view fill_of(const TopologyVertex& vertex) {
  switch (vertex.kind) {
    case VertexKind::device:
      return "#5b9bd5";
    case VertexKind::nic:
      return "#e79a3c";
    case VertexKind::network_switch:
      return "#45a874";
    case VertexKind::host:
      break;
  }
  return "#9097a3";
}

class TopologyPainter {
 public:
  explicit TopologyPainter(const Topology& topology) : topology_(topology) {
    place_rows();
    for (const TopologyLink& link : topology.links) {
      fastest_ = std::max(fastest_, link.bandwidth.bytes_per_second);
      bandwidth_[{link.from, link.to}] = link.bandwidth;
    }
  }

  std::string paint() {
    for (const TopologyLink& link : topology_.links) {
      if (!is_second_direction(link)) paint_link(link);
    }
    for (std::size_t i = 0; i < topology_.vertices.size(); ++i) paint_vertex(i);
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
               "{1:.0f}\" font-family=\"sans-serif\" font-size=\"9\">\n<rect width=\"100%\" height=\"100%\" "
               "fill=\"white\"/>\n",
               width_, height_) +
           body_ + "</svg>\n";
  }

 private:
  // A machine is as wide as its longest row; rows are spread over that width.
  void place_rows() {
    std::map<std::int64_t, std::map<int, std::vector<std::size_t>>> machines;
    std::map<int, bool> used;
    for (std::size_t i = 0; i < topology_.vertices.size(); ++i) {
      const TopologyVertex& vertex = topology_.vertices[i];
      const int row = row_of(vertex);
      used[row] = true;
      machines[row == 0 ? -1 : vertex.node][row].push_back(i);
    }
    double y = kMargin + kBoxHeight;
    std::map<int, double> heights;
    for (const auto& [row, is_used] : used) {
      heights[row] = y;
      y += row == kRows - 1 ? kSpacing : kSpacing * 1.2;
    }
    height_ = y + kMargin;
    spots_.resize(topology_.vertices.size());
    double x = kMargin;
    for (const auto& [node, rows] : machines) {
      std::size_t longest = 1;
      for (const auto& [row, members] : rows) longest = std::max(longest, members.size());
      const double wide = static_cast<double>(longest) * kSpacing;
      if (rows.contains(0)) continue;
      for (const auto& [row, members] : rows) spread(members, x, wide, heights[row]);
      x += wide + kMachineGap;
    }
    const auto between = machines.find(-1);
    if (between != machines.end() && between->second.contains(0)) {
      const std::vector<std::size_t>& members = between->second.at(0);
      x = std::max(x, kMargin + static_cast<double>(members.size()) * kSpacing);
      spread(members, kMargin, x - kMargin, heights[0]);
    }
    width_ = x + kMargin;
  }

  void spread(const std::vector<std::size_t>& members, double left, double wide, double y) {
    const double step = wide / static_cast<double>(members.size());
    for (std::size_t i = 0; i < members.size(); ++i)
      spots_[members[i]] = {left + (static_cast<double>(i) + 0.5) * step, y};
  }

  // Whether the other direction is drawn, and says the same.
  bool is_second_direction(const TopologyLink& link) const {
    const auto other = bandwidth_.find({link.to, link.from});
    return link.from > link.to && other != bandwidth_.end() && other->second == link.bandwidth;
  }

  // Links inside a row are arcs below it, deeper where they reach farther.
  void paint_link(const TopologyLink& link) {
    const Spot2d a = spots_[link.from], b = spots_[link.to];
    const double share = link.bandwidth.bytes_per_second / fastest_;
    const double thick = std::max(kThinnestLine, kThickestLine * share);
    const double depth = a.y == b.y ? 20 + 0.35 * std::abs(a.x - b.x) : 0;
    height_ = std::max(height_, a.y + depth / 2 + kMargin);
    add("<path d=\"M{:.1f} {:.1f} Q{:.1f} {:.1f} {:.1f} {:.1f}\" fill=\"none\" stroke=\"#777\" stroke-opacity=\"0.6\" "
        "stroke-width=\"{:.2f}\"><title>{} to {}: {:.4g} GB/s</title></path>\n",
        a.x, a.y, (a.x + b.x) / 2, (a.y + b.y) / 2 + depth, b.x, b.y, thick,
        xml_text(topology_.vertices[link.from].name), xml_text(topology_.vertices[link.to].name),
        link.bandwidth.bytes_per_second * 1e-9);
  }

  void paint_vertex(std::size_t index) {
    const TopologyVertex& vertex = topology_.vertices[index];
    const Spot2d at = spots_[index];
    const std::string label =
        vertex.kind == VertexKind::device ? fmt::format("rank {}", next_rank_++) : xml_text(short_name(vertex.name));
    add("<g><title>{}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"{}\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"white\">{}</text></g>\n",
        xml_text(vertex.name), at.x - kBoxWidth / 2, at.y - kBoxHeight / 2, kBoxWidth, kBoxHeight, fill_of(vertex),
        at.x, at.y + 3, label);
  }

  // What follows the machine's name, as far as it fits.
  static std::string short_name(const std::string& name) {
    const auto dot = name.find('.');
    const bool has_machine = name.starts_with("node") && dot != std::string::npos;
    return (has_machine ? name.substr(dot + 1) : name).substr(0, 12);
  }

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(args)...);
  }

  const Topology& topology_;
  std::map<std::pair<std::int32_t, std::int32_t>, Bandwidth> bandwidth_;
  std::vector<Spot2d> spots_;  // by vertex
  double width_ = 0, height_ = 0, fastest_ = 0;
  int next_rank_ = 0;
  std::string body_;
};

}  // namespace

void write_topology_svg(std::ostream& out, const Topology& topology) {
  out << TopologyPainter(topology).paint();
}

}  // namespace weft
