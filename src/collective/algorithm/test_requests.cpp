#include "collective/algorithm/test_requests.hpp"

#include <fmt/format.h>

namespace weft {
namespace {

constexpr int kCollectives = static_cast<int>(Collective::barrier) + 1;

// Every value of the parameters that only some algorithms have.
std::vector<ProgramRequest> variants(const ProgramRequest& request) {
  std::vector<ProgramRequest> result;
  const auto add = [&](std::int64_t inner, std::int64_t servers) {
    result.push_back(request);
    result.back().inner = inner;
    result.back().servers = servers;
  };
  if (request.algorithm == Algorithm::hierarchical) {
    for (std::int64_t inner = 1; inner <= request.ranks; ++inner) {
      if (request.ranks % inner == 0) add(inner, 0);
    }
  } else {
    add(0, 0);
    if (request.algorithm == Algorithm::parameter_server) {
      add(0, 1);
      add(0, 3);
    }
  }
  return result;
}

// all_reduce and barrier on trees have a top, too.
std::vector<std::int64_t> roots(Algorithm algorithm, Collective kind, std::int64_t ranks) {
  const bool has_top =
      algorithm == Algorithm::tree || algorithm == Algorithm::binomial_tree || algorithm == Algorithm::reduce_broadcast;
  if (!has_root(kind) && !has_top) return {0};
  return {0, ranks / 2, ranks - 1};
}

}  // namespace

std::string in_words(const ProgramRequest& request) {
  return fmt::format("{} {}, {} ranks, root {}, {} parts{}, inner {}, {} servers", name_of(request.algorithm),
                     name_of(request.kind), request.ranks, request.root, request.parts,
                     request.in_place ? " in place" : "", request.inner, request.servers);
}

std::vector<ProgramRequest> every_request(std::int64_t ranks) {
  std::vector<ProgramRequest> result;
  for (int k = 0; k < kCollectives; ++k) {
    const auto kind = static_cast<Collective>(k);
    if (kind == Collective::send_recv && ranks != 2) continue;
    for (const Algorithm algorithm : algorithms_for(kind)) {
      for (const std::int64_t root : roots(algorithm, kind, ranks)) {
        for (const std::int64_t parts : {1, 3}) {
          for (const bool in_place : {false, true}) {
            for (const ProgramRequest& request : variants({algorithm, kind, ranks, root, parts, in_place, 0, 0})) {
              result.push_back(request);
            }
          }
        }
      }
    }
  }
  return result;
}

}  // namespace weft
