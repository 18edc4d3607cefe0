#include "app/plan/chakra_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "app/cli.hpp"
#include "app/files.hpp"
#include "app/inputs.hpp"
#include "app/output_paths.hpp"
#include "app/page/page_sources.hpp"
#include "app/plan/plan_files.hpp"
#include "app/plan/plan_json_report.hpp"
#include "app/terminal.hpp"
#include "app/version.hpp"
#include "base/json_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "io/timeline_json.hpp"
#include "study/chakra/chakra_study.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// More spans than people look at one by one; the page has its own limit.
constexpr std::size_t kMostTimelineSpans = 200'000;

void refuse_other_flags(const Flags& flags) {
  static const std::set<std::string> kRead{"chakra", "comm-groups", "cluster", "profile", "seed",
                                           "out",    "json",        "config",  "budget"};
  for (const auto& [name, value] : flags.values()) {
    if (!kRead.contains(name)) {
      fail(
          "--{}: is not for --chakra, whose traces say what is computed and sent; it goes with --comm-groups, "
          "--cluster, --profile, --seed, --out and --json",
          name);
    }
  }
}

std::string time(double s) {
  return s == 0 ? "0" : format_time(nanos_from_seconds(s));
}

struct Counts {
  std::int64_t compute = 0, host = 0, collectives = 0, messages = 0, memory = 0, bytes = 0;
};

Counts count_operations(const TracedStep& step) {
  Counts counts;
  for (const TracedOperation& operation : step.operations) {
    switch (operation.kind) {
      case TracedKind::compute:
        ++counts.compute;
        break;
      case TracedKind::host:
        ++counts.host;
        break;
      case TracedKind::memory:
        ++counts.memory;
        break;
      case TracedKind::collective:
      case TracedKind::message:
        ++(operation.kind == TracedKind::message ? counts.messages : counts.collectives);
        counts.bytes += operation.bytes.value;
        break;
    }
  }
  return counts;
}

std::string head_line(const TracedStep& step) {
  const Counts counts = count_operations(step);
  std::string line = fmt::format("Chakra traces of {} rank{}: {} compute operations", step.ranks.size(),
                                 step.ranks.size() == 1 ? "" : "s", format_count(counts.compute));
  if (counts.host > 0) line += fmt::format(", {} on the host", format_count(counts.host));
  if (counts.memory > 0) line += fmt::format(", {} loads and stores", format_count(counts.memory));
  return line + fmt::format(", {} collectives and {} messages of {} altogether\n\n", format_count(counts.collectives),
                            format_count(counts.messages), format_bytes(Bytes{counts.bytes}));
}

std::string orders_table(const ChakraStudy& study, std::size_t columns) {
  TextTable table(
      {"order", "step", "speed-up", "compute", "slowdown", "exposed", "waits", "idle", "hidden", "over bound"});
  for (const ChakraOrder& order : study.orders) {
    const RankAccount& mean = order.mean;
    const double hidden = hidden_pct(mean);
    table.add_row({order.name, time(order.step_s), fmt::format("{:.3f} x", study.orders.front().step_s / order.step_s),
                   time(mean.compute_s), time(mean.slowdown_s), time(mean.exposed_s), time(mean.bubble_s),
                   time(mean.idle_s), std::isnan(hidden) ? "-" : fmt::format("{:.1f} %", hidden),
                   fmt::format("{:+.1f} %", 100 * (order.step_s * 1e9 / study.bound.ns - 1))});
  }
  return table.to_string(columns);
}

const ChakraOrder* find_order(const ChakraStudy& study, std::string_view name) {
  for (const ChakraOrder& order : study.orders) {
    if (order.name == name) return &order;
  }
  return nullptr;
}

std::string exposed_table(const ChakraStudy& study, std::size_t columns) {
  const ChakraOrder& before = find_order(study, "trace") ? *find_order(study, "trace") : study.orders.front();
  TextTable table({"exposed, mean of a rank", "group", "transfers", "alone", before.name, "weft"});
  const std::vector<ExposedTransfer> best = exposed_transfers(study.orders[study.best].timeline);
  const auto ranks = static_cast<double>(study.step.ranks.size());
  constexpr std::size_t kShown = 8;
  std::size_t shown = 0;
  for (const ExposedTransfer& transfer : exposed_transfers(before.timeline)) {
    if (transfer.exposed_s == 0 || shown++ == kShown) break;
    const auto after = std::find_if(best.begin(), best.end(), [&](const ExposedTransfer& t) {
      return t.collective == transfer.collective && t.group == transfer.group;
    });
    table.add_row({transfer.collective, transfer.group, format_count(transfer.count), time(transfer.alone_s / ranks),
                   time(transfer.exposed_s / ranks), time(after == best.end() ? 0 : after->exposed_s / ranks)});
  }
  return shown == 0 ? "" : "\n" + table.to_string(columns);
}

std::string text_report(const ChakraStudy& study, std::size_t columns) {
  std::string text = head_line(study.step) + orders_table(study, columns);
  text += fmt::format("\nBound: {} ({}; no order that keeps the data dependencies is faster)\n",
                      time(study.bound.ns * 1e-9), study.bound.reason);
  for (const auto& [name, reason] : study.failed) text += fmt::format("{} cannot run to its end: {}\n", name, reason);
  return text + exposed_table(study, columns);
}

Json json_report(const ChakraStudy& study) {
  const Counts counts = count_operations(study.step);
  Json json;
  json["version"] = kVersion;
  json["chakra"] = {{"ranks", study.step.ranks.size()},
                    {"compute", counts.compute},
                    {"host", counts.host},
                    {"collectives", counts.collectives},
                    {"messages", counts.messages},
                    {"memory", counts.memory},
                    {"bytes", counts.bytes}};
  json["bound_s"] = study.bound.ns * 1e-9;
  json["bound_explanation"] = study.bound.reason;
  for (const auto& [name, reason] : study.failed) json["failed"][name] = reason;
  for (const ChakraOrder& order : study.orders) {
    Accounting devices = order.accounting;
    devices.mean = order.mean;
    Json own = accounting_json(order.timeline, devices);
    own["step_s"] = order.step_s;
    own["gap_to_bound_pct"] = 100 * (order.step_s * 1e9 / study.bound.ns - 1);
    json["policies"][order.name] = std::move(own);
  }
  json["best"] = study.orders[study.best].name;
  json["warnings"] = study.warnings;
  return json;
}

// The traces again, with the order that was found as their control dependencies.
void write_ordered_traces(const ChakraStudy& study, const fs::path& folder, std::vector<std::string>& written) {
  const auto control = order_dependencies(study.step, study.orders[study.best].order);
  for (std::size_t r = 0; r < study.step.ranks.size(); ++r) {
    const std::string& file = study.step.ranks[r].file;
    const std::string bytes = read_text_file(file, {.max_bytes = kMaxChakraBytes});
    const ChakraFile trace = read_chakra_bytes(bytes, file);
    std::vector<std::vector<std::uint64_t>> ids(trace.nodes.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      for (const std::int32_t before : control[r][i])
        ids[i].push_back(trace.nodes[static_cast<std::size_t>(before)].id);
    }
    const fs::path path = folder / fmt::format("planned.{}.et", study.step.ranks[r].rank.value);
    write_text_file(path, [&](std::ostream& out) { write_chakra_order(bytes, file, ids, out); });
    written.push_back(path.string());
  }
}

std::vector<std::string> write_files(const ChakraStudy& study, const Json& json, const fs::path& folder) {
  make_folder(folder);
  std::vector<std::string> written;
  write_ordered_traces(study, folder, written);
  const ChakraOrder& best = study.orders[study.best];
  if (best.timeline.operations.size() <= kMostTimelineSpans) {
    const fs::path path = folder / "timeline.json";
    write_text_file(path, [&](std::ostream& out) {
      write_timeline_json(out, {best.timeline, {{"policy", best.name}, {"from", "Chakra traces"}}});
    });
    written.push_back(path.string());
  }
  written.push_back(write_report_file(folder, source_of_chakra(study, json)));
  return written;
}

}  // namespace

void declare_chakra_flags(Flags& flags) {
  constexpr const char* kChakra = "Chakra traces";
  flags.value("chakra", "DIR|FILE,...",
              "execution traces instead of a model, one file a rank (NAME.RANK.et): their order, and a better one "
              "(docs/chakra.md)",
              kChakra);
  flags.value("comm-groups", "FILE",
              "members of their groups, {\"name\": [0, 1]} (default: comm_groups.json of the folder)", kChakra);
}

ChakraInputs find_chakra_inputs(const std::string& where, const std::optional<std::string>& groups) {
  ChakraInputs inputs;
  std::optional<std::string> groups_file = groups;
  std::error_code error;
  if (fs::is_directory(where, error)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(where, error)) {
      if (entry.path().extension() == ".et") inputs.files.push_back(entry.path().string());
    }
    if (error) fail("{}: cannot be read: {}", where, error.message());
    if (inputs.files.empty()) fail("{}: the folder has no Chakra trace (*.et)", where);
    const fs::path beside = fs::path(where) / "comm_groups.json";
    if (!groups_file && fs::exists(beside, error)) groups_file = beside.string();
  } else {
    for (std::string& file : split(where, ',')) {
      if (!file.empty()) inputs.files.push_back(std::move(file));
    }
    if (inputs.files.empty()) fail("--chakra '{}': name a folder, or traces separated by commas", where);
  }
  if (groups_file) inputs.groups = read_chakra_groups(read_text_file(*groups_file), *groups_file);
  return inputs;
}

TracedStep read_traced_step(const ChakraInputs& inputs) {
  std::vector<std::pair<Rank, std::string>> files;
  for (const std::string& file : inputs.files) {
    const std::optional<Rank> rank = chakra_rank(file);
    if (!rank && inputs.files.size() > 1) {
      fail("{}: its name does not say its rank, as step.0.et and step.1.et do", file);
    }
    files.emplace_back(rank.value_or(Rank{0}), file);
  }
  std::sort(files.begin(), files.end());
  for (std::size_t i = 1; i < files.size(); ++i) {
    if (files[i].first == files[i - 1].first) {
      fail("{} and {}: both are of rank {}", files[i - 1].second, files[i].second, files[i].first.value);
    }
  }
  std::vector<ChakraFile> traces;
  for (const auto& [rank, file] : files) traces.push_back(read_chakra_file(file));
  return join_traces(traces, inputs.groups);
}

int run_chakra_command(const Flags& flags, std::ostream& out, std::ostream& err) {
  refuse_other_flags(flags);
  require_outputs_can_be_written(flags, {"out"});
  if (flags.given("profile") && !flags.given("cluster")) fail("--profile: needs --cluster, whose links it is of");
  TracedStep step = read_traced_step(find_chakra_inputs(*flags.text("chakra"), flags.text("comm-groups")));
  TracedCosts costs;
  if (flags.given("cluster")) {
    costs = costs_on_cluster(step, Cluster(read_cluster(flags)), read_profile(flags));
  } else {
    costs = traced_costs(step);
  }
  ChakraOptions options;
  options.seed = static_cast<std::uint32_t>(flags.integer("seed", 0, UINT32_MAX).value_or(1));
  const ChakraStudy study = study_chakra(std::move(step), costs, options);
  for (const std::string& warning : study.warnings) err << fmt::format("weft: {}\n", warning);
  const Json json = json_report(study);
  std::vector<std::string> written;
  if (const auto folder = flags.text("out")) written = write_files(study, json, *folder);
  if (flags.is_set("json")) {
    out << json_text(json, 2) << "\n";
  } else {
    out << text_report(study, columns_of(out)) << written_line(written);
  }
  return find_order(study, "trace") ? kOk : kAnswerIsNo;
}

}  // namespace weft
