#include "app/against/against_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>
#include <thread>

#include "app/against/against_report.hpp"
#include "app/against/measured_rows.hpp"
#include "app/cli.hpp"
#include "app/files.hpp"
#include "app/inputs.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/parallel.hpp"

namespace weft {
namespace {

ComparedRun compare(const MeasuredRow& run) {
  ComparedRun compared{.line = run.line,
                       .policy = run.policy,
                       .flags = words_of(run.flags),
                       .step_s = run.step_s,
                       .reserved_gib = run.reserved_gib,
                       .out_of_memory = run.out_of_memory};
  try {
    const Inputs inputs = read_inputs(run.flags);
    compared.prediction = predict_run(inputs, with_links(read_profile(run.flags), inputs, run.links), run.policy);
  } catch (const Error& error) {
    compared.reason = error.what();
  }
  return compared;
}

}  // namespace

void declare_against_flags(Flags& flags) {
  constexpr const char* kAgainst = "Measured runs";
  flags.value("against", "FILE", "a table of measured runs: how far predictions are off, by row (docs/against.md)",
              kAgainst);
  flags.value("where", "COLUMN=VALUE,...", "of that table, only rows that say so", kAgainst);
}

int run_against_command(const Flags& flags, std::ostream& out, std::ostream& err) {
  for (const char* other : {"sweep", "explain", "explain-full", "out", "lengths", "megatron-args"}) {
    if (flags.given(other)) fail("--against: is not for --{}", other);
  }
  const std::string file = *flags.text("against");
  const std::vector<MeasuredRow> runs = read_measured_runs(flags, file);
  const auto cores = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  const auto jobs = static_cast<std::size_t>(flags.integer("jobs", 1, 1024).value_or(cores));
  std::vector<ComparedRun> compared(runs.size());
  parallel_for(runs.size(), jobs, [&](std::size_t i) { compared[i] = compare(runs[i]); });
  if (const auto csv = flags.text("csv")) {
    write_text_file(*csv, [&](std::ostream& rows) { write_against_csv(rows, compared); });
  }
  const AgainstStudy study = study_against(compared);
  if (flags.is_set("json")) {
    out << json_text(against_json(study, compared), 2) << "\n";
  } else {
    out << against_text(study, compared, static_cast<std::size_t>(flags.integer("top", 0, 1'000'000).value_or(10)));
  }
  if (study.without_plan > 0) {
    const auto first =
        std::find_if(compared.begin(), compared.end(), [](const ComparedRun& r) { return !r.prediction; });
    err << fmt::format("weft: {}: {} rows have no plan; the first, line {}: {}\n", file, study.without_plan,
                       first->line, first->reason);
  }
  return study.without_plan == compared.size() ? kAnswerIsNo : kOk;
}

}  // namespace weft
