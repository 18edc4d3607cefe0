// The programs that a plan's transfers name, as MSCCL's XML files (docs/export.md).
#include <fmt/format.h>

#include <map>
#include <tuple>

#include "base/error.hpp"
#include "graph/transfer_program.hpp"
#include "io/export/export_writers.hpp"
#include "io/msccl/msccl_xml.hpp"

namespace weft {
namespace {

struct ProgramUse {
  ProgramRequest request;
  Bytes least, most;
};

// By the name of its file.
std::map<std::string, ProgramUse> programs_of(const Plan& plan) {
  std::map<std::string, ProgramUse> programs;
  for (const Operation& op : plan.graph.operations) {
    if (!op.is_transfer() || op.communication->collective == Collective::send_recv) continue;
    const Communication& communication = *op.communication;
    const ClassGroup& group = plan.graph.classes[op.rank_class].group(communication.group).scoped(communication.scope);
    if (group.view.size > kListedMembers) continue;
    const auto request = program_of(communication, group.view.size);
    if (!request) continue;
    const std::string name = fmt::format("{}-{}-{}ranks-{}parts.xml", name_of(request->kind),
                                         name_of(request->algorithm), request->ranks, request->parts);
    const auto [found, added] =
        programs.try_emplace(name, ProgramUse{*request, communication.bytes, communication.bytes});
    found->second.least = std::min(found->second.least, communication.bytes);
    found->second.most = std::max(found->second.most, communication.bytes);
  }
  return programs;
}

}  // namespace

void write_msccl_programs(ExportSheet& sheet) {
  std::int64_t written = 0;
  sheet.carries({Feature::programs});
  for (const auto& [name, use] : programs_of(sheet.plan())) {
    MscclOptions options;
    options.min_bytes = use.least.value;
    options.max_bytes = use.most.value;
    try {
      sheet.file(name, write_msccl_xml(make_program(use.request), options));
      ++written;
    } catch (const Error& error) {  // a program beyond MSCCL's limits
      sheet.warn(fmt::format("{} is not written: {}", name, error.what()));
      sheet.leaves_out(Feature::programs, "some are beyond MSCCL's limits");
    }
  }
  if (written == 0) fail("--to msccl: the plan names no program that MSCCL could carry out");
}

}  // namespace weft
