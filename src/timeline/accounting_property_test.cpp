// The accounting of random timelines against the definition, asked nanosecond by nanosecond: slow, but with no sweep,
// no index and no cache to get wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <random>

#include "timeline/accounting.hpp"
#include "timeline/explain.hpp"

namespace weft {
namespace {

class InstantOracle {
 public:
  explicit InstantOracle(const Timeline& timeline) : t_(timeline) {}

  // Nanoseconds; also by exposed operation.
  RankAccount of_rank(int rank, std::map<std::int32_t, double>& exposed_of) const {
    const auto begin = t_.steady_begin.value;
    const auto end = begin + std::llround(t_.period_ns * t_.periods);
    RankAccount sum;
    double computing = 0, stretched = 0;
    for (auto now = begin; now < end; ++now) {
      if (own_transfer(rank, now)) sum.comm_s += 1;
      double stretched_now = 0;
      if (computes(rank, now, stretched_now)) {
        computing += 1;
        stretched += stretched_now;
      } else {
        classify(rank, now, sum, exposed_of);
      }
    }
    sum.step_s = static_cast<double>(end - begin);
    sum.slowdown_s = std::min(stretched, computing);
    sum.compute_s = computing - sum.slowdown_s;
    return sum;
  }

 private:
  const TimelineOperation& operation(const Span& s) const { return t_.operations[s.operation]; }
  static bool runs(const Span& s, std::int64_t now) { return s.start.value <= now && now < s.end.value; }

  bool computes(int rank, std::int64_t now, double& stretched) const {
    bool any = false;
    for (const Span& s : t_.spans) {
      if (operation(s).activity != Activity::compute || operation(s).rank != rank || !runs(s, now)) continue;
      any = true;
      const auto length = static_cast<double>(s.end.value - s.start.value);
      stretched += std::max(0.0, 1 - static_cast<double>(operation(s).alone.value) / length);
    }
    return any;
  }

  void classify(int rank, std::int64_t now, RankAccount& sum, std::map<std::int32_t, double>& exposed_of) const {
    const auto expose = [&](const Span& transfer) {
      sum.exposed_s += 1;
      sum.exposed_by[operation(transfer).traffic] += 1;
      exposed_of[transfer.operation] += 1;
    };
    const Span* next = next_compute(rank, now);
    if (t_.dependency_begin.empty() || next == nullptr) {
      const Span* own = own_transfer(rank, now);
      if (own)
        expose(*own);
      else
        sum.idle_s += 1;
      return;
    }
    const Span* at = next;
    do at = last_unfinished_predecessor(*at, now);
    while (at && at->start.value > now);
    if (!at) {
      sum.idle_s += 1;
    } else if (const Span* transfer = charged_to(*at, rank, now)) {
      expose(*transfer);
    } else {
      sum.bubble_s += 1;
    }
  }

  const Span* next_compute(int rank, std::int64_t now) const {
    const Span* best = nullptr;
    for (const Span& s : t_.spans) {
      if (operation(s).activity != Activity::compute || operation(s).rank != rank || s.start.value <= now) continue;
      if (!best || s.start < best->start || (s.start == best->start && s.operation < best->operation) ||
          (s.start == best->start && s.operation == best->operation && s.iteration < best->iteration)) {
        best = &s;
      }
    }
    return best;
  }

  const Span* own_transfer(int rank, std::int64_t now) const {
    const Span* best = nullptr;
    for (const Span& s : t_.spans) {
      if (operation(s).activity != Activity::transfer || operation(s).rank != rank || !runs(s, now)) continue;
      if (!best || s.end > best->end || (s.end == best->end && s.operation < best->operation)) best = &s;
    }
    return best;
  }

  bool same_transfer(std::size_t a, std::size_t b) const {
    return a == b || (t_.operations[a].transfer >= 0 && t_.operations[a].transfer == t_.operations[b].transfer);
  }

  const Span* last_unfinished_predecessor(const Span& of, std::int64_t now) const {
    const Span* best = nullptr;
    for (std::size_t member = 0; member < t_.operations.size(); ++member) {
      if (!same_transfer(member, static_cast<std::size_t>(of.operation))) continue;
      for (auto d = t_.dependency_begin[member]; d < t_.dependency_begin[member + 1]; ++d) {
        const Dependency& dependency = t_.dependencies[d];
        for (const Span& s : t_.spans) {
          const bool waited_for = s.operation == dependency.operation &&
                                  s.iteration == of.iteration - dependency.distance && s.end.value > now;
          if (!waited_for) continue;
          if (!best || s.end > best->end || (s.end == best->end && s.operation < best->operation) ||
              (s.end == best->end && s.operation == best->operation && s.iteration > best->iteration)) {
            best = &s;
          }
        }
      }
    }
    return best;
  }

  // The transfer of `rank` that the instant is charged to; none: a bubble.
  const Span* charged_to(const Span& s, int rank, std::int64_t now) const {
    if (operation(s).activity == Activity::compute) return nullptr;
    if (operation(s).rank == rank) return &s;
    for (std::size_t member = 0; member < t_.operations.size(); ++member) {
      const bool own = t_.operations[member].rank == rank;
      // Only a peer's end of it is known to run: exposed as long as a transfer of this rank does.
      if (own && same_transfer(member, static_cast<std::size_t>(s.operation))) return own_transfer(rank, now);
    }
    return nullptr;
  }

  const Timeline& t_;
};

// Operations in dependency order; some are transfers of two or three ranks, at consecutive places. Every iteration
// they run when what they wait for is done, after a random delay; `skew` moves spans as differing clocks would.
class RandomTimeline {
 public:
  explicit RandomTimeline(unsigned seed) : random_(seed) {}

  Timeline make() {
    const auto ranks = below(3) + 1;
    for (std::int64_t r = 0; r < ranks; ++r) {
      t_.ranks.push_back({"r", Rank{static_cast<std::int32_t>(r)}, below(4) + 1, {"compute", "comm", "extra"}});
    }
    const std::size_t wanted = below(14) + 1;
    while (t_.operations.size() < wanted) below(3) == 0 ? add_shared_transfer() : add_operation(-1, group_begin());
    connect();
    run(below(4) + 1, below(4) == 0);
    drop_and_shuffle();
    if (below(6) == 0) {
      t_.dependency_begin.clear();
      t_.dependencies.clear();
    }
    t_.steady_begin = Nanos{below(40) - 10};
    t_.periods = static_cast<std::int32_t>(below(3) + 1);
    t_.period_ns = static_cast<double>(below(60) + 1) + 0.25 * static_cast<double>(below(4));
    return t_;
  }

 private:
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint32_t>(n)); }
  std::int32_t group_begin() const { return static_cast<std::int32_t>(t_.operations.size()); }

  void add_operation(std::int32_t transfer, std::int32_t first_of_group) {
    TimelineOperation operation;
    operation.rank = static_cast<std::int32_t>(below(static_cast<std::int64_t>(t_.ranks.size())));
    operation.activity = transfer >= 0 || below(3) == 0 ? Activity::transfer : Activity::compute;
    operation.queue = {operation.activity == Activity::transfer ? 1 : (below(4) == 0 ? 2 : 0)};
    operation.traffic = static_cast<TrafficKind>(below(kTrafficKinds));
    operation.alone = Nanos{below(8)};
    operation.transfer = transfer;
    t_.operations.push_back(operation);
    group_first_.push_back(first_of_group);
  }
  void add_shared_transfer() {
    const auto first = group_begin();
    const auto members = below(2) + 2;
    for (std::int64_t i = 0; i < members; ++i) add_operation(first, first);
  }
  void connect() {
    const auto count = static_cast<std::int64_t>(t_.operations.size());
    t_.dependency_begin.push_back(0);
    for (const std::int32_t first : group_first_) {
      for (auto i = below(4); i > 0 && first > 0; --i) {
        t_.dependencies.push_back({static_cast<std::int32_t>(below(first)), 0});
      }
      for (auto i = below(3); i > 1; --i) t_.dependencies.push_back({static_cast<std::int32_t>(below(count)), 1});
      t_.dependency_begin.push_back(static_cast<std::int32_t>(t_.dependencies.size()));
    }
  }
  void run(std::int64_t iterations, bool skew) {
    const std::size_t count = t_.operations.size();
    for (std::int64_t iteration = 0; iteration < iterations; ++iteration) {
      for (std::size_t first = 0; first < count;) {
        std::size_t last = first;
        while (last < count && group_first_[last] == static_cast<std::int32_t>(first)) ++last;
        std::int64_t start = below(30) * iteration;
        for (auto d = t_.dependency_begin[first]; d < t_.dependency_begin[last]; ++d) {
          const Dependency& dependency = t_.dependencies[d];
          const std::int64_t from = iteration - dependency.distance;
          if (from < 0) continue;
          const auto span = static_cast<std::size_t>(from) * count + static_cast<std::size_t>(dependency.operation);
          start = std::max(start, t_.spans[span].end.value);
        }
        start += below(3) == 0 ? below(6) : 0;
        if (skew) start -= below(5);
        const std::int64_t end = start + (below(5) == 0 ? 0 : below(12));
        for (; first < last; ++first) {
          t_.spans.push_back({static_cast<std::int32_t>(first),
                              static_cast<std::int32_t>(iteration),
                              {start},
                              {start},
                              {start},
                              {end}});
        }
      }
    }
  }
  void drop_and_shuffle() {
    if (below(2) == 0) std::erase_if(t_.spans, [&](const Span&) { return below(8) == 0; });
    if (below(2) == 0) std::shuffle(t_.spans.begin(), t_.spans.end(), random_);
  }

  std::mt19937 random_;
  Timeline t_;
  std::vector<std::int32_t> group_first_;
};

void expect_same(const RankAccount& account, const RankAccount& oracle, double periods) {
  const auto same = [&](double per_step, double nanos, const char* term) {
    EXPECT_NEAR(per_step * 1e9 * periods, nanos, 1e-6) << term;
  };
  same(account.step_s, oracle.step_s, "step");
  same(account.compute_s, oracle.compute_s, "compute");
  same(account.slowdown_s, oracle.slowdown_s, "slowdown");
  same(account.exposed_s, oracle.exposed_s, "exposed");
  for (std::size_t k = 0; k < kTrafficKinds; ++k) same(account.exposed_by[k], oracle.exposed_by[k], "exposed by kind");
  same(account.bubble_s, oracle.bubble_s, "bubble");
  same(account.idle_s, oracle.idle_s, "idle");
  same(account.comm_s, oracle.comm_s, "comm");
  const double sum = account.compute_s + account.slowdown_s + account.exposed_s + account.bubble_s + account.idle_s;
  EXPECT_NEAR(account.step_s, sum, 1e-15);
}

// The stretches are the exposed time: within the window, ascending, disjoint, and merged where they can be.
void expect_stretches(const Timeline& timeline, const Accounting& accounting) {
  std::vector<double> sums(timeline.ranks.size(), 0);
  for (std::size_t i = 0; i < accounting.exposed.size(); ++i) {
    const ExposedStretch& s = accounting.exposed[i];
    ASSERT_LT(s.begin, s.end);
    EXPECT_GE(s.begin, timeline.steady_begin);
    sums[s.rank] += seconds(s.end - s.begin) / timeline.periods;
    if (i == 0 || accounting.exposed[i - 1].rank != s.rank) continue;
    EXPECT_LE(accounting.exposed[i - 1].end, s.begin);
    EXPECT_FALSE(accounting.exposed[i - 1].end == s.begin && accounting.exposed[i - 1].kind == s.kind);
  }
  for (std::size_t r = 0; r < sums.size(); ++r) EXPECT_NEAR(sums[r], accounting.ranks[r].exposed_s, 1e-15);
}

// Each operation a kind of its own.
ExplainedOperations each_operation(const Timeline& timeline) {
  ExplainedOperations operations;
  operations.kind.resize(timeline.operations.size());
  std::iota(operations.kind.begin(), operations.kind.end(), 0);
  operations.fixed.resize(timeline.operations.size());
  return operations;
}

// What the explanation says of a rank: all that is exposed, operation by operation, as the definition has it, and all
// that is not exposed as hidden.
void expect_explained(const std::vector<ExplainedTransfer>& transfers, const RankAccount& account,
                      const std::map<std::int32_t, double>& exposed_of, double periods) {
  double communicating = 0;
  std::size_t exposed = 0;
  for (const ExplainedTransfer& t : transfers) {
    const auto found = exposed_of.find(t.kind);
    EXPECT_NEAR(t.exposed_s * 1e9 * periods, found == exposed_of.end() ? 0 : found->second, 1e-6);
    exposed += t.exposed_s > 0 ? 1 : 0;
    double reasons = 0, hidden = 0;
    for (const Exposure& e : t.exposures) reasons += e.seconds;
    for (const HiddenBehind& h : t.hidden_behind) hidden += h.seconds;
    EXPECT_NEAR(reasons, t.exposed_s, 1e-15);
    EXPECT_NEAR(hidden, t.hidden_s, 1e-15);
    EXPECT_NEAR(t.busy_s, t.hidden_s + t.exposed_s + t.beside_s, 1e-15);
    EXPECT_GE(t.beside_s, 0);
    communicating += t.hidden_s + t.exposed_s;
  }
  EXPECT_EQ(exposed, exposed_of.size());
  EXPECT_NEAR(communicating, account.comm_s, 1e-15);
}

TEST(AccountingProperty, EveryTermEqualsTheDefinitionAskedAtEachNanosecond) {
  double exposed = 0, bubble = 0, slowdown = 0, idle = 0;
  for (unsigned seed = 0; seed < 1500; ++seed) {
    const Timeline timeline = RandomTimeline(seed).make();
    const Accounting accounting = account(timeline);
    const InstantOracle oracle(timeline);
    std::vector<std::vector<ExplainedTransfer>> explained;
    if (!timeline.dependency_begin.empty()) {
      SpanIndex index(timeline);
      explained = explain(timeline, index, each_operation(timeline));
    }
    for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
      std::map<std::int32_t, double> exposed_of;
      expect_same(accounting.ranks[r], oracle.of_rank(static_cast<int>(r), exposed_of), timeline.periods);
      if (!explained.empty()) expect_explained(explained[r], accounting.ranks[r], exposed_of, timeline.periods);
      exposed += accounting.ranks[r].exposed_s;
      bubble += accounting.ranks[r].bubble_s;
      slowdown += accounting.ranks[r].slowdown_s;
      idle += accounting.ranks[r].idle_s;
    }
    expect_stretches(timeline, accounting);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  // The generator reaches every term, or the test would prove nothing.
  for (const double term : {exposed, bubble, slowdown, idle}) EXPECT_GT(term, 1000e-9);
}

}  // namespace
}  // namespace weft
