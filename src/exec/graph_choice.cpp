#include "exec/graph_choice.hpp"

#include <algorithm>

namespace weft {
namespace {

constexpr std::size_t kMostKept = 48;

template <class Value>
Value median_of(std::vector<Value> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void HostCosts::add(const HostCost& cost) {
  if (costs_.size() < kMostKept) costs_.push_back(cost);
}

HostCost HostCosts::median() const {
  if (costs_.empty()) return {};
  std::vector<Nanos> hosts, steps;
  std::size_t waited = 0;
  for (const HostCost& cost : costs_) {
    hosts.push_back(cost.host);
    steps.push_back(cost.step);
    waited += cost.device_waited ? 1 : 0;
  }
  return {median_of(hosts), median_of(steps), 2 * waited > costs_.size()};
}

bool is_host_bound(std::span<const HostCost> ranks) {
  return std::ranges::any_of(ranks, [](const HostCost& cost) {
    const auto host = static_cast<double>(cost.host.value), step = static_cast<double>(cost.step.value);
    return cost.device_waited && host > kHostBoundShare * step;
  });
}

bool has_shorter_steps(std::span<const HostCost> ranks, std::span<const HostCost> than) {
  const auto sum = [](std::span<const HostCost> costs) {
    std::int64_t all = 0;
    for (const HostCost& cost : costs) all += cost.step.value;
    return all;
  };
  return sum(ranks) < sum(than);
}

}  // namespace weft
