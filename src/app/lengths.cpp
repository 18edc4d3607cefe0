#include "app/lengths.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/cli.hpp"
#include "app/plan/plan_files.hpp"
#include "app/plan/plan_json_report.hpp"
#include "app/plan/plan_study.hpp"
#include "app/plan/plan_text_report.hpp"
#include "app/run/run_report.hpp"
#include "app/run/run_session.hpp"
#include "app/terminal.hpp"
#include "app/version.hpp"
#include "app/world/world_flags.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "exec/train_lengths.hpp"

namespace weft {
namespace {

constexpr std::int64_t kLongest = 1 << 24;

std::string time(double s) {
  return format_time(nanos_from_seconds(s));
}

// What was predicted and measured of the steps of one length.
struct LengthStudy {
  std::int64_t length = 0;
  std::string policy;
  double predicted_s = 0, bound_s = 0, tokens = 0;
  std::vector<double> measured_s;

  double median_s() const {
    std::vector<double> sorted = measured_s;
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty() ? 0 : sorted[sorted.size() / 2];
  }
};

// On the ranks of a run: plans for every length, then training with all of them.
class LengthsRun {
 public:
  LengthsRun(const std::vector<std::int64_t>& lengths, const RunOptions& options, const Launch& launch,
             std::ostream* err)
      : options_(options), err_(err) {
    for (const std::int64_t length : lengths) {
      RunOptions own = options;
      own.inputs.layout.seq = length;
      own.only_best = true;
      own.calibration_budget = options.calibration_budget / static_cast<std::int64_t>(lengths.size());
      sessions_.push_back(std::make_unique<RunSession>(own, launch, RunProgress(nullptr, false)));
    }
  }

  RunSession& first() { return *sessions_.front(); }
  const PolicyStudy* too_large() const {
    for (const auto& session : sessions_) {
      if (const PolicyStudy* const study = session->too_large()) return study;
    }
    return nullptr;
  }

  void run_rank(Communicator& communicator) {
    std::vector<Unfolded> unfolded;
    std::vector<StepGraph> originals;
    LengthsJob job{{}, options_.settings, options_.corpus};
    unfolded.reserve(sessions_.size());
    originals.reserve(sessions_.size());
    for (const auto& session : sessions_) {
      const Plan& plan = session->prepare_rank(communicator).plan;
      if (session->too_large() != nullptr) return;
      unfolded.emplace_back(plan);
      originals.push_back(build_step_graph(plan.model, Cluster(plan.cluster), plan.layout));
      job.plans.push_back({plan, unfolded.back(), originals.back()});
    }
    const bool reports = communicator.rank() == 0;
    OnLengthStep on_step;
    if (reports && err_ != nullptr) {
      on_step = [&](std::int64_t step, std::size_t chosen, double loss) {
        *err_ << fmt::format("weft: step {} of {}, length {}: loss {}\n", step + 1, options_.settings.steps,
                             job.plans[chosen].plan.layout.seq, loss_in_words(loss))
              << std::flush;
      };
    }
    const std::unique_ptr<Kernels> kernels = make_kernels({.threads = options_.threads});
    LengthsResult result = train_lengths(job, communicator, *kernels, on_step);
    if (reports) result_ = std::move(result);
  }

  std::vector<LengthStudy> studies() const {
    std::vector<LengthStudy> studies;
    for (const auto& session : sessions_) {
      const PolicyStudy& chosen = session->best_prediction();
      const Layout& layout = chosen.plan.layout;
      studies.push_back({layout.seq,
                         chosen.policy,
                         chosen.step_s,
                         session->study().plan.bound_s,
                         static_cast<double>(layout.global_batch * layout.seq),
                         {}});
    }
    for (std::size_t step = static_cast<std::size_t>(options_.warm_up); step < result_.chosen.size(); ++step) {
      studies[result_.chosen[step]].measured_s.push_back(result_.seconds[step]);
    }
    return studies;
  }
  const std::vector<double>& losses() const { return result_.losses; }

 private:
  RunOptions options_;
  std::ostream* err_;
  std::vector<std::unique_ptr<RunSession>> sessions_;  // by length
  LengthsResult result_;
};

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
    if (length < 1 || length > kLongest) fail("--lengths {}: {} is not in 1..{}", *text, length, kLongest);
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
    PlanStudy study = study_plan(inputs, policies, profile, terminal_of(err));
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
  if (flags.on("json")) {
    out << json_text(json, 2) << "\n";
  } else {
    out << table.to_string() << failed << written_line(written);
  }
  return fits && failed.empty() ? kOk : kAnswerIsNo;
}

int run_training_of_lengths(const Flags& flags, const std::vector<std::int64_t>& lengths, const RunOptions& options,
                            const Launch& launch, std::ostream& out, std::ostream& err) {
  if (!options.plans.empty()) fail("--lengths: plan files say their length themselves");
  if (options.checkpoint) fail("--lengths: is not for --checkpoint yet");
  if (options.validation) fail("--lengths: is not for --eval-every yet");
  if (options.record) fail("--lengths: is not for --record yet");
  if (options.out) fail("--lengths: is not for --out of weft run; weft plan writes the plans");
  const bool reports = launch.kind == LaunchKind::local || launch.rank == 0;
  LengthsRun run(lengths, options, launch, reports && !options.json ? &err : nullptr);
  run.first().on_ranks(read_world_options(flags, launch), err,
                       [&](Communicator& communicator, const std::string&) { run.run_rank(communicator); });
  if (const PolicyStudy* const study = run.too_large()) {
    if (reports) err << too_large_line(*study);
    return kAnswerIsNo;
  }
  if (!reports) return kOk;
  if (options.json) {
    out << json_text(json_of(run.studies(), run.losses()), 2) << "\n";
  } else {
    out << text_of(run.studies(), run.losses());
  }
  return kOk;
}

}  // namespace weft
