// A transport between processes over plain TCP sockets. While it pauses, the communication thread sleeps in the kernel
// and costs the compute threads nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/exchange.hpp"
#include "comm/transport.hpp"

namespace weft {

struct TcpOptions {
  std::int64_t rank = 0;
  std::int64_t size = 1;
  std::string root;        // address of rank 0: "node01:29500"
  std::string secret;      // of the job: the same on all ranks, and known to nobody else (docs/security.md)
  int root_listener = -1;  // rank 0: a listening socket it was given (comm/tcp/process_group.hpp)
  std::chrono::milliseconds timeout = std::chrono::minutes(1);  // for all ranks to come
  std::chrono::milliseconds beat = std::chrono::milliseconds(200);
  // Called on all ranks when all are here, before any connects to the others. What it throws ends the rank.
  std::function<void(const Exchange&)> on_meeting = {};
};

// All ranks call it together; returns when all are connected. Throws RunFailed, or Error on bad options.
std::unique_ptr<Transport> make_tcp_transport(const TcpOptions& options);

}  // namespace weft
