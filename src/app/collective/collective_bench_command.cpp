// `weft collective bench`
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/cli.hpp"
#include "app/cluster/topology_inputs.hpp"
#include "app/collective/program_file.hpp"
#include "app/commands.hpp"
#include "app/files.hpp"
#include "app/flags.hpp"
#include "app/inputs.hpp"
#include "app/output_paths.hpp"
#include "app/page/page_sources.hpp"
#include "app/terminal.hpp"
#include "app/version.hpp"
#include "app/world/own_processes.hpp"
#include "app/world/world.hpp"
#include "app/world/world_flags.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/mix.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cluster/presets.hpp"
#include "collective/synthesis/switch_ranks.hpp"
#include "io/cluster_json.hpp"
#include "io/json/enum_names.hpp"
#include "study/collective/collective_bench.hpp"
#include "study/collective/program_numbers.hpp"

namespace weft {
namespace {

constexpr const char* kRanks = "Ranks";

void declare(Flags& flags) {
  flags.positionals("files", "programs as MSCCL XML, timed beside the cost model's choice (or --algorithm)");
  flags.value("ranks", "N", "ranks as threads of this process (default: those of --cluster, or 2)", kRanks);
  flags.value("processes", "N", "ranks as processes on this machine, joined by TCP", kRanks);
  flags.value(
      "cluster", "SPEC",
      "links that pace the threads, e.g. local:4,nic=200Mb/s or a JSON file; without it they run at memory speed",
      kRanks);
  flags.value("topology", "NAME|FILE",
              "the wiring of --cluster (what weft cluster show takes), which paces instead of its levels", kRanks);
  declare_topology_flags(flags);
  flags.value("slowdown", "F", "all links of --cluster slower by this factor (default: 1)", kRanks);
  flags.value("collective", "A,B", "what to time (default: all_reduce)");
  flags.value("size", "A,B", "sizes of the whole buffer (default: 64KiB,1MiB,16MiB)");
  flags.value("algorithm", "A,B", "algorithms, or all (default: the one that the cost model chooses)");
  flags.value("parts", "P", "messages are cut into so many (default: the cost model chooses)");
  flags.value("dtype", "TYPE", "fp32 (default), bf16, fp16, i32, i64");
  flags.value("op", "OP", "sum (default), average, max, min");
  flags.toggle("in-place", "input and output are one buffer");
  flags.value("repeat", "N", "timed rounds; the median counts (default: 7, and up to 101 of what is over soon)");
  flags.toggle("overlap", "instead: how much of an all_reduce of the first size hides behind matrix products");
  flags.toggle("no-native", "leave the MPI library's own calls out");
  declare_world_flags(flags);
  flags.value("out", "DIR", "also write bench.json and report.html there");
  flags.value("config", "FILE", "a JSON object with flags as keys; the command line wins");
  flags.toggle("json", "one JSON object instead of the table");
}

template <class Enum>
std::vector<Enum> list_of(const Flags& flags, const std::string& name, const std::vector<std::string>& allowed) {
  std::vector<Enum> values;
  for (const std::string& item : split(*flags.text(name), ',')) {
    const auto found = std::find(allowed.begin(), allowed.end(), item);
    if (found == allowed.end()) fail("--{} '{}': there is no such{}", name, item, suggestion(item, allowed));
    values.push_back(static_cast<Enum>(found - allowed.begin()));
  }
  return values;
}

BenchOptions read_options(const Flags& flags) {
  BenchOptions options;
  if (flags.given("collective")) {
    options.kinds = list_of<Collective>(flags, "collective", names_up_to(Collective::barrier));
  }
  if (const auto sizes = flags.text("size")) {
    options.sizes.clear();
    for (const std::string& size : split(*sizes, ',')) options.sizes.push_back(parse_bytes(size, "--size"));
  }
  if (flags.text("algorithm") == "all") {
    for (int i = 0; i < static_cast<int>(Algorithm::native); ++i)
      options.algorithms.push_back(static_cast<Algorithm>(i));
  } else if (flags.given("algorithm")) {
    options.algorithms = list_of<Algorithm>(flags, "algorithm", names_up_to(Algorithm::hierarchical));
  }
  options.parts = flags.integer("parts", 1, 1024).value_or(0);
  if (options.parts > 0 && options.algorithms.empty()) fail("--parts: name the --algorithm too");
  using enum ElementType;
  options.type = flags.element_type("dtype", {fp32, bf16, fp16, i32, i64}).value_or(fp32);
  options.op = static_cast<ReduceOp>(flags.one_of("op", names_up_to(ReduceOp::min)).value_or(0));
  options.in_place = flags.is_set("in-place");
  if (const auto rounds = flags.integer("repeat", 1, 10'000)) options.repeat = static_cast<int>(*rounds);
  options.native = !flags.is_set("no-native");
  options.slowdown = flags.number("slowdown", 1e-3, 1e6).value_or(1);
  for (const Bytes size : options.sizes) {
    const std::int64_t width = size_of(options.type).value;
    if (size.value % width != 0)
      fail("--size {}: not a whole number of {} ({} bytes each)", size.value, name_of(options.type), width);
    if (size.value == 0)
      fail("--size 0: there is nothing to time; give at least one {} of {} bytes", name_of(options.type), width);
  }
  return options;
}

// Reads the files, and proves every program before anything runs.
std::vector<BenchProgram> read_programs(const std::vector<std::string>& files, std::int64_t ranks) {
  std::vector<BenchProgram> programs;
  for (const std::string& file : files) {
    const auto program = std::make_shared<const Program>(read_program_file(file));
    if (program->spec.ranks != ranks) {
      fail("{}: the program is for {} ranks; there are {}", file, program->spec.ranks, ranks);
    }
    if (switches_of(*program) > 0 && files.size() > 1) {
      fail("{}: has steps in switches, which further ranks stand in for; give it alone", file);
    }
    if (const auto violation = first_violation(*program)) fail("{}: not safe: {}", file, *violation);
    programs.push_back({std::filesystem::path(file).stem().string(), program});
  }
  return programs;
}

// Without --collective, those of the files are timed.
void add_programs(const Flags& flags, std::int64_t ranks, BenchOptions& options) {
  options.programs = read_programs(flags.texts(), ranks);
  for (const BenchProgram& program : options.programs) options.stand_ins = switches_of(*program.program);
  if (options.stand_ins > 0 && options.cluster != nullptr) {
    fail(
        "--cluster: has no place for the {} rank{} that stand{} in for switches; without it they run at memory speed, "
        "and weft collective synthesize --in-network --size says the time on the links",
        options.stand_ins, options.stand_ins == 1 ? "" : "s", options.stand_ins == 1 ? "s" : "");
  }
  if (options.stand_ins > 0 && (flags.given("algorithm") || flags.is_set("overlap"))) {
    fail("--{}: is not for a program with steps in switches", flags.given("algorithm") ? "algorithm" : "overlap");
  }
  if (options.programs.empty() || flags.given("collective")) return;
  options.kinds.clear();
  for (const BenchProgram& program : options.programs) {
    if (std::ranges::find(options.kinds, program.program->spec.kind) == options.kinds.end()) {
      options.kinds.push_back(program.program->spec.kind);
    }
  }
}

// Ranks keep input and output, and what they should be while the result is checked.
void require_memory(const BenchOptions& options, std::int64_t ranks_in_this_process) {
  constexpr std::int64_t kBuffers = 4;
  const Bytes memory{sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE)};
  for (const Bytes size : options.sizes) {
    if (size.value <= memory.value / (kBuffers * ranks_in_this_process)) continue;
    fail("--size {}: {} buffers of that size for {} rank{} do not fit in the {} of this machine; at most {} do",
         format_bytes(size), kBuffers * ranks_in_this_process, ranks_in_this_process,
         ranks_in_this_process == 1 ? "" : "s", format_bytes(memory),
         format_bytes({memory.value / (kBuffers * ranks_in_this_process)}));
  }
}

// Ranks must time the same things in the same order; where they report may differ.
AgreedSettings agreed_settings(const Flags& flags) {
  AgreedSettings settings{{"Weft", kVersion, ""}};
  for (const auto& [name, value] : flags.values()) {
    const bool may_differ = name == "out" || name == "json" || name == "config" || name == "timeout" ||
                            name == "silence" || name == "processes";
    if (!may_differ) settings.push_back({"--" + name, value, ""});
  }
  for (const std::string& file : flags.texts()) {
    settings.push_back({file, fmt::format("{:x}", hash_text(read_text_file(file))), "other bytes"});
  }
  return settings;
}

std::string described(const Launch& launch, const std::string& way, const std::optional<Cluster>& cluster,
                      const BenchOptions& options) {
  if (launch.kind == LaunchKind::mpi) return "processes under MPI, " + way;
  if (launch.kind == LaunchKind::tcp) return "processes, " + way;
  if (options.stand_ins > 0) {
    return fmt::format("threads at memory speed, {} more stand{} in for the switch{}", options.stand_ins,
                       options.stand_ins == 1 ? "s" : "", options.stand_ins == 1 ? "" : "es");
  }
  if (!cluster) return "threads at memory speed";
  const std::string slowed = options.slowdown == 1 ? "" : fmt::format(", slowed {} times", options.slowdown);
  return fmt::format("threads, links emulated: {}{}", cluster->spec().name, slowed);
}

std::string rate(double bytes_per_second) {
  return fmt::format("{:.1f} MB/s", bytes_per_second * 1e-6);
}

const BenchRow* native_beside(const BenchResult& result, const BenchRow& row) {
  for (const BenchRow& other : result.rows) {
    if (other.name == "native" && other.kind == row.kind && other.size == row.size) return &other;
  }
  return nullptr;
}

double ratio(Nanos a, Nanos b) {
  return static_cast<double>(a.value) / static_cast<double>(std::max<std::int64_t>(1, b.value));
}

std::string bandwidth_in_words(const BenchRow& row) {
  return row.bus_bandwidth > 0 ? rate(row.bus_bandwidth) : "-";
}

std::string share_of_link(const BenchResult& result, const BenchRow& row) {
  if (result.link_bandwidth == 0) return "";
  return row.bus_bandwidth > 0 ? fmt::format("{:.3f}", row.bus_bandwidth / result.link_bandwidth) : "-";
}

// Emulated links follow the model that predicts them, so there is no error to report.
bool is_emulated(const BenchResult& result) {
  return std::ranges::any_of(result.rows, [](const BenchRow& row) { return row.link_time.has_value(); });
}

std::vector<std::string> cells_of(const BenchResult& result, const BenchRow& row) {
  std::vector<std::string> cells = {std::string(name_of(row.kind)),
                                    row.kind == Collective::barrier ? "-" : format_bytes(row.size),
                                    row.name,
                                    row.program ? fmt::format("{}", row.parts) : "",
                                    format_time(row.time),
                                    bandwidth_in_words(row),
                                    share_of_link(result, row)};
  if (row.link_time) {
    cells.insert(cells.end(), {format_time(*row.link_time), format_time(row.late())});
    return cells;
  }
  const BenchRow* native = native_beside(result, row);
  const bool predicted = row.predicted && result.link_bandwidth > 0;
  cells.push_back(native != nullptr && native != &row ? fmt::format("{:.2f}", ratio(native->time, row.time)) : "");
  cells.push_back(predicted ? format_time(*row.predicted) : "");
  cells.push_back(
      predicted ? fmt::format("{:+.1f} %{}", 100 * (ratio(*row.predicted, row.time) - 1), row.within_burst ? " *" : "")
                : "");
  return cells;
}

void print_table(std::ostream& out, const BenchResult& result, const std::string& world) {
  out << fmt::format("{} rank{}: {}\n", result.ranks, result.ranks == 1 ? "" : "s", world);
  if (result.measured) {
    out << fmt::format("link, measured in this run: {} plain TCP, {} one way, {} at once after a pause\n",
                       rate(result.measured->goodput), format_time(result.measured->latency),
                       format_bytes(result.measured->burst));
  } else if (result.link_bandwidth > 0) {
    out << fmt::format("link: {}\n", rate(result.link_bandwidth));
  }
  out << "\n";
  std::vector<std::string> heads = {"collective", "size", "algorithm", "parts", "time", "bus bandwidth", "of link"};
  if (is_emulated(result)) {
    heads.insert(heads.end(), {"links' clock", "late"});
  } else {
    heads.insert(heads.end(), {"x native", "predicted", "error"});
  }
  TextTable table(heads);
  for (const BenchRow& row : result.rows) table.add_row(cells_of(result, row));
  out << table.to_string(columns_of(out));
  if (std::ranges::any_of(result.rows, &BenchRow::within_burst)) {
    out << "* goes through the links at once after a pause: what the hosts take decides, not the links\n";
  }
}

std::string row_in_words(const BenchRow& row) {
  if (row.kind == Collective::barrier) return "barrier";
  return fmt::format("{} of {}", name_of(row.kind), format_bytes(row.size));
}

// The measurement then shows this machine, not the links that it emulates.
void warn_of_lateness(std::ostream& err, const BenchResult& result) {
  constexpr double kMinShareToWarn = 0.1;  // of what the links need
  const auto share = [](const BenchRow& row) { return row.link_time ? ratio(row.late(), *row.link_time) : 0; };
  const auto worst = std::ranges::max_element(result.rows, {}, share);
  if (worst == result.rows.end() || share(*worst) < kMinShareToWarn) return;
  const auto late =
      std::ranges::count_if(result.rows, [&](const BenchRow& row) { return share(row) >= kMinShareToWarn; });
  err << fmt::format(
      "weft: warning: ranks were late in {} of {} rows: {} took {} where the links need {}; this machine does "
      "not "
      "keep up with {} ranks at that speed: fewer ranks, slower links or --slowdown bring both together\n",
      late, result.rows.size(), row_in_words(*worst), format_time(worst->time), format_time(*worst->link_time),
      result.ranks);
}

nlohmann::ordered_json json_of(const BenchResult& result, const std::string& world) {
  nlohmann::ordered_json json;
  json["version"] = kVersion;
  json["ranks"] = result.ranks;
  json["world"] = world;
  json["link_bytes_per_s"] = result.link_bandwidth > 0 ? nlohmann::ordered_json(result.link_bandwidth) : nullptr;
  if (result.measured) {
    json["latency_s"] = seconds(result.measured->latency);
    json["burst_bytes"] = result.measured->burst.value;
  }
  if (result.host) {
    json["host"] = {{"call_s", seconds(result.host->call)},
                    {"latency_s", seconds(result.host->latency)},
                    {"per_message_s", seconds(result.host->per_message)},
                    {"bytes_per_s", result.host->rate.bytes_per_second},
                    {"copied_bytes_per_s", result.host->copies.bytes_per_second},
                    {"reduced_bytes_per_s", result.host->reductions.bytes_per_second},
                    {"burst_bytes", result.host->burst.value}};
  }
  json["rows"] = nlohmann::ordered_json::array();
  for (const BenchRow& row : result.rows) {
    nlohmann::ordered_json entry;
    entry["collective"] = name_of(row.kind);
    entry["size_bytes"] = row.size.value;
    entry["algorithm"] = row.name;
    if (row.program) entry["parts"] = row.parts;
    entry["time_s"] = seconds(row.time);
    const bool carries = row.bus_bandwidth > 0;
    entry["bus_bandwidth"] = carries ? nlohmann::ordered_json(row.bus_bandwidth) : nullptr;
    if (result.link_bandwidth > 0 && carries) entry["of_link"] = row.bus_bandwidth / result.link_bandwidth;
    if (row.link_time) {
      entry["link_time_s"] = seconds(*row.link_time);
      entry["late_s"] = seconds(row.late());
    }
    const BenchRow* native = native_beside(result, row);
    if (native != nullptr && native != &row) entry["times_native"] = ratio(native->time, row.time);
    if (row.predicted && result.link_bandwidth > 0) {
      entry["predicted_s"] = seconds(*row.predicted);
      if (!row.link_time) entry["prediction_error_pct"] = 100 * (ratio(*row.predicted, row.time) - 1);
      if (result.host) entry["within_burst"] = row.within_burst;
    }
    json["rows"].push_back(entry);
  }
  return json;
}

nlohmann::ordered_json json_of(const OverlapResult& result, std::int64_t ranks, const std::string& world) {
  nlohmann::ordered_json json;
  json["version"] = kVersion;
  json["ranks"] = ranks;
  json["world"] = world;
  json["size_bytes"] = result.size.value;
  json["compute_s"] = seconds(result.compute);
  json["communication_s"] = seconds(result.communication);
  json["both_s"] = seconds(result.both);
  json["hidden"] = result.hidden();
  return json;
}

void report(const Flags& flags, std::ostream& out, const nlohmann::ordered_json& json,
            const std::function<void()>& print) {
  if (const auto folder = flags.text("out")) {
    make_folder(*folder);
    write_text_file((std::filesystem::path(*folder) / "bench.json").string(),
                    [&](std::ostream& file) { file << json_text(json, 2) << "\n"; });
    write_report_file(*folder, {fmt::format("Collectives of {} ranks", json["ranks"].get<std::int64_t>()), json, {}});
  }
  if (flags.is_set("json")) {
    out << json_text(json, 2) << "\n";
  } else {
    print();
  }
}

}  // namespace

int run_collective_bench_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  Flags flags(
      "collective bench",
      "Checks what collectives compute, then times them; beside the MPI library's own calls under mpirun.",
      "weft collective bench --cluster local:4,nic=200Mb/s --collective all_reduce,all_gather --size 1MiB,16MiB");
  declare(flags);
  flags.parse(arguments);
  BenchOptions options = read_options(flags);
  const Launch launch = launch_from_environment();
  const bool processes = launch.kind != LaunchKind::local;
  if (!processes || launch.rank == 0) require_outputs_can_be_written(flags, {"out"});
  if (const auto count = flags.integer("processes", 1, 512); count && !processes)
    return run_own_processes(*count, {"collective", "bench"}, arguments, err);

  std::optional<Cluster> cluster;
  if (const auto text = flags.text("cluster")) {
    if (processes) fail("--cluster: paces threads; processes measure their links");
    ClusterSpec spec = names_a_file(*text) ? read_cluster_json(read_text_file(*text), *text) : parse_cluster(*text);
    if (const auto name = flags.text("topology")) spec.topology = SharedTopology(find_topology(flags, *name));
    cluster.emplace(std::move(spec));
    options.cluster = &*cluster;
  } else if (flags.given("topology")) {
    fail("--topology: says over which links the ranks of --cluster talk, which is not given");
  } else if (options.slowdown != 1) {
    fail("--slowdown: slows the links of --cluster, which is not given");
  }
  WorldOptions world = read_world_options(flags, launch);
  const std::int64_t ranks = flags.integer("ranks", 1, 512).value_or(cluster ? cluster->device_count() : 2);
  if (processes && flags.given("ranks")) fail("--ranks: the launcher has started {} processes already", launch.ranks);
  if (cluster && ranks != cluster->device_count())
    fail("--ranks {}: --cluster {} has {} devices", ranks, *flags.text("cluster"), cluster->device_count());
  add_programs(flags, processes ? launch.ranks : ranks, options);
  if (processes && options.stand_ins > 0) {
    fail("a program with steps in switches is run by threads, some of which stand in for the switches: use --ranks");
  }
  require_memory(options, processes ? 1 : ranks);
  if (flags.is_set("overlap") && (processes ? launch.ranks : ranks) == 1)
    fail("--overlap: one rank has nothing to send");
  world.ranks = ranks + options.stand_ins;
  world.cluster = options.cluster;
  world.slowdown = options.slowdown;
  if (processes) world.agreed = agreed_settings(flags);

  run_world(launch, world, err, [&](Communicator& communicator, const std::string& way) {
    const std::string description = described(launch, way, cluster, options);
    if (flags.is_set("overlap")) {
      const OverlapResult result = run_overlap(communicator, options, processes);
      if (communicator.rank() != 0) return;
      report(flags, out, json_of(result, communicator.size(), description), [&] {
        out << fmt::format("{} ranks: {}\nall_reduce of {}: compute {}, communication {}, both {}: {:.1f} % hidden\n",
                           communicator.size(), description, format_bytes(result.size), format_time(result.compute),
                           format_time(result.communication), format_time(result.both), 100 * result.hidden());
      });
      return;
    }
    const BenchResult result = run_bench(communicator, options, processes);
    if (communicator.rank() != 0) return;
    report(flags, out, json_of(result, description), [&] { print_table(out, result, description); });
    warn_of_lateness(err, result);
  });
  return kOk;
}

}  // namespace weft
