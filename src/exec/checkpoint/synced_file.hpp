// Files that are on disk when we say so. A full disk or a lost file system shows as an Error that names the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace weft {

// Written from the begin; what was there before is gone. A link is not followed.
class SyncedFile {
 public:
  explicit SyncedFile(const std::filesystem::path& path);
  ~SyncedFile();
  SyncedFile(const SyncedFile&) = delete;
  SyncedFile& operator=(const SyncedFile&) = delete;

  void append(std::span<const std::byte> data);
  void append(const std::string& text) { append(std::as_bytes(std::span(text))); }
  // Returns when everything is on disk. Nothing can be appended after it.
  void sync();
  std::int64_t bytes() const { return bytes_; }
  std::uint32_t checksum() const { return checksum_; }  // CRC-32 of all that was appended

 private:
  [[noreturn]] void cannot(const char* do_what) const;

  std::string name_;
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
  std::uint32_t checksum_ = 0;
};

// The names in a folder are on disk when this returns.
void sync_folder(const std::filesystem::path& folder);
// Missing parents are made, too.
void make_checkpoint_folder(const std::filesystem::path& folder);
void rename_synced(const std::filesystem::path& from, const std::filesystem::path& to);  // within one folder

// CRC-32 of a whole file, read once from the disk's view of it.
struct FileFacts {
  std::int64_t bytes = 0;
  std::uint32_t checksum = 0;
};
FileFacts read_file_facts(const std::filesystem::path& path);
std::int64_t file_size_of(const std::filesystem::path& path);

// A file mapped into memory. It must not shrink meanwhile.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace weft
