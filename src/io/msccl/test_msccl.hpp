// Programs for the tests of MSCCL XML.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "collective/algorithms.hpp"
#include "collective/fuse.hpp"
#include "collective/program_builder.hpp"

namespace weft {

// Every generator at a few sizes, of the collectives that MSCCL has; also with receives and sends joined where that
// changes anything.
inline std::vector<Program> generated_programs() {
  std::vector<Program> programs;
  for (const Collective kind : {Collective::all_reduce, Collective::all_gather, Collective::reduce,
                                Collective::broadcast, Collective::all_to_all, Collective::reduce_scatter}) {
    for (const Algorithm algorithm : algorithms_for(kind)) {
      for (const std::int64_t ranks : {1, 2, 3, 4, 8}) {
        for (const std::int64_t parts : {1, 2}) {
          for (const bool in_place : {false, true}) {
            const ProgramRequest request{.algorithm = algorithm,
                                         .kind = kind,
                                         .ranks = ranks,
                                         .root = has_root(kind) ? ranks / 2 : 0,
                                         .parts = parts,
                                         .in_place = in_place,
                                         .inner = ranks % 2 == 0 ? 2 : 1};
            programs.push_back(make_program(request));
            Program joined = fused(programs.back());
            if (joined != programs.back()) programs.push_back(std::move(joined));
          }
        }
      }
    }
  }
  return programs;
}

inline std::string title(const Program& program) {
  return program.name + " " + std::string(name_of(program.spec.kind)) + " ranks " + std::to_string(program.spec.ranks) +
         " pieces " + std::to_string(program.spec.pieces) + (program.in_place ? " in place" : "");
}

// Broadcast from `root` to the others, each by one message of all pieces.
inline Program direct_broadcast(std::int64_t ranks, std::int64_t root, std::int64_t pieces, bool in_place) {
  ProgramBuilder builder("direct", {Collective::broadcast, ranks, root, pieces}, in_place);
  for (std::int64_t rank = 0; rank < ranks; ++rank) builder.copy(input_of(root, 0), output_of(rank, 0), pieces);
  return std::move(builder).finish();
}

inline Program direct_reduce(std::int64_t ranks, std::int64_t root, std::int64_t pieces, bool in_place) {
  ProgramBuilder builder("direct", {Collective::reduce, ranks, root, pieces}, in_place);
  builder.copy(input_of(root, 0), output_of(root, 0), pieces);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    if (rank != root) builder.reduce(input_of(rank, 0), output_of(root, 0), pieces);
  }
  return std::move(builder).finish();
}

struct NamedText {
  std::string name, text;
};

// The files of msccl-tools that lie beside the source tree; empty where they are absent.
inline std::vector<NamedText> shared_msccl_files() {
  const std::filesystem::path folder = WEFT_SOURCE_DIR "/../shared/data/msccl_xml";
  std::vector<NamedText> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    files.push_back({entry.path().filename().string(), text.str()});
  }
  std::sort(files.begin(), files.end(), [](const NamedText& a, const NamedText& b) { return a.name < b.name; });
  return files;
}

}  // namespace weft
