// Collective programs as the files of MSCCL, RCCL and Azure's executor (docs/msccl-xml.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "collective/program.hpp"

namespace weft {

// False in a build without pugixml: read_msccl_xml then throws Error for every file.
bool can_read_msccl_xml();

// Throws Error, with the file, the line and the element, wherever the runtime would refuse the file, hang or read
// outside a buffer. Whether the program computes its collective is for the verifier to say. Dependencies that nops
// carry come back on the instruction they are for.
Program read_msccl_xml(std::string_view text, const std::string& file_name);

struct MscclOptions {
  std::string name{};            // of the algorithm; empty: the program's own
  std::string proto = "Simple";  // or LL128, LL
  std::int64_t min_bytes = 0;    // buffer sizes that the runtime may use it for
  std::int64_t max_bytes = std::int64_t{1} << 40;
  std::int64_t threads = 0;  // of a thread block; 0: the runtime's own choice
  bool for_rccl = false;     // RCCL and Azure's executor spell reduce_scatter as reducescatter
};

// Throws Error where the runtime cannot express the program (helper ranks, collectives that it does not have) or a
// limit is passed, and says what to change. In place, slots are named as in msccl-tools' files: all of them in `o`
// where the output is the whole buffer (all_gather, broadcast), in `i` otherwise.
std::string write_msccl_xml(const Program& program, const MscclOptions& options = {});

}  // namespace weft
