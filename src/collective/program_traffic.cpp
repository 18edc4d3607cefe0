#include "collective/program_traffic.hpp"

#include <algorithm>
#include <queue>
#include <tuple>

#include "base/error.hpp"
#include "collective/verify/symbolic_run.hpp"

namespace weft {
namespace {

// Walks the steps in an executable order. `depth` counts the messages of the longest chain that ends with a step, its
// own included.
class ChainCounter {
 public:
  explicit ChainCounter(const Program& program) : program_(program) {
    for (const RankProgram& rank : program.ranks) {
      auto& blocks = depth_.emplace_back();
      for (const ThreadBlock& block : rank.blocks) blocks.emplace_back(block.steps.size(), 0);
    }
  }

  std::int64_t visit(std::int64_t rank, InstructionId id) {
    const ThreadBlock& block = program_.ranks[rank].blocks[id.block];
    const Instruction& step = block.steps[id.step];
    std::int64_t result = id.step == 0 ? 0 : depth(rank, {id.block, id.step - 1});
    for (const InstructionId& other : step.after) result = std::max(result, depth(rank, other));
    if (receives(step.kind)) {
      auto& messages = under_way_[{block.receive_from, rank, block.channel}];
      result = std::max(result, messages.front());
      messages.pop();
    }
    if (sends(step.kind)) {
      ++result;
      under_way_[{rank, block.send_to, block.channel}].push(result);
    }
    return depth(rank, id) = result;
  }

 private:
  std::int64_t& depth(std::int64_t rank, InstructionId id) { return depth_[rank][id.block][id.step]; }

  const Program& program_;
  std::vector<std::vector<std::vector<std::int64_t>>> depth_;  // by rank, block, step
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::queue<std::int64_t>> under_way_;
};

void add_message(MessageCount& count, std::int64_t bytes) {
  count.bytes.value += bytes;
  ++count.messages;
}

}  // namespace

ProgramTraffic program_traffic(const Program& program, const PieceSizes& sizes, Bytes element) {
  const SymbolicRun run = run_symbolically(program);
  if (run.violation) fail("{}: {}", program.name, *run.violation);
  ProgramTraffic traffic;
  traffic.sent.resize(program.ranks.size());
  traffic.instructions.resize(program.ranks.size());
  ChainCounter chains(program);
  for (const StepTrace& trace : run.steps) {
    const std::size_t rank = trace.rank;
    const ThreadBlock& block = program.ranks[rank].blocks[trace.step.block];
    ++traffic.instructions[rank];
    traffic.longest_chain = std::max(traffic.longest_chain, chains.visit(trace.rank, trace.step));
    if (!sends(block.steps[trace.step.step].kind)) continue;
    std::int64_t bytes = 0;
    for (const Content& moved : trace.moved) bytes += sizes[moved.piece] * element.value;
    add_message(traffic.sent[rank], bytes);
    add_message(traffic.between[{trace.rank, block.send_to}], bytes);
    add_message(traffic.total, bytes);
  }
  return traffic;
}

}  // namespace weft
