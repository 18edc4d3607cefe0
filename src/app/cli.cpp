#include "app/cli.hpp"

#include <exception>
#include <new>

#include "app/analyze/analyze_command.hpp"
#include "app/collective/collective_command.hpp"
#include "app/flags.hpp"
#include "app/plan/plan_command.hpp"
#include "app/plan/simulate_command.hpp"
#include "app/run/calibrate_command.hpp"
#include "app/run/run_command.hpp"
#include "app/verify_command.hpp"
#include "app/version.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);
};

constexpr Command kCommands[] = {
    {"plan", "model, cluster, layout -> plan: step time, accounting, memory, bound", run_plan_command},
    {"run", "a plan (or the flags of plan) executed for real: predicted and measured step side by side",
     run_run_command},
    {"simulate", "plan.json, also one that you changed -> step time, accounting, memory, bound; verified first",
     run_simulate_command},
    {"analyze", "a trace (ours, or PyTorch's) -> overlap, idle time, exposed communication", run_analyze_command},
    {"calibrate", "this machine -> profile.json: the operations of a plan, interference", run_calibrate_command},
    {"verify", "plan.json -> is it safe? (deadlock, order, hazards, memory), with the reason when not",
     run_verify_command},
    {"collective", "collectives as programs: list them, verify MSCCL files, bench them on real ranks",
     run_collective_command},
};

void print_usage(std::ostream& out) {
  out << "weft " << kVersion << ": weaves communication into computation when large models are trained\n\n"
      << "  weft COMMAND [flags]        weft COMMAND --help for its flags and an example\n\n";
  for (const Command& command : kCommands) {
    out << "  " << command.name << std::string(12 - std::string(command.name).size(), ' ') << command.summary << "\n";
  }
  out << "\n  weft --version\n";
}

int dispatch(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
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
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (name == command.name) return command.run({arguments.begin() + 1, arguments.end()}, out, err);
    names.emplace_back(command.name);
  }
  fail("'{}': there is no such command{}", name, suggestion(name, names));
}

}  // namespace

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
