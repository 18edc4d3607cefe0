// Ranks started by us: N processes on this machine that find each other over loopback, watched to their end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/launch.hpp"
#include "comm/tcp/socket.hpp"

namespace weft {

struct RankExit {
  std::int64_t rank = -1;
  int code = 0;    // of exit
  int signal = 0;  // that killed it; then code means nothing
  bool failed() const { return code != 0 || signal != 0; }
  std::string text() const;  // "rank 2 was killed by signal 9 (Killed)"
};

class ProcessGroup {
 public:
  using Clock = std::chrono::steady_clock;

  // Forks once per rank; the child calls body and ends with its result. Only while this process has no other threads.
  static ProcessGroup fork(std::int64_t ranks, const std::function<int(const Launch&)>& body);
  // Runs a command once per rank, with the variables of comm/launch.hpp set: execute(4, {"/proc/self/exe", "run",
  // ...}).
  static ProcessGroup execute(std::int64_t ranks, const std::vector<std::string>& command);

  ProcessGroup(ProcessGroup&&) = default;
  ProcessGroup& operator=(ProcessGroup&&) = delete;
  ~ProcessGroup();  // kills and reaps what is left

  pid_t pid(std::int64_t rank) const { return pids_[rank]; }
  void signal(std::int64_t rank, int number) const;

  // Until all have ended. Passes SIGINT, SIGTERM and SIGUSR1 on to the ranks meanwhile. Once a rank has failed, the
  // others have `grace` to end by themselves; once SIGTERM or SIGUSR1 was passed on, `grace_after_signal`, where that
  // is given. Then, or when all that are left are stopped, they are killed. Exits come in the order they happened, so
  // the first that failed is the origin.
  std::vector<RankExit> wait(std::chrono::milliseconds grace,
                             std::optional<std::chrono::milliseconds> grace_after_signal = std::nullopt);

 private:
  explicit ProcessGroup(std::int64_t ranks);
  // In the child it does not return.
  void start(std::int64_t rank, const std::function<int(const Launch&)>& body);
  bool reap(std::vector<RankExit>& exits);
  void signal_all(int number) const;
  bool only_stopped_are_left() const;
  std::optional<std::string> stopped_too_long();

  std::vector<pid_t> pids_;  // 0: has ended
  tcp::Socket listener_;     // rank 0's, until it has it
  tcp::Socket news_;         // what is written here all ranks can read (comm/tcp/launcher_news.hpp)
  tcp::Socket news_of_ranks_;
  Launch launch_;
  std::vector<std::optional<Clock::time_point>> stopped_since_;  // by rank, as far as it was looked at
  Clock::time_point stopped_looked_at_;
  sigset_t old_mask_{};
  bool masked_ = false;
};

// The code the launcher ends with: 0, or what all failed ranks agree on (2: bad input), or 3.
int exit_code(const std::vector<RankExit>& exits);

}  // namespace weft
