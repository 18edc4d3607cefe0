// The program for tests that start it hundreds of times. It loads the kernels once, which takes most of a second, and
// forks for every command that tests/warm_program.py sends; without --serve it is the program itself.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"

#define main weft_main
#include "app/main.cpp"
#undef main

namespace {

struct Request {
  int number = 0;
  std::string out, err;  // the files that take what is written to stdout and stderr
  std::vector<std::string> variables, arguments;
};

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// A line "NUMBER BYTES", then so many bytes of words that each end in a NUL: the two files, the number of variables,
// the variables, the arguments.
std::optional<Request> read_request() {
  Request request;
  std::size_t bytes = 0;
  if (std::fscanf(stdin, "%d %zu", &request.number, &bytes) != 2 || std::fgetc(stdin) != '\n') return std::nullopt;
  std::string text(bytes, '\0');
  if (std::fread(text.data(), 1, bytes, stdin) != bytes) return std::nullopt;
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < bytes; begin += words.back().size() + 1) words.emplace_back(text.data() + begin);
  request.out = words.at(0);
  request.err = words.at(1);
  const auto first = words.begin() + 3;
  const auto last = first + std::stol(words.at(2));
  request.variables.assign(first, last);
  request.arguments.assign(last, words.end());
  return request;
}

void redirect(int fd, const std::string& path, int flags) {
  const int opened = ::open(path.c_str(), flags, 0600);
  if (opened < 0 || ::dup2(opened, fd) < 0) ::_exit(127);
  ::close(opened);
}

[[noreturn]] void run(Request request) {
  redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
  redirect(STDOUT_FILENO, request.out, O_WRONLY | O_CREAT | O_TRUNC);
  redirect(STDERR_FILENO, request.err, O_WRONLY | O_CREAT | O_TRUNC);
  std::vector<char*> variables = pointers_to(request.variables);
  environ = variables.data();
  std::vector<char*> arguments = pointers_to(request.arguments);
  std::exit(weft_main(static_cast<int>(request.arguments.size()), arguments.data()));
}

void say(const char* what, int number, int value) {
  std::printf("%s %d %d\n", what, number, value);
  std::fflush(stdout);
}

class Server {
 public:
  Server() {
    sigemptyset(&children_);
    sigaddset(&children_, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &children_, &mask_);  // before libtorch starts threads, which might take the signals
    ended_ = ::signalfd(-1, &children_, SFD_CLOEXEC);
    std::setvbuf(stdin, nullptr, _IONBF, 0);  // so that poll() sees all there is to read
    weft::kernels_available();                // opens them
  }

  int serve() {
    for (;;) {
      pollfd watched[] = {{STDIN_FILENO, POLLIN, 0}, {ended_, POLLIN, 0}};
      ::poll(watched, 2, -1);
      if (watched[1].revents != 0) report_ended();
      if (watched[0].revents == 0) continue;
      std::optional<Request> request = read_request();
      if (!request) return 0;
      start(*std::move(request));
    }
  }

 private:
  void start(Request request) {
    const int number = request.number;
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nothing outlives the test
      ::close(ended_);
      ::sigprocmask(SIG_SETMASK, &mask_, nullptr);
      run(std::move(request));
    }
    running_[child] = number;
    say("started", number, child);
  }

  void report_ended() {
    signalfd_siginfo ignored;
    if (::read(ended_, &ignored, sizeof ignored) < 0) return;
    int status = 0;
    for (pid_t child = 0; (child = ::waitpid(-1, &status, WNOHANG)) > 0;) say("ended", running_.at(child), status);
  }

  sigset_t children_{}, mask_{};
  int ended_ = -1;
  std::map<pid_t, int> running_;
};

}  // namespace

// Ranks that the program starts as processes have the kernels already: their process goes on with the command in place
// of loading the same program again.
extern "C" int execvpe(const char*, char* const arguments[], char* const variables[]) noexcept {
  environ = const_cast<char**>(variables);
  int count = 0;
  while (arguments[count] != nullptr) ++count;
  std::exit(weft_main(count, const_cast<char**>(arguments)));
}

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--serve") return Server().serve();
  return weft_main(argc, argv);
}
