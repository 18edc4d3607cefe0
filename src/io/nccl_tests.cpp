// Reader of nccl-tests' output: comments begin with #, a row has size, count, type, redop, root, then time, algorithm
// bandwidth, bus bandwidth and errors, out of place and in place.
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "base/error.hpp"
#include "io/measured_links.hpp"

namespace weft {
namespace {

struct TestName {
  std::string_view program;
  Collective collective;
};
// Longer names first where one is a part of another.
constexpr std::array kTests{TestName{"all_reduce", Collective::all_reduce},
                            TestName{"all_gather", Collective::all_gather},
                            TestName{"reduce_scatter", Collective::reduce_scatter},
                            TestName{"alltoall", Collective::all_to_all},
                            TestName{"sendrecv", Collective::send_recv},
                            TestName{"broadcast", Collective::broadcast}};

std::optional<Collective> collective_in(std::string_view text) {
  for (const TestName& test : kTests) {
    if (text.find(test.program) != std::string_view::npos) return test.collective;
  }
  return std::nullopt;
}

std::vector<std::string> words_of_line(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::optional<double> parsed_number(const std::string& word) {
  double value = 0;
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (problem != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

// What the comments say of ranks and of the test.
struct TestSetting {
  std::int64_t ranks = 0;
  std::set<std::string> hosts;
  std::optional<Collective> collective;

  void read(const std::string& line) {
    const std::vector<std::string> words = words_of_line(line);
    // "#  Rank  0 Group  0 Pid  4711 on  node-a device  0 [0x07] NVIDIA H100"
    if (words.size() > 1 && words[1] == "Rank") {
      ++ranks;
      for (std::size_t i = 2; i + 1 < words.size(); ++i) {
        if (words[i] == "on") hosts.insert(words[i + 1]);
      }
    }
    if (line.find("_perf") != std::string::npos && !collective) collective = collective_in(line);
  }
};

constexpr std::size_t kBusBandwidth = 7;  // the column, out of place

MeasuredCollective::Point read_test_row(const std::string& line, const std::string& where) {
  const std::vector<std::string> words = words_of_line(line);
  if (words.size() <= kBusBandwidth) {
    fail("{}: '{}' is no row of nccl-tests: size, count, type, redop, root, time, algbw, busbw", where, line);
  }
  const auto size = parsed_number(words[0]), rate = parsed_number(words[kBusBandwidth]);
  if (!size || *size < 0 || *size > 1e15) fail("{}: '{}' is no size in bytes", where, words[0]);
  if (!rate || *rate < 0 || *rate > 1e6) fail("{}: '{}' is no bus bandwidth in GB/s", where, words[kBusBandwidth]);
  return {Bytes{static_cast<std::int64_t>(*size)}, {*rate * 1e9}};
}

}  // namespace

MeasuredCollective read_nccl_tests(const std::string& text, const std::string& file_name) {
  TestSetting setting;
  MeasuredCollective measured;
  std::istringstream in(text);
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const auto first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos) continue;
    if (line[first] == '#') {
      setting.read(line);
      continue;
    }
    // Launchers and NCCL itself print lines of their own.
    if (line[first] < '0' || line[first] > '9') continue;
    const auto point = read_test_row(line, file_name + ": line " + std::to_string(number));
    // The smallest sizes are shown as 0.00 GB/s.
    if (point.bytes.value == 0 || point.bus.bytes_per_second == 0) continue;
    if (!measured.points.empty() && point.bytes <= measured.points.back().bytes) {
      fail("{}: line {}: size {} does not ascend; give one test a file", file_name, number, point.bytes.value);
    }
    measured.points.push_back(point);
  }
  if (measured.points.empty()) fail("{}: has no row with a bus bandwidth; is it the output of nccl-tests?", file_name);
  if (setting.ranks < 2) {
    fail("{}: names {} ranks, at least two are needed (lines '#  Rank  0 ... on HOST device 0')", file_name,
         setting.ranks);
  }
  const auto collective =
      setting.collective ? setting.collective : collective_in(file_name.substr(file_name.find_last_of('/') + 1));
  if (!collective) fail("{}: does not say which collective it measured; name the file all_reduce*.txt", file_name);
  measured.collective = *collective;
  measured.members = setting.ranks;
  measured.per_node = setting.ranks / static_cast<std::int64_t>(std::max<std::size_t>(1, setting.hosts.size()));
  return measured;
}

}  // namespace weft
