#include "exec/checkpoint/manifest.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "exec/checkpoint/crc32.hpp"
#include "exec/checkpoint/run_id.hpp"

namespace weft {
namespace {

using nlohmann::ordered_json;

constexpr const char* kVersionKey = "weft_checkpoint";
constexpr std::int64_t kVersionWithoutRunId = 1, kManifestVersion = 2;
constexpr int kMaxDepth = 64;  // far above what is written; the library's own recursion stays shallow

ordered_json range_json(const ElementRange& range) {
  return {range.begin, range.end};
}

ordered_json to_json(const StoredPiece& piece) {
  return {{"name", piece.name()},
          {"tensor", piece.tensor},
          {"kind", kTensorKindNames[static_cast<std::size_t>(piece.kind)]},
          {"rows", range_json(piece.rows)},
          {"columns", range_json(piece.columns)},
          {"elements", range_json(piece.elements)},
          {"offset", piece.offset}};
}

ordered_json to_json(const StoredFile& file) {
  ordered_json pieces = ordered_json::array();
  for (const StoredPiece& piece : file.pieces) pieces.push_back(to_json(piece));
  return {{"name", file.name}, {"bytes", file.bytes}, {"crc32", file.checksum}, {"pieces", std::move(pieces)}};
}

std::uint32_t checksum_of(const ordered_json& json) {
  const std::string text = json_text(json);
  return crc32(text.data(), text.size());
}

// Takes values out of JSON; every message begins with the file's name.
class ManifestReader {
 public:
  explicit ManifestReader(const std::string& name) : name_(name) {}

  ordered_json parse(const std::string& text) const {
    const ordered_json::parser_callback_t watch = [&](int depth, ordered_json::parse_event_t, ordered_json&) {
      if (depth > kMaxDepth) fail("{}: is nested more than {} levels deep", name_, kMaxDepth);
      return true;
    };
    ordered_json json = ordered_json::parse(text, watch, false);
    if (json.is_discarded() || !json.is_object()) fail("{}: is no JSON object", name_);
    return json;
  }

  const ordered_json& at(const ordered_json& json, const char* key) const {
    const auto found = json.find(key);  // the end, too, where it is no object
    if (found == json.end()) fail("{}: has no '{}'", name_, key);
    return *found;
  }
  std::int64_t number(const ordered_json& json, const char* key) const { return number(at(json, key)); }
  std::int64_t number(const ordered_json& value) const {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMost) {
      fail("{}: {} is no whole number from 0 on", name_, json_text(value));
    }
    return value.get<std::int64_t>();
  }
  std::string text(const ordered_json& json, const char* key) const {
    const ordered_json& value = at(json, key);
    if (!value.is_string()) fail("{}: '{}' is no text", name_, key);
    return value.get<std::string>();
  }
  const ordered_json& list(const ordered_json& json, const char* key) const {
    const ordered_json& value = at(json, key);
    if (!value.is_array()) fail("{}: '{}' is no list", name_, key);
    return value;
  }
  ElementRange range(const ordered_json& json, const char* key) const {
    const ordered_json& value = list(json, key);
    if (value.size() != 2) fail("{}: '{}' are not two numbers", name_, key);
    const ElementRange range{number(value[0]), number(value[1])};
    if (range.begin > range.end) fail("{}: {} {} ends before it begins", name_, key, json_text(value));
    return range;
  }

  StoredPiece piece(const ordered_json& json) const {
    StoredPiece piece;
    piece.tensor = text(json, "tensor");
    const std::string kind = text(json, "kind");
    const auto known = std::ranges::find(kTensorKindNames, kind);
    if (known == std::end(kTensorKindNames)) fail("{}: '{}' is no kind of tensor", name_, kind);
    piece.kind = static_cast<TensorKind>(known - std::begin(kTensorKindNames));
    piece.rows = range(json, "rows");
    piece.columns = range(json, "columns");
    piece.elements = range(json, "elements");
    piece.offset = number(json, "offset");
    // First of all: a name counts the elements of the rectangle.
    if (piece.elements.end > checked_product({piece.rows.size(), piece.columns.size()}, name_)) {
      fail("{}: {} goes beyond its rectangle", name_, piece.name());
    }
    if (const std::string name = text(json, "name"); name != piece.name()) {
      fail("{}: '{}' is said to be {}", name_, name, piece.name());
    }
    return piece;
  }

  StoredFile file(const ordered_json& json) const {
    StoredFile file;
    file.name = text(json, "name");
    // A name, not a path to anywhere.
    if (!file.name.starts_with("rank-") || file.name.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
      fail("{}: '{}' is no shard's name", name_, file.name);
    }
    file.bytes = number(json, "bytes");
    const std::int64_t checksum = number(json, "crc32");
    if (checksum > std::numeric_limits<std::uint32_t>::max()) fail("{}: {} is no CRC-32", name_, checksum);
    file.checksum = static_cast<std::uint32_t>(checksum);
    for (const ordered_json& one : list(json, "pieces")) {
      file.pieces.push_back(piece(one));
      const StoredPiece& last = file.pieces.back();
      const std::int64_t room = (file.bytes - last.offset) / static_cast<std::int64_t>(sizeof(float));
      if (last.offset > file.bytes || last.offset % static_cast<std::int64_t>(sizeof(float)) != 0 ||
          last.elements.size() > room) {
        fail("{}: {} does not lie within the {} bytes of {}", name_, last.name(), file.bytes, file.name);
      }
    }
    return file;
  }

 private:
  const std::string& name_;
};

void refuse_files_named_twice(const CheckpointManifest& manifest, const std::string& name) {
  std::set<std::string_view> names;
  for (const StoredFile& file : manifest.files) {
    if (!names.insert(file.name).second) fail("{}: names {} twice", name, file.name);
  }
}

}  // namespace

std::string StoredPiece::name() const {
  const std::string part = is_rectangle() ? std::string() : fmt::format("[{}:{}]", elements.begin, elements.end);
  return fmt::format("{}/{}[{}:{},{}:{}]{}", kTensorKindNames[static_cast<std::size_t>(kind)], tensor, rows.begin,
                     rows.end, columns.begin, columns.end, part);
}

std::int64_t CheckpointManifest::bytes() const {
  std::int64_t sum = 0;
  for (const StoredFile& file : files) sum = checked_sum({sum, file.bytes}, "a checkpoint");
  return sum;
}

std::string manifest_text(const CheckpointManifest& manifest) {
  ordered_json files = ordered_json::array();
  for (const StoredFile& file : manifest.files) files.push_back(to_json(file));
  const ordered_json run = manifest.run.empty() ? ordered_json::object() : ordered_json::parse(manifest.run);
  ordered_json json = {{kVersionKey, manifest.run_id.empty() ? kVersionWithoutRunId : kManifestVersion}};
  if (!manifest.run_id.empty()) json["run_id"] = manifest.run_id;
  json["step"] = manifest.step;
  json["run"] = run;
  json["files"] = std::move(files);
  json["crc32"] = checksum_of(json);
  return json_text(json) + "\n";
}

std::uint32_t checksum_of(const CheckpointManifest& manifest) {
  const std::string text = manifest_text(manifest);
  return crc32(text.data(), text.size());
}

CheckpointManifest parse_manifest(const std::string& text, const std::string& name) {
  const ManifestReader reader(name);
  ordered_json json = reader.parse(text);
  const std::int64_t version = reader.number(json, kVersionKey);
  if (version != kManifestVersion && version != kVersionWithoutRunId) {
    fail("{}: has version {}; this weft reads {} and {}", name, version, kVersionWithoutRunId, kManifestVersion);
  }
  const std::int64_t checksum = reader.number(json, "crc32");
  json.erase("crc32");
  if (checksum_of(json) != checksum) fail("{}: has changed since it was written", name);
  CheckpointManifest manifest;
  manifest.step = reader.number(json, "step");
  manifest.run = json_text(reader.at(json, "run"));
  for (const ordered_json& file : reader.list(json, "files")) manifest.files.push_back(reader.file(file));
  refuse_files_named_twice(manifest, name);
  if (version == kVersionWithoutRunId) return manifest;
  manifest.run_id = reader.text(json, "run_id");
  if (!is_run_id(manifest.run_id)) fail("{}: run_id '{}' are not 32 hexadecimal digits", name, manifest.run_id);
  return manifest;
}

std::string stored_file_text(const StoredFile& file) {
  return json_text(to_json(file)) + "\n";
}

StoredFile parse_stored_file(const std::string& text, const std::string& name) {
  const ManifestReader reader(name);
  return reader.file(reader.parse(text));
}

}  // namespace weft
