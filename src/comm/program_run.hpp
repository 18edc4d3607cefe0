// Executes one rank's part of a lowered program over a transport, without blocking.
//
// Every step starts as soon as it waits for nothing. Only connections keep an order: their sends and receives are
// posted as the program lists them. A message whose destination is still in use, or that must be reduced after arrival,
// first lands in one of the slots of its connection, so its sender never waits for more than the program's proof
// allows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/lowered.hpp"
#include "comm/landing.hpp"
#include "comm/segment_map.hpp"
#include "comm/transport.hpp"

namespace weft {

struct RunSettings {
  ElementType type = ElementType::fp32;
  ReduceOp op = ReduceOp::sum;
  double scale = 1;                   // of completed reductions: 1 / ranks to average
  std::vector<std::int64_t> members;  // rank of the transport by rank of the program
  std::int64_t first_channel = 0;     // added to the program's channels
  std::int64_t credit = 0;            // bytes of sends in flight; a larger message is sent alone
  std::int64_t segments = 1;          // the most that a buffer may have
  // The input range to which the output is added before an execution, so that the result includes what the output held.
  std::optional<ByteRange> accumulated = {};
};

class ProgramRun {
 public:
  ProgramRun(LoweredRank program, RunSettings settings, Transport& transport);

  std::int64_t input_bytes() const { return input_bytes_; }
  std::int64_t output_bytes() const { return output_bytes_; }
  // The next execution works on these buffers; the last one must have ended. No memory is allocated from here on. The
  // lists must stay until it is done.
  void start(std::span<const Segment> input, std::span<const Segment> output);
  // Continues as far as possible without waiting. Returns true if anything happened.
  bool advance();
  bool done() const { return left_ == 0; }
  // "receive from rank 3": the first message that it waits for. Ranks are the transport's.
  std::string waits_for() const;
  // The peer of that message; -1 where it waits for none.
  std::int64_t waits_for_rank() const;

 private:
  enum class State : std::uint8_t { waiting, in_flight, landed, worked_on, done };
  struct Step {
    LoweredStep code;
    std::vector<Segment> src, dst, staged;  // bound at start
    std::vector<std::int32_t> dependents, followers;
    std::int32_t pending = 0;  // waits that have not ended
    std::int32_t ahead = 0;    // steps with an earlier turn that have not ended
    std::int32_t slot = -1;    // of the connection, if the message lands there first
    std::int32_t connection = -1;
    State state = State::waiting;
    Ticket ticket;
  };
  struct Connection {
    std::vector<std::int32_t> steps;
    std::size_t next = 0;  // to be posted
    std::vector<std::unique_ptr<std::byte[]>> slots;
    std::vector<bool> slot_is_used;
  };

  void reserve(const std::vector<ByteRange>& ranges, std::vector<Segment>& segments) const;
  void bind(std::span<const ByteRange> ranges, std::vector<Segment>& segments) const;
  void add_output_to_input(std::span<const Segment> output);
  bool has_added();
  void connect(std::int32_t step, bool outgoing);
  bool may_need_slot(const Step& step) const;
  bool post_sends();
  bool post_send(Connection& connection);
  bool post_receives();
  bool post_receive(Connection& connection, Step& step);
  bool poll();
  bool run_ready();
  bool hand_out_ready();
  void end_local(std::int32_t step);
  void complete(std::int32_t step);
  void released(std::int32_t step);
  Landing landing_of(const Step& step) const;
  const Step* first_waiting() const;

  RunSettings settings_;
  Transport& transport_;
  bool reduces_on_arrival_;
  PacedLinks* paced_;  // null: local work is done here
  std::vector<Step> steps_;
  std::vector<Connection> outgoing_, incoming_;
  std::unique_ptr<std::byte[]> scratch_;
  std::int64_t input_bytes_ = 0, output_bytes_ = 0;
  SegmentMap input_, output_;
  std::vector<Segment> accumulated_;  // bound at start
  std::optional<Ticket> adding_;      // the output to the input, over paced links
  std::vector<std::int32_t> in_flight_;
  std::vector<std::int32_t> ready_;  // local steps and landed messages that wait for nothing any more
  std::int32_t carried_out_ = -1;    // the one of them that is in work
  LandingWork work_;
  std::int64_t left_ = 0;
  std::int64_t bytes_in_flight_ = 0;
  Transport::Clock::time_point last_move_;
};

}  // namespace weft
