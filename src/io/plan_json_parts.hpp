// The lines of a plan file: one value or one operation from its JSON object, every number checked against
// what it counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/json/json_reader.hpp"
#include "plan/plan.hpp"

namespace weft {

// How many of each there are.
struct PlanCounts {
  std::int64_t classes = 0;
  std::int64_t values = 0;
  std::int64_t operations = 0;
  std::int64_t origins = 0;  // operations of the step graph before any rewrite
  std::int64_t chunks = 0;   // of a pipeline rank
  std::int64_t layers = 0;
  std::int64_t micro_batches = 0;
};

// Throws where the object has an "id" that is not its place in the list: a line was inserted or lost.
void check_line_id(const JsonObject& object, std::size_t index);

class ValueReader {
 public:
  explicit ValueReader(const PlanCounts& counts);
  Value value(const JsonObject& object) const;
  // Also refuses sizes and addresses that would overflow.
  Placement placement(const JsonObject& object, const Value& value) const;

 private:
  PlanCounts counts_;
  std::vector<std::string> keys_, kinds_, dtypes_, axes_, shares_;
};

class OperationReader {
 public:
  // `programs` are those that the plan carries.
  explicit OperationReader(const PlanCounts& counts, std::vector<ProgramRef> programs = {});
  Operation operation(const JsonObject& object) const;
  // `queues`: how many the operation's class has.
  Issue issue(const JsonObject& object, std::size_t queues) const;

 private:
  void read_identity(const JsonObject& object, Operation& op) const;
  void read_stage(const JsonObject& object, Operation& op) const;
  OpKey read_key(const JsonObject& object, Phase phase) const;
  Communication read_communication(const JsonObject& object, ElementType dtype) const;
  WireFormat read_wire(const JsonObject& object) const;
  static Mover read_mover(const JsonObject& object);
  void read_dependencies(const JsonObject& object, Operation& op) const;
  std::vector<Origin> read_origins(const JsonObject& object) const;

  PlanCounts counts_;
  std::vector<ProgramRef> programs_;
  std::vector<std::string> keys_, communication_keys_, phases_, roles_, operands_, kinds_, dtypes_, products_,
      collectives_, algorithms_, groups_, scopes_, rules_;
};

}  // namespace weft
