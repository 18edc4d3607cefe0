#include "exec/checkpoint/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "exec/checkpoint/synced_file.hpp"

namespace weft {
namespace {

constexpr const char* kLockName = ".lock";
constexpr std::size_t kMaxTextBytes = 200;

std::string this_process_in_words() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on host {}", ::getpid(), host.data());
}

// What the holder wrote; whoever has just taken the lock may not have come to it.
std::string holder_in_words(int descriptor) {
  std::array<char, kMaxTextBytes> text{};
  const ssize_t got = ::pread(descriptor, text.data(), text.size(), 0);
  std::string words(text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  words.resize(std::min(words.size(), words.find('\n')));
  std::ranges::replace_if(words, [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  return words.empty() ? "a run that has just begun" : words;
}

bool has_no_locks(int error) {
  return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL;
}

// Whether the file still has its name: somebody may have removed it, and another run made a new one.
bool is_named(int descriptor, const std::filesystem::path& path) {
  struct stat open_file{}, named{};
  return ::fstat(descriptor, &open_file) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

}  // namespace

FolderLock::FolderLock(std::filesystem::path folder) : folder_(std::move(folder)) {
  take();
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FolderLock::take() {
  const std::filesystem::path path = folder_ / kLockName;
  for (;;) {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    // A file that is there may be written where the folder may not.
    if (descriptor_ < 0 || ::faccessat(AT_FDCWD, folder_.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
      fail("--checkpoint {}: cannot be written to: {}: {}", folder_.string(), kLockName, std::strerror(errno));
    }
    struct stat status{};
    if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
      fail("--checkpoint {}: {} is no regular file", folder_.string(), kLockName);
    }
    const bool taken = ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
    if (!taken && errno == EINTR) continue;
    if (!taken && !has_no_locks(errno)) {
      fail("--checkpoint {}: another run saves there: {} (it holds {})", folder_.string(), holder_in_words(descriptor_),
           path.string());
    }
    is_enforced_ = taken;
    if (is_named(descriptor_, path)) break;  // otherwise it was removed between open() and flock()
  }
  const std::string words = this_process_in_words() + "\n";
  if (::ftruncate(descriptor_, 0) != 0 ||
      ::pwrite(descriptor_, words.data(), words.size(), 0) != static_cast<ssize_t>(words.size())) {
    fail("--checkpoint {}: cannot be written to: {}: {}", folder_.string(), kLockName, std::strerror(errno));
  }
}

void FolderLock::keep() {
  if (is_named(descriptor_, folder_ / kLockName)) return;
  make_checkpoint_folder(folder_);
  take();
}

}  // namespace weft
