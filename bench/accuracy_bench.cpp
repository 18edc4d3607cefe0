// How far are predictions from published measurements? Every set of steps goes through `weft plan --against`, as a
// table of measured runs; --rows shows each with its flags. Memory, and orders that no flag names, are predicted by the
// function that --against calls. One set of constants serves all of them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "app/cli.hpp"
#include "app/flags.hpp"
#include "app/inputs.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "published_rows.hpp"
#include "study/against/prediction.hpp"

namespace weft {
namespace {

double gibibytes(Bytes bytes) {
  return static_cast<double>(bytes.value) / (1 << 30);
}

double predicted(const PublishedRow& row) {
  Flags flags("plan", "", "");
  declare_input_flags(flags);
  flags.value("policy", "A", "");
  flags.parse(split(row.flags, ' '));
  const RunPrediction run = predict_run(read_inputs(flags), read_profile(flags), *flags.text("policy"), row.most_held);
  if (row.measure == Measure::peak_memory_gib) return gibibytes(run.fullest_stage);
  if (row.measure == Measure::step_seconds) return run.step_s;
  for (const MemoryTerm& term : run.memory.front().terms) {
    if (term.name == "activations") return gibibytes(term.bytes);
  }
  return 0;
}

// Of sets that `weft plan --against` cannot read: memory, and orders that hold a stated number of passes.
std::vector<double> errors_one_by_one(const PublishedSet& set) {
  std::vector<double> errors(set.rows.size());
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < set.rows.size(); i = next++) {
        errors[i] = predicted(set.rows[i]) / set.rows[i].measured - 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// A row's flags as cells of a table, but for what the command line says of all rows: policy and machine.
using TableRow = std::map<std::string, std::string>;

struct ClusterWords {
  std::string machine, gpus;  // e.g. "dgx-a100,nic=800Gb/s" and "64"
};
ClusterWords cluster_words(const std::string& cluster) {
  const std::vector<std::string> keys = split(cluster, ',');
  const std::size_t colon = keys.front().find(':');
  ClusterWords words{keys.front().substr(0, colon), std::to_string(8 * std::stoll(keys.front().substr(colon + 1)))};
  for (std::size_t i = 1; i < keys.size(); ++i) {
    if (keys[i].starts_with("gpus=")) {
      words.gpus = keys[i].substr(5);
    } else {
      words.machine += "," + keys[i];
    }
  }
  return words;
}

TableRow table_row(const PublishedRow& row) {
  TableRow cells{{"step_s", fmt::format("{}", row.measured)}};
  const std::vector<std::string> words = split(row.flags, ' ');
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string column = words[i].substr(2);
    std::replace(column.begin(), column.end(), '-', '_');
    const bool has_value = i + 1 < words.size() && !words[i + 1].starts_with("--");
    cells[column] = has_value ? words[++i] : "true";
  }
  return cells;
}

std::string table_of(const std::vector<TableRow>& rows) {
  std::set<std::string> columns;
  for (const TableRow& row : rows) {
    for (const auto& [column, cell] : row) columns.insert(column);
  }
  std::string text = fmt::format("{}\n", fmt::join(columns, ","));
  for (const TableRow& row : rows) {
    std::vector<std::string> cells;
    for (const std::string& column : columns) {
      const auto found = row.find(column);
      cells.push_back(found == row.end() ? "" : fmt::format("\"{}\"", found->second));
    }
    text += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return text;
}

nlohmann::json against(const std::filesystem::path& file, const std::string& flags) {
  std::ostringstream out, err;
  std::vector<std::string> arguments{"plan", "--json", "--against", file.string()};
  for (const std::string& word : split(flags, ' ')) arguments.push_back(word);
  run_command_line(arguments, out, err);
  if (out.str().empty()) fail("{}", err.str());
  return nlohmann::json::parse(out.str());
}

bool is_table(const PublishedSet& set) {
  return std::all_of(set.rows.begin(), set.rows.end(), [](const PublishedRow& row) {
    return row.measure == Measure::step_seconds && row.most_held == 0;
  });
}

// The set as a table of measured runs, given to `weft plan --against`.
std::vector<double> errors_of(const PublishedSet& set) {
  if (set.rows.empty() || !is_table(set)) return errors_one_by_one(set);
  std::vector<TableRow> rows;
  std::string machine;
  for (const PublishedRow& row : set.rows) {
    TableRow cells = table_row(row);
    const ClusterWords cluster = cluster_words(cells.at("cluster"));
    cells["gpus"] = cluster.gpus;
    machine = cluster.machine;
    cells.erase("cluster");
    cells.erase("policy");
    rows.push_back(std::move(cells));
  }
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("weft_accuracy_{}.csv", static_cast<long>(getpid()));
  std::ofstream(file) << table_of(rows);
  const nlohmann::json result = against(file, "--policy serial --cluster " + machine);
  std::filesystem::remove(file);
  std::vector<double> errors;
  for (const nlohmann::json& row : result.at("rows")) errors.push_back(row.at("step_error"));
  if (errors.size() != set.rows.size())
    fail("{}: {} of {} rows have no plan", set.name, result.at("without_plan").dump(), set.rows.size());
  return errors;
}

void print_summary(const std::string& name, const ErrorSummary& errors) {
  fmt::print(
      "{{\"bench\": \"accuracy\", \"set\": \"{}\", \"rows\": {}, \"median_pct\": {:.2f}, \"mean_pct\": {:.2f}, "
      "\"worst_pct\": {:.1f}, \"bias_pct\": {:+.2f}}}\n",
      name, errors.rows, errors.median_pct, errors.mean_pct, errors.worst_pct, errors.bias_pct);
}

void report(const PublishedSet& set, bool all_rows) {
  constexpr double kMinNamedError = 0.2;
  const std::vector<double> errors = errors_of(set);
  if (errors.empty()) return;
  for (std::size_t i = 0; all_rows && i < errors.size(); ++i) {
    fmt::print("  {:+6.1f} %  {}\n            weft plan {}\n", 100 * errors[i], set.rows[i].name, set.rows[i].flags);
  }
  print_summary(set.name, summarize(errors));
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (!all_rows && std::abs(errors[i]) > kMinNamedError)
      fmt::print("  {:+6.1f} %  {}\n", 100 * errors[i], set.rows[i].name);
  }
}

// Tables that `weft plan --against` reads as they are.
struct ReadTable {
  const char* name;
  const char* file;
  const char* flags;
};
constexpr ReadTable kTables[] = {
    {"Ultra-Scale, H100, nanotron", "hf_ultrascale_h100.csv",
     "--where use=yes,calls=fast --framework nanotron --model llama3-8b --cluster dgx-h100"},
    {"Ultra-Scale, checked calls", "hf_ultrascale_h100.csv",
     "--where use=yes,calls=slow --framework nanotron-checked --model llama3-8b --cluster dgx-h100"},
    {"MPT under FSDP", "mpt_fsdp.csv", "--framework composer"},
    {"MLPerf, GPT-3 175B and Llama 3.1 405B", "mlperf_llm.csv", "--framework nemo"},
};

void report(const ReadTable& table, const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / table.file;
  if (!std::filesystem::exists(file)) return;
  const nlohmann::json step = against(file, table.flags).at("step");
  print_summary(table.name, {step.at("rows"), step.at("median_pct"), step.at("mean_pct"), step.at("worst_pct"),
                             step.at("bias_pct")});
}

}  // namespace
}  // namespace weft

// accuracy_bench [--rows] [--only PREFIX]: every row; sets whose name begins so.
int main(int argc, char** argv) {
  bool all_rows = false;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--rows") == 0) all_rows = true;
    if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) only = argv[++i];
  }
  const std::filesystem::path folder = WEFT_SOURCE_DIR "/../shared/data/published";
  const std::vector<weft::PublishedSet> sets = weft::published_sets(folder);
  if (sets.empty()) fmt::print("accuracy: skipped, ../shared/data/published is not here\n");
  try {
    for (const weft::PublishedSet& set : sets) {
      if (set.name.starts_with(only)) weft::report(set, all_rows);
    }
    for (const weft::ReadTable& table : weft::kTables) {
      if (!sets.empty() && std::string_view(table.name).starts_with(only)) weft::report(table, folder);
    }
  } catch (const weft::Error& error) {
    fmt::print(stderr, "accuracy: {}\n", error.what());
    return 1;
  }
}
