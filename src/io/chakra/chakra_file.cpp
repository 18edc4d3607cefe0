#include "io/chakra/chakra_file.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_set>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "io/chakra/chakra_fields.hpp"
#include "io/chakra/proto_reader.hpp"
#include "io/proto_writer.hpp"

namespace weft {
namespace {

constexpr std::uint64_t kMaxMicroseconds = std::uint64_t{10} * 86'400 * 1'000'000;

// In the order of Chakra's CollectiveCommType. REDUCE_SCATTER_BLOCK is a reduce_scatter of equal blocks, as all are.
constexpr std::array kCollectives{Collective::all_reduce, Collective::reduce,         Collective::all_gather,
                                  Collective::gather,     Collective::scatter,        Collective::broadcast,
                                  Collective::all_to_all, Collective::reduce_scatter, Collective::reduce_scatter,
                                  Collective::barrier};

struct Attribute {
  std::string_view name, text;
  std::optional<std::int64_t> number;
};

// Chakra's own tools write some numbers as int32, some as int64 and some unsigned; all are taken. Lists and numbers
// with a fraction are of no use here.
Attribute read_attribute(std::string_view bytes, const std::string& what) {
  Attribute attribute;
  ProtoReader reader(bytes, what);
  while (const auto field = reader.next()) {
    switch (field->number) {
      case chakra::kAttributeName:
        attribute.name = field->bytes;
        break;
      case chakra::kString:
        attribute.text = field->bytes;
        break;
      case chakra::kInt32:
      case chakra::kInt64:
      case chakra::kUint32:
      case chakra::kUint64:
      case chakra::kBool:
        if (field->type == WireType::number) attribute.number = static_cast<std::int64_t>(field->value);
        break;
      default:
        break;
    }
  }
  return attribute;
}

class NodeReader {
 public:
  NodeReader(std::string_view bytes, std::string what) : bytes_(bytes), what_(std::move(what)) {}

  ChakraNode read() {
    ProtoReader reader(bytes_, what_);
    while (const auto field = reader.next()) take(*field);
    return std::move(node_);
  }

 private:
  void take(const ProtoField& field) {
    switch (field.number) {
      case chakra::kId:
        node_.id = field.value;
        break;
      case chakra::kName:
        node_.name = field.bytes;
        break;
      case chakra::kType:
        if (field.value < 1 || field.value > 7) fail("{}: type {}, 1 to 7 are allowed", what_, field.value);
        node_.type = static_cast<ChakraType>(field.value);
        break;
      case chakra::kControlDependencies:
        add_ids(field, node_.control);
        break;
      case chakra::kDataDependencies:
        add_ids(field, node_.data);
        break;
      case chakra::kStart:
        // Profilers count from when the machine was started, or from 1970.
        if (field.value > INT64_MAX / 4000) fail("{}: starts at {} us, which is too late", what_, field.value);
        node_.start = Nanos{static_cast<std::int64_t>(field.value) * 1000};
        break;
      case chakra::kDuration:
        if (field.value > kMaxMicroseconds) {
          fail("{}: takes {} us, at most {} (ten days) are allowed", what_, field.value, kMaxMicroseconds);
        }
        node_.duration = Nanos{static_cast<std::int64_t>(field.value) * 1000};
        break;
      case chakra::kAttribute:
        take(read_attribute(field.bytes, what_));
        break;
      default:
        break;
    }
  }

  // A repeated number is one field for each, or all of them packed into one.
  void add_ids(const ProtoField& field, std::vector<std::uint64_t>& ids) const {
    if (field.type != WireType::bytes) return ids.push_back(field.value);
    ProtoReader packed(field.bytes, what_);
    while (!packed.at_end()) ids.push_back(packed.varint());
  }

  void take(const Attribute& attribute) {
    if (attribute.name == "pg_name") node_.group = attribute.text;
    if (!attribute.number) return;
    const std::int64_t number = *attribute.number;
    if (attribute.name == "is_cpu_op") node_.on_host = number != 0;
    if (attribute.name == "comm_size" || attribute.name == "tensor_size") {
      if (number < 0 || number > INT64_MAX / 1024)
        fail("{}: {} {}, 0 to 2^53 are allowed", what_, attribute.name, number);
      node_.bytes = Bytes{number};
    }
    if (attribute.name == "comm_type") {
      if (number < 0 || number >= std::ssize(kCollectives)) {
        fail("{}: comm_type {}, 0 to {} are allowed", what_, number, kCollectives.size() - 1);
      }
      node_.collective = kCollectives[static_cast<std::size_t>(number)];
    }
    if (attribute.name == "comm_src") node_.source = number;
    if (attribute.name == "comm_dst") node_.destination = number;
    if (attribute.name == "comm_tag") node_.tag = number;
  }

  std::string_view bytes_;
  std::string what_;
  ChakraNode node_;
};

// Calls visit(message, position) for every message of the stream.
template <class Visit>
void for_each_message(std::string_view bytes, const std::string& name, Visit visit) {
  std::size_t at = 0;
  for (std::int64_t position = 0; at < bytes.size(); ++position) {
    ProtoReader reader(bytes.substr(at), fmt::format("{}: byte {}", name, at));
    const std::uint64_t size = reader.varint();
    at = bytes.size() - reader.left();
    if (size > bytes.size() - at) {
      fail("{}: byte {}: a message of {} bytes, {} are left: the file is cut off, or no Chakra trace", name, at, size,
           bytes.size() - at);
    }
    visit(bytes.substr(at, size), position);
    at += size;
  }
}

void check_ids(ChakraFile& file) {
  std::unordered_set<std::uint64_t> ids;
  ids.reserve(file.nodes.size());
  for (const ChakraNode& node : file.nodes) {
    if (!ids.insert(node.id).second) fail("{}: two nodes have the id {}", file.name, node.id);
  }
  for (ChakraNode& node : file.nodes) {
    for (const std::uint64_t before : node.data) {
      if (!ids.contains(before)) {
        fail("{}: node {} ({}) waits for node {}, which is not in the file", file.name, node.id, node.name, before);
      }
    }
    std::erase_if(node.control, [&](std::uint64_t before) { return !ids.contains(before); });
  }
}

}  // namespace

std::optional<Rank> chakra_rank(std::string_view file_name) {
  const std::size_t end = file_name.rfind('.');
  if (end == std::string_view::npos || end == 0) return std::nullopt;
  const std::size_t begin = file_name.rfind('.', end - 1) + 1;  // 0 where there is none
  Rank rank;
  const auto [rest, error] = std::from_chars(file_name.data() + begin, file_name.data() + end, rank.value);
  if (begin == 0 || error != std::errc{} || rest != file_name.data() + end || rank.value < 0) return std::nullopt;
  return rank;
}

ChakraFile read_chakra_bytes(std::string_view bytes, std::string name) {
  ChakraFile file;
  file.name = std::move(name);
  if (bytes.empty()) fail("{}: is empty", file.name);
  for_each_message(bytes, file.name, [&](std::string_view message, std::int64_t position) {
    if (position > 0) {
      file.nodes.push_back(NodeReader(message, fmt::format("{}: node {}", file.name, position)).read());
      return;
    }
    ProtoReader reader(message, file.name + ": metadata");
    while (const auto field = reader.next()) {
      if (field->number == 1 && field->type == WireType::bytes) file.version = field->bytes;
    }
  });
  if (file.nodes.empty()) fail("{}: has no nodes", file.name);
  check_ids(file);
  return file;
}

ChakraFile read_chakra_file(const std::string& path) {
  return read_chakra_bytes(read_text_file(path, {.max_bytes = kMaxChakraBytes}), path);
}

void write_chakra_order(std::string_view bytes, const std::string& name,
                        const std::vector<std::vector<std::uint64_t>>& control, std::ostream& out) {
  for_each_message(bytes, name, [&](std::string_view message, std::int64_t position) {
    std::string fields;
    if (position == 0) fields = message;
    ProtoReader reader(position == 0 ? std::string_view{} : message, name);
    while (const auto field = reader.next()) {
      if (field->number != chakra::kControlDependencies) fields += field->whole;
    }
    ProtoMessage node;
    if (position > 0) {
      for (const std::uint64_t before : control[static_cast<std::size_t>(position) - 1]) {
        node.number(chakra::kControlDependencies, before);
      }
    }
    node.append_fields(fields);
    out << node.delimited();
  });
}

}  // namespace weft
