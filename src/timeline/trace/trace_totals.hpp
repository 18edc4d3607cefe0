// What a set of ranks spent on each operation, to compare two sets: before and after a change, predicted and measured.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "timeline/trace/communication_facts.hpp"
#include "timeline/trace/exposed_communication.hpp"

namespace weft {

struct OperationTotal {
  double count = 0;
  double time_s = 0;
  double exposed_s = 0;  // of communication
  friend bool operator==(const OperationTotal&, const OperationTotal&) = default;
};

// Means over ranks, per step.
struct TraceTotals {
  std::int64_t ranks = 0;
  double steps = 0;  // of a rank; 1 where the traces mark none
  double span_s = 0, computation_s = 0, communication_s = 0, exposed_s = 0;
  std::map<std::pair<KernelKind, std::string>, OperationTotal> operations;
};

struct TotalsInput {
  const DeviceTrace* trace = nullptr;
  const DeviceOrder* order = nullptr;
  const CommunicationTable* communication = nullptr;
  const ExposedCommunication* exposed = nullptr;
};
TraceTotals total_operations(const std::vector<TotalsInput>& ranks);

// What operations are compared by: a kernel's name; of communication, collective and group; in our own traces what the
// operations of all layers have in common.
std::string operation_name(const TotalsInput& rank, std::int32_t activity);

enum class ChangeKind : std::uint8_t { same, changed, appeared, vanished };
std::string_view name_of(ChangeKind change);

struct OperationChange {
  KernelKind kind = KernelKind::computation;
  std::string name;
  ChangeKind change = ChangeKind::same;
  OperationTotal before, after;
  double difference_s() const { return after.time_s - before.time_s; }
};

// The largest difference of time first; ties by kind and name.
std::vector<OperationChange> compare_totals(const TraceTotals& before, const TraceTotals& after);

}  // namespace weft
