// This file answers what is certain about time: an order in which all instances can run, or the cycle that forbids
// one; and for one rank class, which operations have surely ended before another starts.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/unfold.hpp"

namespace weft {

struct RunOrder {
  std::vector<InstanceId> order;  // all instances of one iteration, each after what it waits for
  std::vector<InstanceId> cycle;  // where there is no such order: instances each of which waits for the next
};
RunOrder find_run_order(const Unfolded& unfolded);

// Few instances learn anything that their chain does not know already: transfers across classes, operations beside
// the chain, and those that read from one. These are landmarks; any other knows what the last landmark before it in
// its chain knew, and its chain. Landmarks serve the clocks of all classes, so they are found once.
//
// A class learns of another one from transfers across classes alone, its *messages*. So it suffices to know of any
// other landmark of another class which messages it knows, the last of every sequence.
class Landmarks {
 public:
  // `order` is what find_run_order returns.
  Landmarks(const Unfolded& unfolded, const std::vector<InstanceId>& order);

  struct Known {
    std::int32_t row = -1;  // of the landmark; -1: its chain has none. Members of a joint transfer share one.
    std::int32_t ago = 0;   // iterations
  };
  // A landmark learns from an instance that it waits for, with what that one knows, or from one of its own members.
  struct Source {
    Known known;
    InstanceId instance;
    ClassId rank_class;
    std::int32_t distance = 0;  // iterations back to the instance
  };
  const Known& known(InstanceId instance) const { return known_[instance]; }
  // The landmarks of a class and the messages of all, in an order to run in.
  std::span<const std::int32_t> rows_of(ClassId rank_class) const { return rows_of_class_[rank_class]; }
  // The place of one of these rows among them, each time counted from 0: messages first.
  std::size_t place_of(std::int32_t row) const { return place_[row]; }
  std::span<const Source> sources(std::int32_t row) const {
    return std::span(sources_).subspan(source_begin_[row], source_begin_[row + 1] - source_begin_[row]);
  }
  // Calls visit(Known) for the messages that a landmark of another class knows.
  template <class Visit>
  void for_each_message(const Known& known, Visit visit) const {
    if (known.row < 0) return;
    if (is_message_[known.row]) return visit(known);
    for (std::size_t s = 0; s < sequences_; ++s) {
      const std::int64_t moment = messages_[known.row * sequences_ + s];
      if (moment == kNever) continue;
      const bool before = moment < 0;
      visit(Known{static_cast<std::int32_t>(before ? moment + rows() : moment), known.ago + (before ? 1 : 0)});
    }
  }

 private:
  // A message has ended at its row, or, an iteration earlier, at so many rows less.
  static constexpr std::int64_t kNever = INT64_MIN;
  std::int64_t rows() const { return std::ssize(is_message_); }

  void spread_along_chains(const Instances& instances);
  void sort_by_class(const Instances& instances, const std::vector<InstanceId>& found);
  void find_messages(const Unfolded& unfolded, const std::vector<InstanceId>& found);

  IdVector<InstanceId, Known> known_;
  std::vector<Source> sources_;
  std::vector<std::size_t> source_begin_{0};
  std::vector<char> is_message_;  // by row
  IdVector<ClassId, std::vector<std::int32_t>> rows_of_class_;
  std::vector<std::size_t> place_;      // by row
  std::size_t sequences_ = 0;           // with messages, of the class that has most
  std::vector<std::int64_t> messages_;  // by row, by sequence: the last that it knows
};

// Answers happens-before for the operations of one class. Vector clocks over its chain (compute and blocking transfers)
// and its other queues go through all classes and two iterations. Later iterations repeat the second.
class HappensBefore {
 public:
  HappensBefore(const Plan& plan, const Unfolded& unfolded, const Landmarks& landmarks, ClassId rank_class);

  // Returns whether instance a of iteration ia has surely ended when b of iteration ib starts. Both are of this class,
  // and both iterations are 0 or 1.
  bool ended_before(InstanceId a, int ia, InstanceId b, int ib) const;

 private:
  std::size_t entry_of(const Instance& instance) const;                         // index of its clock entry
  std::int32_t time_of(const Instance& instance, int iteration) const;          // in that entry
  std::size_t index_of(std::int32_t row, int iteration) const;                  // of its clock
  const std::int32_t* row(const Landmarks::Known& known, int iteration) const;  // nullptr where it knows nothing
  void learn(std::int32_t* clock, const Landmarks::Source& source, int iteration) const;
  void learn_all(std::int32_t* clock, const Landmarks::Known& known, int iteration) const;

  const Unfolded& unfolded_;
  const Landmarks& landmarks_;
  ClassId rank_class_;
  std::size_t width_ = 1;
  IdVector<QueueId, std::size_t> entry_of_queue_;  // 0 where all its operations are in the chain
  std::vector<std::int32_t> length_;               // by entry: operations per iteration
  std::size_t rows_ = 0;
  // [iteration][place of the landmark][entry]: the last operation of the entry that has ended when the landmark has.
  std::vector<std::int32_t> clock_;
};

}  // namespace weft
