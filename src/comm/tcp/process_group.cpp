#include "comm/tcp/process_group.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "comm/tcp/launcher_news.hpp"
#include "comm/tcp/proof.hpp"

namespace weft {

namespace {

constexpr int kRunFailed = 3;
constexpr int kCannotExecute = 127;
constexpr std::size_t kSecretBytes = 32;
// The connections of a killed rank close before it counts as ended, so another rank may notice that and end first. For
// this long the launcher looks for the origin.
constexpr std::chrono::milliseconds kTimeToFindOrigin{150};
// Connected ranks notice a stopped rank themselves; ranks that are still connecting would wait for a minute.
constexpr std::chrono::seconds kMaxStoppedTime{6};
constexpr std::chrono::milliseconds kStoppedCheckPeriod{500};

sigset_t awaited_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGUSR1}) sigaddset(&set, number);
  return set;
}

RankExit exit_from(std::int64_t rank, int status) {
  RankExit result;
  result.rank = rank;
  if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
  } else {
    result.code = WEXITSTATUS(status);
  }
  return result;
}

// Returns which rank failed first. A rank that was killed by a signal did not end because of another.
const RankExit& origin_of(const std::vector<RankExit>& exits) {
  const auto killed = std::find_if(exits.begin(), exits.end(), [](const RankExit& one) { return one.signal != 0; });
  if (killed != exits.end()) return *killed;
  return *std::find_if(exits.begin(), exits.end(), [](const RankExit& one) { return one.failed(); });
}

// Reads the process state as proc(5) describes it: it follows the name, which is in parentheses and may contain any
// character.
bool is_stopped(pid_t pid) {
  std::string line;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), line);
  const std::size_t name_end = line.rfind(')');
  return name_end != std::string::npos && line.substr(name_end).starts_with(") T");
}

bool is_ours(std::string_view entry) {
  const std::string_view name = entry.substr(0, entry.find('='));
  return std::any_of(std::begin(kLaunchVariables), std::end(kLaunchVariables),
                     [&](std::string_view other) { return other.starts_with("WEFT_") && other == name; });
}

// The environment of a rank: what it inherits, unchanged, and its place in the group.
std::vector<std::string> environment_for(const Launch& launch) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!is_ours(*entry)) entries.emplace_back(*entry);
  }
  entries.push_back(fmt::format("WEFT_RANK={}", launch.rank));
  entries.push_back(fmt::format("WEFT_RANKS={}", launch.ranks));
  entries.push_back(fmt::format("WEFT_LOCAL_RANK={}", launch.local_rank));
  entries.push_back(fmt::format("WEFT_ROOT_ADDRESS={}", launch.root));
  entries.push_back(fmt::format("WEFT_JOB_SECRET={}", launch.secret));
  if (launch.root_listener >= 0) entries.push_back(fmt::format("WEFT_ROOT_LISTENER={}", launch.root_listener));
  if (launch.launcher_news >= 0) entries.push_back(fmt::format("WEFT_LAUNCHER_NEWS={}", launch.launcher_news));
  return entries;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

int execute_command(std::vector<std::string> command, const Launch& launch) {
  for (const int fd : {launch.root_listener, launch.launcher_news}) {
    if (fd >= 0) ::fcntl(fd, F_SETFD, 0);  // survives exec
  }
  std::vector<std::string> environment = environment_for(launch);
  const std::vector<char*> arguments = pointers_to(command);
  const std::vector<char*> variables = pointers_to(environment);
  ::execvpe(arguments[0], arguments.data(), variables.data());
  std::fprintf(stderr, "cannot run %s: %s\n", arguments[0], std::strerror(errno));
  return kCannotExecute;
}

}  // namespace

std::string RankExit::text() const {
  if (signal != 0) return fmt::format("rank {} was killed by signal {} ({})", rank, signal, ::strsignal(signal));
  return fmt::format("rank {} ended with code {}", rank, code);
}

int exit_code(const std::vector<RankExit>& exits) {
  std::optional<int> agreed;
  for (const RankExit& one : exits) {
    if (!one.failed()) continue;
    if (one.signal != 0 || (agreed && *agreed != one.code)) return kRunFailed;
    agreed = one.code;
  }
  return agreed.value_or(0) <= 2 ? agreed.value_or(0) : kRunFailed;
}

ProcessGroup::ProcessGroup(std::int64_t ranks)
    : pids_(static_cast<std::size_t>(ranks)), listener_(tcp::listen_on({"127.0.0.1", 0})) {
  launch_.kind = LaunchKind::tcp;
  launch_.ranks = ranks;
  launch_.root = tcp::local_address(listener_).text();
  launch_.secret = tcp::random_hex(kSecretBytes);
  std::tie(news_, news_of_ranks_) = tcp::open_launcher_news();
  launch_.launcher_news = news_of_ranks_.fd();
  // Signals are blocked from now on, so that wait() takes them one by one and loses none.
  const sigset_t set = awaited_signals();
  masked_ = ::pthread_sigmask(SIG_BLOCK, &set, &old_mask_) == 0;
}

void ProcessGroup::start(std::int64_t rank, const std::function<int(const Launch&)>& body) {
  Launch launch = launch_;
  launch.rank = launch.local_rank = rank;
  if (rank == 0) launch.root_listener = listener_.fd();
  const pid_t launcher = ::getpid();
  std::fflush(nullptr);  // otherwise the child would write it again
  const pid_t child = ::fork();
  if (child < 0) fail("cannot start rank {}: {}", rank, tcp::error_text(errno));
  if (child > 0) {
    pids_[rank] = child;
    return;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives its launcher
  if (::getppid() != launcher) ::_exit(kRunFailed);
  ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
  if (rank != 0) listener_.close();
  news_.close();
  int code = kRunFailed;
  try {
    code = body(launch);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %lld: %s\n", static_cast<long long>(rank), error.what());
  }
  std::fflush(nullptr);
  ::_exit(code);
}

ProcessGroup ProcessGroup::fork(std::int64_t ranks, const std::function<int(const Launch&)>& body) {
  ProcessGroup group(ranks);
  for (std::int64_t rank = 0; rank < ranks; ++rank) group.start(rank, body);
  group.listener_.close();
  group.news_of_ranks_.close();
  return group;
}

ProcessGroup ProcessGroup::execute(std::int64_t ranks, const std::vector<std::string>& command) {
  if (command.empty()) fail("no command to start the ranks with");
  return fork(ranks, [&](const Launch& launch) { return execute_command(command, launch); });
}

ProcessGroup::~ProcessGroup() {
  signal_all(SIGKILL);
  for (const pid_t pid : pids_) {
    if (pid > 0) ::waitpid(pid, nullptr, 0);
  }
  if (masked_ && !pids_.empty()) ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

void ProcessGroup::signal(std::int64_t rank, int number) const {
  if (pid(rank) > 0) ::kill(pid(rank), number);
}

void ProcessGroup::signal_all(int number) const {
  for (std::int64_t rank = 0; rank < std::ssize(pids_); ++rank) signal(rank, number);
}

// Reaps processes that have ended. Returns whether any is left.
bool ProcessGroup::reap(std::vector<RankExit>& exits) {
  for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
    int status = 0;
    if (pids_[rank] <= 0 || ::waitpid(pids_[rank], &status, WNOHANG) != pids_[rank]) continue;
    pids_[rank] = 0;
    exits.push_back(exit_from(static_cast<std::int64_t>(rank), status));
  }
  return std::any_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid > 0; });
}

// A stopped rank cannot end by itself. It is only observed, because somebody else may continue it.
bool ProcessGroup::only_stopped_are_left() const {
  return std::all_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid <= 0 || is_stopped(pid); });
}

// Names the first rank that has been stopped for too long.
std::optional<std::string> ProcessGroup::stopped_too_long() {
  const Clock::time_point now = Clock::now();
  if (now - stopped_looked_at_ < kStoppedCheckPeriod) return std::nullopt;
  stopped_looked_at_ = now;
  stopped_since_.resize(pids_.size());
  for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
    std::optional<Clock::time_point>& since = stopped_since_[rank];
    const bool stopped = pids_[rank] > 0 && is_stopped(pids_[rank]);
    if (!stopped) since.reset();
    if (stopped && !since) since = now;
    if (since && now - *since >= kMaxStoppedTime)
      return fmt::format("rank {} stands still: it was stopped {} s ago", rank, kMaxStoppedTime.count());
  }
  return std::nullopt;
}

std::vector<RankExit> ProcessGroup::wait(std::chrono::milliseconds grace,
                                         std::optional<std::chrono::milliseconds> grace_after_signal) {
  std::vector<RankExit> exits;
  std::optional<Clock::time_point> kill_at, tell_at;
  bool told = false;
  // The earliest of all ends that were set.
  const auto hurry = [&](std::chrono::milliseconds time) {
    const Clock::time_point end = Clock::now() + time;
    if (!kill_at || end < *kill_at) kill_at = end;
  };
  const sigset_t set = awaited_signals();
  while (reap(exits)) {
    const bool failure = std::any_of(exits.begin(), exits.end(), [](const RankExit& one) { return one.failed(); });
    if (failure && !tell_at) tell_at = Clock::now() + kTimeToFindOrigin;
    if (failure && !told && Clock::now() >= *tell_at) {
      told = true;
      tcp::tell_ranks(news_, origin_of(exits).text());
    }
    if (!told) {
      if (const auto words = stopped_too_long()) {
        told = true;
        tcp::tell_ranks(news_, *words);
      }
    }
    if (failure) hurry(grace);
    if (kill_at && (Clock::now() >= *kill_at || only_stopped_are_left())) signal_all(SIGKILL);
    const timespec moment{0, 50'000'000};
    const int number = ::sigtimedwait(&set, nullptr, &moment);
    if (number != SIGINT && number != SIGTERM && number != SIGUSR1) continue;
    signal_all(number);
    hurry(number == SIGINT ? grace : grace_after_signal.value_or(grace));
  }
  return exits;
}

}  // namespace weft
