#include "graph/transfer_program.hpp"

#include <fmt/format.h>

namespace weft {

std::string program_fault(const Communication& c, std::int64_t members) {
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
    if (graph.classes[op.rank_class.index()].group(c.group).scoped(c.scope).view.size < 2) continue;
    ++programs[std::string(name_of(c.collective))][program_in_words(c)];
  }
  return programs;
}

std::optional<ProgramRequest> program_of(const Communication& c, std::int64_t members) {
  if (members < 2 || c.algorithm == Algorithm::native || !program_fault(c, members).empty()) return std::nullopt;
  return ProgramRequest{.algorithm = c.algorithm,
                        .kind = c.collective,
                        .ranks = members,
                        .parts = c.parts,
                        .in_place = works_in_place(c.collective),
                        .inner = c.inner};
}

}  // namespace weft
