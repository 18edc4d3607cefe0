#include "comm/program_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "comm/paced_links.hpp"

namespace weft {
namespace {

// After so long without progress a message is received even if its turn has not come: the proof assumes that senders
// need not wait for turns.
constexpr std::chrono::milliseconds kMaxWaitForTurn{20};
// Local work between two polls of the messages: about 50 us.
constexpr std::int64_t kMaxWorkBytes = 256 << 10;
// Steps of fewer bytes together run without a poll in between, which would cost as much as they do.
constexpr std::int64_t kBytesBetweenPolls = 32 << 10;

bool is_receive(InstructionKind kind) {
  return kind == InstructionKind::receive || kind == InstructionKind::receive_reduce_copy;
}

bool is_local(InstructionKind kind) {
  return kind == InstructionKind::copy || kind == InstructionKind::reduce;
}

std::unique_ptr<std::byte[]> uninitialised(std::int64_t bytes) {
  return std::unique_ptr<std::byte[]>(new std::byte[bytes]);
}

}  // namespace

ProgramRun::ProgramRun(LoweredRank program, RunSettings settings, Transport& transport)
    : settings_(std::move(settings)),
      transport_(transport),
      reduces_on_arrival_(transport.features().reduces_on_arrival),
      paced_(transport.features().paced_links),
      scratch_(uninitialised(program.scratch_bytes)),
      input_bytes_(program.input_bytes),
      output_bytes_(program.output_bytes) {
  input_.reserve(settings_.segments);
  output_.reserve(settings_.segments);
  if (settings_.accumulated) reserve({*settings_.accumulated}, accumulated_);
  steps_.resize(program.steps.size());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    Step& step = steps_[i];
    step.code = std::move(program.steps[i]);
    reserve(step.code.src, step.src);
    reserve(step.code.dst, step.dst);
    step.staged.resize(1);
    for (const std::int32_t other : step.code.waits) steps_[other].dependents.push_back(static_cast<std::int32_t>(i));
    for (const std::int32_t other : step.code.turn) steps_[other].followers.push_back(static_cast<std::int32_t>(i));
    if (step.code.peer < 0) continue;
    step.code.peer = settings_.members[step.code.peer];
    step.code.channel += settings_.first_channel;
    connect(static_cast<std::int32_t>(i), step.code.kind == InstructionKind::send);
  }
  for (Connection& connection : incoming_) {
    std::int64_t largest = -1;
    for (const std::int32_t id : connection.steps) {
      const Step& step = steps_[id];
      if (may_need_slot(step)) largest = std::max(largest, step.code.bytes);
    }
    if (largest < 0) continue;
    connection.slots.resize(slots_for(largest));
    for (auto& slot : connection.slots) slot = uninitialised(largest);
    connection.slot_is_used.assign(connection.slots.size(), false);
  }
  in_flight_.reserve(steps_.size());
  ready_.reserve(steps_.size());
}

void ProgramRun::connect(std::int32_t id, bool outgoing) {
  std::vector<Connection>& connections = outgoing ? outgoing_ : incoming_;
  Step& step = steps_[id];
  for (std::size_t i = 0; i < connections.size(); ++i) {
    const Step& known = steps_[connections[i].steps.front()];
    if (known.code.peer != step.code.peer || known.code.channel != step.code.channel) continue;
    connections[i].steps.push_back(id);
    step.connection = static_cast<std::int32_t>(i);
    return;
  }
  step.connection = static_cast<std::int32_t>(connections.size());
  connections.push_back({{id}, 0, {}, {}});
}

bool ProgramRun::may_need_slot(const Step& step) const {
  const bool by_hand = step.code.kind == InstructionKind::receive_reduce_copy && !reduces_on_arrival_;
  return by_hand || !step.code.waits.empty() || !step.code.turn.empty();
}

// A border between segments cuts at most one range of a step and never an element, which bounds the lists.
void ProgramRun::reserve(const std::vector<ByteRange>& ranges, std::vector<Segment>& segments) const {
  std::int64_t elements = 0;
  bool in_segments = false;
  for (const ByteRange& range : ranges) {
    elements += range.bytes / size_of(settings_.type).value;
    in_segments = in_segments || range.buffer != BufferKind::scratch;
  }
  const std::int64_t borders = in_segments ? settings_.segments - 1 : 0;
  segments.reserve(std::min(std::ssize(ranges) + borders, elements));
}

void ProgramRun::bind(std::span<const ByteRange> ranges, std::vector<Segment>& segments) const {
  segments.clear();
  for (const ByteRange& range : ranges) {
    if (range.buffer == BufferKind::scratch) {
      append_joined(segments, {scratch_.get() + range.begin, range.bytes});
    } else {
      (range.buffer == BufferKind::input ? input_ : output_).append(range.begin, range.bytes, segments);
    }
  }
}

// Elements are added in a fixed order, so every run gives the same sum.
void ProgramRun::add_output_to_input(std::span<const Segment> output) {
  bind({&*settings_.accumulated, 1}, accumulated_);
  const Landing sum{.dst = accumulated_, .operand = accumulated_, .type = settings_.type, .op = ReduceOp::sum};
  if (paced_ != nullptr) {
    adding_ = paced_->land(output, sum);
  } else {
    land(output, sum);
  }
}

bool ProgramRun::has_added() {
  if (adding_ && transport_.done(*adding_)) adding_.reset();
  return !adding_;
}

void ProgramRun::start(std::span<const Segment> input, std::span<const Segment> output) {
  WEFT_CHECK(done());
  input_.bind(input);
  output_.bind(output);
  WEFT_CHECK(input_.bytes() == input_bytes_ && output_.bytes() == output_bytes_);
  if (settings_.accumulated) add_output_to_input(output);
  left_ = std::ssize(steps_);
  last_move_ = time_on(paced_);
  for (Connection& connection : outgoing_) connection.next = 0;
  for (Connection& connection : incoming_) connection.next = 0;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    Step& step = steps_[i];
    bind(step.code.src, step.src);
    bind(step.code.dst, step.dst);
    step.pending = static_cast<std::int32_t>(step.code.waits.size());
    step.ahead = static_cast<std::int32_t>(step.code.turn.size());
    step.slot = -1;
    step.state = State::waiting;
    if (step.pending + step.ahead == 0 && is_local(step.code.kind)) ready_.push_back(static_cast<std::int32_t>(i));
  }
}

bool ProgramRun::advance() {
  bool moved = false;
  if (!has_added()) return false;
  // Posts receives first, because a peer may be waiting for them, and does local work last, while messages travel.
  while (post_receives() | post_sends() | poll() | run_ready()) moved = true;
  if (moved) last_move_ = time_on(paced_);
  return moved;
}

bool ProgramRun::post_receives() {
  bool moved = false;
  for (Connection& connection : incoming_) {
    while (connection.next < connection.steps.size()) {
      Step& step = steps_[connection.steps[connection.next]];
      if (!post_receive(connection, step)) break;
      step.state = State::in_flight;
      in_flight_.push_back(connection.steps[connection.next]);
      ++connection.next;
      moved = true;
    }
  }
  return moved;
}

bool ProgramRun::post_receive(Connection& connection, Step& step) {
  const bool by_hand = step.code.kind == InstructionKind::receive_reduce_copy && !reduces_on_arrival_;
  if (step.ahead > 0 && time_on(paced_) - last_move_ < kMaxWaitForTurn) return false;
  if (step.pending + step.ahead == 0 && !by_hand) {
    step.ticket = transport_.receive(step.code.peer, step.code.channel, landing_of(step));
    return true;
  }
  const auto unused = std::find(connection.slot_is_used.begin(), connection.slot_is_used.end(), false);
  if (unused == connection.slot_is_used.end()) return false;
  *unused = true;
  step.slot = static_cast<std::int32_t>(unused - connection.slot_is_used.begin());
  step.staged[0] = {connection.slots[step.slot].get(), step.code.bytes};
  step.ticket = transport_.receive(step.code.peer, step.code.channel, {.dst = step.staged, .operand = {}});
  return true;
}

Landing ProgramRun::landing_of(const Step& step) const {
  Landing landing{.dst = step.dst, .operand = {}, .type = settings_.type, .op = settings_.op};
  if (!reduces(step.code.kind)) return landing;
  landing.operand = step.code.kind == InstructionKind::reduce ? step.dst : step.src;
  if (step.code.completes) landing.scale = settings_.scale;
  return landing;
}

// Connections take turns, so that what several peers will forward leaves for all of them early.
bool ProgramRun::post_sends() {
  bool moved = false;
  for (bool posted = true; posted;) {
    posted = false;
    for (Connection& connection : outgoing_) posted = post_send(connection) || posted;
    moved = moved || posted;
  }
  return moved;
}

bool ProgramRun::post_send(Connection& connection) {
  if (connection.next == connection.steps.size()) return false;
  const std::int32_t id = connection.steps[connection.next];
  Step& step = steps_[id];
  if (step.pending + step.ahead != 0) return false;
  if (bytes_in_flight_ > 0 && bytes_in_flight_ + step.code.bytes > settings_.credit) return false;
  step.ticket = transport_.send(step.code.peer, step.code.channel, step.src);
  ++connection.next;
  if (step.ticket.empty()) {
    complete(id);
    return true;
  }
  step.state = State::in_flight;
  bytes_in_flight_ += step.code.bytes;
  in_flight_.push_back(id);
  return true;
}

bool ProgramRun::poll() {
  bool moved = false;
  for (std::size_t i = 0; i < in_flight_.size();) {
    const std::int32_t id = in_flight_[i];
    Step& step = steps_[id];
    if (!transport_.done(step.ticket)) {
      ++i;
      continue;
    }
    moved = true;
    in_flight_[i] = in_flight_.back();
    in_flight_.pop_back();
    if (step.code.kind == InstructionKind::send) bytes_in_flight_ -= step.code.bytes;
    if (step.state == State::worked_on) {
      end_local(id);
      continue;
    }
    if (step.slot < 0) {
      complete(id);
      continue;
    }
    step.state = State::landed;
    if (step.pending + step.ahead == 0) ready_.push_back(id);
  }
  return moved;
}

// Does a portion of the local work, so that messages do not wait for a long copy.
bool ProgramRun::run_ready() {
  if (paced_ != nullptr) return hand_out_ready();
  bool moved = false;
  std::int64_t worked = 0;
  while (worked < kBytesBetweenPolls && (carried_out_ >= 0 || !ready_.empty())) {
    if (carried_out_ < 0) {
      carried_out_ = ready_.back();
      ready_.pop_back();
      const Step& step = steps_[carried_out_];
      work_ = LandingWork(is_local(step.code.kind) ? step.src : step.staged, landing_of(step));
    }
    worked += work_.advance(kMaxWorkBytes);
    if (work_.done()) end_local(std::exchange(carried_out_, -1));
    moved = true;
  }
  return moved;
}

// Does all of it at once, because paced links look after messages themselves.
bool ProgramRun::hand_out_ready() {
  if (ready_.empty()) return false;
  for (const std::int32_t id : ready_) {
    Step& step = steps_[id];
    step.ticket = paced_->land(is_local(step.code.kind) ? step.src : step.staged, landing_of(step));
    step.state = State::worked_on;
    in_flight_.push_back(id);
  }
  ready_.clear();
  return true;
}

void ProgramRun::end_local(std::int32_t id) {
  const Step& step = steps_[id];
  if (step.slot >= 0) incoming_[step.connection].slot_is_used[step.slot] = false;
  complete(id);
}

void ProgramRun::complete(std::int32_t id) {
  Step& step = steps_[id];
  step.state = State::done;
  --left_;
  for (const std::int32_t dependent : step.dependents) {
    --steps_[dependent].pending;
    released(dependent);
  }
  for (const std::int32_t follower : step.followers) {
    --steps_[follower].ahead;
    released(follower);
  }
}

void ProgramRun::released(std::int32_t id) {
  const Step& step = steps_[id];
  if (step.pending + step.ahead > 0) return;
  if (is_local(step.code.kind) || step.state == State::landed) ready_.push_back(id);
}

const ProgramRun::Step* ProgramRun::first_waiting() const {
  const Step* sending = nullptr;
  for (const std::int32_t id : in_flight_) {
    const Step& step = steps_[id];
    if (is_receive(step.code.kind)) return &step;
    if (step.code.kind == InstructionKind::send) sending = &step;
  }
  return sending;
}

std::string ProgramRun::waits_for() const {
  const Step* step = first_waiting();
  if (step == nullptr) return "nothing";
  return fmt::format("{} rank {} ({} bytes)",
                     step->code.kind == InstructionKind::send ? "sending to" : "receiving from", step->code.peer,
                     step->code.bytes);
}

std::int64_t ProgramRun::waits_for_rank() const {
  const Step* step = first_waiting();
  return step == nullptr ? -1 : step->code.peer;
}

}  // namespace weft
