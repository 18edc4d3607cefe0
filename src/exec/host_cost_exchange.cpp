#include "exec/host_cost_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "exec/rank_exchange.hpp"

namespace weft {

std::vector<HostCost> costs_of_all(Communicator& communicator, const HostCost& own) {
  const std::string words = fmt::format("{} {} {}", own.host.value, own.step.value, own.device_waited ? 1 : 0);
  std::vector<HostCost> costs;
  for (const std::string& each : texts_of_all(communicator, words)) {
    const std::vector<std::string> numbers = split(each, ' ');
    costs.push_back({Nanos{parse_integer(numbers.at(0), "time")}, Nanos{parse_integer(numbers.at(1), "time")},
                     numbers.at(2) == "1"});
  }
  return costs;
}

HostReport with_slowest_host(Communicator& communicator, HostReport own) {
  const auto slowest = [&](const HostCost& cost) {
    return std::ranges::max(costs_of_all(communicator, cost), {}, &HostCost::host);
  };
  own.by_calls = slowest(own.by_calls);
  own.by_graphs = slowest(own.by_graphs);
  return own;
}

}  // namespace weft
