// A limit that makes writing files fail in a test, as a full disk does.
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace weft::test {

// Files of this process cannot grow beyond a limit: write() fails in the middle.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_action_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, old_action_);
  }

 private:
  void (*old_action_)(int);
  rlimit old_{};
};

}  // namespace weft::test
