// The words and the JSON of `weft plan --against`.
#pragma once

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/flags.hpp"
#include "study/against/prediction.hpp"

namespace weft {

struct ComparedRun {
  std::int64_t line = 0;  // of the table
  std::string policy;
  std::string flags;  // of weft plan
  std::optional<double> step_s, reserved_gib;
  bool out_of_memory = false;
  std::optional<RunPrediction> prediction = {};  // none: there is no plan, and `reason` says why
  std::string reason = {};
  // predicted / measured - 1, where both are there.
  std::optional<double> step_error() const;
  std::optional<double> memory_error() const;
};

struct AgainstStudy {
  ErrorSummary step, memory;
  // Runs that finished and are said to fit; that ran out of memory and are said not to.
  std::size_t finished = 0, finished_fit = 0, out_of_memory = 0, out_of_memory_unfit = 0;
  std::size_t without_plan = 0;
  struct Term {
    std::string name;
    ErrorSummary step;  // of the rows of which it is the largest term
  };
  std::vector<Term> by_largest_term;
};
AgainstStudy study_against(const std::vector<ComparedRun>& runs);

// The flags that say the run, as one would type them.
std::string words_of(const Flags& flags);
std::string against_text(const AgainstStudy& study, const std::vector<ComparedRun>& runs, std::size_t top);
nlohmann::ordered_json against_json(const AgainstStudy& study, const std::vector<ComparedRun>& runs);
void write_against_csv(std::ostream& out, const std::vector<ComparedRun>& runs);

}  // namespace weft
