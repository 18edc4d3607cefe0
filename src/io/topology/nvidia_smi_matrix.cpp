#include "io/topology/nvidia_smi_matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include "base/error.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

constexpr Bandwidth kAssumedPcie{12e9};  // gen3 x16; the table does not say
constexpr Nanos kNvlinkHop{1'000}, kPcieHop{500};

// How far apart two rows of the table are, nearest first.
const std::array<std::string, 5> kDistances = {"PIX", "PXB", "PHB", "NODE", "SYS"};

struct Matrix {
  std::vector<std::string> names;               // GPUs and NICs, in the order of their rows
  std::vector<std::vector<std::string>> cells;  // by row and column

  bool is_device(std::size_t row) const { return names[row].starts_with("GPU"); }
  // The processors that a row is near to: the column behind those of the links.
  std::string affinity(std::size_t row) const {
    return cells[row].size() > names.size() ? cells[row][names.size()] : "";
  }
};

// Without escape codes of terminals (ESC [ ... letter), which wrap the header of some versions.
std::string plain(const std::string& line) {
  std::string kept;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\033') {
      while (i < line.size() && !((line[i] >= 'a' && line[i] <= 'z') || (line[i] >= 'A' && line[i] <= 'Z'))) ++i;
    } else if (line[i] != '\r') {
      kept += line[i];
    }
  }
  return kept;
}

std::string trimmed(const std::string& cell) {
  const auto begin = cell.find_first_not_of(' ');
  return begin == std::string::npos ? "" : cell.substr(begin, cell.find_last_not_of(' ') - begin + 1);
}

std::vector<std::string> cells_of_line(const std::string& line) {
  std::vector<std::string> cells;
  for (const std::string& cell : split(plain(line), '\t')) cells.push_back(trimmed(cell));
  return cells;
}

bool is_link_cell(const std::string& cell) {
  const bool nvlink = cell.size() > 2 && cell.starts_with("NV") &&
                      std::all_of(cell.begin() + 2, cell.end(), [](char c) { return c >= '0' && c <= '9'; });
  return cell == "X" || nvlink || std::ranges::find(kDistances, cell) != kDistances.end();
}

Matrix read_matrix(const std::string& text, const std::string& file_name) {
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> header = cells_of_line(line);
  Matrix matrix;
  for (int number = 2; std::getline(lines, line) && !trimmed(plain(line)).empty(); ++number) {
    std::vector<std::string> cells = cells_of_line(line);
    matrix.names.push_back(cells.front());
    cells.erase(cells.begin());
    const std::size_t row = matrix.names.size();
    if (row >= header.size() || header[row] != matrix.names.back()) {
      fail("{}:{}: row '{}': column {} of the header has another name", file_name, number, matrix.names.back(), row);
    }
    matrix.cells.push_back(std::move(cells));
  }
  const std::size_t count = matrix.names.size();
  if (count < 2) fail("{}: is no table of nvidia-smi topo -m: it has {} rows", file_name, count);
  for (std::size_t row = 0; row < count; ++row) {
    for (std::size_t column = 0; column < count; ++column) {
      const std::string cell = column < matrix.cells[row].size() ? matrix.cells[row][column] : "";
      if (is_link_cell(cell)) continue;
      fail("{}:{}: row '{}', column '{}': '{}' is not X, NV#, PIX, PXB, PHB, NODE or SYS", file_name, row + 2,
           matrix.names[row], matrix.names[column], cell);
    }
  }
  return matrix;
}

// Numbers the groups of rows that are at most so far apart, or near the same processors. Devices with NVLink do not say
// how far apart they are.
std::vector<std::size_t> groups_within(const Matrix& matrix, std::size_t max_distance, bool by_affinity) {
  std::vector<std::size_t> group(matrix.names.size());
  for (std::size_t row = 0; row < group.size(); ++row) {
    group[row] = row;
    for (std::size_t other = 0; other < row; ++other) {
      const auto found = std::ranges::find(kDistances, matrix.cells[row][other]);
      const bool near =
          found != kDistances.end() && static_cast<std::size_t>(found - kDistances.begin()) <= max_distance;
      const bool same = by_affinity && !matrix.affinity(row).empty() && matrix.affinity(row) == matrix.affinity(other);
      if (!near && !same) continue;
      const std::size_t from = group[row], to = group[other];
      std::ranges::replace(group, from, to);
    }
  }
  return group;
}

// Devices and NICs below PCIe switches, which are below the hosts of NUMA nodes.
void add_pcie(const Matrix& matrix, Topology& topology) {
  const std::vector<std::size_t> switches = groups_within(matrix, 1, false), numa = groups_within(matrix, 3, true);
  std::map<std::size_t, std::int32_t> switch_of, host_of;
  for (std::size_t row = 0; row < matrix.names.size(); ++row) {
    const auto [host, new_host] = host_of.try_emplace(numa[row], -1);
    if (new_host) host->second = topology.add({fmt::format("host{}", host_of.size() - 1), VertexKind::host, 0});
    const auto [hub, new_hub] = switch_of.try_emplace(switches[row], -1);
    if (new_hub) {
      hub->second = topology.add({fmt::format("pcie{}", switch_of.size() - 1), VertexKind::network_switch, 0});
      topology.connect(hub->second, host->second, kAssumedPcie, kPcieHop);
    }
    topology.connect(static_cast<std::int32_t>(row), hub->second, kAssumedPcie, kPcieHop);
  }
  for (auto a = host_of.begin(); a != host_of.end(); ++a) {
    for (auto b = std::next(a); b != host_of.end(); ++b) {
      topology.connect(a->second, b->second, kAssumedPcie, kPcieHop);
    }
  }
}

}  // namespace

Topology read_nvidia_smi_matrix(const std::string& text, const std::string& file_name, Bandwidth nvlink) {
  const Matrix matrix = read_matrix(text, file_name);
  Topology topology{file_name, {}, {}};
  for (std::size_t row = 0; row < matrix.names.size(); ++row) {
    topology.add({matrix.names[row], matrix.is_device(row) ? VertexKind::device : VertexKind::nic, 0});
  }
  for (std::size_t row = 0; row < matrix.names.size(); ++row) {
    for (std::size_t column = 0; column < matrix.names.size(); ++column) {
      const std::string& cell = matrix.cells[row][column];
      if (!cell.starts_with("NV")) continue;
      const std::int64_t links = parse_integer(std::string_view(cell).substr(2), file_name);
      topology.connect_one_way(static_cast<std::int32_t>(row), static_cast<std::int32_t>(column),
                               {static_cast<double>(links) * nvlink.bytes_per_second}, kNvlinkHop);
    }
  }
  const std::size_t devices = topology.devices().size();
  if (devices < 2) fail("{}: {} rows are named GPU; at least 2 are needed", file_name, devices);
  if (!joins_all_devices(topology)) add_pcie(matrix, topology);
  drop_unconnected(topology);
  validate(topology);
  return topology;
}

}  // namespace weft
