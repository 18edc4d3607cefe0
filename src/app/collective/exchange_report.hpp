// What an all_to_all can reach on a topology, in words and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cluster/topology.hpp"
#include "collective/synthesis/exchange_flow.hpp"

namespace weft {

std::string exchange_in_words(const Topology& topology, const ExchangeFlow& flow);
nlohmann::ordered_json exchange_in_json(const Topology& topology, const ExchangeFlow& flow);

}  // namespace weft
