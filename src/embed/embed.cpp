#include "embed/embed.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "collective/algorithms.hpp"
#include "comm/communicator.hpp"
#include "comm/tcp/tcp_transport.hpp"

struct WeftGroup {
  struct Call {
    weft::Communicator::Prepared* prepared = nullptr;
    weft::Communicator::Handle last = {};
    std::atomic<std::int64_t> began = 0, ended = 0;  // written by the communication thread
  };

  explicit WeftGroup(std::unique_ptr<weft::Transport> transport, weft::CommunicatorOptions options)
      : communicator(std::move(transport), std::move(options)) {}

  std::deque<Call> calls;  // which stay where they are when one is added, and outlive the thread that writes into them
  std::vector<std::int64_t> released;  // numbers of calls that can be given again
  void (*ended)(void*, std::int64_t) = nullptr;
  void* context = nullptr;
  weft::Communicator communicator;
};

namespace weft {
namespace {

// What a C interface must keep by itself: the caller asks for it after the call.
struct LastFailure {
  WeftResult result = weft_done_well;
  std::string words;
};
thread_local LastFailure last_failure;

WeftResult note_failure(WeftResult result, const std::string& words) {
  last_failure = {result, words};
  return result;
}

// No exception may cross into another language.
template <class Body>
WeftResult guarded(const Body& body) {
  try {
    body();
    return weft_done_well;
  } catch (const RunFailed& failure) {
    return note_failure(weft_run_failed, failure.what());
  } catch (const std::exception& error) {
    return note_failure(weft_bad_input, error.what());
  }
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

std::int64_t nanoseconds_of(Transport::Clock::time_point moment) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(moment.time_since_epoch()).count();
}

std::unique_ptr<WeftGroup> join(const WeftJoin& options) {
  TcpOptions tcp;
  tcp.rank = options.rank;
  tcp.size = options.ranks;
  tcp.root = options.root;
  tcp.secret = options.secret;
  tcp.root_listener = options.root_listener;
  tcp.timeout = milliseconds_of(options.join_timeout_seconds);
  CommunicatorOptions communicator;
  communicator.timeout = milliseconds_of(options.timeout_seconds);
  communicator.silence = milliseconds_of(options.silence_seconds);
  communicator.check = options.check != 0;
  if (options.failed != nullptr) {
    communicator.on_failure = [failed = options.failed, context = options.context](const std::string& words) {
      failed(context, words.c_str());
    };
  }
  auto group = std::make_unique<WeftGroup>(make_tcp_transport(tcp), std::move(communicator));
  group->ended = options.ended;
  group->context = options.context;
  return group;
}

ElementType element_type_of(WeftType type) {
  switch (type) {
    case weft_fp32:
      return ElementType::fp32;
    case weft_bf16:
      return ElementType::bf16;
    case weft_fp16:
      return ElementType::fp16;
    case weft_bytes:
      return ElementType::fp8;  // a byte each
    case weft_i32:
      return ElementType::i32;
    case weft_i64:
      return ElementType::i64;
  }
  fail("type {} is not one of 0..5", static_cast<int>(type));
}

ReduceOp reduce_op_of(WeftOp op) {
  switch (op) {
    case weft_sum:
      return ReduceOp::sum;
    case weft_average:
      return ReduceOp::average;
    case weft_max:
      return ReduceOp::max;
    case weft_min:
      return ReduceOp::min;
  }
  fail("op {} is not one of 0..3", static_cast<int>(op));
}

Collective collective_of(WeftCollective collective) {
  switch (collective) {
    case weft_all_reduce:
      return Collective::all_reduce;
    case weft_broadcast:
      return Collective::broadcast;
    case weft_reduce:
      return Collective::reduce;
    case weft_all_gather:
      return Collective::all_gather;
    case weft_reduce_scatter:
      return Collective::reduce_scatter;
    case weft_gather:
      return Collective::gather;
    case weft_scatter:
      return Collective::scatter;
    case weft_all_to_all:
      return Collective::all_to_all;
    case weft_send_recv:
      return Collective::send_recv;
    case weft_barrier:
      return Collective::barrier;
  }
  fail("collective {} is not one of 0..9", static_cast<int>(collective));
}

// Rings where bytes matter and there is one; each rank to each other one, or one to all, otherwise.
Algorithm algorithm_of(Collective kind) {
  return supports(Algorithm::ring, kind) ? Algorithm::ring : Algorithm::direct;
}

// Whom the program's ranks are: both ends of a message, or all.
std::vector<std::int64_t> members_of(const WeftCall& call, std::int64_t ranks) {
  if (call.collective != weft_send_recv) {
    std::vector<std::int64_t> members(static_cast<std::size_t>(ranks));
    std::iota(members.begin(), members.end(), 0);
    return members;
  }
  for (const std::int64_t end : {call.root, call.receiver}) {
    if (end < 0 || end >= ranks) fail("{}: rank {} is not in 0..{}", call.label, end, ranks - 1);
  }
  if (call.root == call.receiver) fail("{}: rank {} cannot send to itself", call.label, call.root);
  return {call.root, call.receiver};
}

PreparedCall prepared_call(const WeftCall& call, std::int64_t ranks) {
  const Collective kind = collective_of(call.collective);
  if (reduces(kind) && call.type == weft_bytes && call.elements > 0) fail("{}: bytes cannot be reduced", call.label);
  if (call.elements < 0) fail("{}: {} elements", call.label, call.elements);
  PreparedCall result;
  result.members = members_of(call, ranks);
  const ProgramRequest request{.algorithm = algorithm_of(kind),
                               .kind = kind,
                               .ranks = std::ssize(result.members),
                               .root = kind == Collective::send_recv ? 0 : call.root,
                               .parts = call.parts,
                               .in_place = call.in_place != 0};
  result.program = std::make_shared<const Program>(make_program(request));
  result.spec = result.program->spec;
  result.sizes = call.slices == nullptr
                     ? even_sizes(result.spec, call.elements)
                     : sliced_sizes(result.spec, {call.slices, static_cast<std::size_t>(result.spec.ranks)});
  result.type = element_type_of(call.type);
  result.op = reduce_op_of(call.op);
  result.queue = call.queue;
  result.label = call.label;
  result.segments = call.segments;
  return result;
}

WeftGroup::Call& call_of(WeftGroup& group, std::int64_t number) {
  if (number < 0 || number >= std::ssize(group.calls) ||
      group.calls[static_cast<std::size_t>(number)].prepared == nullptr) {
    fail("call {} was not prepared", number);
  }
  return group.calls[static_cast<std::size_t>(number)];
}

std::vector<Segment> segments_of(const WeftSegment* segments, std::int64_t count) {
  std::vector<Segment> result;
  for (std::int64_t i = 0; i < count; ++i) {
    result.push_back({static_cast<std::byte*>(segments[i].data), segments[i].bytes});
  }
  return result;
}

}  // namespace
}  // namespace weft

const char* weft_last_error() {
  return weft::last_failure.words.c_str();
}

WeftResult weft_last_result() {
  return weft::last_failure.result;
}

WeftGroup* weft_join(const WeftJoin* options) {
  std::unique_ptr<WeftGroup> group;
  weft::guarded([&] { group = weft::join(*options); });
  return group.release();
}

void weft_leave(WeftGroup* group) {
  const std::unique_ptr<WeftGroup> leaving(group);
}

WeftResult weft_prepare(WeftGroup* group, const WeftCall* call, std::int64_t* number) {
  return weft::guarded([&] {
    weft::PreparedCall prepared = weft::prepared_call(*call, group->communicator.size());
    if (group->released.empty()) {
      group->released.push_back(std::ssize(group->calls));
      group->calls.emplace_back();
    }
    *number = group->released.back();
    WeftGroup::Call& made = group->calls[static_cast<std::size_t>(*number)];
    prepared.on_done = [group, &made, number = *number](weft::Transport::Clock::time_point began,
                                                        weft::Transport::Clock::time_point ended) {
      made.began = weft::nanoseconds_of(began);
      made.ended = weft::nanoseconds_of(ended);
      if (group->ended != nullptr) group->ended(group->context, number);
    };
    made.prepared = &group->communicator.prepare(std::move(prepared));
    made.last = {};
    group->released.pop_back();
  });
}

WeftResult weft_release(WeftGroup* group, std::int64_t number) {
  return weft::guarded([&] {
    WeftGroup::Call& call = weft::call_of(*group, number);
    if (call.last.call != nullptr && !group->communicator.done(call.last)) weft::fail("call {} is under way", number);
    group->communicator.release(*std::exchange(call.prepared, nullptr));
    group->released.push_back(number);
  });
}

WeftResult weft_start(WeftGroup* group, std::int64_t number, const WeftSegment* segments, std::int64_t count) {
  return weft_start_apart(group, number, nullptr, 0, segments, count);
}

WeftResult weft_start_apart(WeftGroup* group, std::int64_t number, const WeftSegment* input, std::int64_t inputs,
                            const WeftSegment* output, std::int64_t outputs) {
  return weft::guarded([&] {
    WeftGroup::Call& call = weft::call_of(*group, number);
    const std::vector<weft::Segment> from = weft::segments_of(input, inputs);
    const std::vector<weft::Segment> to = weft::segments_of(output, outputs);
    call.last = group->communicator.start(*call.prepared, from, to);
  });
}

WeftResult weft_is_done(WeftGroup* group, std::int64_t number, std::int32_t* done) {
  return weft::guarded([&] {
    const WeftGroup::Call& call = weft::call_of(*group, number);
    *done = call.last.call == nullptr || group->communicator.done(call.last) ? 1 : 0;
  });
}

WeftResult weft_wait(WeftGroup* group, std::int64_t number) {
  return weft::guarded([&] {
    const WeftGroup::Call& call = weft::call_of(*group, number);
    if (call.last.call != nullptr) group->communicator.wait(call.last);
  });
}

WeftResult weft_times(WeftGroup* group, std::int64_t number, std::int64_t* began, std::int64_t* ended) {
  return weft::guarded([&] {
    const WeftGroup::Call& call = weft::call_of(*group, number);
    *began = call.began;
    *ended = call.ended;
  });
}

void weft_at(WeftGroup* group, const char* place) {
  group->communicator.whereabouts().set([part = std::string(place)] { return weft::RankPlace{part, ""}; });
}

WeftResult weft_require_alive(WeftGroup* group) {
  return weft::guarded([&] { group->communicator.require_alive(); });
}

void weft_fail(WeftGroup* group, const char* why) {
  weft::guarded([&] { group->communicator.fail(why); });
}
