#include <unistd.h>

#include <nlohmann/json.hpp>

#include "app/against/fit_command.hpp"
#include "app/cli.hpp"
#include "app/commands.hpp"
#include "app/files.hpp"
#include "app/output_paths.hpp"
#include "app/plan/plan_files.hpp"
#include "app/run/run_options.hpp"
#include "app/run/run_progress.hpp"
#include "app/run/run_ranks.hpp"
#include "app/terminal.hpp"
#include "app/world/own_processes.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "io/profile_json.hpp"
#include "kernels/kernels.hpp"

namespace weft {
namespace {

std::string dims_of(const OpKey& key) {
  std::string text;
  for (const std::int64_t size : key.dims) {
    if (size > 0) text += fmt::format("{}{}", text.empty() ? "" : " x ", size);
  }
  return text;
}

std::string in_words(const Profile& profile, const DeviceProfile& device, std::size_t columns) {
  std::string text = fmt::format("{}, {} cores: {} ranks with {} threads each\n\n", profile.machine->cpu,
                                 profile.machine->cores, profile.machine->ranks, profile.machine->threads_per_rank);
  TextTable table({"operation", "phase", "size", "time", "TFLOP/s"});
  for (const auto& [key, time] : device.operations) {
    const double flops = executed_flops(key).value;
    table.add_row({std::string(name_of(key.kind)), std::string(name_of(key.phase)), dims_of(key), format_time(time),
                   flops > 0 ? fmt::format("{:.3f}", flops / seconds(time) * 1e-12) : ""});
  }
  return text + table.to_string(columns) +
         fmt::format(
             "\nbetween operations {}; beside a transfer compute takes {:.1f} % longer, a transfer beside "
             "compute {:.1f} %\n",
             format_time(device.operation_overhead), 100 * device.compute_slowdown.value_or(0),
             100 * device.transfer_slowdown.value_or(0));
}

}  // namespace

int run_calibrate_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  if (asks_for_fit(arguments)) return run_fit_command(arguments, out, err);
  Flags flags("calibrate", "Measures the operations of a plan on this machine, with all ranks busy.",
              "weft calibrate --layers 4 --hidden 256 --heads 8 --seq 128 --micro-batch 8 --cluster "
              "local:2,nic=200Mb/s --out out/profile");
  declare_run_flags(flags);
  flags.value("from", "FILE",
              "measure nothing: fit constants to a table of measured runs (weft calibrate --from FILE --help)");
  flags.parse(arguments);
  if (flags.given("profile")) fail("--profile: weft calibrate makes one");
  const Launch launch = launch_from_environment();
  const RunOptions options = read_run_options(flags, launch);
  const bool reports = has_rank_0(launch);
  if (reports) require_outputs_can_be_written(flags, {"out"});
  const bool on_gpus = options.inputs.cluster.execution.runtime == Runtime::cuda;
  if (!on_gpus && !kernels_available()) fail("weft calibrate needs kernels: {}", kernels_in_words());
  if (const auto processes = processes_to_start(flags, launch)) {
    return run_own_processes(*processes, {"calibrate"}, arguments, err);
  }
  RunProgress progress(err, reports, isatty(STDERR_FILENO) == 1);
  RunSession session(options, ranks_as(launch), progress);
  run_on_ranks(flags, options, launch, err,
               [&](Communicator& communicator, const std::string&) { session.calibrate_only(communicator); });
  if (!reports) return kOk;
  const std::string json = json_text(profile_to_json(session.profile()), 2);
  std::vector<std::string> written;
  if (const auto folder = flags.text("out")) {
    make_folder(*folder);
    written.push_back((std::filesystem::path(*folder) / "profile.json").string());
    write_text_file(written.back(), [&](std::ostream& file) { file << json << "\n"; });
  }
  if (flags.is_set("json")) {
    out << json << "\n";
  } else {
    out << in_words(session.profile(), session.profile().device(options.inputs.cluster.device.name), columns_of(out))
        << written_line(written);
  }
  return kOk;
}

}  // namespace weft
