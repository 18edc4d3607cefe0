#include "base/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <streambuf>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace weft {
namespace {

// The file while it is being written. It is removed unless it was renamed to the target.
class TemporaryFile final : public std::streambuf {
 public:
  // The name contains the process number, so two programs that write the same target do not mix their bytes.
  explicit TemporaryFile(const std::filesystem::path& target)
      : target_(target), path_(fmt::format("{}.{}.part", target.string(), ::getpid())) {
    // A leftover of an earlier process with this number is removed. O_EXCL follows no link.
    ::unlink(path_.c_str());
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail("{}: cannot be written: {}", target_.string(), std::strerror(errno));
    setp(buffer_.data(), buffer_.data() + buffer_.size());
  }
  ~TemporaryFile() override {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  // Throws RunFailed where a write has failed.
  void report_failure() const {
    if (error_ == 0) return;
    throw RunFailed(fmt::format("{}: cannot be written to its end: {}", target_.string(), std::strerror(error_)));
  }

  void finish(Durability durability) {
    flush();
    if (error_ == 0 && durability == Durability::synchronized && ::fsync(descriptor_) != 0) error_ = errno;
    const int closed =
        ::close(std::exchange(descriptor_, -1));  // some file systems report only here that they are full
    if (error_ == 0 && closed != 0) error_ = errno;
    report_failure();
    if (::rename(path_.c_str(), target_.c_str()) != 0) {
      fail("{}: cannot be written: {}", target_.string(), std::strerror(errno));
    }
    path_.clear();
  }

 protected:
  int_type overflow(int_type c) override {
    if (!flush()) return traits_type::eof();
    if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
    return traits_type::not_eof(c);
  }
  int sync() override { return flush() ? 0 : -1; }

 private:
  // Keeps the first error: later writes would only report that the stream is bad.
  bool flush() {
    const char* begin = pbase();
    while (error_ == 0 && begin < pptr()) {
      const ssize_t written = ::write(descriptor_, begin, static_cast<std::size_t>(pptr() - begin));
      if (written >= 0) {
        begin += written;
      } else if (errno != EINTR) {
        error_ = errno;
      }
    }
    setp(buffer_.data(), buffer_.data() + buffer_.size());
    return error_ == 0;
  }

  std::filesystem::path target_;
  std::string path_;
  int descriptor_ = -1;
  int error_ = 0;
  std::array<char, std::size_t{1} << 16> buffer_;
};

}  // namespace

void write_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write,
                Durability durability) {
  const auto file = std::make_unique<TemporaryFile>(path);
  std::ostream stream(file.get());
  try {
    write(stream);
  } catch (const std::exception&) {
    file->report_failure();  // the writer only saw that its stream failed
    throw;
  }
  file->finish(durability);
}

}  // namespace weft
