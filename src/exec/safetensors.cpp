#include "exec/safetensors.hpp"

#include <algorithm>
#include <bit>
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
#include "base/input_file.hpp"
#include "base/json_text.hpp"
#include "base/output_file.hpp"

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian");

namespace weft {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr int kMaxDepth = 8;                      // a tensor's list of numbers is at the third
constexpr const char* kMetadataKey = "__metadata__";

std::int64_t file_bytes(const NamedTensor& tensor) {
  return static_cast<std::int64_t>(tensor.data.size() * sizeof(float));
}

// Reads one file; every message names it.
class TensorReader {
 public:
  explicit TensorReader(const std::filesystem::path& path) : name_(path.string()), file_(path), size_(file_.size()) {}

  SafetensorsHeader read_header() {
    const json text = read_header_text();
    SafetensorsHeader header;
    for (const auto& [key, value] : text.items()) {
      if (key == kMetadataKey) {
        header.metadata = read_metadata(value);
      } else {
        header.tensors.push_back(read_entry(key, value));
      }
    }
    std::ranges::sort(header.tensors, {},
                      [](const PlacedTensor& t) { return std::tuple(t.begin, t.end, std::string_view(t.name)); });
    std::int64_t expected = data_begin_;
    for (const PlacedTensor& tensor : header.tensors) {
      if (tensor.begin != expected) {
        fail("{}: tensor '{}' begins at byte {} of the data, not at {} where the one before it ends", name_,
             tensor.name, tensor.begin - data_begin_, expected - data_begin_);
      }
      expected = tensor.end;
    }
    if (size_ != expected) fail("{}: {} bytes follow the last tensor", name_, size_ - expected);
    return header;
  }

  std::vector<NamedTensor> read() {
    std::vector<NamedTensor> tensors;
    for (PlacedTensor& placed : read_header().tensors) {
      NamedTensor tensor{.name = std::move(placed.name), .shape = std::move(placed.shape), .data = {}};
      tensor.data.resize(static_cast<std::size_t>(placed.end - placed.begin) / sizeof(float));
      file_.read_at(placed.begin, std::as_writable_bytes(std::span(tensor.data)));
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  }

 private:
  json read_header_text() {
    if (size_ < kLengthBytes) fail("{}: {} bytes are too few for a safetensors file", name_, size_);
    std::uint64_t length = 0;
    file_.read_at(0, std::as_writable_bytes(std::span(&length, 1)));
    const std::int64_t most = std::min(kMaxHeader, size_ - kLengthBytes);
    if (length > static_cast<std::uint64_t>(most)) {
      fail("{}: a header of {} bytes is not in 0..{}: truncated, or no safetensors file", name_, length, most);
    }
    std::string text(length, '\0');
    file_.read_at(kLengthBytes, std::as_writable_bytes(std::span(text)));
    data_begin_ = kLengthBytes + static_cast<std::int64_t>(length);
    json header = parse(text);
    if (!header.is_object()) fail("{}: the header is no JSON object: no safetensors file", name_);
    return header;
  }

  // nlohmann keeps the last of two equal keys; we keep none.
  json parse(const std::string& text) const {
    std::set<std::string> seen;
    std::string twice;
    const json::parser_callback_t watch = [&](int depth, json::parse_event_t event, json& key) {
      if (depth > kMaxDepth) fail("{}: the header is nested more than {} levels deep", name_, kMaxDepth);
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

  SafetensorsMetadata read_metadata(const json& object) const {
    SafetensorsMetadata metadata;
    if (!object.is_object()) fail("{}: {} is no JSON object", name_, kMetadataKey);
    for (const auto& [key, value] : object.items()) {
      if (!value.is_string()) fail("{}: {} '{}' is no text", name_, kMetadataKey, key);
      metadata[key] = value.get<std::string>();
    }
    return metadata;
  }

  PlacedTensor read_entry(const std::string& tensor, const json& object) const {
    if (!object.is_object()) fail("{}: tensor '{}' is no JSON object", name_, tensor);
    const auto type = object.find("dtype");
    if (type == object.end() || !type->is_string()) fail("{}: tensor '{}' has no dtype", name_, tensor);
    if (*type != "F32") fail("{}: tensor '{}' has dtype {}; only F32 is read", name_, tensor, type->get<std::string>());
    PlacedTensor entry{.name = tensor, .shape = whole_numbers(tensor, object, "shape")};
    std::int64_t bytes = sizeof(float);
    for (const std::int64_t size : entry.shape) {
      bytes = checked_product({bytes, size}, fmt::format("{}: tensor '{}'", name_, tensor));
    }
    const std::vector<std::int64_t> offsets = whole_numbers(tensor, object, "data_offsets");
    if (offsets.size() != 2) fail("{}: tensor '{}': data_offsets are not two numbers", name_, tensor);
    const std::int64_t data_bytes = size_ - data_begin_;
    if (offsets[0] > offsets[1] || offsets[1] > data_bytes) {
      fail("{}: tensor '{}': bytes {}..{} are not within the {} bytes of data: truncated?", name_, tensor, offsets[0],
           offsets[1], data_bytes);
    }
    if (offsets[1] - offsets[0] != bytes) {
      fail("{}: tensor '{}': {} bytes of data, its shape needs {}", name_, tensor, offsets[1] - offsets[0], bytes);
    }
    entry.begin = data_begin_ + offsets[0];
    entry.end = data_begin_ + offsets[1];
    return entry;
  }

  std::string name_;
  InputFile file_;
  std::int64_t size_ = 0, data_begin_ = 0;
};

}  // namespace

std::string safetensors_opening(std::span<const TensorHeading> tensors, const SafetensorsMetadata& metadata,
                                std::size_t least_bytes) {
  ordered_json header = ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
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
  const std::size_t least = std::max(text.size(), least_bytes - std::min(least_bytes, sizeof(std::uint64_t)));
  text.resize((least + 7) / 8 * 8, ' ');  // so that the numbers are aligned in memory
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
  const auto write = [&](std::ostream& file) {
    file.write(opening.data(), static_cast<std::streamsize>(opening.size()));
    for (const NamedTensor& tensor : tensors) {
      file.write(reinterpret_cast<const char*>(tensor.data.data()), file_bytes(tensor));
    }
  };
  write_file(path, write, Durability::synchronized);
}

std::vector<NamedTensor> read_safetensors(const std::filesystem::path& path) {
  return TensorReader(path).read();
}

SafetensorsHeader read_safetensors_header(const std::filesystem::path& path) {
  return TensorReader(path).read_header();
}

}  // namespace weft
