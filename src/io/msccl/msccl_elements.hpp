// The elements of an MSCCL file as the reader holds them, and the rules that need more than one of them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "collective/program.hpp"
#include "io/msccl/xml_reader.hpp"

namespace weft::msccl {

struct StepElement {
  XmlElement element;
  Instruction instruction;  // `after` has at most one entry yet
  bool has_dependent = false;
};

struct BlockElement {
  XmlElement element;
  ThreadBlock block;
  std::vector<StepElement> steps;
};

struct GpuElement {
  XmlElement element;
  std::array<std::int64_t, 3> chunks{};  // by BufferKind
  std::vector<BlockElement> blocks;      // by id
  // <copy> elements: chunks of the input that lie in the output before the first step begins.
  std::vector<Instruction> first_copies;
};

// Files do not name the root of a broadcast or reduce. It is the one GPU with an input (an output); where every GPU has
// one, the only one that receives (sends) nothing. 0 for other collectives.
std::int64_t root_of(const CollectiveSpec& spec, const XmlElement& algo, const std::vector<GpuElement>& gpus);

// Counts of chunks, dependencies and hasdep, one block for each end of a connection, steps within their buffers.
void check_gpu(const CollectiveSpec& spec, bool in_place, std::int64_t rank, const GpuElement& gpu);

}  // namespace weft::msccl
