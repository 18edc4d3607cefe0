#include "app/world/own_processes.hpp"

#include "comm/tcp/process_group.hpp"

namespace weft {
namespace {

constexpr std::chrono::seconds kGrace{10};     // for the survivors of a process that failed
constexpr std::chrono::hours kTimeToSave{24};  // in effect unlimited: a user in a hurry has SIGINT

}  // namespace

int run_own_processes(std::int64_t count, const std::vector<std::string>& command,
                      const std::vector<std::string>& arguments, std::ostream& err, AfterSignal after_signal) {
  std::vector<std::string> words = {"/proc/self/exe"};
  words.insert(words.end(), command.begin(), command.end());
  words.insert(words.end(), arguments.begin(), arguments.end());
  const auto exits = ProcessGroup::execute(count, words)
                         .wait(kGrace, after_signal == AfterSignal::ranks_end_soon ? kGrace : kTimeToSave);
  for (const RankExit& exit : exits) {
    if (exit.signal != 0) err << "weft: " << exit.text() << "\n";
  }
  return exit_code(exits);
}

}  // namespace weft
