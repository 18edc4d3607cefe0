// One TCP connection between any two ranks that are neighbours, made once at the start.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/exchange.hpp"
#include "comm/tcp/socket.hpp"

namespace weft::tcp {

struct MeshOptions {
  std::int64_t rank = 0;
  std::int64_t size = 1;
  std::vector<std::int64_t> neighbours;  // each names us among its own
  std::string own_address;               // of this machine, for the others to try first; may be empty
  // The job's secret, the same on all ranks. It may be empty where strangers cannot see the exchange, as with MPI.
  std::string secret;
  std::chrono::milliseconds timeout = std::chrono::minutes(1);
};

// Returns sockets by rank, empty for ranks that are no neighbours. Both ends of every connection prove that they know
// the secret and a fresh random word of rank 0, so strangers and connections of another mesh are refused. Where all
// ranks are on one machine they listen on loopback only. Throws RunFailed naming who could not be reached.
std::vector<Socket> connect_mesh(const MeshOptions& options, const Exchange& exchange);

// All ranks but this one.
std::vector<std::int64_t> all_others(std::int64_t rank, std::int64_t size);

}  // namespace weft::tcp
