// Weft's prepared calls as operations that are started once: a call that has ended is kept for the next one of its kind
// and size, and a thread of its own completes what PyTorch waits for.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "embed/embed.hpp"
#include "work.hpp"

namespace weft_c10d {

// What a prepared call is good for. The label is not part of it.
struct CallKind {
  WeftCollective collective = weft_all_reduce;
  WeftType type = weft_bytes;
  WeftOp op = weft_sum;
  std::int64_t elements = 0;
  std::int64_t root = 0;
  std::int64_t receiver = 0;
  std::int64_t queue = 0;
  std::int64_t segments = 1;
  bool in_place = false;

  bool operator==(const CallKind& other) const {
    return collective == other.collective && type == other.type && op == other.op && elements == other.elements &&
           root == other.root && receiver == other.receiver && queue == other.queue && segments == other.segments &&
           in_place == other.in_place;
  }
};

struct Joining {
  std::int64_t rank = 0, ranks = 1;
  std::string root, secret;
  int root_listener = -1;
  double timeout_seconds = 1800;
  bool check = false;
};

class Calls {
 public:
  // Returns when all ranks are here; throws std::runtime_error where they do not come.
  explicit Calls(const Joining& joining);
  ~Calls();
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  // Throws std::runtime_error where the group has failed, or the call makes no sense.
  void start(const c10::intrusive_ptr<WeftWork>& work, const CallKind& kind, const std::vector<WeftSegment>& input,
             const std::vector<WeftSegment>& output);
  // Leaves the job in order; what is under way fails. Nothing can be started then.
  void leave();

 private:
  struct Idle {
    CallKind kind;
    std::int64_t number = 0;
  };
  struct Running {
    CallKind kind;
    c10::intrusive_ptr<WeftWork> work;
  };

  std::int64_t take(const CallKind& kind);
  void put_back(const Idle& idle);
  void complete_all();
  void complete(std::int64_t number);
  void fail_all(const std::string& words);

  std::int64_t ranks_;
  WeftGroup* group_ = nullptr;
  std::mutex mutex_;                         // guards what follows, and the order of starts
  std::list<Idle> idle_;                     // the last used first
  std::map<std::int64_t, Running> running_;  // by the call's number

  std::mutex news_mutex_;  // guards what follows; the group's threads hold it for a moment only
  std::condition_variable news_;
  std::deque<std::int64_t> ended_;
  std::optional<std::string> failure_;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace weft_c10d
