// For tests: what a program sends of a buffer that everything divides.
#pragma once

#include <gtest/gtest.h>

#include "collective/algorithm/test_requests.hpp"
#include "collective/program_traffic.hpp"

namespace weft {

constexpr std::int64_t kElement = 4;
// Divisible by every N up to 10 and by 16, times 2 halves, times 3 parts.
constexpr std::int64_t kElements = 5040 * 96;
constexpr std::int64_t K = kElement * kElements;

inline ProgramTraffic traffic_of(const ProgramRequest& request) {
  const Program program = make_program(request);
  return program_traffic(program, even_sizes(program.spec, kElements), Bytes{kElement});
}

inline std::int64_t sent(const ProgramTraffic& traffic, std::int64_t rank) {
  return traffic.sent[rank].bytes.value;
}

// Calls check(traffic, request) for every number of ranks, parts, root, in place or not.
template <class Check>
void check_all(Algorithm algorithm, Collective kind, const Check& check) {
  for (const std::int64_t ranks : {2, 3, 4, 5, 6, 7, 8, 9, 16}) {
    std::int64_t checked = 0;
    for (const ProgramRequest& request : every_request(ranks)) {
      if (request.algorithm != algorithm || request.kind != kind) continue;
      SCOPED_TRACE(in_words(request));
      check(traffic_of(request), request);
      ++checked;
    }
    EXPECT_GT(checked, 0);
  }
}

}  // namespace weft
