#include "exec/safetensors.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian");

namespace weft {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t kMaxHeader = 100'000'000;  // the format's own limit

std::int64_t file_bytes(const NamedTensor& tensor) {
  return static_cast<std::int64_t>(tensor.data.size() * sizeof(float));
}

// The name of a file is on disk only when its contents are.
void sync_file(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!synced) fail("{}: cannot be written to disk: {}", path.string(), std::strerror(error));
}

struct Entry {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;
};

// Reads one file; every message names it.
class TensorReader {
 public:
  explicit TensorReader(const std::filesystem::path& path) : name_(path.string()) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) fail("{}: is a folder, not a file", name_);
    file_.open(path, std::ios::binary | std::ios::ate);
    if (!file_) fail("{}: cannot be read", name_);
    size_ = static_cast<std::int64_t>(file_.tellg());
  }

  std::vector<NamedTensor> read() {
    std::vector<Entry> entries = read_header();
    std::ranges::sort(entries, {}, [](const Entry& e) { return std::tuple(e.begin, e.end, std::string_view(e.name)); });
    std::vector<NamedTensor> tensors;
    std::int64_t expected = 0;
    for (Entry& entry : entries) {
      if (entry.begin != expected) {
        fail("{}: tensor '{}' begins at byte {} of the data, not at {} where the one before it ends", name_, entry.name,
             entry.begin, expected);
      }
      expected = entry.end;
      tensors.push_back(read_tensor(std::move(entry)));
    }
    const std::int64_t behind = size_ - data_begin_ - expected;
    if (behind != 0) fail("{}: {} bytes follow the last tensor", name_, behind);
    return tensors;
  }

 private:
  void read_bytes(void* out, std::int64_t offset, std::int64_t count) {
    file_.seekg(offset);
    file_.read(static_cast<char*>(out), count);
    if (!file_) fail("{}: cannot be read to its end", name_);
  }

  std::vector<Entry> read_header() {
    if (size_ < 8) fail("{}: {} bytes are too few for a safetensors file", name_, size_);
    std::uint64_t length = 0;
    read_bytes(&length, 0, 8);
    if (length > static_cast<std::uint64_t>(std::min(kMaxHeader, size_ - 8))) {
      fail("{}: a header of {} bytes is not in 0..{}: truncated, or no safetensors file", name_, length,
           std::min(kMaxHeader, size_ - 8));
    }
    std::string text(length, '\0');
    read_bytes(text.data(), 8, static_cast<std::int64_t>(length));
    data_begin_ = 8 + static_cast<std::int64_t>(length);
    const json header = parse(text);
    if (!header.is_object()) fail("{}: the header is no JSON object: no safetensors file", name_);
    std::vector<Entry> entries;
    for (const auto& [key, value] : header.items()) {
      if (key != "__metadata__") entries.push_back(read_entry(key, value));
    }
    return entries;
  }

  // nlohmann keeps the last of two equal keys; we keep none.
  json parse(const std::string& text) const {
    std::set<std::string> seen;
    std::string twice;
    const json::parser_callback_t watch = [&](int depth, json::parse_event_t event, json& key) {
      if (event == json::parse_event_t::key && depth == 1 && !seen.insert(key.get<std::string>()).second) twice = key;
      return true;
    };
    json header = json::parse(text, watch, false);
    if (header.is_discarded()) fail("{}: the header is no JSON: no safetensors file", name_);
    if (!twice.empty()) fail("{}: tensor '{}' is there twice", name_, twice);
    return header;
  }

  std::vector<std::int64_t> whole_numbers(const std::string& tensor, const json& object, const char* key) const {
    const auto list = object.find(key);
    std::vector<std::int64_t> numbers;
    bool good = list != object.end() && list->is_array();
    if (good) {
      for (const json& number : *list) {
        good = good && number.is_number_unsigned() &&
               number.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        numbers.push_back(good ? number.get<std::int64_t>() : 0);
      }
    }
    if (!good) fail("{}: tensor '{}': '{}' is no list of whole numbers from 0 on", name_, tensor, key);
    return numbers;
  }

  Entry read_entry(const std::string& tensor, const json& object) const {
    if (!object.is_object()) fail("{}: tensor '{}' is no JSON object", name_, tensor);
    const auto type = object.find("dtype");
    if (type == object.end() || !type->is_string()) fail("{}: tensor '{}' has no dtype", name_, tensor);
    if (*type != "F32") fail("{}: tensor '{}' has dtype {}; only F32 is read", name_, tensor, type->get<std::string>());
    Entry entry{.name = tensor, .shape = whole_numbers(tensor, object, "shape")};
    std::int64_t bytes = sizeof(float);
    for (const std::int64_t size : entry.shape) {
      bytes = checked_product({bytes, size}, fmt::format("{}: tensor '{}'", name_, tensor));
    }
    const std::vector<std::int64_t> offsets = whole_numbers(tensor, object, "data_offsets");
    if (offsets.size() != 2) fail("{}: tensor '{}': data_offsets are not two numbers", name_, tensor);
    entry.begin = offsets[0];
    entry.end = offsets[1];
    if (entry.begin > entry.end || entry.end > size_ - data_begin_) {
      fail("{}: tensor '{}': bytes {}..{} are not within the {} bytes of data: truncated?", name_, tensor, entry.begin,
           entry.end, size_ - data_begin_);
    }
    if (entry.end - entry.begin != bytes) {
      fail("{}: tensor '{}': {} bytes of data, its shape needs {}", name_, tensor, entry.end - entry.begin, bytes);
    }
    return entry;
  }

  NamedTensor read_tensor(Entry entry) {
    NamedTensor tensor{.name = std::move(entry.name), .shape = std::move(entry.shape), .data = {}};
    tensor.data.resize(static_cast<std::size_t>(entry.end - entry.begin) / sizeof(float));
    if (!tensor.data.empty()) read_bytes(tensor.data.data(), data_begin_ + entry.begin, entry.end - entry.begin);
    return tensor;
  }

  std::string name_;
  std::ifstream file_;
  std::int64_t size_ = 0, data_begin_ = 0;
};

}  // namespace

std::string safetensors_opening(std::span<const TensorHeading> tensors) {
  ordered_json header = ordered_json::object();
  std::set<std::string_view> names;
  std::int64_t offset = 0;
  for (const TensorHeading& tensor : tensors) {
    const std::int64_t elements =
        std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
    const std::int64_t end = offset + elements * static_cast<std::int64_t>(sizeof(float));
    WEFT_CHECK(names.insert(tensor.name).second);
    // Not by key, which an ordered object would look for among all others.
    header.get_ref<ordered_json::object_t&>().emplace_back(
        tensor.name, ordered_json{{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}});
    offset = end;
  }
  std::string text = json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the numbers are aligned in memory
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors) {
  std::vector<TensorHeading> headings;
  for (const NamedTensor& tensor : tensors) {
    const std::int64_t elements =
        std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
    WEFT_CHECK(elements * static_cast<std::int64_t>(sizeof(float)) == file_bytes(tensor));
    headings.push_back({tensor.name, tensor.shape});
  }
  const std::string opening = safetensors_opening(headings);
  const std::filesystem::path part = path.string() + ".part";
  {
    std::ofstream file(part, std::ios::binary);
    if (!file) fail("{}: cannot be written", part.string());
    file.write(opening.data(), static_cast<std::streamsize>(opening.size()));
    for (const NamedTensor& tensor : tensors) {
      file.write(reinterpret_cast<const char*>(tensor.data.data()), file_bytes(tensor));
    }
    file.close();
    if (!file) fail("{}: cannot be written to its end (disk full?)", part.string());
  }
  sync_file(part);
  std::error_code error;
  std::filesystem::rename(part, path, error);
  if (error) fail("{}: cannot be renamed from {}: {}", path.string(), part.string(), error.message());
}

std::vector<NamedTensor> read_safetensors(const std::filesystem::path& path) {
  return TensorReader(path).read();
}

}  // namespace weft
