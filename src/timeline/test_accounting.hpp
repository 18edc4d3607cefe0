// What tests of the accounting expect of a rank.
#pragma once

#include <gtest/gtest.h>

#include "timeline/accounting.hpp"

namespace weft {

// Per-step terms in nanoseconds.
struct Terms {
  double compute = 0, slowdown = 0, exposed = 0, bubble = 0, idle = 0, comm = 0;
};

inline void expect_terms(const RankAccount& account, const Terms& expected) {
  EXPECT_NEAR(account.compute_s * 1e9, expected.compute, 1e-6);
  EXPECT_NEAR(account.slowdown_s * 1e9, expected.slowdown, 1e-6);
  EXPECT_NEAR(account.exposed_s * 1e9, expected.exposed, 1e-6);
  EXPECT_NEAR(account.bubble_s * 1e9, expected.bubble, 1e-6);
  EXPECT_NEAR(account.idle_s * 1e9, expected.idle, 1e-6);
  EXPECT_NEAR(account.comm_s * 1e9, expected.comm, 1e-6);
  double by_kind = 0;
  for (const double kind : account.exposed_by) by_kind += kind;
  EXPECT_NEAR(account.exposed_s, by_kind, 1e-15);
  EXPECT_NEAR(account.step_s,
              account.compute_s + account.slowdown_s + account.exposed_s + account.bubble_s + account.idle_s, 1e-15);
}

inline double exposed_ns(const RankAccount& account, TrafficKind kind) {
  return account.exposed_by[static_cast<std::size_t>(kind)] * 1e9;
}

}  // namespace weft
