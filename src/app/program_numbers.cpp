#include "app/program_numbers.hpp"

#include <algorithm>
#include <vector>

#include "collective/piece_sizes.hpp"
#include "collective/verify/symbolic_run.hpp"

namespace weft {

std::optional<std::string> first_violation(const Program& program) {
  return run_symbolically(program).violation;
}

ProgramSize size_of(const Program& program) {
  ProgramSize size;
  for (const RankProgram& rank : program.ranks) {
    size.blocks += static_cast<std::int64_t>(rank.blocks.size());
    for (const Block& block : rank.blocks) size.instructions += static_cast<std::int64_t>(block.steps.size());
  }
  return size;
}

ProgramTraffic traffic_of(const Program& program, Bytes bytes) {
  const PieceSizes sizes = even_sizes(program.spec, bytes.value);
  std::vector<std::int64_t> sent(program.ranks.size()), messages(program.ranks.size());
  for (const StepTrace& trace : run_symbolically(program).steps) {
    const auto rank = static_cast<std::size_t>(trace.rank);
    const auto& block = program.ranks[rank].blocks[static_cast<std::size_t>(trace.step.block)];
    if (!sends(block.steps[static_cast<std::size_t>(trace.step.step)].kind)) continue;
    ++messages[rank];
    for (const Content& content : trace.moved) sent[rank] += sizes[static_cast<std::size_t>(content.piece)];
  }
  ProgramTraffic traffic;
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    traffic.messages += messages[rank];
    traffic.bytes += {sent[rank]};
    traffic.rank_messages = std::max(traffic.rank_messages, messages[rank]);
    traffic.rank_bytes = std::max(traffic.rank_bytes, {sent[rank]});
  }
  return traffic;
}

}  // namespace weft
