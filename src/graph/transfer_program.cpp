#include "graph/transfer_program.hpp"

#include <fmt/format.h>

#include "collective/buffer_form.hpp"

namespace weft {

namespace {

std::string carried_fault(const Communication& c, std::int64_t members) {
  if (!c.program) return "carried: the plan has no program for it";
  const CollectiveSpec& spec = c.program->program.spec;
  if (spec.kind != c.collective) {
    return fmt::format("program '{}' is for {}, not {}", c.program->origin, name_of(spec.kind), name_of(c.collective));
  }
  if (members > 0 && spec.ranks != members) {
    return fmt::format("program '{}' is for {} ranks, but the group has {}", c.program->origin, spec.ranks, members);
  }
  if (c.parts != 1 || c.inner != 0) return "carried: parts and inner are the program's own";
  return "";
}

}  // namespace

std::string program_fault(const Communication& c, std::int64_t members) {
  if (c.algorithm == Algorithm::carried) return carried_fault(c, members);
  if (c.program) return fmt::format("a {} does not use the program '{}'", name_of(c.algorithm), c.program->origin);
  const std::string_view algorithm = name_of(c.algorithm);
  if (c.algorithm != Algorithm::native && !supports(c.algorithm, c.collective)) {
    std::string allowed;
    for (const Algorithm known : algorithms_for(c.collective)) allowed += fmt::format("{}, ", name_of(known));
    return fmt::format("there is no {} that is a {}; allowed are {}native", name_of(c.collective), algorithm, allowed);
  }
  if (c.parts < 1 || c.parts > kMaxTransferParts)
    return fmt::format("parts {} is not in 1..{}", c.parts, kMaxTransferParts);
  if (c.algorithm == Algorithm::native && c.parts != 1) {
    return fmt::format("parts {}: native is one call of the transport's library", c.parts);
  }
  if (c.algorithm != Algorithm::hierarchical) {
    return c.inner == 0 ? "" : fmt::format("inner {}: a {} has no inner groups", c.inner, algorithm);
  }
  if (c.inner < 1) return fmt::format("inner {}: hierarchical needs the size of its inner groups", c.inner);
  if (members > 0 && members % c.inner != 0)
    return fmt::format("inner {} does not divide {} members", c.inner, members);
  return "";
}

std::string program_in_words(const Communication& c) {
  if (c.algorithm == Algorithm::carried && c.program) return fmt::format("program {}", c.program->origin);
  std::string words(name_of(c.algorithm));
  if (c.inner != 0) words += fmt::format(" with inner groups of {}", c.inner);
  if (c.parts != 1) words += fmt::format(" in {} parts", c.parts);
  return words;
}

std::map<std::string, std::map<std::string, std::int64_t>> programs_in_words(const StepGraph& graph) {
  std::map<std::string, std::map<std::string, std::int64_t>> programs;
  for (const Operation& op : graph.operations) {
    if (!op.communication || op.communication->collective == Collective::send_recv) continue;
    const Communication& c = *op.communication;
    if (graph.classes[op.rank_class.index()].group(c.group).scoped(c.scope, c.levels).view.size < 2) continue;
    ++programs[std::string(name_of(c.collective))][program_in_words(c)];
  }
  return programs;
}

std::optional<ProgramRequest> program_of(const Communication& c, std::int64_t members) {
  if (members < 2 || c.algorithm == Algorithm::native || c.algorithm == Algorithm::carried) return std::nullopt;
  if (!program_fault(c, members).empty()) return std::nullopt;
  return ProgramRequest{.algorithm = c.algorithm,
                        .kind = c.collective,
                        .ranks = members,
                        .parts = c.parts,
                        .in_place = works_in_place(c.collective),
                        .inner = c.inner};
}

std::string carried_program_fault(const Program& program) {
  const Collective kind = program.spec.kind;
  const bool takes_programs = kind == Collective::all_reduce || kind == Collective::all_gather ||
                              kind == Collective::reduce_scatter || kind == Collective::all_to_all;
  if (!takes_programs) {
    return fmt::format("it is a program for {}; plans carry all_reduce, reduce_scatter, all_gather and all_to_all",
                       name_of(kind));
  }
  if (const BufferForm own = with_buffers(program, program.in_place); !own.fault.empty()) return own.fault;
  for (const bool in_place : {false, true}) {
    const bool needed = in_place ? kind != Collective::all_to_all : kind != Collective::all_reduce;
    if (!needed || in_place == program.in_place) continue;
    if (BufferForm other = with_buffers(program, in_place); !other.fault.empty()) return other.fault;
  }
  return "";
}

std::optional<Program> transfer_program(const Communication& c, std::int64_t members, bool in_place) {
  if (c.algorithm == Algorithm::carried) {
    if (members < 2 || !program_fault(c, members).empty()) return std::nullopt;
    BufferForm form = with_buffers(c.program->program, in_place);
    return form.fault.empty() ? std::optional(std::move(form.program)) : std::nullopt;
  }
  std::optional<ProgramRequest> request = program_of(c, members);
  if (!request) return std::nullopt;
  request->in_place = in_place;
  return make_program(*request);
}

}  // namespace weft
