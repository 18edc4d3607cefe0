#include "cost/program_time.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <tuple>

#include "base/error.hpp"
#include "cluster/flow_network.hpp"

namespace weft {
namespace {

constexpr std::int64_t kSlots = 2;  // of a connection, as in comm/program_run.cpp

// A connection from one rank to another: messages are posted in order at both ends and set out when both have been.
struct Connection {
  std::int32_t sender = 0, receiver = 0;
  std::vector<std::int32_t> sends, receives;  // steps
  std::size_t next_send = 0, next_receive = 0, next_match = 0;
  std::int64_t slots_used = 0;
  std::int32_t lane = -1;
};

struct Step {
  std::int32_t pending = 0;  // data that is not there yet
  std::int32_t ahead = 0;    // whose turn is before
  bool landed = false;       // in a slot, its destination still in use
  bool in_slot = false;
  std::int32_t connection = -1;
  std::vector<std::int32_t> dependents, followers;
  bool free() const { return pending + ahead == 0; }
};

struct RankState {
  std::vector<Step> steps;
  std::vector<std::int32_t> connections;  // that begin or end here
  Nanos worker_free;                      // local copies and reductions follow each other
};

enum class EventKind : std::uint8_t { local_end, message_end };
struct Event {
  Nanos time;
  std::int64_t sequence = 0;  // ties in the order of creation
  EventKind kind = EventKind::local_end;
  std::int32_t rank = 0, step = 0;  // of local_end; of message_end the connection and its match
  friend bool operator<(const Event& a, const Event& b) {
    return std::tie(a.time, a.sequence) > std::tie(b.time, b.sequence);  // earliest on top
  }
};

class ProgramSimulation {
 public:
  ProgramSimulation(const std::vector<LoweredRank>& program, const Cluster& cluster, std::span<const Rank> members,
                    const ProgramTimeOptions& options)
      : program_(program),
        members_(members),
        options_(options),
        network_(cluster, options.slowdown, options.sharing_loss, options.after_pause) {
    WEFT_CHECK(program.size() == members.size());
    std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::int32_t> known;
    ranks_.resize(program.size());
    for (std::size_t rank = 0; rank < program.size(); ++rank) {
      ranks_[rank].steps.resize(program[rank].steps.size());
      for (std::size_t i = 0; i < program[rank].steps.size(); ++i) add(rank, i, known);
    }
  }

  Nanos run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (std::size_t i = 0; i < ranks_[rank].steps.size(); ++i) {
        if (ranks_[rank].steps[i].free()) released(static_cast<std::int32_t>(rank), static_cast<std::int32_t>(i));
      }
    }
    for (std::size_t i = 0; i < connections_.size(); ++i) post(static_cast<std::int32_t>(i));
    while (left_ > 0) {
      if (step()) continue;
      WEFT_CHECK(!impatient_);  // proven programs end
      impatient_ = true;
      for (std::size_t i = 0; i < connections_.size(); ++i) post(static_cast<std::int32_t>(i));
    }
    return now_;
  }

 private:
  struct Moving {
    std::int32_t connection = 0;
    std::size_t match = 0;
  };

  const LoweredStep& code(std::int32_t rank, std::int32_t step) const {
    return program_[static_cast<std::size_t>(rank)].steps[static_cast<std::size_t>(step)];
  }
  Step& state(std::int32_t rank, std::int32_t step) {
    return ranks_[static_cast<std::size_t>(rank)].steps[static_cast<std::size_t>(step)];
  }

  void add(std::size_t rank, std::size_t i,
           std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::int32_t>& known) {
    const LoweredStep& step = program_[rank].steps[i];
    RankState& here = ranks_[rank];
    ++left_;
    here.steps[i].pending = static_cast<std::int32_t>(step.waits.size());
    for (const std::int32_t other : step.waits) {
      here.steps[static_cast<std::size_t>(other)].dependents.push_back(static_cast<std::int32_t>(i));
    }
    here.steps[i].ahead = static_cast<std::int32_t>(step.turn.size());
    for (const std::int32_t other : step.turn) {
      here.steps[static_cast<std::size_t>(other)].followers.push_back(static_cast<std::int32_t>(i));
    }
    if (step.peer < 0) return;
    const bool sends = step.kind == StepKind::send;
    const auto self = static_cast<std::int64_t>(rank);
    const auto [entry, is_new] = known.try_emplace({sends ? self : step.peer, sends ? step.peer : self, step.channel},
                                                   static_cast<std::int32_t>(connections_.size()));
    if (is_new) {
      connections_.emplace_back();
      connections_.back().sender = static_cast<std::int32_t>(sends ? self : step.peer);
      connections_.back().receiver = static_cast<std::int32_t>(sends ? step.peer : self);
      connections_.back().lane = network_.open_lane(members_[static_cast<std::size_t>(connections_.back().sender)],
                                                    members_[static_cast<std::size_t>(connections_.back().receiver)]);
    }
    Connection& connection = connections_[static_cast<std::size_t>(entry->second)];
    (sends ? connection.sends : connection.receives).push_back(static_cast<std::int32_t>(i));
    here.steps[i].connection = entry->second;
  }

  // The next thing that happens. False where nothing is left.
  bool step() {
    const std::optional<Nanos> network = network_.next_event();
    if (events_.empty() && !network) return false;
    if (!events_.empty() && (!network || events_.top().time <= *network)) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      if (event.kind == EventKind::local_end) {
        complete(event.rank, event.step);
      } else {
        message_ended(event.rank, static_cast<std::size_t>(event.step));
      }
      return true;
    }
    now_ = *network;
    network_.advance(now_);
    for (const std::int32_t flow : network_.arrived()) {
      const Moving moving = moving_[static_cast<std::size_t>(flow)];
      events_.push({*network_.ended(flow, now_) + options_.per_message, sequence_++, EventKind::message_end,
                    moving.connection, static_cast<std::int32_t>(moving.match)});
    }
    network_.clear_arrived();
    // A latent flow that began to move left no trace but in the network.
    return true;
  }

  // Posts what may be posted at both ends, then lets matched messages set out.
  void post(std::int32_t id) {
    Connection& connection = connections_[static_cast<std::size_t>(id)];
    while (connection.next_send < connection.sends.size() &&
           state(connection.sender, connection.sends[connection.next_send]).free()) {
      ++connection.next_send;
    }
    while (connection.next_receive < connection.receives.size()) {
      Step& receive = state(connection.receiver, connection.receives[connection.next_receive]);
      if (!receive.free()) {
        if (receive.ahead > 0 && !impatient_) break;
        if (connection.slots_used == kSlots) break;
        ++connection.slots_used;
        receive.in_slot = true;
      }
      ++connection.next_receive;
    }
    while (connection.next_match < std::min(connection.next_send, connection.next_receive)) {
      const std::int32_t send = connection.sends[connection.next_match];
      // A message that was not asked for at once is asked for now.
      const bool asked =
          options_.asks && !code(connection.receiver, connection.receives[connection.next_match]).turn.empty();
      const Nanos asking = asked ? network_.latency(connection.lane) : Nanos{0};
      const std::int32_t flow =
          network_.start(connection.lane, Bytes{code(connection.sender, send).bytes}, now_, Nanos{0} - asking);
      if (moving_.size() <= static_cast<std::size_t>(flow)) moving_.resize(static_cast<std::size_t>(flow) + 1);
      moving_[static_cast<std::size_t>(flow)] = {id, connection.next_match++};
    }
  }

  void message_ended(std::int32_t id, std::size_t match) {
    Connection& connection = connections_[static_cast<std::size_t>(id)];
    const std::int32_t send = connection.sends[match], receive = connection.receives[match];
    complete(connection.sender, send);
    Step& landed = state(connection.receiver, receive);
    const bool by_hand = options_.reduce.bytes_per_second > 0 &&
                         code(connection.receiver, receive).kind == StepKind::receive_reduce_copy;
    if (!landed.in_slot && !by_hand) return complete(connection.receiver, receive);
    landed.landed = true;
    if (landed.free()) work(connection.receiver, receive);
  }

  // Copies or reduces locally.
  void work(std::int32_t rank, std::int32_t step) {
    RankState& here = ranks_[static_cast<std::size_t>(rank)];
    const bool by_hand = reduces(code(rank, step).kind) && options_.reduce.bytes_per_second > 0;
    const double rate = (by_hand ? options_.reduce : options_.copy).bytes_per_second;
    Nanos time;
    if (rate > 0) time = nanos_from_seconds(static_cast<double>(code(rank, step).bytes) / rate);
    here.worker_free = std::max(now_, here.worker_free) + time;
    events_.push({here.worker_free, sequence_++, EventKind::local_end, rank, step});
  }

  // Nothing holds the step back any more.
  void released(std::int32_t rank, std::int32_t step) {
    const Step& here = state(rank, step);
    if (here.connection < 0 || here.landed) return work(rank, step);
    touched_.push_back(here.connection);
  }

  void complete(std::int32_t rank, std::int32_t step) {
    --left_;
    Step& ended = state(rank, step);
    if (ended.in_slot) {
      --connections_[static_cast<std::size_t>(ended.connection)].slots_used;
      touched_.push_back(ended.connection);
    }
    for (const std::int32_t dependent : ended.dependents) {
      --state(rank, dependent).pending;
      if (state(rank, dependent).free()) released(rank, dependent);
    }
    for (const std::int32_t follower : ended.followers) {
      --state(rank, follower).ahead;
      if (state(rank, follower).free()) released(rank, follower);
    }
    while (!touched_.empty()) {
      const std::int32_t id = touched_.back();
      touched_.pop_back();
      post(id);
    }
  }

  const std::vector<LoweredRank>& program_;
  std::span<const Rank> members_;
  ProgramTimeOptions options_;
  FlowNetwork network_;
  std::vector<RankState> ranks_;
  std::vector<Connection> connections_;
  std::vector<Moving> moving_;         // by flow
  std::vector<std::int32_t> touched_;  // connections that may post more
  std::priority_queue<Event> events_;
  std::int64_t sequence_ = 0;
  std::int64_t left_ = 0;
  bool impatient_ = false;  // nothing moved while messages waited for their turn
  Nanos now_;
};

}  // namespace

Nanos program_time(const std::vector<LoweredRank>& program, const Cluster& cluster, std::span<const Rank> members,
                   const ProgramTimeOptions& options) {
  return ProgramSimulation(program, cluster, members, options).run();
}

}  // namespace weft
