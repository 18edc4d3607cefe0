// A text in a file, mapped into memory: pages are read when a batch first touches them.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "exec/data/batches.hpp"

namespace weft {
namespace {

class OpenFile {
 public:
  // Without O_NONBLOCK, opening a pipe would wait for its writer.
  explicit OpenFile(const std::string& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) fail("{}: cannot be read: {}", path, std::strerror(errno));
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { ::close(descriptor_); }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

class MappedCorpus final : public Corpus {
 public:
  explicit MappedCorpus(std::string path) : path_(std::move(path)) {
    const OpenFile file(path_);
    struct stat status{};
    if (::fstat(file.descriptor(), &status) != 0) fail("{}: cannot be read: {}", path_, std::strerror(errno));
    if (S_ISDIR(status.st_mode)) fail("{}: is a folder, not a file", path_);
    if (!S_ISREG(status.st_mode)) fail("{}: is no regular file (it is mapped into memory)", path_);
    if (status.st_size == 0) fail("{}: is empty", path_);
    size_ = static_cast<std::size_t>(status.st_size);
    void* const mapped = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.descriptor(), 0);
    if (mapped == MAP_FAILED) fail("{}: cannot be mapped into memory: {}", path_, std::strerror(errno));
    data_ = static_cast<const std::uint8_t*>(mapped);
  }
  MappedCorpus(const MappedCorpus&) = delete;
  MappedCorpus& operator=(const MappedCorpus&) = delete;
  ~MappedCorpus() override { ::munmap(const_cast<std::uint8_t*>(data_), size_); }

  std::span<const std::uint8_t> bytes() const override { return {data_, size_}; }
  const std::string& name() const override { return path_; }

 private:
  std::string path_;
  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace

std::shared_ptr<const Corpus> Corpus::open(const std::string& path) {
  return std::make_shared<MappedCorpus>(path);
}

}  // namespace weft
