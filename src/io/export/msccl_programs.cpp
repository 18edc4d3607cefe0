// The programs that a plan's transfers name, as MSCCL's XML files (docs/export.md).
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/mix.hpp"
#include "graph/transfer_program.hpp"
#include "io/export/export_writers.hpp"
#include "io/msccl/msccl_xml.hpp"
#include "io/program_json.hpp"

namespace weft {
namespace {

struct ProgramUse {
  Program program;
  Bytes least, most;
};

// Carried programs are told apart by their content, since several may have one origin.
std::string file_name(const Communication& c, std::int64_t ranks) {
  if (c.algorithm != Algorithm::carried) {
    return fmt::format("{}-{}-{}ranks-{}parts.xml", name_of(c.collective), name_of(c.algorithm), ranks, c.parts);
  }
  return fmt::format("{}-carried-{}ranks-{:08x}.xml", name_of(c.collective), ranks,
                     hash_text(json_text(program_to_json(c.program->program))) & 0xffffffff);
}

// By the name of its file.
std::map<std::string, ProgramUse> programs_of(const Plan& plan) {
  std::map<std::string, ProgramUse> programs;
  for (const Operation& op : plan.graph.operations) {
    if (!op.is_transfer() || op.communication->collective == Collective::send_recv) continue;
    const Communication& communication = *op.communication;
    const ClassGroup& group =
        plan.graph.classes[op.rank_class].group(communication.group).scoped(communication.scope, communication.levels);
    if (group.view.size > kListedMembers) continue;
    const std::string name = file_name(communication, group.view.size);
    if (!programs.contains(name)) {
      std::optional<Program> program =
          transfer_program(communication, group.view.size, works_in_place(communication.collective));
      if (!program) continue;
      programs.emplace(name, ProgramUse{std::move(*program), communication.bytes, communication.bytes});
    }
    const auto found = programs.find(name);
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
      sheet.file(name, write_msccl_xml(use.program, options));
      ++written;
    } catch (const Error& error) {  // a program beyond MSCCL's limits
      sheet.warn(fmt::format("{} is not written: {}", name, error.what()));
      sheet.leaves_out(Feature::programs, "some are beyond MSCCL's limits");
    }
  }
  if (written == 0) fail("--to msccl: the plan names no program that MSCCL could carry out");
}

}  // namespace weft
