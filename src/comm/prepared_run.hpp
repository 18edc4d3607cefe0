// A call that is ready to run again and again, with what its execution needs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/call_check.hpp"
#include "comm/communicator.hpp"
#include "comm/native_run.hpp"
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
  Prepared* next = nullptr;                        // the next call on its queue
  std::int64_t* turns = nullptr;                   // calls that its members have had on the queue
  Transport::Clock::time_point issued, began;
  std::uint64_t started = 0, ended = 0;  // under CommunicationThread::mutex_

  // Creates the object that executes the call. `member` says which of the members this rank is.
  void build_native(NativeLibrary* library, std::int64_t member, NativeStaging& staging);
  void build_program(Transport& transport, std::int64_t member, std::int64_t first_channel, std::int64_t credit);

  void start();
  bool advance();
  bool is_over() const;
  std::string awaited() const { return exchange != nullptr ? exchange->waits_for() : run->waits_for(); }
  std::string in_words() const;
};

}  // namespace weft
