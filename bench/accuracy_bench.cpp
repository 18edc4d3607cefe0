// How far are predictions from published measurements? Every row goes through the same code as `weft plan` with the
// flags shown by --rows; one set of constants serves all of them.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
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

std::vector<double> errors_of(const PublishedSet& set) {
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
  std::ostringstream out, err;
  std::vector<std::string> arguments{"plan", "--json", "--against", file.string()};
  for (const std::string& word : split(table.flags, ' ')) arguments.push_back(word);
  run_command_line(arguments, out, err);
  const nlohmann::json step = nlohmann::json::parse(out.str()).at("step");
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
