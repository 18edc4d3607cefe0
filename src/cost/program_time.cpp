#include "cost/program_time.hpp"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

#include "base/error.hpp"
#include "cost/message_networks.hpp"

namespace weft {
namespace {

// A connection from one rank to another. Messages are posted in order at both ends; one starts when both ends have
// posted it and the sender knows that.
struct Connection {
  std::int32_t sender = 0, receiver = 0;
  std::vector<std::int32_t> sends, receives;  // steps
  std::size_t next_send = 0, next_receive = 0, next_asked = 0, next_match = 0;
  std::int64_t slots = slots_for(0), slots_used = 0;
  std::int32_t to_receiver = -1, to_sender = -1;  // connections of the network
};

struct Step {
  std::int32_t pending = 0;  // steps whose data it still waits for
  std::int32_t ahead = 0;    // steps with an earlier turn
  bool landed = false;       // the message lies in a slot, because its destination is in use
  bool in_slot = false;
  std::int32_t connection = -1;
  std::vector<std::int32_t> dependents, followers;
  bool free() const { return pending + ahead == 0; }
};

struct RankState {
  std::vector<Step> steps;
};

enum class EventKind : std::uint8_t { local_end, sent, message_end, asked };
struct Event {
  Nanos time;
  std::int64_t sequence = 0;  // ties in the order of creation
  EventKind kind = EventKind::local_end;
  std::int32_t rank = 0, step = 0;  // of local_end and sent; else the connection and its match
  friend bool operator<(const Event& a, const Event& b) {
    return std::tie(a.time, a.sequence) > std::tie(b.time, b.sequence);  // earliest on top
  }
};

// What is under way, by the network's number.
struct Moving {
  std::int32_t connection = 0;
  std::size_t match = 0;
  bool asks = false;  // a request for the message, on the way back
};

template <class Network>
class ProgramSimulation {
 public:
  ProgramSimulation(const std::vector<LoweredRank>& program, const Cluster& cluster, std::span<const Rank> members,
                    const ProgramTimeOptions& options)
      : program_(program), cluster_(cluster), members_(members), options_(options), network_(cluster, options) {
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
    post_all();
    while (left_ > 0) {
      if (step()) {
        if (!more_happens_now()) post_touched();
        continue;
      }
      WEFT_CHECK(!impatient_);  // proven programs end
      impatient_ = true;
      post_all();
    }
    return now_;
  }

 private:
  const LoweredStep& code(std::int32_t rank, std::int32_t step) const { return program_[rank].steps[step]; }
  Step& state(std::int32_t rank, std::int32_t step) { return ranks_[rank].steps[step]; }

  // Slots are needed as in comm/program_run.hpp.
  bool may_need_slot(const LoweredStep& step) const {
    const bool by_hand = step.kind == InstructionKind::receive_reduce_copy && options_.reduce.bytes_per_second > 0;
    return by_hand || !step.waits.empty() || !step.turn.empty();
  }

  void add(std::size_t rank, std::size_t i,
           std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::int32_t>& known) {
    const LoweredStep& step = program_[rank].steps[i];
    RankState& here = ranks_[rank];
    ++left_;
    here.steps[i].pending = static_cast<std::int32_t>(step.waits.size());
    for (const std::int32_t other : step.waits) here.steps[other].dependents.push_back(static_cast<std::int32_t>(i));
    here.steps[i].ahead = static_cast<std::int32_t>(step.turn.size());
    for (const std::int32_t other : step.turn) here.steps[other].followers.push_back(static_cast<std::int32_t>(i));
    if (step.peer < 0) return;
    const bool sends = step.kind == InstructionKind::send;
    const auto self = static_cast<std::int64_t>(rank);
    const auto [entry, is_new] = known.try_emplace({sends ? self : step.peer, sends ? step.peer : self, step.channel},
                                                   static_cast<std::int32_t>(connections_.size()));
    if (is_new) {
      connections_.emplace_back();
      connections_.back().sender = static_cast<std::int32_t>(sends ? self : step.peer);
      connections_.back().receiver = static_cast<std::int32_t>(sends ? step.peer : self);
      const Rank sender = members_[connections_.back().sender];
      const Rank receiver = members_[connections_.back().receiver];
      connections_.back().to_receiver = network_.open_connection(sender, receiver);
      if (Network::kWaitsForRequest) connections_.back().to_sender = network_.open_connection(receiver, sender);
    }
    Connection& connection = connections_[entry->second];
    (sends ? connection.sends : connection.receives).push_back(static_cast<std::int32_t>(i));
    if (!sends && may_need_slot(step)) connection.slots = std::min(connection.slots, slots_for(step.bytes));
    here.steps[i].connection = entry->second;
  }

  // Processes the next event. Returns false where nothing is left.
  bool step() {
    const std::optional<Nanos> network = network_.next_event();
    if (events_.empty() && !network) return false;
    if (!events_.empty() && (!network || events_.top().time <= *network)) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      if (event.kind == EventKind::message_end) {
        message_ended(event.rank, static_cast<std::size_t>(event.step));
      } else if (event.kind == EventKind::asked) {
        ++connections_[event.rank].next_asked;
        touched_.push_back(event.rank);
      } else {
        complete(event.rank, event.step);
      }
      return true;
    }
    now_ = *network;
    network_.advance(
        now_,
        [&](std::int32_t id, Nanos time) {
          const Moving& moved = moving_[id];
          events_.push({moved.asks ? time : time + options_.per_message, sequence_++,
                        moved.asks ? EventKind::asked : EventKind::message_end, moved.connection,
                        static_cast<std::int32_t>(moved.match)});
        },
        [&](std::int32_t id, Nanos time) {
          const Moving& moved = moving_[id];
          const Connection& connection = connections_[moved.connection];
          events_.push({time, sequence_++, EventKind::sent, connection.sender, connection.sends[moved.match]});
        });
    // If only a latent flow began to move, nothing else changes.
    return true;
  }

  // Events of the same time are processed together: a receive that one of them frees need not land in a slot because of
  // another.
  bool more_happens_now() const {
    if (!events_.empty() && events_.top().time <= now_) return true;
    const std::optional<Nanos> network = network_.next_event();
    return network && *network <= now_;
  }

  // Posts what may be posted at both ends.
  void post(std::int32_t id) {
    Connection& connection = connections_[id];
    while (connection.next_send < connection.sends.size() &&
           state(connection.sender, connection.sends[connection.next_send]).free()) {
      ++connection.next_send;
    }
    while (connection.next_receive < connection.receives.size()) {
      Step& receive = state(connection.receiver, connection.receives[connection.next_receive]);
      if (!receive.free()) {
        if (receive.ahead > 0 && !impatient_) break;
        if (connection.slots_used == connection.slots) break;
        ++connection.slots_used;
        receive.in_slot = true;
      }
      ask(id, connection.next_receive++);
    }
  }

  // Starts the next message of a connection if both ends have posted it. Returns false where they have not.
  bool start_next(std::int32_t id) {
    Connection& connection = connections_[id];
    if (connection.next_match == std::min(connection.next_send, connection.next_asked)) return false;
    const std::size_t match = connection.next_match++;
    const Bytes bytes{code(connection.sender, connection.sends[match]).bytes};
    note({id, match}, network_.start(connection.to_receiver, bytes, now_, time_of_landing(connection, match)));
    return true;
  }

  Nanos time_of_landing(const Connection& connection, std::size_t match) {
    const std::int32_t receive = connection.receives[match];
    const LoweredStep& step = code(connection.receiver, receive);
    if (!Network::kLandsInPortions || state(connection.receiver, receive).in_slot || !reduces(step.kind)) return {};
    return time_of_work(connection.receiver, step);
  }

  void note(const Moving& moving, std::int32_t number) {
    if (moving_.size() <= static_cast<std::size_t>(number)) moving_.resize(number + 1);
    moving_[number] = moving;
  }

  void ask(std::int32_t id, std::size_t match) {
    Connection& connection = connections_[id];
    // Requests keep their order: a small message behind one that must be requested waits with it.
    if (network_.asks_for(code(connection.receiver, connection.receives[match]).bytes) ||
        connection.next_asked < match) {
      note({id, match, true}, network_.ask(connection.to_sender, now_));
    } else {
      ++connection.next_asked;
    }
  }

  void message_ended(std::int32_t id, std::size_t match) {
    Connection& connection = connections_[id];
    const std::int32_t send = connection.sends[match], receive = connection.receives[match];
    if (!Network::kSystemTakesOver) complete(connection.sender, send);
    Step& landed = state(connection.receiver, receive);
    const bool by_hand = options_.reduce.bytes_per_second > 0 &&
                         code(connection.receiver, receive).kind == InstructionKind::receive_reduce_copy;
    if (!landed.in_slot && !by_hand) return complete(connection.receiver, receive);
    landed.landed = true;
    if (landed.free()) work(connection.receiver, receive);
  }

  // Copies or reduces locally.
  void work(std::int32_t rank, std::int32_t step) {
    const Nanos end = network_.work(members_[rank], now_, time_of_work(rank, code(rank, step)));
    events_.push({end, sequence_++, EventKind::local_end, rank, step});
  }

  Nanos time_of_work(std::int32_t rank, const LoweredStep& step) const {
    const MemoryWork kind = reduces(step.kind) ? MemoryWork::reduce : MemoryWork::copy;
    const double by_hand = options_.reduce.bytes_per_second;
    if (kind == MemoryWork::reduce && by_hand > 0) return nanos_from_seconds(static_cast<double>(step.bytes) / by_hand);
    if (options_.tcp) {
      const Bandwidth rate = kind == MemoryWork::reduce ? options_.tcp->reductions : options_.tcp->copies;
      const auto bytes = static_cast<double>(step.bytes);
      return rate.bytes_per_second > 0 ? nanos_from_seconds(bytes / rate.bytes_per_second) : Nanos{0};
    }
    if (!options_.own_work) return {};
    const Device& device = cluster_.device(members_[rank]);
    return memory_time(device, kind, Bytes{step.bytes}, options_.slowdown);
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
      --connections_[ended.connection].slots_used;
      touched_.push_back(ended.connection);
    }
    for (const std::int32_t dependent : ended.dependents) {
      --state(rank, dependent).pending;
      if (state(rank, dependent).free()) released(rank, dependent);
    }
    for (const std::int32_t follower : ended.followers) {
      Step& next = state(rank, follower);
      --next.ahead;
      if (next.free()) {
        released(rank, follower);
      } else if (next.ahead == 0 && next.connection >= 0) {
        touched_.push_back(next.connection);  // its turn has come, so it may land in a slot
      }
    }
  }

  void post_all() {
    for (std::size_t i = 0; i < connections_.size(); ++i) touched_.push_back(static_cast<std::int32_t>(i));
    post_touched();
  }

  // As comm/program_run.hpp does: connections take turns, in the order of their first sends.
  void post_touched() {
    const auto first_send = [&](std::int32_t id) { return connections_[id].sends.front(); };
    std::sort(touched_.begin(), touched_.end(), [&](std::int32_t a, std::int32_t b) {
      return std::pair(first_send(a), a) < std::pair(first_send(b), b);
    });
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const std::int32_t id : touched_) post(id);  // does not change touched_
    while (!touched_.empty()) std::erase_if(touched_, [&](std::int32_t id) { return !start_next(id); });
  }

  const std::vector<LoweredRank>& program_;
  const Cluster& cluster_;
  std::span<const Rank> members_;
  ProgramTimeOptions options_;
  Network network_;
  std::vector<RankState> ranks_;
  std::vector<Connection> connections_;
  std::vector<Moving> moving_;
  std::vector<std::int32_t> touched_;  // connections that may post more
  std::priority_queue<Event> events_;
  std::int64_t sequence_ = 0;
  std::int64_t left_ = 0;
  bool impatient_ = false;  // nothing moved, so messages no longer wait for their turn
  Nanos now_;
};

}  // namespace

Nanos program_time(const std::vector<LoweredRank>& program, const Cluster& cluster, std::span<const Rank> members,
                   const ProgramTimeOptions& options) {
  if (options.tcp) return ProgramSimulation<Packets>(program, cluster, members, options).run();
  return ProgramSimulation<Flows>(program, cluster, members, options).run();
}

}  // namespace weft
