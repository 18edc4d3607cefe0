// The fastest all_to_all on a topology, as a flow of many commodities: every rank has a slice for every other rank,
// which may be split over ways, through switches and over other devices.
#pragma once

#include <cstdint>
#include <vector>

#include "cluster/topology.hpp"

namespace weft {

// The devices that a share of a slice visits, from its source to its destination, as ranks.
struct ExchangeWay {
  std::vector<std::int32_t> ranks;
  double share = 0;
};

struct ExchangeFlow {
  std::vector<std::vector<ExchangeWay>> ways;  // by source N + destination; shares add up to 1
  // For a buffer of one byte of every rank, a slice of which goes to each: the busiest link's time with these ways, and
  // what no program beats, because at the prices of the links that were found the slices cost that much.
  double seconds = 0, least_seconds = 0;
  bool by_solver = false;  // exact, by a linear program; otherwise by multiplicative weights, which come near it
};

enum class FlowMethod : std::uint8_t { solver_if_there, weights };
ExchangeFlow exchange_flow(const Topology& topology, FlowMethod method);

// The flow in whole chunks: the way of chunk (s N + d) `chunks` + k, as near to the shares as whole numbers come (those
// with the largest remainders get one more). Ranks have no way to themselves.
std::vector<std::vector<std::int32_t>> ways_of_chunks(const ExchangeFlow& flow, std::int64_t chunks);

}  // namespace weft
