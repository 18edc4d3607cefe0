// How forked ranks of a test tell the test what they see: whole lines through one pipe.
#pragma once

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

#include "comm/tcp/socket.hpp"

namespace weft::tcp {

class Reports {
 public:
  Reports() {
    int ends[2];
    if (::pipe(ends) != 0) return;
    from_ = Socket(ends[0]);
    to_ = Socket(ends[1]);
  }

  // By a rank. Short lines are written as a whole.
  void say(std::int64_t rank, const std::string& words) const {
    const std::string line = fmt::format("{}: {}\n", rank, words);
    [[maybe_unused]] const ssize_t written = ::write(to_.fd(), line.data(), line.size());
  }

  // By the test: the lines that came until there are `count`, or a generous deadline.
  std::multiset<std::string> take(std::size_t count) {
    const auto deadline = Clock::now() + std::chrono::seconds(30);
    std::multiset<std::string> lines;
    while (lines.size() < count) {
      const std::size_t end = text_.find('\n');
      if (end != std::string::npos) {
        lines.insert(text_.substr(0, end));
        text_.erase(0, end + 1);
        continue;
      }
      char buffer[4096];
      if (!wait_for(from_, POLLIN, deadline)) break;
      const ssize_t got = ::read(from_.fd(), buffer, sizeof buffer);
      if (got <= 0) break;
      text_.append(buffer, static_cast<std::size_t>(got));
    }
    return lines;
  }

 private:
  Socket from_, to_;
  std::string text_;
};

}  // namespace weft::tcp
