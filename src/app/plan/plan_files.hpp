// The files that `weft plan --out` writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/flags.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {

struct PlanFileOptions {
  std::int64_t trace_spans = 100'000;  // a step of more is traced in three stretches (io/trace/trace_excerpts.hpp)
  bool all_traces = false;             // of every policy, not the best alone
};

void declare_plan_file_flags(Flags& flags);
// Throws Error for what is no such value, and where nothing is to be written.
PlanFileOptions read_plan_file_options(const Flags& flags);

struct WrittenFiles {
  std::vector<std::string> names;
  std::vector<std::string> notes;  // sentences: what is not in them, and how to get it
  void add(const WrittenFiles& others);
};

// plan.json and, for plans of up to some ten thousand operations, timeline.json of every policy; trace.json of the best
// or of every policy, trace.json.gz where it is large; step.svg of the first policy and the best one. The best one's
// carry plain names, the others' their own. Adds the curve of memory over time to the timelines that are traced.
WrittenFiles write_plan_files(PlanStudy& study, const std::filesystem::path& folder, const PlanFileOptions& options);

// All of these but the plans, for a plan that is a file already.
WrittenFiles write_timeline_files(PlanStudy& study, const std::filesystem::path& folder,
                                  const PlanFileOptions& options);

// "Written: a b" and its line's end, and the notes, or nothing.
std::string written_line(const WrittenFiles& files);
std::string written_line(const std::vector<std::string>& files);

}  // namespace weft
