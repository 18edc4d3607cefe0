// Decides how fast compute and transfers run: they change speed when something starts or ends beside them.
#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>

#include "sim/event_engine.hpp"
#include "sim/fair_share.hpp"

namespace weft {

void EventEngine::dispatch_marked(SimQueue queue) {
  for (const std::int32_t rank : marked_) {
    const bool began = dispatch(rank, queue);
    // Before extra's turn, transfers have followed what ended and began already.
    if (began || queue == SimQueue::compute) follow_compute(rank);
  }
}

// Returns whether an operation began.
bool EventEngine::dispatch(std::int32_t rank, SimQueue queue) {
  Worker& w = worker(rank);
  Ready& next = queue == SimQueue::compute ? w.compute : w.extra;
  if (w.running.valid() || !next.valid()) return false;
  w.running = next;
  next = {};
  w.remaining = static_cast<double>(cost_of(current_operation(w.running)).fixed.value);
  w.since = now_;
  if (!node(w.running).is_fold()) {
    iterations_[w.running.iteration].times.start[w.running.node] = Nanos{now_};
  }
  w.speed = compute_speed(rank);
  schedule_worker(rank);
  return true;
}

double EventEngine::compute_speed(std::int32_t rank) const {
  const std::size_t moving = workers_[rank].transfers.size(), beside = moving + workers_[rank].waiting;
  if (beside == 0) return 1.0;
  const SimRank& slowed = p_.ranks[rank];
  double first = moving > 0 ? 0 : slowed.waiting_slowdown;
  for (const std::int32_t slot : workers_[rank].transfers) {
    const double own = transfers_[slot].cost->compute_slowdown;
    first = std::max(first, own < 0 ? slowed.compute_slowdown : own);
  }
  return 1.0 / (1.0 + first + slowed.further_slowdown * static_cast<double>(beside - 1));
}

void EventEngine::follow_transfers(std::int32_t rank) {
  Worker& w = worker(rank);
  if (!w.running.valid()) return;
  const double speed = compute_speed(rank);
  if (speed == w.speed) return;
  w.remaining -= static_cast<double>(now_ - w.since) * w.speed;
  w.since = now_;
  w.speed = speed;
  schedule_worker(rank);
}

void EventEngine::schedule_worker(std::int32_t rank) {
  Worker& w = worker(rank);
  push(time_left(w.remaining, w.speed), rank, ++w.version, Happens::worker_ends);
}

bool EventEngine::slows_while_waiting(std::int32_t rank, std::int32_t operation) const {
  return p_.ranks[rank].waiting_slowdown > 0 && !cost_of(operation).waits_aside;
}

void EventEngine::let_wait(std::int32_t rank) {
  if (worker(rank).fold.closed) open_fold(rank);
  ++worker(rank).waiting;
  follow_transfers(rank);
}

std::int32_t EventEngine::new_transfer(Ready what) {
  std::int32_t slot;
  if (free_slots_.empty()) {
    slot = static_cast<std::int32_t>(transfers_.size());
    transfers_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  Transfer& transfer = transfers_[slot];
  transfer.what = what;
  transfer.live = true;
  transfer.moving = false;
  transfer.fair = transfer.speed = 1;
  transfer.ranks.clear();
  return slot;
}

void EventEngine::start_transfer(Ready what) {
  const std::int32_t index = current_operation(what);
  const FoldedNode& n = node(what);
  const std::int32_t slot = new_transfer(what);
  std::vector<Nanos>& start = iterations_[what.iteration].times.start;
  std::int32_t leader = index;
  if (!n.joint.valid()) {
    transfers_[slot].ranks.push_back(n.rank);
    if (!n.is_fold()) start[what.node] = Nanos{now_};
  } else {
    const auto& members = joint_members_[n.joint];
    leader = first_operation({members.front(), what.iteration});
    for (const std::int32_t member : members) {
      transfers_[slot].ranks.push_back(node({member, what.iteration}).rank);
      start[member] = Nanos{now_};
    }
  }
  transfers_[slot].operation = leader;
  transfers_[slot].cost = &cost_of(leader);
  for (std::size_t i = 0; i < transfers_[slot].ranks.size(); ++i) {
    const std::int32_t rank = transfers_[slot].ranks[i];
    if (worker(rank).fold.closed) open_fold(rank);  // may move transfers_
    worker(rank).transfers.push_back(slot);
    if (n.joint.valid() && slows_while_waiting(rank, leader)) --worker(rank).waiting;
    follow_transfers(rank);
  }
  Transfer& transfer = transfers_[slot];
  if (transfer.cost->fixed.value > 0) {
    push(now_ + transfer.cost->fixed.value, slot, ++transfer.version, Happens::transfer_goes_on);
  } else {
    start_moving(slot);
  }
}

// Takes up the transfer of an opened fold, which started at `started` and was alone so far.
void EventEngine::resume_transfer(std::int32_t rank, std::int64_t started) {
  const Ready what = worker(rank).fold.what;
  const std::int32_t slot = new_transfer(what);
  Transfer& transfer = transfers_[slot];
  transfer.ranks.push_back(rank);
  transfer.operation = current_operation(what);
  transfer.cost = &cost_of(transfer.operation);
  worker(rank).transfers.push_back(slot);
  const std::int64_t moves_at = started + transfer.cost->fixed.value;
  if (now_ < moves_at) {
    push(moves_at, slot, ++transfer.version, Happens::transfer_goes_on);
    return;
  }
  transfer.remaining = static_cast<double>(transfer.cost->moving.value);
  transfer.since = moves_at;
  use_resources(slot);
  push(moves_at + transfer.cost->moving.value, slot, ++transfer.version, Happens::transfer_goes_on);
}

void EventEngine::start_moving(std::int32_t slot) {
  for (const ResourceUse& use : transfers_[slot].cost->use) {
    const std::int32_t rank = closed_on_[use.resource];
    if (rank >= 0) open_fold(rank);  // may move transfers_
  }
  Transfer& transfer = transfers_[slot];
  transfer.remaining = static_cast<double>(transfer.cost->moving.value) - saved_for(*transfer.cost);
  transfer.since = now_;
  use_resources(slot);
  transfer.speed = transfer.fair / interference(transfer);
  schedule_transfer(slot);
}

// Returns by how much a transfer is ahead that begins to move: what every resource on its way has saved up while idle.
double EventEngine::saved_for(const SimCost& cost) {
  if (idle_.empty() || cost.use.empty()) return 0;
  auto saved = static_cast<double>(cost.moving.value);
  for (const ResourceUse& use : cost.use) {
    const std::size_t r = use.resource;
    if (load_[r] == 0) {
      idle_[r].saved_ns = std::min(static_cast<double>(p_.burst[r].value),
                                   idle_[r].saved_ns + static_cast<double>(now_ - idle_[r].since));
      idle_[r].since = now_;
    }
    saved = std::min(saved, idle_[r].saved_ns / use.share);
  }
  for (const ResourceUse& use : cost.use) idle_[use.resource].saved_ns -= saved * use.share;
  return saved;
}

void EventEngine::use_resources(std::int32_t slot) {
  Transfer& transfer = transfers_[slot];
  transfer.moving = true;
  for (const ResourceUse& use : transfer.cost->use) {
    double& load = load_[use.resource];
    load += use.share;
    if (load > 1 + 1e-9) shares_changed_ = true;
  }
  moving_.push_back(slot);
}

void EventEngine::end_transfer(std::int32_t slot) {
  Transfer& transfer = transfers_[slot];
  for (const ResourceUse& use : transfer.cost->use) {
    double& load = load_[use.resource];
    if (load > 1 + 1e-9) shares_changed_ = true;
    load -= use.share;
    if (load < 1e-9) {
      load = 0;
      if (!idle_.empty()) idle_[use.resource].since = now_;
    }
  }
  moving_.erase(std::find(moving_.begin(), moving_.end(), slot));
  transfer.live = false;
  ++transfer.version;
  const Ready what = transfer.what;
  for (const std::int32_t rank : transfer.ranks) {
    std::erase(worker(rank).transfers, slot);
    follow_transfers(rank);
  }
  free_slots_.push_back(slot);
  const JointId joint = node(what).joint;
  if (!joint.valid()) return ended(what);
  for (const std::int32_t member : joint_members_[joint]) ended({member, what.iteration});
}

double EventEngine::interference(const Transfer& transfer) const {
  double factor = 1;
  for (const std::int32_t rank : transfer.ranks) {
    if (workers_[rank].running.valid()) {
      const double own = transfer.cost->transfer_slowdown;
      factor = std::max(factor, 1.0 + (own < 0 ? p_.ranks[rank].transfer_slowdown : own));
    }
  }
  return factor;
}

// Compute began or ended on this rank: its transfers change speed. A transfer that began at this instant, between the
// end of one operation and the start of the next, has seen an idle rank and changes too.
void EventEngine::follow_compute(std::int32_t rank) {
  for (const std::int32_t slot : worker(rank).transfers) {
    if (transfers_[slot].moving) change_speed(slot);
  }
}

void EventEngine::reshare() {
  // The order does not depend on when a fold was opened, so that sums of shares round alike.
  std::sort(moving_.begin(), moving_.end(), [&](std::int32_t a, std::int32_t b) {
    const auto key = [&](std::int32_t slot) {
      const Transfer& transfer = transfers_[slot];
      return std::tuple(transfer.what.iteration, transfer.operation);
    };
    return key(a) < key(b);
  });
  std::vector<std::span<const ResourceUse>> uses;
  for (const std::int32_t slot : moving_) uses.emplace_back(transfers_[slot].cost->use);
  const std::vector<double> speeds = fair_speeds(uses);
  for (std::size_t i = 0; i < moving_.size(); ++i) {
    transfers_[moving_[i]].fair = speeds[i];
    change_speed(moving_[i]);
  }
}

void EventEngine::change_speed(std::int32_t slot) {
  Transfer& transfer = transfers_[slot];
  const double speed = transfer.fair / interference(transfer);
  if (speed == transfer.speed) return;
  transfer.remaining -= static_cast<double>(now_ - transfer.since) * transfer.speed;
  transfer.since = now_;
  transfer.speed = speed;
  schedule_transfer(slot);
}

void EventEngine::schedule_transfer(std::int32_t slot) {
  Transfer& transfer = transfers_[slot];
  push(time_left(transfer.remaining, transfer.speed), slot, ++transfer.version, Happens::transfer_goes_on);
}

// Ends are rounded up to a nanosecond; work left over below a thousandth of one is rounding, not work.
std::int64_t EventEngine::time_left(double remaining, double speed) const {
  return now_ + std::max<std::int64_t>(0, static_cast<std::int64_t>(std::ceil(remaining / speed - 1e-3)));
}

}  // namespace weft
