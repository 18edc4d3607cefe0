#include "base/input_file.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 20;

const char* kind_in_words(mode_t mode) {
  if (S_ISDIR(mode)) return "is a folder, not a file";
  if (S_ISFIFO(mode)) return "is a named pipe, not a file";
  if (S_ISSOCK(mode)) return "is a socket, not a file";
  return "is a device, not a file";
}

// Returns whether this is a pipe that a shell made. Those live in a file system of their own, unlike those of mkfifo.
bool is_pipe_of_processes(int descriptor, mode_t mode) {
  struct statfs place{};
  return S_ISFIFO(mode) && ::fstatfs(descriptor, &place) == 0 && place.f_type == PIPEFS_MAGIC;
}

}  // namespace

// Without O_NONBLOCK, opening a named pipe would wait for its writer.
InputFile::InputFile(const std::filesystem::path& path, Pipes pipes)
    : name_(path.string()), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  if (descriptor_ < 0) fail("{}: cannot be read: {}", name_, std::strerror(errno));
  struct stat status{};
  const bool known = ::fstat(descriptor_, &status) == 0;
  const int error = errno;
  is_piped_ = known && is_pipe_of_processes(descriptor_, status.st_mode);
  const bool usable = known && (is_piped_ ? pipes == Pipes::accepted : S_ISREG(status.st_mode));
  if (!usable) {
    ::close(descriptor_);
    if (!known) fail("{}: cannot be read: {}", name_, std::strerror(error));
    fail("{}: {}", name_, is_piped_ ? "is a pipe, not a file" : kind_in_words(status.st_mode));
  }
  if (is_piped_) {
    ::fcntl(descriptor_, F_SETFL, 0);  // reading a pipe must wait for its writer
  } else {
    size_ = status.st_size;
  }
}

InputFile::~InputFile() {
  ::close(descriptor_);
}

std::size_t InputFile::read(std::span<std::byte> out) {
  for (;;) {
    const ssize_t got = ::read(descriptor_, out.data(), out.size());
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) fail("{}: cannot be read to its end: {}", name_, std::strerror(errno));
  }
}

void InputFile::read_at(std::int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("{}: cannot be read: {}", name_, std::strerror(errno));
    if (got == 0) fail("{}: ends before byte {}: it has changed while it was read", name_, offset + std::ssize(out));
    offset += got;
    out = out.subspan(got);
  }
}

std::string read_text_file(const std::filesystem::path& path, const TextLimits& limits) {
  InputFile file(path, limits.pipes);
  const std::int64_t most = file.is_piped() ? limits.max_piped_bytes : limits.max_bytes;
  const auto refuse_size = [&](const std::string& size) {
    fail("{}: has {} bytes; at most {} are read{}", path.string(), size, most, file.is_piped() ? " from a pipe" : "");
  };
  if (file.size() > most) refuse_size(std::to_string(file.size()));
  std::string text;
  text.reserve(file.size());
  std::string block(kBlock, '\0');
  while (const std::size_t got = file.read(std::as_writable_bytes(std::span(block)))) {
    text.append(block, 0, got);
    if (std::ssize(text) > most) refuse_size(fmt::format("more than {}", most));
  }
  if (text.empty() && file.is_piped()) {
    fail("{}: nothing came through the pipe (one process can read it, once)", path.string());
  }
  return text;
}

}  // namespace weft
