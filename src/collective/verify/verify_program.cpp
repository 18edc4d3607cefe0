#include "collective/verify/verify_program.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collective/verify/hazards.hpp"
#include "collective/verify/structure.hpp"

namespace weft {
namespace {

// What the instruction moved in the symbolic run, as far as that got: naming the piece makes a hazard easier to find.
std::string moved_by(const SymbolicRun& run, const RankStep& step) {
  for (const StepTrace& trace : run.steps) {
    if (trace.rank != step.rank || trace.step != step.step || trace.moved.empty()) continue;
    const Content& first = trace.moved.front();
    return fmt::format("; the first moves piece {} of rank{} {}{}", first.piece, first.from.size() == 1 ? "" : "s",
                       fmt::join(first.from.members(), ","), trace.moved.size() > 1 ? " and more" : "");
  }
  return {};
}

}  // namespace

ProgramVerdict verify_program(const Program& program) {
  ProgramVerdict verdict;
  verdict.violation = check_structure(program);
  if (verdict.violation) return verdict;
  ProgramOrder order(program);
  verdict.violation = order.find_mismatch();
  if (!verdict.violation) verdict.violation = order.find_deadlock();
  if (verdict.violation) return verdict;
  verdict.violation = find_hazard(program, order);
  verdict.run = run_symbolically(program, kMinMessageSlots);
  if (verdict.violation) {
    verdict.violation->words += moved_by(verdict.run, verdict.violation->steps.front());
  } else if (verdict.run.violation) {
    verdict.violation = Finding{ProgramRule::value, *verdict.run.violation, {}, {}};
  }
  return verdict;
}

}  // namespace weft
