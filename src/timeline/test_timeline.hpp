// Builds small timelines for tests: operations first, then what they wait for and when they ran. Times are nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "timeline/timeline.hpp"

namespace weft::test {

class TestTimeline {
 public:
  TestTimeline() { timeline_.names = {"operation", "forward", "group"}; }

  // Queues: 0 compute, 1 comm, 2 extra.
  std::int32_t rank(std::int64_t stands_for = 1) {
    const auto id = static_cast<std::int32_t>(timeline_.ranks.size());
    timeline_.ranks.push_back({"stage " + std::to_string(id), Rank{id}, stands_for, {"compute", "comm", "extra"}});
    return id;
  }
  std::int32_t compute(std::int32_t rank, std::int64_t alone, std::int32_t queue = 0) {
    TimelineOperation operation;
    operation.rank = rank;
    operation.queue = {queue};
    operation.phase = 1;
    operation.alone = Nanos{alone};
    return add(operation);
  }
  std::int32_t transfer(std::int32_t rank, TrafficKind kind, std::int32_t number = -1) {
    TimelineOperation operation;
    operation.rank = rank;
    operation.queue = {1};
    operation.activity = Activity::transfer;
    operation.traffic = kind;
    operation.phase = 1;
    operation.group = 2;
    operation.bytes = Bytes{1024};
    operation.transfer = number;
    return add(operation);
  }
  void wait(std::int32_t operation, std::initializer_list<std::int32_t> predecessors, std::int32_t distance = 0) {
    for (const std::int32_t predecessor : predecessors) {
      waits_[operation].push_back({predecessor, static_cast<std::int16_t>(distance)});
    }
  }
  // Its place in a queue, or in the order of compute and what blocks it, comes after `predecessor`.
  void follow(std::int32_t operation, std::int32_t predecessor, std::int32_t distance = 0) {
    waits_[operation].push_back({predecessor, static_cast<std::int16_t>(distance), true});
  }
  // Uses the memory that `predecessor` uses.
  void reuse(std::int32_t operation, std::int32_t predecessor, std::int32_t distance = 0) {
    waits_[operation].push_back({predecessor, static_cast<std::int16_t>(distance), false, true});
  }
  void alone(std::int32_t operation, std::int64_t time) { timeline_.operations[operation].alone = Nanos{time}; }
  void queue(std::int32_t operation, std::int32_t queue) { timeline_.operations[operation].queue = {queue}; }
  void run(std::int32_t operation, std::int64_t start, std::int64_t end, std::int32_t iteration = 0) {
    timeline_.spans.push_back({operation, iteration, Nanos{start}, Nanos{start}, Nanos{start}, Nanos{end}});
  }
  void window(std::int64_t begin, double period, std::int32_t periods = 1) {
    timeline_.steady_begin = Nanos{begin};
    timeline_.period_ns = period;
    timeline_.periods = periods;
  }
  Timeline build() const {
    Timeline built = timeline_;
    built.dependency_begin = {0};
    for (const auto& waits : waits_) {
      built.dependencies.insert(built.dependencies.end(), waits.begin(), waits.end());
      built.dependency_begin.push_back(static_cast<std::int32_t>(built.dependencies.size()));
    }
    return built;
  }
  Timeline build_without_dependencies() const { return timeline_; }

 private:
  std::int32_t add(const TimelineOperation& operation) {
    timeline_.operations.push_back(operation);
    waits_.emplace_back();
    return static_cast<std::int32_t>(timeline_.operations.size()) - 1;
  }

  Timeline timeline_;
  std::vector<std::vector<Dependency>> waits_;
};

}  // namespace weft::test
