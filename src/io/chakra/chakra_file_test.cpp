#include "io/chakra/chakra_file.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "base/error.hpp"
#include "io/proto_writer.hpp"

namespace weft {
namespace {

// By the numbers of et_def.proto: Node and AttributeProto.
ProtoMessage chakra_number(const char* name, std::uint32_t field, std::uint64_t value) {
  ProtoMessage attribute;
  attribute.bytes(1, name);
  attribute.number(field, value);
  return attribute;
}

ProtoMessage chakra_node(std::uint64_t id, std::uint64_t type, std::vector<std::uint64_t> data = {}) {
  ProtoMessage node;
  if (id > 0) node.number(1, id);
  node.bytes(2, "node");
  node.number(3, type);
  for (const std::uint64_t before : data) node.number(5, before);
  node.number(7, 12);
  return node;
}

std::string chakra_stream(const std::vector<ProtoMessage>& nodes) {
  ProtoMessage metadata;
  metadata.bytes(1, "0.0.4");
  std::string stream = metadata.delimited();
  for (const ProtoMessage& node : nodes) stream += node.delimited();
  return stream;
}

std::string chakra_error(const std::string& bytes) {
  try {
    read_chakra_bytes(bytes, "step.0.et");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ChakraFile, ReadsWhatTheSchemaSays) {
  ProtoMessage collective = chakra_node(7, 7, {3});
  collective.message(10, chakra_number("comm_type", 9, 2));
  collective.message(10, chakra_number("comm_size", 9, 4096));
  ProtoMessage group;
  group.bytes(1, "pg_name");
  group.bytes(29, "dp.0");
  collective.message(10, group);
  ProtoMessage send = chakra_node(8, 5);
  for (const char* name : {"comm_src", "comm_dst", "comm_tag"}) send.message(10, chakra_number(name, 7, 5));
  ProtoMessage host = chakra_node(3, 4);
  host.message(10, chakra_number("is_cpu_op", 27, 1));
  const ChakraFile file = read_chakra_bytes(chakra_stream({host, collective, send}), "step.0.et");
  EXPECT_EQ(file.version, "0.0.4");
  ASSERT_EQ(file.nodes.size(), 3U);
  EXPECT_TRUE(file.nodes[0].on_host);
  EXPECT_EQ(file.nodes[1].collective, Collective::all_gather);
  EXPECT_EQ(file.nodes[1].bytes, Bytes{4096});
  EXPECT_EQ(file.nodes[1].group, "dp.0");
  EXPECT_EQ(file.nodes[1].data, std::vector<std::uint64_t>{3});
  EXPECT_EQ(file.nodes[1].duration, Nanos{12'000});
  EXPECT_EQ(file.nodes[2].destination, 5);
}

// protobuf's own writers pack repeated numbers into one field; both forms are allowed.
TEST(ChakraFile, ReadsPackedDependencies) {
  ProtoMessage packed = chakra_node(300, 4);
  packed.bytes(5, std::string("\x01\x02"));
  const ChakraFile file = read_chakra_bytes(chakra_stream({chakra_node(1, 4), chakra_node(2, 4), packed}), "a.0.et");
  EXPECT_EQ(file.nodes[2].data, (std::vector<std::uint64_t>{1, 2}));
}

TEST(ChakraFile, EveryPrefixIsReadOrRefused) {
  const std::string whole = chakra_stream({chakra_node(1, 4), chakra_node(2, 7, {1}), chakra_node(3, 4, {1, 2})});
  int read = 0;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A stream that ends between two messages is a shorter stream; all other prefixes are cut off inside one.
    if (chakra_error(whole.substr(0, size)).empty()) ++read;
  }
  EXPECT_EQ(read, 2);  // after the first and after the second of three nodes
}

TEST(ChakraFile, RefusesWhatIsNoTrace) {
  EXPECT_NE(chakra_error("").find("is empty"), std::string::npos);
  EXPECT_NE(chakra_error(chakra_stream({})).find("has no nodes"), std::string::npos);
  EXPECT_NE(chakra_error(std::string(64, '\xff')).find("more than 10 bytes"), std::string::npos);
  EXPECT_NE(chakra_error("{\"traceEvents\": []}").find("step.0.et"), std::string::npos);
  EXPECT_NE(chakra_error(chakra_stream({chakra_node(1, 4), chakra_node(1, 4)})).find("two nodes have the id 1"),
            std::string::npos);
  EXPECT_NE(chakra_error(chakra_stream({chakra_node(1, 4, {9})})).find("waits for node 9, which is not in the file"),
            std::string::npos);
  EXPECT_NE(chakra_error(chakra_stream({chakra_node(1, 9)})).find("type 9, 1 to 7"), std::string::npos);
  ProtoMessage endless = chakra_node(1, 4);
  endless.number(7, ~std::uint64_t{0});
  EXPECT_NE(chakra_error(chakra_stream({endless})).find("ten days"), std::string::npos);
  // A field of a message of 11 bytes that says it has 2^60.
  std::string bytes = chakra_stream({});
  bytes += std::string("\x0b\x52\x80\x80\x80\x80\x80\x80\x80\x80\x10", 12);
  EXPECT_NE(chakra_error(bytes), "");
}

TEST(ChakraFile, ControlDependenciesOnMissingNodesAreLeftOut) {
  ProtoMessage node = chakra_node(1, 4);
  node.number(4, 77);
  EXPECT_TRUE(read_chakra_bytes(chakra_stream({node}), "a.0.et").nodes[0].control.empty());
}

TEST(ChakraFile, AnotherOrderChangesControlDependenciesAlone) {
  ProtoMessage second = chakra_node(2, 7, {1});
  second.number(4, 1);
  second.message(10, chakra_number("comm_size", 9, 5));
  const std::string bytes = chakra_stream({chakra_node(1, 4), second, chakra_node(3, 4)});
  std::ostringstream out;
  write_chakra_order(bytes, "a.0.et", {{3}, {}, {}}, out);
  const ChakraFile before = read_chakra_bytes(bytes, "a"), after = read_chakra_bytes(out.str(), "a");
  ASSERT_EQ(after.nodes.size(), 3U);
  EXPECT_EQ(after.nodes[0].control, std::vector<std::uint64_t>{3});
  EXPECT_TRUE(after.nodes[1].control.empty());
  EXPECT_EQ(after.nodes[1].data, before.nodes[1].data);
  EXPECT_EQ(after.nodes[1].bytes, before.nodes[1].bytes);
  EXPECT_EQ(after.version, before.version);
}

TEST(ChakraFile, NamesSayTheRank) {
  EXPECT_EQ(chakra_rank("out/step.12.et"), Rank{12});
  EXPECT_EQ(chakra_rank("step.et"), std::nullopt);
  EXPECT_EQ(chakra_rank("a.b.et"), std::nullopt);
  EXPECT_EQ(chakra_rank("a.-1.et"), std::nullopt);
  EXPECT_EQ(chakra_rank("a.99999999999.et"), std::nullopt);
}

TEST(ChakraGroups, AreListsOfRanks) {
  const std::vector<ChakraGroup> groups = read_chakra_groups(R"({"0": [3, 1], "dp": [0]})", "groups.json");
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].members, (std::vector<Rank>{{1}, {3}}));
  for (const char* text : {R"({"0": [1, 1]})", R"({"0": []})", R"({"0": [-1]})", R"({"0": 3})", "[]", "{"}) {
    EXPECT_THROW(read_chakra_groups(text, "groups.json"), Error) << text;
  }
}

}  // namespace
}  // namespace weft
