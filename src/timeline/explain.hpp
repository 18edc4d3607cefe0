// Why communication is exposed, and behind what the rest of it hides: the accounting asked for each kind of transfer.
//
// Every instant at which a rank communicates is counted once: the exposed ones for the transfer that the accounting
// charges, all others as hidden for the running transfer that ends last. What a transfer ran besides, while another was
// counted, is `beside`. So, over the kinds of a rank, exposed adds up to RankAccount::exposed_s and hidden + exposed to
// comm_s, and for each kind hidden + exposed + beside is the time it took.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "timeline/span_index.hpp"
#include "timeline/timeline.hpp"

namespace weft {

// Why exposed time was not hidden. docs/explain.md says how each is found.
enum class ExposureReason : std::uint8_t {
  dependency,   // it started when its data was there, and nothing else was ready to compute
  held_back,    // other compute was ready; the plan's order lets it wait
  issue_order,  // its data was there earlier; it was issued behind something that was not done (or not ready) yet
  queue_busy,   // its data was there earlier; earlier transfers of its queue were under way
  link_busy,    // another transfer took a share of its links
  memory,       // its data was there earlier; the memory it fills was in use
  latency,      // as `dependency`, and most of its time alone no bytes move
  late_peer     // another rank reached it later than this one
};
inline constexpr int kExposureReasons = 8;
std::string_view name_of(ExposureReason reason);

// What the timeline does not say about its operations; by operation.
struct ExplainedOperations {
  std::vector<std::int32_t> kind;  // operations that are reported as one have the same number, 0 or above
  std::vector<Nanos> fixed;        // of a transfer: the share of `alone` in which no bytes move
};

// Seconds are per step.
struct HiddenBehind {
  std::int32_t kind = -1;  // of the compute operation; -1: the rank computed nothing, but waited for something else
  double seconds = 0;
};
struct Exposure {
  ExposureReason reason = ExposureReason::dependency;
  // dependency, latency: what made its data. held_back: what was ready. issue_order, queue_busy: what came before it.
  // link_busy: what it shared the link with. memory: what used the memory. late_peer: what the other rank had to end
  // first. -1: nothing, or unknown.
  std::int32_t cause = -1;
  std::int32_t cause_rank = -1;  // index into Timeline::ranks; of late_peer
  std::int32_t waiting = -1;     // the kind of the compute operation that came next; -1: none
  double seconds = 0;
};

// One kind of transfer on one rank.
struct ExplainedTransfer {
  std::int32_t kind = 0;
  std::int64_t instances = 0;  // a step
  Bytes bytes;                 // of all of them
  double alone_s = 0;          // of all of them
  double busy_s = 0;           // as they ran: hidden + exposed + beside
  double hidden_s = 0, exposed_s = 0, beside_s = 0;
  std::vector<HiddenBehind> hidden_behind;  // adds up to hidden_s; largest first
  std::vector<Exposure> exposures;          // adds up to exposed_s; largest first
};

// By rank; each rank's kinds in ascending order, those without a transfer on the rank left out. The timeline must pass
// check_timeline and know its dependencies. O(n log n) in its executions.
std::vector<std::vector<ExplainedTransfer>> explain(const Timeline& timeline, SpanIndex& index,
                                                    const ExplainedOperations& operations);

}  // namespace weft
