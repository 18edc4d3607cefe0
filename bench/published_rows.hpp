// Published measurements as questions to `weft plan`: the flags that describe a run, and what was measured.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace weft {

enum class Measure { step_seconds, peak_memory_gib, activations_gib };

struct PublishedRow {
  std::string name;
  std::string flags;  // of weft plan
  Measure measure = Measure::step_seconds;
  double measured = 0;
  // Above 0: the pipeline's order is searched for with the times of its stages, which hold at most so many passes.
  std::int64_t most_held = 0;
};

struct PublishedSet {
  std::string name;
  std::vector<PublishedRow> rows;
};

// From vtrain_multi_node.csv, vtrain_single_node.csv and training.csv in the folder; empty where it is not there.
std::vector<PublishedSet> published_sets(const std::filesystem::path& folder);

}  // namespace weft
