// Parameter server: workers push their inputs to servers, each of which adds up its slice; workers pull the sums.
//
// servers = 0: every worker serves one slice (BytePS without extra hosts, Jiang et al., OSDI 2020): the bytes of a ring
// in 2 messages instead of 2 (N-1). servers = M: M helpers on other hosts hold the slices; a worker sends K and
// receives K, whatever N is, and each server moves N K / M each way.
#include "collective/algorithm/generators.hpp"
#include "collective/algorithm/phases.hpp"

namespace weft {
namespace {

void push_and_pull(Holdings& holdings, const ProgramRequest& request) {
  const auto slice = [&](std::int64_t server) { return consecutive(server * request.parts, request.parts); };
  for (std::int64_t server = 0; server < request.servers; ++server) {
    for (std::int64_t worker = 0; worker < request.ranks; ++worker) {
      holdings.reduce(
          {.from = worker, .to = request.ranks + server, .pieces = slice(server), .messages = request.parts});
    }
  }
  for (std::int64_t server = 0; server < request.servers; ++server) {
    for (std::int64_t worker = 0; worker < request.ranks; ++worker) {
      holdings.copy({.from = request.ranks + server, .to = worker, .pieces = slice(server), .messages = request.parts});
    }
  }
}

}  // namespace

Program parameter_server_program(const ProgramRequest& request) {
  const std::int64_t slices = request.servers == 0 ? request.ranks : request.servers;
  ProgramBuilder builder = builder_for(request, slices * request.parts, request.servers);
  Holdings holdings(builder);
  if (request.servers == 0) {
    const Group group = whole_group(builder.spec(), request.parts);
    direct_reduce_scatter(holdings, group);
    direct_all_gather(holdings, group);
  } else {
    push_and_pull(holdings, request);
  }
  holdings.settle();
  return std::move(builder).finish();
}

}  // namespace weft
