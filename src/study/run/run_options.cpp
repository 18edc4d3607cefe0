#include "study/run/run_options.hpp"

namespace weft {

MachineFacts facts_of(const RunOptions& options, std::int64_t ranks) {
  MachineFacts facts = this_machine();
  facts.ranks = ranks;
  facts.threads_per_rank = options.threads;
  return facts;
}

}  // namespace weft
