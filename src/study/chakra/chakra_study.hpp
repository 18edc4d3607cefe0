// What Chakra traces say, and how their operations are ordered best: `weft plan --chakra`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "study/chakra/traced_simulation.hpp"
#include "timeline/accounting.hpp"

namespace weft {

struct ChakraOptions {
  std::int64_t visits = 3'000'000;  // what a search may look at (ImproveOptions::visits)
  std::uint32_t seed = 1;
};

// A way to run the step.
struct ChakraOrder {
  std::string name;  // "serial", "trace", "weft"
  TracedOrder order;
  Timeline timeline;
  Accounting accounting;
  RankAccount mean;  // over the devices
  double step_s = 0;
};

// The transfers of one collective in one communicator, over all ranks of the trace.
struct ExposedTransfer {
  std::string collective, group;
  std::int64_t count = 0;  // each member of a transfer counts
  double alone_s = 0, exposed_s = 0;
};

struct ChakraStudy {
  TracedStep step;
  TracedBound bound;
  std::vector<ChakraOrder> orders;
  std::size_t best = 0;
  struct Failed {
    std::string name, reason;
  };
  std::vector<Failed> failed;
  std::vector<std::string> warnings;
};

// Returns why the trace cannot run to its end in its own order, where it cannot: operations of several ranks wait for
// each other.
std::optional<std::string> verify_traced(const TracedStep& step);
// Whether it also ends where a device does one thing at a time, in the trace's order.
bool ends_one_by_one(const TracedStep& step);

// Three orders: `serial` does one thing at a time on every device, `trace` keeps the trace's order and its control
// dependencies, with transfers beside compute, and `weft` is the best that a search found with data dependencies alone.
// Throws Error where data dependencies and the pairing of transfers deadlock by themselves.
ChakraStudy study_chakra(TracedStep step, const TracedCosts& costs, const ChakraOptions& options = {});

// The longest exposed first.
std::vector<ExposedTransfer> exposed_transfers(const Timeline& timeline);

}  // namespace weft
