// Chakra's execution traces as they are stored (et_def.proto of mlcommons/chakra): a stream of messages with their
// lengths before them, the first about the file, each other one a node.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "collective/collective.hpp"

namespace weft {

enum class ChakraType : std::uint8_t {
  invalid,
  metadata,
  memory_load,
  memory_store,
  compute,
  send,
  receive,
  collective
};

struct ChakraNode {
  std::uint64_t id = 0;
  std::string name;
  ChakraType type = ChakraType::compute;
  std::vector<std::uint64_t> control, data;  // ids of nodes of the same file that it waits for
  Nanos start, duration;                     // whole microseconds in the file
  // Attributes.
  bool on_host = false;                                 // is_cpu_op
  std::optional<Collective> collective;                 // comm_type
  Bytes bytes;                                          // comm_size, or tensor_size of memory nodes
  std::string group;                                    // pg_name; empty: all ranks
  std::int64_t source = -1, destination = -1, tag = 0;  // comm_src, comm_dst, comm_tag
};

struct ChakraFile {
  std::string name;               // for messages
  std::string version;            // of the schema, "" where the file does not say
  std::vector<ChakraNode> nodes;  // as in the file
};

// Files have the numbers of their ranks before the last dot, as Chakra's own tools write them: "step.12.et". Nothing
// where there is none.
std::optional<Rank> chakra_rank(std::string_view file_name);

inline constexpr std::int64_t kMaxChakraBytes = std::int64_t{8} << 30;

// Throws Error with the file and the node where the bytes are cut off or no trace, an id occurs twice, a node waits for
// a data dependency that is not in the file, or a duration is longer than ten days. Control dependencies on nodes that
// are not there are left out: Chakra's converter removes nodes without a device operation.
ChakraFile read_chakra_file(const std::string& path);
ChakraFile read_chakra_bytes(std::string_view bytes, std::string name);

// Writes the trace again with other control dependencies, which `control` gives by position of the node in the file;
// all else stays as it is, byte by byte.
void write_chakra_order(std::string_view bytes, const std::string& name,
                        const std::vector<std::vector<std::uint64_t>>& control, std::ostream& out);

// ASTRA-sim's file of communicator groups: {"group": [0, 1, ...], ...}. Throws Error naming file, key and value.
struct ChakraGroup {
  std::string name;
  std::vector<Rank> members;  // ascending
};
std::vector<ChakraGroup> read_chakra_groups(const std::string& text, const std::string& file_name);

}  // namespace weft
