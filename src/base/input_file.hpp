// Opens files that are named on the command line. No name can hang the program or exhaust its memory: a named pipe
// without a writer, a device or a folder is an Error at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace weft {

// Says whether the file may be a pipe between processes (`weft verify /dev/stdin`, `weft analyze <(zcat trace.gz)`),
// which has no size and can be read only once.
enum class Pipes : std::uint8_t { refused, accepted };

// All text files that Weft reads are far smaller. The limit for pipes is lower because a pipe may never end.
inline constexpr std::int64_t kMaxTextBytes = std::int64_t{1} << 30;
inline constexpr std::int64_t kMaxPipedTextBytes = std::int64_t{1} << 28;

class InputFile {
 public:
  // Throws Error, saying what the name stands for, unless it is a regular file or a pipe that is accepted.
  explicit InputFile(const std::filesystem::path& path, Pipes pipes = Pipes::refused);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  int descriptor() const { return descriptor_; }
  bool is_piped() const { return is_piped_; }
  std::int64_t size() const { return size_; }  // when the file was opened; 0 for a pipe

  // Reads the next bytes, up to the size of `out`, and returns their number, which is 0 only at the end.
  std::size_t read(std::span<std::byte> out);
  // Fills `out` with the bytes from `offset` on. Not for pipes.
  void read_at(std::int64_t offset, std::span<std::byte> out) const;

 private:
  std::string name_;
  int descriptor_ = -1;
  bool is_piped_ = false;
  std::int64_t size_ = 0;
};

struct TextLimits {
  Pipes pipes = Pipes::accepted;
  std::int64_t max_bytes = kMaxTextBytes;
  std::int64_t max_piped_bytes = kMaxPipedTextBytes;
};
// Returns a whole file. A file that is too large is refused before it is read, a pipe as soon as the limit is passed.
std::string read_text_file(const std::filesystem::path& path, const TextLimits& limits = {});

}  // namespace weft
