#include "collective/rewrite.hpp"

#include <algorithm>
#include <set>

namespace weft {
namespace {

InstructionId id_of(std::size_t block, std::size_t step) {
  return {static_cast<std::int32_t>(block), static_cast<std::int32_t>(step)};
}

void append(std::vector<InstructionId>& to, const std::vector<InstructionId>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

std::set<InstructionId> waited_for(const RankProgram& rank) {
  std::set<InstructionId> result;
  for (const ThreadBlock& block : rank.blocks) {
    for (const Instruction& instruction : block.steps)
      result.insert(instruction.after.begin(), instruction.after.end());
  }
  return result;
}

void fold_nops(RankProgram& rank) {
  const std::set<InstructionId> waited = waited_for(rank);
  StepPlaces places(rank);
  for (std::size_t b = 0; b < rank.blocks.size(); ++b) {
    std::vector<Instruction> kept;
    std::vector<InstructionId> pending;
    std::vector<Instruction>& steps = rank.blocks[b].steps;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      append(pending, steps[s].after);
      if (steps[s].kind == InstructionKind::nop && !waited.contains(id_of(b, s))) continue;
      places.move(id_of(b, s), id_of(b, kept.size()));
      steps[s].after = std::move(pending);
      pending.clear();
      kept.push_back(std::move(steps[s]));
    }
    if (!pending.empty()) kept.push_back({InstructionKind::nop, {}, {}, 0, std::move(pending)});
    steps = std::move(kept);
  }
  rename_after(rank, places);
}

void spread_dependencies(RankProgram& rank) {
  StepPlaces places(rank);
  for (std::size_t b = 0; b < rank.blocks.size(); ++b) {
    std::vector<Instruction> spread;
    std::vector<Instruction>& steps = rank.blocks[b].steps;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      std::vector<InstructionId>& after = steps[s].after;
      for (std::size_t i = 0; i + 1 < after.size(); ++i)
        spread.push_back({InstructionKind::nop, {}, {}, 0, {after[i]}});
      if (after.size() > 1) after.erase(after.begin(), after.end() - 1);
      places.move(id_of(b, s), id_of(b, spread.size()));
      spread.push_back(std::move(steps[s]));
    }
    steps = std::move(spread);
  }
  rename_after(rank, places);
}

void cut_counts(RankProgram& rank, std::int64_t limit) {
  StepPlaces places(rank);
  for (std::size_t b = 0; b < rank.blocks.size(); ++b) {
    std::vector<Instruction> cut;
    std::vector<Instruction>& steps = rank.blocks[b].steps;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      Instruction rest = std::move(steps[s]);
      while (rest.count > limit) {
        Instruction first = rest;
        first.count = limit;
        cut.push_back(std::move(first));
        rest.after.clear();
        rest.src.slot += limit;
        rest.dst.slot += limit;
        rest.count -= limit;
      }
      places.move(id_of(b, s), id_of(b, cut.size()));  // the instruction ends with its last piece
      cut.push_back(std::move(rest));
    }
    steps = std::move(cut);
  }
  rename_after(rank, places);
}

}  // namespace

StepPlaces::StepPlaces(const RankProgram& rank) {
  for (std::size_t b = 0; b < rank.blocks.size(); ++b) {
    auto& block = places_.emplace_back();
    for (std::size_t s = 0; s < rank.blocks[b].steps.size(); ++s) block.push_back(id_of(b, s));
  }
}

void rename_after(RankProgram& rank, const StepPlaces& places) {
  for (std::size_t b = 0; b < rank.blocks.size(); ++b) {
    std::vector<Instruction>& steps = rank.blocks[b].steps;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      const InstructionId own = id_of(b, s);
      std::vector<InstructionId> renamed;
      for (const InstructionId& other : steps[s].after) {
        const InstructionId place = places.of(other);
        if (place.block != own.block || place.step > own.step) renamed.push_back(place);
      }
      std::sort(renamed.begin(), renamed.end());
      renamed.erase(std::unique(renamed.begin(), renamed.end()), renamed.end());
      steps[s].after = std::move(renamed);
    }
  }
}

Program without_nops(Program program) {
  for (RankProgram& rank : program.ranks) fold_nops(rank);
  return program;
}

Program without_idle_copies(Program program) {
  if (!program.in_place) return program;
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const auto self = static_cast<std::int64_t>(rank);
    for (ThreadBlock& block : program.ranks[rank].blocks) {
      for (Instruction& step : block.steps) {
        const bool stays =
            step.kind == InstructionKind::copy && located(program, self, step.src) == located(program, self, step.dst);
        if (stays) step = {InstructionKind::nop, {}, {}, 0, std::move(step.after)};
      }
    }
  }
  return program;
}

Program with_one_dependency_each(Program program) {
  for (RankProgram& rank : program.ranks) spread_dependencies(rank);
  return program;
}

Program normal_form(Program program) {
  program = without_nops(std::move(program));
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const auto r = static_cast<std::int64_t>(rank);
    for (ThreadBlock& block : program.ranks[rank].blocks) {
      for (Instruction& step : block.steps) {
        step.src = reads_src(step.kind) ? located(program, r, step.src) : SlotRef{};
        step.dst = writes_dst(step.kind) ? located(program, r, step.dst) : SlotRef{};
        if (step.kind == InstructionKind::nop) step.count = 0;
      }
    }
  }
  return program;
}

Program with_counts_up_to(Program program, std::int64_t limit) {
  for (RankProgram& rank : program.ranks) cut_counts(rank, limit);
  return program;
}

}  // namespace weft
