#include "plan/pipeline/verify_actions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace weft {
namespace {

using Places = std::map<PipelineAction, std::vector<std::size_t>>;  // positions in the list of a rank

class ActionVerifier {
 public:
  explicit ActionVerifier(const PipelineActions& actions) : actions_(actions), ranks_(stage_ranks(actions)) {
    for (std::size_t rank = 0; rank < actions.size(); ++rank) {
      for (std::size_t i = 0; i < actions[rank].size(); ++i) {
        const PipelineAction& action = actions[rank][i];
        places_[action].push_back(i);
        on_rank_[action].insert(rank);
        micro_batches_ = std::max(micro_batches_, action.micro_batch + 1);
        trains_ |= is_compute(action.kind) && action.kind != ActionKind::forward;
      }
    }
  }

  std::optional<Violation> verify() {
    if (auto fault = find_lost_pass()) return fault;
    if (auto fault = find_early_pass()) return fault;
    if (auto fault = find_unsharded_pass()) return fault;
    if (auto fault = find_early_reduction()) return fault;
    if (!has_messages(actions_)) {
      if (with_messages(actions_)) return std::nullopt;
      return Violation{Rule::deadlock, "the passes of the ranks wait for each other in a circle"};
    }
    if (auto fault = find_stray_message()) return fault;
    return find_deadlock();
  }

 private:
  template <class... Args>
  static Violation violation(Rule rule, fmt::format_string<Args...> format, Args&&... args) {
    return {rule, fmt::format(format, std::forward<Args>(args)...)};
  }

  std::size_t times(const PipelineAction& action) const {
    const auto found = places_.find(action);
    return found == places_.end() ? 0 : found->second.size();
  }
  // Of an action that is there once.
  std::size_t place(const PipelineAction& action) const { return places_.at(action).front(); }

  std::optional<Violation> find_lost_pass() const {
    for (const auto& [action, ranks] : on_rank_) {
      const std::int64_t home = ranks_.rank_of[static_cast<std::size_t>(action.stage)];
      if (home < 0) return violation(Rule::provenance, "stage {} computes nothing on any rank", action.stage);
      const std::size_t last = *ranks.rbegin(), first = *ranks.begin();
      const std::size_t other = static_cast<std::int64_t>(first) == home ? last : first;
      if (static_cast<std::int64_t>(other) != home) {
        return violation(Rule::provenance, "stage {} is on ranks {} and {} ({})", action.stage, home, other,
                         name_of(action));
      }
    }
    for (std::int64_t stage = 0; stage < ranks_.stages(); ++stage) {
      if (ranks_.rank_of[static_cast<std::size_t>(stage)] < 0) {
        return violation(Rule::provenance, "there is no stage {}, and there is a stage {}", stage, ranks_.stages() - 1);
      }
      for (std::int64_t micro_batch = 0; micro_batch < micro_batches_; ++micro_batch) {
        if (auto fault = find_lost_pass(stage, micro_batch)) return fault;
      }
    }
    return std::nullopt;
  }

  std::optional<Violation> find_lost_pass(std::int64_t stage, std::int64_t micro_batch) const {
    const auto count = [&](ActionKind kind) { return times({kind, stage, micro_batch}); };
    const std::size_t forward = count(ActionKind::forward), whole = count(ActionKind::backward);
    const std::size_t inputs = count(ActionKind::input_grad), weights = count(ActionKind::weight_grad);
    if (forward != 1) {
      return violation(Rule::provenance, "{} is there {} times", name_of({ActionKind::forward, stage, micro_batch}),
                       forward);
    }
    const bool once = (whole == 1 && inputs == 0 && weights == 0) || (whole == 0 && inputs == 1 && weights == 1);
    if (!trains_ || once) return std::nullopt;
    return violation(
        Rule::provenance,
        "the backward of micro-batch {} on stage {} is there {} times whole (B), {} times for its input (I) "
        "and {} times for its weights (W)",
        micro_batch, stage, whole, inputs, weights);
  }

  // Both are on one rank; nothing where either is absent.
  std::optional<Violation> find_order_fault(const PipelineAction& first, const PipelineAction& second) const {
    if (times(first) == 0 || times(second) == 0 || place(first) < place(second)) return std::nullopt;
    return violation(Rule::hazard, "rank {}: {} comes before {}, which it needs", *on_rank_.at(second).begin(),
                     name_of(second), name_of(first));
  }

  std::optional<Violation> find_early_pass() const {
    for (const auto& [action, where] : places_) {
      if (!is_compute(action.kind)) continue;
      const PipelineAction forward{ActionKind::forward, action.stage, action.micro_batch};
      const PipelineAction inputs{ActionKind::input_grad, action.stage, action.micro_batch};
      if (action.kind != ActionKind::forward) {
        if (auto fault = find_order_fault(forward, action)) return fault;
      }
      if (action.kind == ActionKind::weight_grad) {
        if (auto fault = find_order_fault(inputs, action)) return fault;
      }
      if (auto fault = find_order_fault(received_by(action), action); fault && ranks_.receives(action)) return fault;
      if (auto fault = find_order_fault(action, sent_by(action)); fault && ranks_.sends(action)) return fault;
    }
    return std::nullopt;
  }

  // Only of stages that say when their parameters are gathered.
  std::optional<Violation> find_unsharded_pass() const {
    for (std::size_t rank = 0; rank < actions_.size(); ++rank) {
      std::map<std::int64_t, bool> gathered;
      for (const PipelineAction& action : actions_[rank]) {
        if (action.kind == ActionKind::unshard) gathered[action.stage] = true;
        const bool says = places_.contains({ActionKind::unshard, action.stage, -1});
        if (is_compute(action.kind) && says && !gathered[action.stage]) {
          return violation(Rule::hazard, "rank {}: {} runs while the parameters of stage {} are not gathered", rank,
                           name_of(action), action.stage);
        }
        if (action.kind == ActionKind::reshard) gathered[action.stage] = false;
      }
    }
    return std::nullopt;
  }

  std::optional<Violation> find_early_reduction() const {
    for (const auto& [action, where] : places_) {
      const PipelineAction reduction{ActionKind::reduce_grad, action.stage, -1};
      if (!ends_backward(action.kind) || times(reduction) == 0) continue;
      if (times(reduction) > 1) {
        return violation(Rule::provenance, "{} is there {} times", name_of(reduction), times(reduction));
      }
      if (auto fault = find_order_fault(action, reduction)) return fault;
    }
    return std::nullopt;
  }

  std::optional<Violation> find_stray_message() const {
    std::set<PipelineAction> needed;
    for (const auto& [action, where] : places_) {
      if (is_compute(action.kind) && ranks_.receives(action)) needed.insert(received_by(action));
      if (is_compute(action.kind) && ranks_.sends(action)) needed.insert(sent_by(action));
    }
    for (const PipelineAction& message : needed) {
      if (times(message) == 1) continue;
      return violation(Rule::collective_order, "{} is there {} times, and is needed once", name_of(message),
                       times(message));
    }
    for (const auto& [action, where] : places_) {
      if (is_message(action.kind) && !needed.contains(action)) {
        return violation(Rule::collective_order, "{} has no other end, or both ends are on one rank", name_of(action));
      }
    }
    return std::nullopt;
  }

  // The next compute action and the next message of every rank, which wait for what their own rank has done.
  struct Queue {
    std::vector<PipelineAction> actions;
    std::size_t next = 0;
    const PipelineAction* head() const { return next < actions.size() ? &actions[next] : nullptr; }
  };

  // How the messages of a rank follow each other: all of them, or those of each communicator, of which there is one for
  // each pair of ranks and direction. Communicators that are apart have to run on a device at the same time.
  enum class Communicators : std::uint8_t { one, apart };
  struct MessageQueueName {
    std::int64_t rank = 0, peer = -1;
    bool of_gradients = false;
    friend auto operator<=>(const MessageQueueName&, const MessageQueueName&) = default;
  };
  using MessageQueues = std::map<MessageQueueName, Queue>;

  std::int64_t rank_of(const PipelineAction& action) const {
    return ranks_.rank_of[static_cast<std::size_t>(action.stage)];
  }

  MessageQueueName queue_of(const PipelineAction& message, Communicators communicators) const {
    if (communicators == Communicators::one) return {rank_of(message)};
    const bool of_gradients = message.kind == ActionKind::send_backward || message.kind == ActionKind::receive_backward;
    return {rank_of(message), rank_of(counterpart(message)), of_gradients};
  }

  std::optional<Violation> find_deadlock() const {
    auto fault = find_deadlock(Communicators::one);
    if (fault && !find_deadlock(Communicators::apart)) {
      fault->message +=
          "; with a communicator for each pair of ranks and direction it would end only where all of them run on a "
          "device "
          "at the same time, which NCCL does not promise";
    }
    return fault;
  }

  std::optional<Violation> find_deadlock(Communicators communicators) const {
    std::vector<Queue> passes(actions_.size());
    MessageQueues messages;
    for (std::size_t rank = 0; rank < actions_.size(); ++rank) {
      for (const PipelineAction& action : actions_[rank]) {
        if (is_compute(action.kind)) passes[rank].actions.push_back(action);
        if (is_message(action.kind)) messages[queue_of(action, communicators)].actions.push_back(action);
      }
    }
    std::set<PipelineAction> done;
    while (run_passes(passes, done) | run_messages(messages, done, communicators)) {
    }
    for (const auto& [name, queue] : messages) {
      if (queue.head() != nullptr) return describe_deadlock(*queue.head(), messages, passes, communicators);
    }
    for (std::size_t rank = 0; rank < actions_.size(); ++rank) {
      if (passes[rank].head() == nullptr) continue;
      return violation(Rule::deadlock, "rank {} waits at {} for ever", rank, name_of(*passes[rank].head()));
    }
    return std::nullopt;
  }

  bool run_passes(std::vector<Queue>& passes, std::set<PipelineAction>& done) const {
    bool moved = false;
    for (Queue& queue : passes) {
      while (queue.head() != nullptr && ranks_.can_run(*queue.head(), done)) {
        done.insert(queue.actions[queue.next++]);
        moved = true;
      }
    }
    return moved;
  }

  // A message starts when both ends have reached it and the pass before it is done.
  bool run_messages(MessageQueues& messages, std::set<PipelineAction>& done, Communicators communicators) const {
    bool moved = false;
    for (auto& [name, queue] : messages) {
      const PipelineAction* const sent = queue.head();
      if (sent == nullptr || !is_sent(*sent, done)) continue;
      const PipelineAction received = counterpart(*sent);
      Queue& other = messages[queue_of(received, communicators)];
      if (other.head() == nullptr || *other.head() != received) continue;
      ++queue.next;
      ++other.next;
      done.insert(received);
      moved = true;
    }
    return moved;
  }

  static bool is_sent(const PipelineAction& message, const std::set<PipelineAction>& done) {
    const auto has = [&](ActionKind kind) { return done.contains({kind, message.stage, message.micro_batch}); };
    if (message.kind == ActionKind::send_forward) return has(ActionKind::forward);
    return message.kind == ActionKind::send_backward && (has(ActionKind::backward) || has(ActionKind::input_grad));
  }

  Violation describe_deadlock(const PipelineAction& message, const MessageQueues& messages,
                              const std::vector<Queue>& passes, Communicators communicators) const {
    const PipelineAction other = counterpart(message);
    const std::int64_t rank = rank_of(message), peer = rank_of(other);
    const PipelineAction* const there = messages.at(queue_of(other, communicators)).head();
    if (there != nullptr && *there != other) {
      return violation(Rule::deadlock,
                       "rank {} is at {} while rank {} is at {}: messages of two ranks are in different orders", rank,
                       name_of(message), peer, name_of(*there));
    }
    const PipelineAction* const pass = passes[static_cast<std::size_t>(peer)].head();
    return violation(Rule::deadlock, "rank {} is at {} and waits for rank {}, which waits at {}", rank,
                     name_of(message), peer, pass == nullptr ? "the end" : name_of(*pass));
  }

  const PipelineActions& actions_;
  StageRanks ranks_;
  Places places_;
  std::map<PipelineAction, std::set<std::size_t>> on_rank_;
  std::int64_t micro_batches_ = 0;
  bool trains_ = false;
};

}  // namespace

bool has_messages(const PipelineActions& actions) {
  return std::any_of(actions.begin(), actions.end(), [](const std::vector<PipelineAction>& rank) {
    return std::any_of(rank.begin(), rank.end(), [](const PipelineAction& action) { return is_message(action.kind); });
  });
}

std::optional<Violation> verify_actions(const PipelineActions& actions) {
  return ActionVerifier(actions).verify();
}

}  // namespace weft
