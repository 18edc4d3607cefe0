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
enum WeftCollective : std::int32_t { weft_all_reduce = 0, weft_broadcast_from_0 = 1 };
// Bytes travel as they are; only a broadcast can carry them.
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
};

// All members prepare the same calls in the same order, and start those of a queue in the same order.
struct WeftCall {
  WeftCollective collective;
  WeftType type;
  WeftOp op;
  std::int64_t elements;
  std::int64_t parts;     // that a message is cut into for pipelining
  std::int64_t segments;  // the most that a buffer may have
  std::int64_t queue;     // calls of one queue run one after the other
  const char* label;      // for messages
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
// Works in place. The memory must stay until the call is done.
WeftResult weft_start(WeftGroup* group, std::int64_t number, const WeftSegment* segments, std::int64_t count);
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
