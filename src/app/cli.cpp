#include "app/cli.hpp"

#include <fmt/format.h>

#include <exception>
#include <new>

#include "app/commands.hpp"
#include "app/flags.hpp"
#include "app/version.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

constexpr Command kCommands[] = {
    {"plan", "model, cluster, layout -> plan: step time, accounting, memory, bound", run_plan_command},
    {"run", "a plan (or the flags of plan) executed for real: predicted and measured step side by side",
     run_run_command},
    {"simulate", "plan.json, also one that you changed -> step time, accounting, memory, bound; verified first",
     run_simulate_command},
    {"analyze", "a trace (ours, or PyTorch's) -> overlap, idle time, exposed communication", run_analyze_command},
    {"report", "what these commands wrote (--out) -> one page to look at and to send around", run_report_command},
    {"calibrate", "this machine -> profile.json: the operations of a plan, interference", run_calibrate_command},
    {"verify", "plan.json -> is it safe? (deadlock, order, hazards, memory), with the reason when not",
     run_verify_command},
    {"export", "plan.json -> flags and files of Megatron-LM, PyTorch, DeepSpeed, ...; what they cannot say is listed",
     run_export_command},
    {"collective", "collectives as programs: list them, verify MSCCL files, bench them on real ranks",
     run_collective_command},
    {"cluster", "a machine's wiring: where every rank sits, its slowest cut; show it as text or picture",
     run_cluster_command},
};

void print_usage(std::ostream& out) {
  out << "weft " << kVersion << ": weaves communication into computation when large models are trained\n\n"
      << "  weft COMMAND [flags]        weft COMMAND --help for its flags and an example\n\n";
  print_commands(kCommands, 12, out);
  out << "\n  weft --version\n";
}

int dispatch(const Arguments& arguments, std::ostream& out, std::ostream& err) {
  if (arguments.empty()) {
    print_usage(err);
    return kBadInput;
  }
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") {
    print_usage(out);
    return kOk;
  }
  if (name == "--version") {
    out << "weft " << kVersion << "\n";
    return kOk;
  }
  return run_named_command(kCommands, "there is no such command", arguments, out, err);
}

}  // namespace

void print_commands(std::span<const Command> commands, std::size_t columns, std::ostream& out) {
  for (const Command& command : commands) out << fmt::format("  {:<{}}{}\n", command.name, columns, command.summary);
}

int run_named_command(std::span<const Command> commands, std::string_view missing, const Arguments& arguments,
                      std::ostream& out, std::ostream& err) {
  const std::string& name = arguments.front();
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (name == command.name) return command.run({arguments.begin() + 1, arguments.end()}, out, err);
    names.emplace_back(command.name);
  }
  fail("'{}': {}{}", name, missing, suggestion(name, names));
}

int run_command_line(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  try {
    return dispatch(arguments, out, err);
  } catch (const HelpRequested& help) {
    out << help.text;
    return kOk;
  } catch (const Error& error) {
    err << "weft: " << error.what() << "\n";
    return kBadInput;
  } catch (const UnsafePlan& fault) {
    err << "weft: " << fault.what() << "\n";
    return kAnswerIsNo;
  } catch (const RunFailed& failure) {
    err << "weft: " << failure.what() << "\n";
    return kRunFailed;
  } catch (const std::bad_alloc&) {
    err << "weft: out of memory: what was asked for is too large for this machine\n";
    return kRunFailed;
  } catch (const std::exception& error) {
    err << "weft: internal error: " << error.what() << "\n";
    return kRunFailed;
  }
}

}  // namespace weft
