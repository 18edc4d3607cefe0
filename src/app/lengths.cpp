#include "app/lengths.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/cli.hpp"
#include "app/inputs.hpp"
#include "app/plan/plan_files.hpp"
#include "app/plan/plan_json_report.hpp"
#include "app/plan/plan_text_report.hpp"
#include "app/progress_bars.hpp"
#include "app/run/run_progress.hpp"
#include "app/run/run_ranks.hpp"
#include "app/run/run_report.hpp"
#include "app/terminal.hpp"
#include "app/version.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "study/plan/plan_study.hpp"
#include "study/run/lengths_run.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMaxLength = 1 << 24;

std::string time(double s) {
  return format_time(nanos_from_seconds(s));
}

std::string text_of(const std::vector<LengthStudy>& studies, const std::vector<double>& losses) {
  TextTable table({"length", "policy", "steps", "predicted", "measured", "bound", "tokens/s"});
  for (const LengthStudy& study : studies) {
    const double measured = study.median_s();
    table.add_row({format_count(study.length), study.policy, std::to_string(study.measured_s.size()),
                   time(study.predicted_s), measured > 0 ? time(measured) : "-", time(study.bound_s),
                   measured > 0 ? format_count(static_cast<std::int64_t>(study.tokens / measured)) : "-"});
  }
  return fmt::format(
      "{}\nA step of another length than the one before it hides nothing across their border.\n"
      "Loss {} at first, {} at last\n",
      table.to_string(), loss_in_words(losses.front()), loss_in_words(losses.back()));
}

nlohmann::ordered_json json_of(const std::vector<LengthStudy>& studies, const std::vector<double>& losses) {
  nlohmann::ordered_json json{{"version", kVersion}, {"lengths", nlohmann::ordered_json::array()}, {"losses", losses}};
  for (const LengthStudy& study : studies) {
    const double measured = study.median_s();
    nlohmann::ordered_json own{{"seq", study.length},
                               {"policy", study.policy},
                               {"steps", study.measured_s.size()},
                               {"predicted_step_s", study.predicted_s},
                               {"bound_s", study.bound_s}};
    own["step_s"] = measured > 0 ? nlohmann::ordered_json(measured) : nlohmann::ordered_json();
    own["tokens_per_s"] = measured > 0 ? nlohmann::ordered_json(study.tokens / measured) : nlohmann::ordered_json();
    json["lengths"].push_back(std::move(own));
  }
  return json;
}

}  // namespace

void declare_lengths_flag(Flags& flags) {
  flags.value("lengths", "A,B,...", "batches of several sequence lengths, one plan for each; in the place of --seq");
}

std::vector<std::int64_t> read_lengths(Flags& flags) {
  std::vector<std::int64_t> lengths;
  const auto text = flags.text("lengths");
  if (!text) return lengths;
  if (flags.given("seq")) fail("--lengths {}: says what --seq says; give one of them", *text);
  for (const std::string& item : split(*text, ',')) {
    const std::int64_t length = parse_integer(item, "--lengths");
    if (length < 1 || length > kMaxLength) fail("--lengths {}: {} is not in 1..{}", *text, length, kMaxLength);
    lengths.push_back(length);
  }
  std::sort(lengths.begin(), lengths.end());
  if (const auto twice = std::adjacent_find(lengths.begin(), lengths.end()); twice != lengths.end()) {
    fail("--lengths {}: {} stands there twice", *text, *twice);
  }
  flags.set("seq", std::to_string(lengths.back()));
  return lengths;
}

int run_plan_of_lengths(const Flags& flags, Inputs inputs, const std::vector<std::int64_t>& lengths,
                        const std::vector<std::string>& policies, std::ostream& out, std::ostream& err) {
  const Profile profile = read_profile(flags);
  TextTable table({"length", "policy", "step", "exposed", "bound", "over bound", "tokens/s"});
  nlohmann::ordered_json json{{"version", kVersion}, {"lengths", nlohmann::ordered_json::array()}};
  WrittenFiles written;
  std::string failed;
  bool fits = true;
  for (const std::int64_t length : lengths) {
    inputs.layout.seq = length;
    PlanStudy study = study_plan(inputs, policies, profile, progress_bars(terminal_of(err)));
    fits = fits && study.policies[study.best].fits;
    for (const PolicyStudy& policy : study.policies) {
      table.add_row({&policy == study.policies.data() ? format_count(length) : "", policy.policy, time(policy.step_s),
                     time(policy.accounting.mean.exposed_s), time(study.bound_s),
                     fmt::format("{:+.1f} %", policy.gap_to_bound_pct),
                     format_count(static_cast<std::int64_t>(policy.throughput.tokens_per_s))});
    }
    if (!study.failed.empty()) failed += fmt::format("\nLength {}:{}", format_count(length), failed_lines(study));
    json["lengths"].push_back(plan_json_report(study));
    if (const auto folder = flags.text("out")) {
      written.add(write_plan_files(study, std::filesystem::path(*folder) / std::to_string(length),
                                   read_plan_file_options(flags)));
    }
  }
  if (flags.is_set("json")) {
    out << json_text(json, 2) << "\n";
  } else {
    out << table.to_string(columns_of(out)) << failed << written_line(written);
  }
  return fits && failed.empty() ? kOk : kAnswerIsNo;
}

int run_training_of_lengths(const Flags& flags, const std::vector<std::int64_t>& lengths, const RunOptions& options,
                            const Launch& launch, std::ostream& out, std::ostream& err) {
  if (!options.plans.empty()) fail("--lengths: plan files say their length themselves");
  if (options.checkpoint) fail("--lengths: is not for --checkpoint yet");
  if (options.validation) fail("--lengths: is not for --eval-every yet");
  if (options.record) fail("--lengths: is not for --record yet");
  if (options.graphs == GraphWish::always) fail("--lengths: is not for --graphs on: steps of one plan seldom follow");
  if (flags.given("out")) fail("--lengths: is not for --out of weft run; weft plan writes the plans");
  OnLengthLoss on_loss;
  if (!flags.is_set("json")) {
    on_loss = [&](std::int64_t steps, std::int64_t length, double loss) {
      err << fmt::format("weft: step {} of {}, length {}: loss {}\n", steps, options.settings.steps, length,
                         loss_in_words(loss))
          << std::flush;
    };
  }
  const bool reports = has_rank_0(launch);
  LengthsRun run(lengths, options, ranks_as(launch), on_loss);
  run_on_ranks(flags, options, launch, err,
               [&](Communicator& communicator, const std::string&) { run.run_rank(communicator); });
  if (const PolicyStudy* const study = run.too_large()) {
    if (reports) err << too_large_line(*study);
    return kAnswerIsNo;
  }
  if (!reports) return kOk;
  if (flags.is_set("json")) {
    out << json_text(json_of(run.studies(), run.losses()), 2) << "\n";
  } else {
    out << text_of(run.studies(), run.losses());
  }
  return kOk;
}

}  // namespace weft
