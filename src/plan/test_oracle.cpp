#include "plan/test_oracle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr int kIterations = 3;

struct Damage {
  std::string what;
};

struct Task {
  std::size_t rank_class = 0, op = 0;
  std::int32_t micro_batch = -1, iteration = 0, queue = 0;
  int waits_for = 0;
  std::vector<std::size_t> successors;
  std::size_t transfer = 0;  // index into transfers_: tasks that start and end as one
};

// What a stretch of bytes holds: which value, of which micro-batch and iteration, and how many contributions.
struct Content {
  std::int32_t value = -1, micro_batch = -1, iteration = -1, contributions = 0;
  friend bool operator==(const Content&, const Content&) = default;
};

struct Stretch {
  Content content;
  std::int64_t writer = -1;  // the task that is writing it
};

struct Range {
  std::size_t begin = 0, end = 0;  // indices into a class's stretches
};

class Execution {
 public:
  Execution(const Plan& plan, std::uint64_t seed) : plan_(plan), random_(seed) {}

  void run(int runs) {
    write_tasks();
    join_transfers();
    link_tasks();
    lay_out_memory();
    const std::vector<std::vector<Stretch>> before_first_step = memory_;
    for (int i = 0; i < runs; ++i) {
      memory_ = before_first_step;
      execute();
    }
  }

 private:
  const Operation& op(const Task& task) const { return plan_.graph.operations[task.op]; }
  std::string name(const Task& task) const {
    return fmt::format("{}, micro-batch {}, iteration {}", describe(op(task)), task.micro_batch, task.iteration);
  }
  double chance() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  void write_tasks() {
    std::map<std::tuple<std::size_t, std::int32_t, int>, int> times;
    for (std::size_t c = 0; c < plan_.classes.size(); ++c) {
      // A late operation runs a pass after its iteration's others, so a pass more ends the last iteration.
      for (int pass = 0; pass <= kIterations; ++pass) {
        for (const IssueSlot& slot : plan_.classes[c].order) {
          for (const OpId id : operations_of(plan_.classes[c], slot)) {
            const int iteration = plan_.issues[id].late ? pass - 1 : pass;
            if (iteration < 0 || iteration == kIterations) continue;
            if (++times[{id.index(), slot.micro_batch.value, iteration}] > 1) throw Damage{"an operation runs twice"};
            task_of_[{id.index(), slot.micro_batch.value, iteration}] = tasks_.size();
            tasks_.push_back(
                {c, id.index(), slot.micro_batch.value, iteration, plan_.issues[id].queue.value, 0, {}, 0});
          }
        }
      }
    }
    std::int64_t expected = 0;
    for (const Operation& o : plan_.graph.operations) expected += o.per_micro_batch ? plan_.graph.micro_batches : 1;
    if (static_cast<std::int64_t>(tasks_.size()) != expected * kIterations) throw Damage{"an operation never runs"};
  }

  void join_transfers() {
    std::map<std::tuple<std::int32_t, std::int32_t, int>, std::size_t> joint;
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      const Operation& o = op(tasks_[t]);
      std::size_t index = transfers_.size();
      if (o.communication && o.communication->transfer >= 0) {
        index = joint.try_emplace({o.communication->transfer, tasks_[t].micro_batch, tasks_[t].iteration}, index)
                    .first->second;
      }
      if (index == transfers_.size()) transfers_.emplace_back();
      transfers_[index].push_back(t);
      tasks_[t].transfer = index;
    }
  }

  void wait(std::size_t task, std::size_t for_task) {
    ++tasks_[task].waits_for;
    tasks_[for_task].successors.push_back(task);
  }

  bool beside_compute(std::size_t o) const {
    const Issue& issue = plan_.issues[o];
    const ClassPlan& c = plan_.classes[plan_.graph.operations[o].rank_class.index()];
    return c.queues[issue.queue].kind != QueueKind::compute && !issue.blocking;
  }

  // Values whose writers wait: for whoever last used the same copy, where one of the two runs beside compute.
  void wait_for_memory() {
    const auto m = static_cast<std::int32_t>(plan_.graph.micro_batches);
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      for (const Write& write : op(tasks_[t]).writes) {
        const Placement& place = plan_.placements[write.value.index()];
        if (!place.waits || place.copies < 1 || !plan_.graph.value(write.value).per_micro_batch) continue;
        std::int32_t mb = tasks_[t].micro_batch;
        int iteration = tasks_[t].iteration;
        do {
          if (--mb < 0) {
            mb = m - 1;
            --iteration;
          }
        } while (mb % place.copies != tasks_[t].micro_batch % place.copies);
        if (iteration < 0) continue;
        for (std::size_t o = 0; o < plan_.graph.operations.size(); ++o) {
          const auto& reads = plan_.graph.operations[o].reads;
          const bool uses =
              std::any_of(reads.begin(), reads.end(), [&](const Read& r) { return r.value == write.value; });
          if (uses && (beside_compute(o) || beside_compute(tasks_[t].op))) wait(t, task_of_.at({o, mb, iteration}));
        }
      }
    }
  }

  // The waits that the plan states. Tasks are in issue order, so the last one of an operation is its previous
  // execution.
  void wait_as_told() {
    for (const Wait& told : plan_.waits) {
      std::size_t previous = tasks_.size(), last = tasks_.size();
      for (std::size_t t = 0; t < tasks_.size(); ++t) {
        if (tasks_[t].op == told.until.index()) last = t;
        if (tasks_[t].op != told.operation.index()) continue;
        const bool once = tasks_[t].micro_batch < 0;
        if (!once && !plan_.graph.op(told.until).per_micro_batch) {
          const auto found = task_of_.find({told.until.index(), -1, tasks_[t].iteration - told.executions});
          if (found != task_of_.end()) wait(t, found->second);  // else it is of the step before the first
          continue;
        }
        if (once != !plan_.graph.op(told.until).per_micro_batch) {
          if (!once || last == tasks_.size()) throw Damage{"a wait for what does not run by then"};
          wait(t, last);
          continue;
        }
        const std::size_t execution = told.executions == 0 ? t : std::exchange(previous, t);
        if (execution == tasks_.size()) continue;  // before the first step
        const auto found =
            task_of_.find({told.until.index(), tasks_[execution].micro_batch, tasks_[execution].iteration});
        if (found == task_of_.end()) throw Damage{"a wait for what never runs"};
        wait(t, found->second);
      }
    }
  }

  // What the layout says of users' tasks, by the names of operations and of their parts.
  void note_windows() {
    const auto is_called = [](const std::string& words, const std::string& name) {
      return words == name || words.starts_with(name + " part ") || words.starts_with(name + " own rows") ||
             words.starts_with(name + " rows of others");
    };
    const auto pair_up = [&](const Task& a, const Task& b) {
      return a.rank_class == b.rank_class && (a.micro_batch < 0 || b.micro_batch < 0 || a.micro_batch == b.micro_batch);
    };
    for (const ExtraTask& extra : plan_.layout.tasks) {
      for (std::size_t t = 0; t < tasks_.size(); ++t) {
        if (op(tasks_[t]).task_name != extra.name) continue;
        for (std::size_t other = 0; other < tasks_.size(); ++other) {
          const int steps = tasks_[other].iteration - tasks_[t].iteration;
          if (steps < 0 || steps > 1 || !pair_up(tasks_[t], tasks_[other])) continue;
          const std::string words = describe(op(tasks_[other]));
          if (steps == 0 && is_called(words, extra.release)) must_have_ended_[t].push_back(other);
          if (steps == extra.deadline_steps && is_called(words, extra.deadline)) must_have_ended_[other].push_back(t);
        }
      }
    }
  }

  void link_tasks() {
    std::map<std::pair<std::size_t, std::int32_t>, std::size_t> in_queue;
    std::map<std::size_t, std::size_t> in_chain;
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      const Task& task = tasks_[t];
      const auto [before, first] = in_queue.try_emplace({task.rank_class, task.queue}, t);
      if (!first) wait(t, std::exchange(before->second, t));
      const bool compute = plan_.classes[task.rank_class].queues[task.queue].kind == QueueKind::compute;
      if (compute || plan_.issues[task.op].blocking) {
        const auto [previous, start] = in_chain.try_emplace(task.rank_class, t);
        if (!start) wait(t, std::exchange(previous->second, t));
      }
    }
    const auto writers = writers_of(plan_.graph);
    const auto m = static_cast<std::int32_t>(plan_.graph.micro_batches);
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      for (const Read& read : op(tasks_[t]).reads) {
        const int iteration = tasks_[t].iteration - read.distance;
        if (iteration < 0) continue;
        for (const OpId writer : writers[read.value.index()]) {
          const bool each = plan_.graph.op(writer).per_micro_batch;
          if (!meet(bytes_touched(op(tasks_[t]), read.value), bytes_touched(plan_.graph.op(writer), read.value)))
            continue;
          if (!counted_before(op(tasks_[t]), plan_.graph.op(writer), read.value)) continue;
          for (std::int32_t mb = each ? 0 : -1; mb < (each ? m : 0); ++mb) {
            if (each && tasks_[t].micro_batch >= 0 && mb != tasks_[t].micro_batch) continue;
            wait(t, task_of_.at({writer.index(), mb, iteration}));
          }
        }
      }
    }
    wait_for_memory();
    wait_as_told();
    note_windows();
    for (const auto& list : writers) writers_.push_back(list.size());
    for (std::size_t t = tasks_.size(); t-- > 0;) {
      for (const Write& write : op(tasks_[t]).writes)
        first_writer_[sum_of(tasks_[t], write.value)][tasks_[t].iteration] = t;
    }
  }

  using ByteRanges = std::vector<std::pair<std::int64_t, std::int64_t>>;
  static bool meet(const ByteRanges& a, const ByteRanges& b) {
    return std::any_of(a.begin(), a.end(), [&](const auto& x) {
      return std::any_of(b.begin(), b.end(), [&](const auto& y) { return x.first < y.second && y.first < x.second; });
    });
  }

  // Parts of a gate add to one table of loads, each to what those before it have counted.
  static bool is_load(const Operation& o, ValueId v) {
    const auto is_it = [&](const Write& write) { return write.operand == Operand::loads && write.value == v; };
    return o.role == Role::gate && std::any_of(o.writes.begin(), o.writes.end(), is_it);
  }
  // The gradient of the balance loss needs the loads of the whole micro-batch.
  static bool reads_all_loads(const Operation& o, ValueId v) {
    const auto is_it = [&](const Read& read) { return read.operand == Operand::loads && read.value == v; };
    return o.phase == Phase::input_grad && std::any_of(o.reads.begin(), o.reads.end(), is_it);
  }
  static bool counted_before(const Operation& reader, const Operation& writer, ValueId v) {
    return !is_load(reader, v) || writer.origins.front().begin < reader.origins.front().begin;
  }

  // By capacity: of each expert's slots, on whichever rank, the same ones.
  ByteRanges slots_touched(const Origin& part, const Value& value) const {
    const Experts& experts = *plan_.model.experts;
    const std::int64_t tokens = plan_.layout.tokens() / (plan_.layout.sequence_parallel ? plan_.layout.tp : 1);
    const double room = static_cast<double>(tokens * experts.top_k) * std::max(1.0, experts.capacity_factor) /
                        static_cast<double>(experts.count);
    const auto capacity = static_cast<std::int64_t>(std::ceil(room));
    const std::int64_t rows = value.shape.front(), width = value.bytes().value / rows;
    ByteRanges found;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t slot = row % capacity;
      if (slot * part.of < part.begin * capacity || slot * part.of >= part.end * capacity) continue;
      if (!found.empty() && found.back().second == row * width) {
        found.back().second += width;
      } else {
        found.emplace_back(row * width, (row + 1) * width);
      }
    }
    return found;
  }

  // Rows of tokens, one by one. (Which rows of the experts are whose is data; some are this part's and no other's.)
  // Under sequence parallelism tp ranks hold equal parts of every sequence, and pieces are pieces of what one rank
  // holds.
  ByteRanges rows_touched(const Origin& part, const Value& value) const {
    const Layout& layout = plan_.layout;
    const std::int64_t rows = value.shape.front(), width = value.bytes().value / rows, tokens = layout.tokens();
    const bool of_all_ranks = layout.sequence_parallel && rows == tokens;
    const std::int64_t sequence = layout.seq / layout.cp, of_rank = of_all_ranks ? sequence / layout.tp : sequence;
    const std::int64_t held = of_all_ranks ? rows / layout.tp : rows;
    ByteRanges found;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t place = of_all_ranks ? row / sequence * of_rank + row % sequence % of_rank : row;
      if (part.axis == 2) {  // the first rank's own rows, then pieces of the others'
        const bool own = of_all_ranks ? row % sequence < of_rank : true;
        if (own != (part.begin == 0)) continue;
        const std::int64_t pieces = part.of - 1;
        if (!own && (place * pieces < (part.begin - 1) * held || place * pieces >= (part.end - 1) * held)) continue;
      } else if (place * part.of < part.begin * held || place * part.of >= part.end * held) {
        continue;
      }
      if (!found.empty() && found.back().second == row * width) {
        found.back().second += width;
      } else {
        found.emplace_back(row * width, (row + 1) * width);
      }
    }
    return found;
  }

  // The bytes of a value that an operation touches: all of it, or of a part of a transfer the same range of every
  // rank's shard (of the one value, where an all_reduce has no shards), or rows.
  ByteRanges bytes_touched(const Operation& o, ValueId v) const {
    const Value& value = plan_.graph.value(v);
    const Origin* part = o.origins.size() == 1 ? &o.origins.front() : nullptr;
    if (!part || part->end - part->begin == part->of) return {{0, value.bytes().value}};
    if (o.per_micro_batch) {
      const bool rows =
          value.per_micro_batch && value.kind != ValueKind::parameter && !is_load(o, v) && !reads_all_loads(o, v);
      if (rows && part->axis == 1) return slots_touched(*part, value);
      return rows ? rows_touched(*part, value) : ByteRanges{{0, value.bytes().value}};
    }
    const std::int64_t in = plan_.graph.value(o.reads.front().value).elements();
    const std::int64_t out = plan_.graph.value(o.writes.front().value).elements();
    const std::int64_t length = std::min(in, out) / shards_of_a_share(o);
    const std::int64_t width = value.bytes().value / value.elements();
    ByteRanges found;
    for (std::int64_t shard = 0; shard < value.elements(); shard += length) {
      const std::int64_t begin = std::min(value.elements(), shard + length * part->begin / part->of);
      const std::int64_t end = std::min(value.elements(), shard + length * part->end / part->of);
      if (begin < end) found.emplace_back(begin * width, end * width);
    }
    return found;
  }
  // Stages: what a rank has between the two levels of a reduce_scatter or an all_gather is a shard for every node.
  std::int64_t shards_of_a_share(const Operation& o) const {
    const ClassGroup& group = plan_.graph.classes[o.rank_class.index()].group(o.communication->group);
    const Scope scope = o.communication->scope;
    if (scope != Scope::inner && scope != Scope::middle) return 1;
    const LevelSizes own = group.level_sizes(), stated = o.communication->levels;
    const std::int64_t inner = stated.inner > 0 ? stated.inner : own.inner;
    const std::int64_t middle = stated.inner > 0 ? stated.middle : own.middle;
    switch (o.rule) {
      case Substitution::reduce_scatter_in_levels:
      case Substitution::all_gather_in_levels:
        return group.view.size / inner;
      case Substitution::reduce_scatter_in_three_levels:
      case Substitution::all_gather_in_three_levels:
        return group.view.size / (scope == Scope::inner ? inner : inner * middle);
      case Substitution::all_reduce_in_three_levels:
        return scope == Scope::inner ? middle : 1;
      default:
        return 1;
    }
  }
  static bool is_part(const Operation& o) {
    return o.origins.size() == 1 && o.origins.front().end - o.origins.front().begin < o.origins.front().of;
  }

  // Bytes between neighbouring borders of any values are one stretch.
  void lay_out_memory() {
    memory_.resize(plan_.classes.size());
    std::vector<std::set<std::int64_t>> borders(plan_.classes.size());
    const auto each_copy = [&](auto visit) {
      for (std::size_t v = 0; v < plan_.graph.values.size(); ++v) {
        const Value& value = plan_.graph.values[v];
        const Placement& place = plan_.placements[v];
        const std::int32_t m = value.per_micro_batch ? static_cast<std::int32_t>(plan_.graph.micro_batches) : 1;
        for (std::int32_t mb = 0; mb < m; ++mb) {
          if (place.copies < 1) throw Damage{"a value has no copy"};
          std::int64_t begin = place.offset.value + mb % place.copies * aligned(value.bytes()).value;
          if (place.frame >= 0) {
            const auto& frames = plan_.classes[value.rank_class.index()].frames;
            begin = place.offset.value + frames.at(place.frame).base.at(mb).value;
          }
          visit(v, mb, value.rank_class.index(), begin, begin + value.bytes().value);
        }
      }
    };
    each_copy([&](std::size_t, std::int32_t, std::size_t c, std::int64_t begin, std::int64_t end) {
      if (begin < 0 || end > plan_.classes[c].memory.value) throw Damage{"a value lies outside the memory"};
      borders[c].insert({begin, end});
    });
    std::vector<std::set<std::int64_t>> inside(plan_.graph.values.size());  // borders of parts, within a copy
    for (const Operation& o : plan_.graph.operations) {
      if (!is_part(o)) continue;
      std::vector<ValueId> touched;
      for (const Write& write : o.writes) touched.push_back(write.value);
      for (const Read& read : o.reads) touched.push_back(read.value);
      for (const ValueId v : touched) {
        for (const auto& [begin, end] : bytes_touched(o, v)) inside[v.index()].insert({begin, end});
      }
    }
    bases_.resize(plan_.graph.values.size());
    each_copy([&](std::size_t v, std::int32_t, std::size_t c, std::int64_t begin, std::int64_t) {
      bases_[v].push_back(begin);
      for (const std::int64_t border : inside[v]) borders[c].insert(begin + border);
    });
    ranges_.resize(plan_.graph.values.size());
    for (std::size_t c = 0; c < borders.size(); ++c) {
      borders_.emplace_back(borders[c].begin(), borders[c].end());
      memory_[c].resize(borders_[c].size());
    }
    each_copy([&](std::size_t v, std::int32_t, std::size_t c, std::int64_t begin, std::int64_t end) {
      ranges_[v].push_back({stretch_at(c, begin), stretch_at(c, end)});
    });
    // Parameters and optimizer state before the first step.
    for (const Operation& o : plan_.graph.operations) {
      for (const Read& read : o.reads) {
        if (read.distance == 0) continue;
        for (Stretch& s : stretches(o.rank_class.index(), read.value, -1)) s.content = {read.value.value, -1, -1, 0};
      }
    }
  }

  std::span<Stretch> stretches(std::size_t c, ValueId v, std::int32_t mb) {
    const Range& r = ranges_[v.index()][std::max(0, mb)];
    return std::span(memory_[c]).subspan(r.begin, r.end - r.begin);
  }
  std::size_t stretch_at(std::size_t c, std::int64_t byte) const {
    return static_cast<std::size_t>(std::lower_bound(borders_[c].begin(), borders_[c].end(), byte) -
                                    borders_[c].begin());
  }
  std::vector<std::span<Stretch>> touched(const Task& task, ValueId v) {
    if (!is_part(op(task))) return {stretches(task.rank_class, v, micro_batch(task, v))};
    std::vector<std::span<Stretch>> found;
    const std::int64_t offset = bases_[v.index()][std::max(0, micro_batch(task, v))];
    for (const auto& [begin, end] : bytes_touched(op(task), v)) {
      const std::size_t first = stretch_at(task.rank_class, offset + begin);
      found.push_back(
          std::span(memory_[task.rank_class]).subspan(first, stretch_at(task.rank_class, offset + end) - first));
    }
    return found;
  }
  std::int32_t micro_batch(const Task& task, ValueId v) const {
    return plan_.graph.value(v).per_micro_batch ? task.micro_batch : -1;
  }
  // A value, and the micro-batch or layer group whose it is.
  using Sum = std::pair<ValueId, std::int32_t>;
  Sum sum_of(const Task& task, ValueId v) const { return {v, micro_batch(task, v)}; }

  void execute() {
    // Some queues and ranks are far slower than others, and now and then an operation takes very long.
    std::map<std::pair<std::size_t, std::int32_t>, double> slowness;
    for (const Task& task : tasks_) slowness.try_emplace({task.rank_class, task.queue}, 0);
    for (auto& [queue, factor] : slowness) factor = std::array{0.02, 1.0, 50.0}[random_() % 3];
    using Event = std::tuple<double, bool, std::size_t>;  // time, ends?, transfer
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
    std::vector<std::size_t> missing;  // members of each transfer that cannot start yet
    for (const auto& members : transfers_) missing.push_back(members.size());
    double now = 0;
    const auto later = [&](std::size_t transfer) {
      const Task& task = tasks_[transfers_[transfer].front()];
      const double size = chance() < 0.05 ? 30 : chance() < 0.5 ? 0.01 : 1;
      return now + 1e-6 + size * chance() * slowness.at({task.rank_class, task.queue});
    };
    std::vector<int> waits_for;
    for (const Task& task : tasks_) waits_for.push_back(task.waits_for);
    const auto ready = [&](std::size_t task) {
      const std::size_t transfer = tasks_[task].transfer;
      if (--missing[transfer] == 0) events.push({later(transfer), false, transfer});
    };
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      if (tasks_[t].waits_for == 0) ready(t);
    }
    std::size_t ended = 0;
    has_ended_.assign(tasks_.size(), false);
    while (!events.empty()) {
      const auto [time, ends, transfer] = events.top();
      events.pop();
      now = time;
      for (const std::size_t t : transfers_[transfer]) ends ? end(t) : start(t);
      if (!ends) {
        events.push({later(transfer), true, transfer});
        continue;
      }
      for (const std::size_t t : transfers_[transfer]) {
        ++ended;
        for (const std::size_t next : tasks_[t].successors) {
          if (--waits_for[next] == 0) ready(next);
        }
      }
    }
    if (ended != tasks_.size()) throw Damage{"the remaining operations wait for each other"};
  }

  void check_reads(std::size_t t, const char* when) {
    const Task& task = tasks_[t];
    for (const Read& read : op(task).reads) {
      const int iteration = task.iteration - read.distance;
      const Value& value = plan_.graph.value(read.value);
      const int all = value.accumulated ? static_cast<int>(writers_[read.value.index()]) *
                                              (value.per_micro_batch ? 1 : static_cast<int>(plan_.graph.micro_batches))
                                        : 1;
      const Content expected{read.value.value, micro_batch(task, read.value), iteration, iteration < 0 ? 0 : all};
      for (const std::span<Stretch> source : touched(task, read.value)) {
        for (const Stretch& s : source) {
          const bool own = s.writer == static_cast<std::int64_t>(t);
          if (!own && (s.writer >= 0 || s.content != expected)) {
            throw Damage{fmt::format("{} finds '{}' damaged at its {}", name(task), value.name, when)};
          }
        }
      }
    }
  }

  // A reduction, a gather or an update of a step may leave its result where its input begins; nothing else may.
  bool may_overwrite(const Operation& o, ValueId in, ValueId out) const {
    return in == out || (!o.per_micro_batch && (o.is_transfer() || o.role == Role::update) &&
                         plan_.placements[in.index()].offset == plan_.placements[out.index()].offset);
  }

  void start(std::size_t t) {
    const Task& task = tasks_[t];
    if (const auto found = must_have_ended_.find(t); found != must_have_ended_.end()) {
      for (const std::size_t other : found->second) {
        if (!has_ended_[other]) throw Damage{name(task) + " starts before the end of " + name(tasks_[other])};
      }
    }
    check_reads(t, "start");
    for (const Write& write : op(task).writes) {
      const bool adds =
          plan_.graph.value(write.value).accumulated && first_writer_[sum_of(task, write.value)][task.iteration] != t;
      std::int32_t& contributions = contributions_[sum_of(task, write.value)];
      if (!adds) contributions = 0;
      for (const std::span<Stretch> target : touched(task, write.value)) {
        check_overwrites(task, write.value, target);
        for (Stretch& s : target) {
          const Content partial{write.value.value, micro_batch(task, write.value), task.iteration, contributions};
          if (adds && (s.writer >= 0 || s.content != partial)) throw Damage{name(task) + " adds to something else"};
          s.writer = static_cast<std::int64_t>(t);
          s.content = {};
        }
      }
    }
  }

  void check_overwrites(const Task& task, ValueId out, std::span<Stretch> target) {
    for (const Read& read : op(task).reads) {
      for (const std::span<Stretch> source : touched(task, read.value)) {
        if (source.data() < target.data() + target.size() && target.data() < source.data() + source.size() &&
            !may_overwrite(op(task), read.value, out)) {
          throw Damage{name(task) + " overwrites what it reads"};
        }
      }
    }
  }

  void end(std::size_t t) {
    const Task& task = tasks_[t];
    has_ended_[t] = true;
    check_reads(t, "end");
    for (const Write& write : op(task).writes) {
      const std::int32_t sum = ++contributions_[sum_of(task, write.value)];
      for (const std::span<Stretch> target : touched(task, write.value)) {
        for (Stretch& s : target) {
          if (s.writer != static_cast<std::int64_t>(t)) continue;  // another one wrote in the meantime
          const bool accumulated = plan_.graph.value(write.value).accumulated;
          s.content = {write.value.value, micro_batch(task, write.value), task.iteration, accumulated ? sum : 1};
        }
      }
    }
    for (const Write& write : op(task).writes) {
      for (const std::span<Stretch> target : touched(task, write.value)) {
        for (Stretch& s : target) {
          if (s.writer == static_cast<std::int64_t>(t)) s.writer = -1;
        }
      }
    }
  }

  const Plan& plan_;
  std::mt19937_64 random_;
  std::map<std::size_t, std::vector<std::size_t>> must_have_ended_;  // by task: before it starts
  std::vector<bool> has_ended_;                                      // in this run
  std::vector<Task> tasks_;
  std::map<std::tuple<std::size_t, std::int32_t, int>, std::size_t> task_of_;  // operation, micro-batch, iteration
  std::vector<std::vector<std::size_t>> transfers_;
  std::vector<std::vector<Stretch>> memory_;                // by class
  std::vector<std::vector<std::int64_t>> borders_;          // by class: where each stretch begins
  std::vector<std::vector<Range>> ranges_;                  // by value, by micro-batch
  std::vector<std::vector<std::int64_t>> bases_;            // by value, by micro-batch: its first byte
  std::map<Sum, std::int32_t> contributions_;               // since it began
  std::vector<std::size_t> writers_;                        // by value: operations that write it
  std::map<Sum, std::map<int, std::size_t>> first_writer_;  // by iteration: in issue order
};

}  // namespace

std::optional<std::string> find_damage(const Plan& plan, std::uint64_t seed, int runs) {
  try {
    Execution(plan, seed).run(runs);
  } catch (const Damage& damage) {
    return damage.what;
  }
  return std::nullopt;
}

}  // namespace weft::test
