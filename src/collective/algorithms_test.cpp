#include "collective/algorithms.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "collective/verify/symbolic_run.hpp"

namespace weft {
namespace {

constexpr int kCollectives = static_cast<int>(Collective::barrier) + 1;

std::string in_words(const ProgramRequest& request) {
  return fmt::format("{} {}, {} ranks, root {}, {} parts{}, inner {}, {} servers", name_of(request.algorithm),
                     name_of(request.kind), request.ranks, request.root, request.parts,
                     request.in_place ? " in place" : "", request.inner, request.servers);
}

// Every value of the parameters that only some algorithms have.
std::vector<ProgramRequest> variants(const ProgramRequest& request) {
  std::vector<ProgramRequest> result;
  if (request.algorithm == Algorithm::hierarchical) {
    for (std::int64_t inner = 1; inner <= request.ranks; ++inner) {
      if (request.ranks % inner != 0) continue;
      result.push_back(request);
      result.back().inner = inner;
    }
    return result;
  }
  for (const std::int64_t servers : {0, 1, 3}) {
    if (servers > 0 && request.algorithm != Algorithm::parameter_server) break;
    result.push_back(request);
    result.back().servers = servers;
  }
  return result;
}

std::vector<ProgramRequest> requests(std::int64_t ranks) {
  std::vector<ProgramRequest> result;
  for (int k = 0; k < kCollectives; ++k) {
    const auto kind = static_cast<Collective>(k);
    if (kind == Collective::send_recv && ranks != 2) continue;
    for (const Algorithm algorithm : algorithms_for(kind)) {
      for (const std::int64_t root : {std::int64_t{0}, ranks - 1, ranks / 2}) {
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

class EveryAlgorithm : public testing::TestWithParam<std::int64_t> {};

TEST_P(EveryAlgorithm, ReachesThePostconditionWithTwoMessageSlots) {
  for (const ProgramRequest& request : requests(GetParam())) {
    const SymbolicRun run = run_symbolically(make_program(request), 2);
    EXPECT_EQ(run.violation.value_or(""), "") << in_words(request);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryAlgorithm, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 16));

}  // namespace
}  // namespace weft
