// The emulated network of ranks that are threads: messages take as long as the links of a cluster need for them
// (cluster/flow_network.hpp).
//
// The network has a clock of its own that follows the real one from event to event: the end of a message, the end of a
// rank's own work, a call of a rank. At each event it runs the affected ranks on one thread, as the network cards of a
// cluster forward messages without the processor: what a rank sends next starts when its predecessor was due, however
// late threads wake up. Nothing is reported done before the real clock has reached that time and the bytes have really
// been moved. Where the machine cannot keep up, the network's clock waits for it.
//
// One lock, the baton, guards everything but the bytes. Large copies are made by the ranks' communication threads, in
// parallel with each other and with the network.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "cluster/flow_network.hpp"
#include "comm/local/copy_jobs.hpp"
#include "comm/local/fifo.hpp"
#include "comm/local/shared_failure.hpp"
#include "comm/local/signal.hpp"
#include "comm/transport.hpp"

namespace weft {

class PacedNetwork {
 public:
  using Clock = Transport::Clock;
  using Baton = std::unique_lock<std::recursive_mutex>;

  PacedNetwork(const Cluster& cluster, double slowdown, std::int64_t ranks);
  ~PacedNetwork();
  PacedNetwork(const PacedNetwork&) = delete;
  PacedNetwork& operator=(const PacedNetwork&) = delete;

  std::unique_ptr<Transport> transport(std::int64_t rank);

 private:
  class RankTransport;
  // One end of a message, or a rank's work on its own memory.
  struct Post {
    std::int64_t rank = 0;
    std::span<const Segment> src;
    Landing landing;
    std::int64_t bytes = 0;
    bool done = false;
  };
  // Posts by number, in their order at either end.
  struct Connection {
    Fifo<std::int64_t> sent, expected;
    std::int32_t network_id = -1;
  };
  struct Moving {
    std::int64_t send = 0, receive = 0;
    CopyJobs::Job job;
  };
  struct Work {
    std::int64_t post = 0;
    Nanos end{};
    CopyJobs::Job job;
  };
  struct RankState {
    Signal signal;
    std::function<void()> round;
    std::atomic<std::int64_t> called{kNotCalled};  // since when it wants its round
    std::int64_t posts = 0;                        // that it has not been told are done
    std::int64_t under_way = 0;                    // messages that both ends have posted
    Nanos worked_until{};                          // its own work is done piece after piece
    bool touched = false;
  };
  static constexpr std::int64_t kNotCalled = -1;

  Nanos now() const { return {std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - origin_).count()}; }
  Clock::time_point at(Nanos time) const { return origin_ + std::chrono::nanoseconds(time.value); }
  RankState& state(std::int64_t rank) { return *ranks_[rank]; }
  Post& post(std::int64_t number) { return posts_[number]; }

  // Holds the baton. For calls from outside it advances the network's clock to now; while the network runs a rank, the
  // clock stays.
  Baton enter();
  void exclusively(const std::function<void()>& work);
  std::int64_t new_post(std::int64_t rank);
  void match(std::int64_t sender, std::int64_t receiver, Connection& connection);
  void begin_work(std::int64_t post);
  Nanos time_of_work(const Post& post) const;
  bool help();
  void catch_up(Nanos until);
  std::int64_t first_called() const;
  std::optional<Nanos> next_event() const;
  void end_works();
  void end_messages();
  void touch(std::int64_t rank);
  void run_touched();
  void tell_thread();
  void main();
  void give_up(std::int64_t rank, const std::string& why);

  Clock::time_point origin_ = Clock::now();
  std::recursive_mutex baton_;   // guards what follows, up to the jobs
  std::vector<Device> devices_;  // by rank
  double slowdown_ = 1;
  FlowNetwork network_;
  Nanos clock_{};
  bool running_ = false;  // ranks: what they do meanwhile happens at the network's clock
  std::vector<std::unique_ptr<RankState>> ranks_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, Connection> connections_;
  std::deque<Post> posts_;  // by ticket
  std::vector<std::int64_t> unused_posts_;
  std::deque<Moving> moving_;  // by flow
  std::deque<Work> works_;
  std::vector<std::int64_t> unused_works_;
  std::vector<std::int64_t> works_under_way_;
  std::vector<std::int64_t> touched_;
  Nanos thread_sleeps_until_{};
  bool stopping_ = false;

  CopyJobs jobs_;
  SharedFailure failure_;
  Signal signal_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace weft
