// Reads a file piece by piece and inflates it where its content is gzip, whatever its name. Large traces are never in
// memory as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace weft {

class ByteSource {
 public:
  // Called with the number of bytes read so far and the size of the file.
  using Progress = std::function<void(std::int64_t read, std::int64_t size)>;

  // Throws Error where the file cannot be opened, or is neither a regular file nor a pipe between processes.
  static ByteSource of_file(const std::string& file_name, Progress progress = nullptr);
  // `bytes` must outlive the source; `name` is for messages.
  static ByteSource of_bytes(std::string_view bytes, std::string name);

  ~ByteSource();
  ByteSource(ByteSource&&) noexcept;
  ByteSource& operator=(ByteSource&&) = delete;

  // Up to `capacity` bytes into `into`; 0 only at the end. Throws Error on a read error, on compressed data that is
  // damaged, and on compressed data that ends too early.
  std::size_t read(char* into, std::size_t capacity);

  const std::string& name() const;
  bool compressed() const;

 private:
  class State;
  explicit ByteSource(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace weft
