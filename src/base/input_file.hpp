// Files that somebody names on the command line, opened so that no name can hang the program or eat its memory: a named
// pipe without a writer, a device or a folder is an Error at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace weft {

// Whether a pipe between processes will do: `weft verify /dev/stdin`, `weft analyze <(zcat trace.gz)`. It can be read
// once only, and has no size.
enum class Pipes : std::uint8_t { refused, accepted };

// A plan, a configuration or any other text of ours is far smaller; what comes out of a pipe may never end.
inline constexpr std::int64_t kMaxTextBytes = std::int64_t{1} << 30;
inline constexpr std::int64_t kMaxPipedTextBytes = std::int64_t{1} << 28;

class InputFile {
 public:
  // Throws Error naming the file and what it is where it is no regular file (and no pipe that is accepted).
  explicit InputFile(const std::filesystem::path& path, Pipes pipes = Pipes::refused);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  int descriptor() const { return descriptor_; }
  bool is_piped() const { return is_piped_; }
  std::int64_t size() const { return size_; }  // when it was opened; 0 of a pipe

  // The bytes that follow those that were read before, up to the size of `out`; 0 only at the end.
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
// A whole file. One that is too large is refused before anything of it is read, a pipe as soon as it has said too much.
std::string read_text_file(const std::filesystem::path& path, const TextLimits& limits = {});

}  // namespace weft
