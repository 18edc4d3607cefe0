#include <unistd.h>

#include <nlohmann/json.hpp>

#include "app/cli.hpp"
#include "app/commands.hpp"
#include "app/lengths.hpp"
#include "app/megatron_inputs.hpp"
#include "app/output_paths.hpp"
#include "app/page/page_sources.hpp"
#include "app/plan/plan_files.hpp"
#include "app/plan/plan_json_report.hpp"
#include "app/run/checkpoint_options.hpp"
#include "app/run/loss_comparison.hpp"
#include "app/run/run_files.hpp"
#include "app/run/run_progress.hpp"
#include "app/run/run_ranks.hpp"
#include "app/run/run_report.hpp"
#include "app/run/stop_signal.hpp"
#include "app/terminal.hpp"
#include "app/world/own_processes.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "kernels/kernels.hpp"

namespace weft {
namespace {

int say_finished(const RunOptions& options, std::int64_t step, bool as_json, std::ostream& out, std::ostream& err) {
  const std::string folder = options.checkpoint->folder.string();
  err << fmt::format("weft: nothing left to do: --steps {}, and {} has step {} already\n", options.settings.steps,
                     folder, step);
  if (as_json) {
    const nlohmann::ordered_json json = {{"finished", true},
                                         {"checkpoints", {{"folder", folder}, {"last_step", step}}}};
    out << json_text(json, 2) << "\n";
  }
  return kOk;
}

// The page shows what was predicted beside what was measured, term by term.
nlohmann::ordered_json with_predictions(const RunStudy& study, nlohmann::ordered_json summary) {
  for (const PolicyRun& run : study.runs) {
    summary["policies"][run.measured.policy]["predicted"] = accounting_json(run.predicted, run.predicted_accounting);
  }
  return summary;
}

}  // namespace

int run_run_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  Flags flags("run", "Trains for real, as the plan says: predicted and measured step side by side.",
              "weft run --layers 4 --hidden 256 --heads 8 --seq 128 --micro-batch 8 --cluster local:2,nic=200Mb/s "
              "--policy serial,ddp,priority --steps 20 --out out/run");
  declare_run_flags(flags);
  declare_checkpoint_flags(flags);
  declare_lengths_flag(flags);
  flags.parse(arguments);
  const std::vector<IgnoredFlag> ignored = apply_launch(flags);
  if (!ignored.empty()) print_ignored(err, *launch_file(flags), ignored);
  const std::vector<std::int64_t> lengths = read_lengths(flags);
  const Launch launch = launch_from_environment();
  RunOptions options = read_run_options(flags, launch);
  const bool reports = has_rank_0(launch);
  if (reports) {
    for (const std::string& remark : options.inputs.remarks) err << fmt::format("weft: {}\n", remark);
  }
  options.lengths = lengths;
  read_checkpoint_options(flags, options);
  if (reports) require_outputs_can_be_written(flags, {"out", "record"});
  std::optional<EarlierLosses> earlier;
  if (const auto file = flags.text("losses-of")) {
    if (!lengths.empty()) fail("--losses-of {}: is not for --lengths yet", *file);
    if (reports) earlier = read_earlier_losses(*file);
  }
  if (options.checkpoint) hold_stop_signals();
  const bool on_gpus = options.inputs.cluster.execution.runtime == Runtime::cuda;
  if (!lengths.empty() && options.inputs.cluster.execution == kPacedGpuRanks) {
    fail("--lengths: ranks with an emulated link share the hardware queues of one GPU, too few for several plans");
  }
  if (!on_gpus && !kernels_available()) fail("weft run needs kernels: {}", kernels_in_words());
  if (const auto processes = processes_to_start(flags, launch)) {
    return run_own_processes(*processes, {"run"}, arguments, err,
                             options.checkpoint ? AfterSignal::ranks_end_themselves : AfterSignal::ranks_end_soon);
  }

  if (!lengths.empty()) return run_training_of_lengths(flags, lengths, options, launch, out, err);
  RunProgress progress(err, reports, isatty(STDERR_FILENO) == 1);
  RunSession session(options, ranks_as(launch), progress);
  run_on_ranks(flags, options, launch, err,
               [&](Communicator& communicator, const std::string& way) { session.run_rank(communicator, way); });
  if (const PolicyStudy* const study = session.too_large()) {
    if (reports) err << too_large_line(*study);
    return kAnswerIsNo;
  }
  if (!reports) return kOk;
  if (session.finished()) return say_finished(options, session.first_step(), flags.is_set("json"), out, err);
  nlohmann::ordered_json json = run_json_report(session.study());
  if (earlier) add_loss_comparison(session.study(), *earlier, json);
  std::vector<std::string> written;
  if (const auto folder = flags.text("out")) {
    written = write_run_files(session.study(), *folder);
    written.push_back(
        write_report_file(*folder, source_of_run(session.study(), with_predictions(session.study(), json))));
  }
  if (flags.is_set("json")) {
    out << json_text(json, 2) << "\n";
  } else {
    out << run_text_report(session.study(), columns_of(out));
    if (earlier) out << loss_comparison_text(session.study(), *earlier);
    out << written_line(written);
  }
  return session.study().plan.failed.empty() ? kOk : kAnswerIsNo;
}

}  // namespace weft
