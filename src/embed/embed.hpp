// Weft's collectives for programs that are not ours: a C interface, so that any language can load it at run time.
// The Python package (python/weft) is its first user. It knows nothing of PyTorch, so one library serves every version.
//
// Functions that return a WeftResult leave the words of a failure in weft_last_error(), which is the calling thread's
// own. Functions of one group may be called from any thread, but joining, preparing and leaving only from one at a
// time.
#pragma once

#include <cstdint>

extern "C" {

struct WeftGroup;

// The numbers are those of weft's exit codes.
enum WeftResult : std::int32_t { weft_done_well = 0, weft_bad_input = 2, weft_run_failed = 3 };
enum WeftCollective : std::int32_t {
  weft_all_reduce = 0,
  weft_broadcast = 1,
  weft_reduce = 2,
  weft_all_gather = 3,
  weft_reduce_scatter = 4,
  weft_gather = 5,
  weft_scatter = 6,
  weft_all_to_all = 7,
  weft_send_recv = 8,
  weft_barrier = 9
};
// Bytes travel as they are; they cannot be reduced.
enum WeftType : std::int32_t {
  weft_fp32 = 0,
  weft_bf16 = 1,
  weft_fp16 = 2,
  weft_bytes = 3,
  weft_i32 = 4,
  weft_i64 = 5
};
enum WeftOp : std::int32_t { weft_sum = 0, weft_average = 1, weft_max = 2, weft_min = 3 };

struct WeftJoin {
  std::int64_t rank;
  std::int64_t ranks;
  const char* root;             // the address of rank 0: "node01:29500"
  const char* secret;           // of the job (docs/security.md)
  std::int32_t root_listener;   // rank 0: a listening socket, which the group owns then; -1: it makes its own
  double join_timeout_seconds;  // for all ranks to come
  double timeout_seconds;       // without progress of a collective that was started
  double silence_seconds;       // without a sign of life of another rank; 0: never
  std::int32_t check;           // not 0: members compare their calls before they run, and name what differs
  // Both may be null. They are called on threads of the group, must return soon, and may start calls but neither wait
  // nor prepare. `ended` gets the number of a call that has ended; `failed`, once, the words of a failure of the group.
  void (*ended)(void* context, std::int64_t number);
  void (*failed)(void* context, const char* words);
  void* context;
};

// Members start the calls of a queue in the same order.
struct WeftCall {
  WeftCollective collective;
  WeftType type;
  WeftOp op;
  // Of the whole buffer: what a rank has before all_reduce, reduce_scatter, all_to_all or scatter and after all_gather
  // or gather.
  std::int64_t elements;
  std::int64_t parts;     // that a message is cut into for pipelining
  std::int64_t segments;  // the most that a buffer may have
  std::int64_t queue;     // calls of one queue run one after the other
  const char* label;      // for messages
  std::int64_t root;      // of broadcast, reduce, gather and scatter; the sender of send_recv
  std::int64_t receiver;  // of send_recv
  std::int32_t in_place;  // not 0: output is input too
  // all_gather, reduce_scatter: how many of the elements belong to each rank. Null: as equal as possible.
  const std::int64_t* slices;
};

struct WeftSegment {
  void* data;
  std::int64_t bytes;
};

// Of the last call of this thread that failed. It stays until the next one fails.
const char* weft_last_error();
// Returns null where the ranks do not come together; weft_last_result() says why.
WeftGroup* weft_join(const WeftJoin* options);
WeftResult weft_last_result();
// Tells the others that this rank leaves in order.
void weft_leave(WeftGroup* group);

WeftResult weft_prepare(WeftGroup* group, const WeftCall* call, std::int64_t* number);
// The call is not under way and will not be started again; its number may be given to another one.
WeftResult weft_release(WeftGroup* group, std::int64_t number);
// For a call in place. The memory must stay until the call is done.
WeftResult weft_start(WeftGroup* group, std::int64_t number, const WeftSegment* segments, std::int64_t count);
// For any other. A rank that has no input or no output gives none.
WeftResult weft_start_apart(WeftGroup* group, std::int64_t number, const WeftSegment* input, std::int64_t inputs,
                            const WeftSegment* output, std::int64_t outputs);
// The last start of the call.
WeftResult weft_is_done(WeftGroup* group, std::int64_t number, std::int32_t* done);
WeftResult weft_wait(WeftGroup* group, std::int64_t number);
// When the last execution that has ended left the queue and ended, in nanoseconds of the system's monotonic clock; 0
// where none has. A wait may return a moment before these are written.
WeftResult weft_times(WeftGroup* group, std::int64_t number, std::int64_t* began, std::int64_t* ended);

// Says where in its work this rank is ("step 7"). From then on the loss of another rank fails the group at once.
void weft_at(WeftGroup* group, const char* place);
WeftResult weft_require_alive(WeftGroup* group);
// This rank cannot go on: the others get these words as weft_run_failed.
void weft_fail(WeftGroup* group, const char* why);
}
