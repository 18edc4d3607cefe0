#include "exec/checkpoint/synced_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "exec/checkpoint/crc32.hpp"

namespace weft {
namespace {

// Large enough for any disk, small enough that its checksum is computed while it is in a cache.
constexpr std::size_t kBlock = 1 << 20;

class ReadDescriptor {
 public:
  explicit ReadDescriptor(const std::filesystem::path& path, int flags = 0)
      : name_(path.string()), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags)) {
    if (descriptor_ < 0) fail("{}: cannot be read: {}", name_, std::strerror(errno));
  }
  ReadDescriptor(const ReadDescriptor&) = delete;
  ReadDescriptor& operator=(const ReadDescriptor&) = delete;
  ~ReadDescriptor() { ::close(descriptor_); }

  int number() const { return descriptor_; }
  std::int64_t size() const {
    struct stat status{};
    if (::fstat(descriptor_, &status) != 0) fail("{}: cannot be read: {}", name_, std::strerror(errno));
    if (!S_ISREG(status.st_mode)) fail("{}: is no regular file", name_);
    return status.st_size;
  }
  // Up to a block; empty at the end.
  std::span<const std::byte> next(std::vector<std::byte>& block) const {
    for (;;) {
      const ssize_t got = ::read(descriptor_, block.data(), block.size());
      if (got >= 0) return std::span(block).first(static_cast<std::size_t>(got));
      if (errno != EINTR) fail("{}: cannot be read: {}", name_, std::strerror(errno));
    }
  }

 private:
  std::string name_;
  int descriptor_;
};

}  // namespace

SyncedFile::SyncedFile(const std::filesystem::path& path)
    : name_(path.string()), descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) cannot("be created");
}

SyncedFile::~SyncedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void SyncedFile::cannot(const char* do_what) const {
  fail("{}: cannot {}: {}", name_, do_what, std::strerror(errno));
}

void SyncedFile::append(std::span<const std::byte> data) {
  while (!data.empty()) {
    const std::span<const std::byte> block = data.first(std::min(kBlock, data.size()));
    const ssize_t written = ::write(descriptor_, block.data(), block.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) cannot("be written");
    checksum_ = crc32(block.data(), static_cast<std::size_t>(written), checksum_);
    bytes_ += written;
    data = data.subspan(static_cast<std::size_t>(written));
  }
}

void SyncedFile::sync() {
  if (::fsync(descriptor_) != 0) cannot("be written to disk");
  // Some file systems say only here that the disk is full.
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) cannot("be written to disk");
}

void sync_folder(const std::filesystem::path& folder) {
  const ReadDescriptor opened(folder, O_DIRECTORY);
  // There are file systems whose folders cannot be synced; their names are as safe as they get.
  if (::fsync(opened.number()) != 0 && errno != EINVAL) {
    fail("{}: cannot be written to disk: {}", folder.string(), std::strerror(errno));
  }
}

void make_checkpoint_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail("{}: cannot be created: {}", folder.string(), error.message());
}

void rename_synced(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  std::filesystem::rename(from, to, error);
  if (error) fail("{}: cannot be renamed to {}: {}", from.string(), to.filename().string(), error.message());
  sync_folder(to.parent_path());
}

FileFacts read_file_facts(const std::filesystem::path& path) {
  const ReadDescriptor file(path);
  FileFacts facts;
  std::vector<std::byte> block(kBlock);
  for (auto part = file.next(block); !part.empty(); part = file.next(block)) {
    facts.checksum = crc32(part.data(), part.size(), facts.checksum);
    facts.bytes += std::ssize(part);
  }
  return facts;
}

std::int64_t file_size_of(const std::filesystem::path& path) {
  return ReadDescriptor(path).size();
}

std::string read_whole_file(const std::filesystem::path& path) {
  const ReadDescriptor file(path);
  std::string text;
  std::vector<std::byte> block(kBlock);
  for (auto part = file.next(block); !part.empty(); part = file.next(block)) {
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  return text;
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const ReadDescriptor file(path);
  size_ = static_cast<std::size_t>(file.size());
  if (size_ == 0) return;
  void* const mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (mapped == MAP_FAILED) fail("{}: cannot be mapped into memory: {}", path.string(), std::strerror(errno));
  data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace weft
