#include "study/collective/program_numbers.hpp"

#include <algorithm>

#include "collective/program_traffic.hpp"
#include "collective/verify/verify_program.hpp"

namespace weft {

std::optional<std::string> first_violation(const Program& program) {
  const ProgramVerdict verdict = verify_program(program);
  if (verdict.accepted()) return std::nullopt;
  return verdict.words();
}

ProgramSize size_of(const Program& program) {
  ProgramSize size;
  for (const RankProgram& rank : program.ranks) {
    size.blocks += static_cast<std::int64_t>(rank.blocks.size());
    for (const ThreadBlock& block : rank.blocks) size.instructions += static_cast<std::int64_t>(block.steps.size());
  }
  return size;
}

TrafficNumbers traffic_of(const Program& program, Bytes bytes) {
  const ProgramTraffic traffic = program_traffic(program, even_sizes(program.spec, bytes.value), Bytes{1});
  TrafficNumbers numbers;
  numbers.messages = traffic.total.messages;
  numbers.bytes = traffic.total.bytes;
  for (const MessageCount& rank : traffic.sent) {
    numbers.rank_messages = std::max(numbers.rank_messages, rank.messages);
    numbers.rank_bytes = std::max(numbers.rank_bytes, rank.bytes);
  }
  return numbers;
}

}  // namespace weft
