#include "collective/algorithms.hpp"

#include <gtest/gtest.h>

#include "collective/verify/symbolic_run.hpp"

namespace weft {
namespace {

TEST(RingPrograms, ReachThePostconditionForEveryRankCount) {
  for (const Collective kind : {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}) {
    for (const std::int64_t ranks : {1, 2, 3, 4, 5, 7, 8, 16}) {
      for (const bool in_place : {false, true}) {
        const Program program = make_program({.kind = kind, .ranks = ranks, .parts = 2, .in_place = in_place});
        const SymbolicRun run = run_symbolically(program);
        EXPECT_EQ(run.violation.value_or(""), "") << name_of(kind) << " " << ranks << " " << in_place;
      }
    }
  }
}

}  // namespace
}  // namespace weft
