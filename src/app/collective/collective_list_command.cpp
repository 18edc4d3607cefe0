// `weft collective list`
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/cli.hpp"
#include "app/commands.hpp"
#include "app/files.hpp"
#include "app/flags.hpp"
#include "app/output_paths.hpp"
#include "app/terminal.hpp"
#include "app/version.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "collective/algorithms.hpp"
#include "collective/fuse.hpp"
#include "io/json/enum_names.hpp"
#include "io/msccl/msccl_xml.hpp"
#include "study/collective/program_numbers.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMaxSlots = std::int64_t{1} << 22;  // of all ranks together; more would not fit in memory
constexpr const char* kFiles = "MSCCL XML";

struct Row {
  ProgramRequest request;
  std::string reason;  // why there is no such program; empty: there is
  ProgramSize size;
  TrafficNumbers traffic;
  std::string file, no_file;  // what was written, or why not
};

struct ListOptions {
  ProgramRequest request;  // of every row but for collective and algorithm
  std::optional<Collective> kind;
  std::optional<Algorithm> algorithm;
  Bytes size{64 << 20};
  std::optional<std::string> folder;
  MscclOptions xml;
};

void declare(Flags& flags) {
  flags.value("ranks", "N", "members of the collective (default: 8)");
  flags.value("size", "BYTES", "the whole buffer, e.g. 64MiB (default)");
  flags.value("collective", "NAME", "only this one, e.g. all_reduce");
  flags.value("algorithm", "NAME", "only this one, e.g. ring");
  flags.value("parts", "P", "messages are cut into so many that follow each other (default: 1)");
  flags.value("inner", "M", "ranks of an inner group of hierarchical (default: half of the ranks)");
  flags.value("servers", "S", "ranks beside the workers of parameter_server (default: 0, the workers serve)");
  flags.value("root", "R", "of broadcast, reduce, gather, scatter; the sender of send_recv (default: 0)");
  flags.toggle("in-place", "input and output are one buffer");
  flags.value("out", "DIR", "write every listed program there", kFiles);
  flags.value("proto", "NAME", "Simple (default), LL128 or LL", kFiles);
  flags.value("min-bytes", "BYTES", "smallest buffer the runtime uses it for (default: 0)", kFiles);
  flags.value("max-bytes", "BYTES", "largest one (default: 1TiB)", kFiles);
  flags.value("threads", "T", "of a thread block (default: the runtime's choice)", kFiles);
  flags.value("runtime", "NAME", "msccl (default), or rccl, also for Azure's executor", kFiles);
  flags.value("config", "FILE", "a JSON object with flags as keys; the command line wins");
  flags.toggle("json", "one JSON object instead of the table");
}

MscclOptions read_xml_options(const Flags& flags) {
  MscclOptions options;
  options.proto = flags.text("proto").value_or(options.proto);
  if (const auto bytes = flags.text("min-bytes")) options.min_bytes = parse_bytes(*bytes, "--min-bytes").value;
  if (const auto bytes = flags.text("max-bytes")) options.max_bytes = parse_bytes(*bytes, "--max-bytes").value;
  options.threads = flags.integer("threads", 1, 1024).value_or(0);
  options.for_rccl = flags.one_of("runtime", {"msccl", "rccl"}).value_or(0) == 1;
  return options;
}

ListOptions read_options(const Flags& flags) {
  ListOptions options;
  ProgramRequest& request = options.request;
  request.ranks = flags.integer("ranks", 1, 1024).value_or(8);
  request.parts = flags.integer("parts", 1, 1024).value_or(1);
  if (request.ranks * request.ranks * request.parts > kMaxSlots) {
    fail("--ranks {} --parts {}: ranks x ranks x parts is not at most {}", request.ranks, request.parts, kMaxSlots);
  }
  request.root = flags.integer("root", 0, request.ranks - 1).value_or(0);
  request.inner = flags.integer("inner", 1, request.ranks).value_or(request.ranks % 2 == 0 ? request.ranks / 2 : 1);
  request.servers = flags.integer("servers", 0, 1024).value_or(0);
  request.in_place = flags.is_set("in-place");
  if (const auto size = flags.text("size")) options.size = parse_bytes(*size, "--size");
  if (const auto kind = flags.one_of("collective", names_up_to(Collective::barrier))) {
    options.kind = static_cast<Collective>(*kind);
  }
  if (const auto algorithm = flags.one_of("algorithm", names_up_to(Algorithm::hierarchical))) {
    options.algorithm = static_cast<Algorithm>(*algorithm);
  }
  options.folder = flags.text("out");
  options.xml = read_xml_options(flags);
  for (const char* name : {"proto", "min-bytes", "max-bytes", "threads", "runtime"}) {
    if (flags.given(name) && !options.folder) fail("--{}: belongs to --out, which is not given", name);
  }
  return options;
}

std::vector<Row> rows_of(const ListOptions& options) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i <= static_cast<std::size_t>(Collective::barrier); ++i) {
    const auto kind = static_cast<Collective>(i);
    if (options.kind && kind != *options.kind) continue;
    for (const Algorithm algorithm : algorithms_for(kind)) {
      if (options.algorithm && algorithm != *options.algorithm) continue;
      Row row;
      row.request = options.request;
      row.request.kind = kind;
      row.request.algorithm = algorithm;
      if (!has_root(kind)) row.request.root = 0;
      rows.push_back(std::move(row));
    }
  }
  if (rows.empty()) {
    fail("--algorithm {} --collective {}: there is no such program; weft collective list names those there are",
         options.algorithm ? name_of(*options.algorithm) : "any", options.kind ? name_of(*options.kind) : "any");
  }
  return rows;
}

void write_file(const ListOptions& options, const Program& program, Row& row) {
  const std::string name =
      fmt::format("{}_{}_{}", name_of(row.request.kind), name_of(row.request.algorithm), row.request.ranks);
  MscclOptions xml = options.xml;
  xml.name = name;
  const std::string text = write_msccl_xml(fused(program), xml);
  const std::filesystem::path path = std::filesystem::path(*options.folder) / (name + ".xml");
  write_text_file(path, [&](std::ostream& file) { file << text; });
  row.file = path.string();
}

// A row that does not work says so, unless it is the only one that was asked for.
void fill(const ListOptions& options, Row& row) {
  const bool asked_for = options.kind && options.algorithm;
  try {
    const Program program = make_program(row.request);
    if (const auto violation = first_violation(program)) fail("does not work: {}", *violation);
    row.size = size_of(program);
    row.traffic = traffic_of(program, row.request.kind == Collective::barrier ? Bytes{0} : options.size);
    if (!options.folder) return;
    try {
      write_file(options, program, row);
    } catch (const Error& error) {
      if (asked_for) throw;
      row.no_file = error.what();
    }
  } catch (const Error& error) {
    if (asked_for) throw;
    row.reason = error.what();
  }
}

std::string in_words(const ListOptions& options, const std::vector<Row>& rows, std::size_t columns) {
  TextTable table(
      {"collective", "algorithm", "messages a rank", "in all", "bytes a rank", "in all", "blocks", "instructions"});
  std::string notes;
  for (const Row& row : rows) {
    const std::string kind(name_of(row.request.kind)), algorithm(name_of(row.request.algorithm));
    if (!row.reason.empty()) {
      notes += fmt::format("{} {}: {}\n", kind, algorithm, row.reason);
      continue;
    }
    table.add_row({kind, algorithm, format_count(row.traffic.rank_messages), format_count(row.traffic.messages),
                   format_bytes(row.traffic.rank_bytes), format_bytes(row.traffic.bytes), format_count(row.size.blocks),
                   format_count(row.size.instructions)});
    if (!row.no_file.empty()) notes += fmt::format("{} {}: {}\n", kind, algorithm, row.no_file);
    if (!row.file.empty()) notes += fmt::format("wrote {}\n", row.file);
  }
  return fmt::format("{} ranks, {} (a rank: the one that sends most)\n\n{}{}{}", options.request.ranks,
                     format_bytes(options.size), table.to_string(columns), notes.empty() ? "" : "\n", notes);
}

nlohmann::ordered_json in_json(const ListOptions& options, const std::vector<Row>& rows) {
  nlohmann::ordered_json json;
  json["version"] = kVersion;
  json["ranks"] = options.request.ranks;
  json["bytes"] = options.size.value;
  json["parts"] = options.request.parts;
  json["in_place"] = options.request.in_place;
  json["programs"] = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json program;
    program["collective"] = name_of(row.request.kind);
    program["algorithm"] = name_of(row.request.algorithm);
    if (!row.reason.empty()) {
      program["reason"] = row.reason;
    } else {
      program["rank_messages"] = row.traffic.rank_messages;
      program["messages"] = row.traffic.messages;
      program["rank_bytes"] = row.traffic.rank_bytes.value;
      program["bytes"] = row.traffic.bytes.value;
      program["blocks"] = row.size.blocks;
      program["instructions"] = row.size.instructions;
      if (!row.file.empty()) program["file"] = row.file;
      if (!row.no_file.empty()) program["no_file"] = row.no_file;
    }
    json["programs"].push_back(std::move(program));
  }
  return json;
}

}  // namespace

int run_collective_list_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream&) {
  Flags flags("collective list", "Lists the algorithms of every collective with what they send, or writes them.",
              "weft collective list --algorithm ring --collective all_reduce --ranks 8 --out out/msccl");
  declare(flags);
  flags.parse(arguments);
  require_outputs_can_be_written(flags, {"out"});
  const ListOptions options = read_options(flags);
  std::vector<Row> rows = rows_of(options);
  if (options.folder) make_folder(*options.folder);
  for (Row& row : rows) fill(options, row);
  if (flags.is_set("json")) {
    out << json_text(in_json(options, rows), 2) << "\n";
  } else {
    out << in_words(options, rows, columns_of(out));
  }
  return kOk;
}

}  // namespace weft
