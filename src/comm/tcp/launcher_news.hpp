// News from our own launcher while ranks connect. Without it, a rank that dies before the others know it would be
// missed only when the time for connecting is over.
//
// One socket serves all ranks: they peek at its contents and leave them there for the others.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "comm/tcp/socket.hpp"

namespace weft::tcp {

// The launcher's end and the one that all ranks inherit. Throws Error.
std::pair<Socket, Socket> open_launcher_news();
// The first words count.
void tell_ranks(const Socket& launcher_end, const std::string& words);

class LauncherNews {
 public:
  // While this object lives, news is passed to `on_news` on a thread of its own, after `delay`, in which the rank may
  // notice the cause itself. It owns the descriptor; -1 means that there is no launcher.
  LauncherNews(int fd, std::chrono::milliseconds delay, std::function<void(const std::string&)> on_news);
  ~LauncherNews();
  LauncherNews(const LauncherNews&) = delete;
  LauncherNews& operator=(const LauncherNews&) = delete;

  // What the launcher has said so far.
  std::optional<std::string> words() const;

 private:
  void watch(std::chrono::milliseconds delay, const std::function<void(const std::string&)>& on_news) const;

  Socket news_;
  Socket stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace weft::tcp
