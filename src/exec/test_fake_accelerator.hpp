// An accelerator for tests on any machine: its streams are lists of calls that it carries out in an order of its own,
// as far as events let it, and no sooner than somebody asks for an end. Who forgets an event, reads a result before it
// is delivered, or relies on memory of the host that a call has returned from, trains something else.
#pragma once

#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "base/error.hpp"
#include "exec/rank_exchange.hpp"
#include "exec/test_deferred_kernels.hpp"
#include "kernels/accelerator.hpp"

namespace weft::test {

class FakeAccelerator final : public Accelerator {
 public:
  // Returns whether it is done; asked again until then.
  using Task = std::function<bool()>;

  explicit FakeAccelerator(unsigned seed) : random_(seed), kernels_(*this, make_kernels()) {}

  Kernels& kernels() override { return kernels_; }
  void use(StreamId stream) override { current_ = stream; }

  std::byte* allocate(Bytes size) override {
    memory_.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(size.value) + kAlignment));
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.back().get());
    return memory_.back().get() + (kAlignment - at % kAlignment) % kAlignment;
  }
  void release(std::byte*) override {}  // what is under way still uses it
  void copy_in(std::span<const std::byte> host, std::byte* device) override {
    end_all();
    std::ranges::copy(host, device);
  }
  void copy_out(const std::byte* device, std::span<std::byte> host) override {
    end_all();
    std::copy_n(device, host.size(), host.begin());
  }
  void clear(StreamId stream, std::byte* device, Bytes size) override {
    push(stream, [=] { return std::fill_n(device, size.value, std::byte{0}), true; });
  }

  StreamId make_stream(StreamPriority) override {
    streams_.emplace_back();
    return make_id<StreamId>(streams_.size() - 1);
  }
  EventId make_event() override {
    events_.emplace_back();
    return make_id<EventId>(events_.size() - 1);
  }
  void record(EventId event, StreamId stream) override {
    const std::int64_t number = ++events_[event.index()].recorded;
    push(stream, [this, event, number] {
      events_[event.index()].over = number;
      events_[event.index()].time = steady_nanos();
      return true;
    });
  }
  void wait(StreamId stream, EventId event) override {
    const std::int64_t number = events_[event.index()].recorded;
    push(stream, [this, event, number] { return events_[event.index()].over >= number; });
  }
  bool is_over(EventId event) override {
    const Event& asked = events_[event.index()];
    for (int call = 0; call < kCallsPerLook && asked.over < asked.recorded; ++call) {
      if (!advance()) break;
    }
    return asked.over == asked.recorded;
  }
  std::int64_t time_of(EventId event) override { return events_[event.index()].time; }

  std::uint64_t results_asked_for() const override { return results_.size(); }
  void deliver(ResultRange range) override {
    for (std::uint64_t i = range.begin; i < range.end; ++i) results_[i]();
  }
  void* native(StreamId stream) override { return &streams_[stream.index()]; }
  std::string in_words() const override { return "a list of calls"; }

  // Of native().
  static void push_to(void* stream, Task task) { static_cast<std::deque<Task>*>(stream)->push_back(std::move(task)); }

 private:
  static constexpr std::uintptr_t kAlignment = 4096;
  static constexpr int kCallsPerLook = 64;
  struct Event {
    std::int64_t recorded = 0, over = 0, time = 0;
  };

  class StreamKernels final : public DeferredKernels {
   public:
    StreamKernels(FakeAccelerator& owner, std::unique_ptr<Kernels> inner)
        : DeferredKernels(std::move(inner)), owner_(owner) {}
    void synchronize() override {
      owner_.end_all();
      owner_.deliver({0, owner_.results_.size()});
    }
    void embedding(Tokens tokens, const Matrix& table, std::int64_t first, const LearnedPositions& positions,
                   const Matrix& y) override {
      later([=, this, kept = copy_of(tokens)] { inner_->embedding(kept, table, first, positions, y); });
    }
    void embedding_weight_grad(Tokens tokens, const Matrix& dy, const Matrix& dtable, std::int64_t first,
                               Into into) override {
      later([=, this, kept = copy_of(tokens)] { inner_->embedding_weight_grad(kept, dy, dtable, first, into); });
    }
    void cross_entropy(const Matrix& logits, Tokens targets, std::int64_t vocab, const Matrix& probabilities,
                       double& loss) override {
      later([=, this, kept = copy_of(targets), &slot = result(loss)] {
        inner_->cross_entropy(logits, kept, vocab, probabilities, slot);
      });
    }
    void cross_entropy_part(const Matrix& logits, Tokens targets, VocabularyPart part, const LossPart& out) override {
      later([=, this, kept = copy_of(targets)] { inner_->cross_entropy_part(logits, kept, part, out); });
    }
    void cross_entropy_of_parts(const Matrix& logits, VocabularyPart part, std::span<const LossPart> parts,
                                const Matrix& probabilities, double& loss) override {
      later([=, this, &slot = result(loss)] {
        inner_->cross_entropy_of_parts(logits, part, parts, probabilities, slot);
      });
    }
    void cross_entropy_input_grad(const Matrix& probabilities, Tokens targets, std::int64_t first, double scale,
                                  const Matrix& d_logits) override {
      later([=, this, kept = copy_of(targets)] {
        inner_->cross_entropy_input_grad(probabilities, kept, first, scale, d_logits);
      });
    }
    void adam(const AdamSettings& settings, std::int64_t step, const GradientClip& clip,
              const UpdatedParameter& parameter, bool& finite) override {
      later([=, this, &slot = result(finite)] { inner_->adam(settings, step, clip, parameter, slot); });
    }
    void sgd(const SgdSettings& settings, std::int64_t step, const GradientClip& clip,
             const UpdatedParameter& parameter, bool& finite) override {
      later([=, this, &slot = result(finite)] { inner_->sgd(settings, step, clip, parameter, slot); });
    }
    void all_finite(const Vector& x, bool& finite) override {
      later([=, this, &slot = result(finite)] { inner_->all_finite(x, slot); });
    }

   private:
    static std::vector<std::int64_t> copy_of(Tokens tokens) { return {tokens.begin(), tokens.end()}; }
    template <class Number>
    Number& result(Number& wanted) {
      const auto slot = std::make_shared<Number>();
      owner_.results_.push_back([slot, &wanted] { wanted = *slot; });
      return *slot;
    }
    void later(std::function<void()> call) override {
      WEFT_CHECK(owner_.current_.valid());
      owner_.push(owner_.current_, [call = std::move(call)] { return call(), true; });
    }

    FakeAccelerator& owner_;
  };

  void push(StreamId stream, Task task) { streams_[stream.index()].push_back(std::move(task)); }

  // One call of a stream that is drawn, where it can run.
  bool advance() {
    std::vector<std::deque<Task>*> with_work;
    for (std::deque<Task>& stream : streams_) {
      if (!stream.empty()) with_work.push_back(&stream);
    }
    std::shuffle(with_work.begin(), with_work.end(), random_);
    for (std::deque<Task>* stream : with_work) {
      if (!stream->front()()) continue;
      stream->pop_front();
      return true;
    }
    return false;
  }
  void end_all() {
    const auto is_busy = [](const std::deque<Task>& stream) { return !stream.empty(); };
    while (std::ranges::any_of(streams_, is_busy)) advance();
  }

  std::mt19937 random_;
  StreamKernels kernels_;
  StreamId current_;
  std::deque<std::deque<Task>> streams_;  // a deque keeps the addresses that native() gives
  std::vector<Event> events_;
  std::vector<std::function<void()>> results_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

}  // namespace weft::test
