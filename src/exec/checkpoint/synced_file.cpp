#include "exec/checkpoint/synced_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "exec/checkpoint/crc32.hpp"

namespace weft {
namespace {

// Large enough for any disk, small enough that its checksum is computed while it is in a cache.
constexpr std::size_t kBlock = 1 << 20;

}  // namespace

SyncedFile::SyncedFile(const std::filesystem::path& path)
    : name_(path.string()),
      descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666)) {
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
    data = data.subspan(written);
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
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  // There are file systems whose folders cannot be synced; their names are as safe as they get.
  const bool synced = descriptor >= 0 && (::fsync(descriptor) == 0 || errno == EINVAL);
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!synced) fail("{}: cannot be written to disk: {}", folder.string(), std::strerror(error));
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
  InputFile file(path);
  FileFacts facts;
  std::vector<std::byte> block(kBlock);
  while (const std::size_t got = file.read(block)) {
    facts.checksum = crc32(block.data(), got, facts.checksum);
    facts.bytes += static_cast<std::int64_t>(got);
  }
  return facts;
}

std::int64_t file_size_of(const std::filesystem::path& path) {
  return InputFile(path).size();
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const InputFile file(path);
  size_ = static_cast<std::size_t>(file.size());
  if (size_ == 0) return;
  void* const mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (mapped == MAP_FAILED) fail("{}: cannot be mapped into memory: {}", path.string(), std::strerror(errno));
  data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace weft
