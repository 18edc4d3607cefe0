// A call that is ready to run again and again, with what its execution needs; communicator.cpp's own.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "comm/call_check.hpp"
#include "comm/communicator.hpp"
#include "comm/native_run.hpp"
#include "comm/prepared_call.hpp"
#include "comm/program_run.hpp"
#include "comm/uneven_exchange.hpp"

namespace weft {

// Touched by the caller's thread between preparation and start, then by the communication thread until it is done.
struct Communicator::Prepared {
  PreparedCall call;
  std::unique_ptr<ProgramRun> run;
  std::unique_ptr<UnevenRun> exchange;
  std::unique_ptr<NativeRun> native;
  std::unique_ptr<CallCheck> check;
  CallNote note;
  std::vector<Segment> input, output;              // of the execution under way; room is reserved
  std::int64_t input_bytes = 0, output_bytes = 0;  // of whole buffers
  Prepared* next = nullptr;                        // behind it on its queue
  std::int64_t* turns = nullptr;                   // that its members had on the queue
  Transport::Clock::time_point issued, began;
  std::uint64_t started = 0, ended = 0;  // under Thread::mutex_

  bool is_over() const {
    if (exchange != nullptr) return exchange->done();
    return native != nullptr ? native->done() : run->done();
  }
  bool advance() {
    if (exchange != nullptr) return exchange->advance();
    return native != nullptr ? native->advance() : run->advance();
  }
  std::string awaited() const { return exchange != nullptr ? exchange->waits_for() : run->waits_for(); }

  std::string in_words() const {
    const std::int64_t elements = std::accumulate(call.sizes.begin(), call.sizes.end(), std::int64_t{0});
    return fmt::format("{}{} (call {} of queue {}: {} x {}, {})", name_of(call.spec.kind),
                       call.label.empty() ? "" : " '" + call.label + "'", note.turn, call.queue, format_count(elements),
                       name_of(call.type), program_in_words(call));
  }
};

}  // namespace weft
