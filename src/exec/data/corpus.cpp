// A text in a file, mapped into memory: pages are read when a batch first touches them.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "exec/data/batches.hpp"

namespace weft {
namespace {

class MappedCorpus final : public Corpus {
 public:
  explicit MappedCorpus(std::string path) : path_(std::move(path)) {
    const InputFile file(path_);
    if (file.size() == 0) fail("{}: is empty", path_);
    size_ = static_cast<std::size_t>(file.size());
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

class CorpusPart final : public Corpus {
 public:
  CorpusPart(std::shared_ptr<const Corpus> whole, std::size_t begin, std::size_t end)
      : whole_(std::move(whole)), bytes_(whole_->bytes().subspan(begin, end - begin)) {}
  std::span<const std::uint8_t> bytes() const override { return bytes_; }
  const std::string& name() const override { return whole_->name(); }

 private:
  std::shared_ptr<const Corpus> whole_;
  std::span<const std::uint8_t> bytes_;
};

}  // namespace

std::shared_ptr<const Corpus> Corpus::part_of(std::shared_ptr<const Corpus> whole, std::size_t begin, std::size_t end) {
  WEFT_CHECK(begin <= end && end <= whole->bytes().size());
  return std::make_shared<CorpusPart>(std::move(whole), begin, end);
}

std::shared_ptr<const Corpus> Corpus::open(const std::string& path) {
  return std::make_shared<MappedCorpus>(path);
}

}  // namespace weft
