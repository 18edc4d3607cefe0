#include "study/plan/compression_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "compress/compression_format.hpp"
#include "cost/cost_model.hpp"
#include "graph/compression_rules.hpp"
#include "graph/held_tensor.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {
namespace {

using ParameterName = std::tuple<ClassId, std::int32_t, Role>;

bool carries_gradients(Role role) {
  return role == Role::grad_reduce || role == Role::grad_exchange || role == Role::grad_gather ||
         role == Role::node_reduce || role == Role::node_gather;
}

bool is_of_gradients(Role role) {
  return carries_gradients(role) || role == Role::grad_encode || role == Role::grad_merge || role == Role::grad_decode;
}

bool is_of_weights(Role role) {
  return role == Role::param_gather || role == Role::param_encode || role == Role::param_decode;
}

std::string time_in_words(double step_s) {
  return format_time(nanos_from_seconds(step_s));
}

bool takes_gradients(CompressionBudget budget) {
  return budget != CompressionBudget::weights;
}

bool takes_weights(CompressionBudget budget) {
  return budget != CompressionBudget::gradients;
}

// Predicts what encodings take: of every parameter, and of whole steps.
class EncodingCosts {
 public:
  EncodingCosts(const Inputs& inputs, const Profile& profile, const std::string& policy, CompressionBudget budget)
      : inputs_(uncompressed(inputs)),
        profile_(profile),
        policy_(policy),
        budget_(budget),
        cluster_(inputs.cluster),
        request_(request_of(inputs_, profile)),
        plain_(seconds_by_parameter({}, [](Role role) { return is_of_gradients(role) || is_of_weights(role); })) {}

  // Returns whether gradients are summed inside nodes before they go from one to the other.
  bool has_levels() const {
    const SharedGraph graph = graph_of({});
    return std::ranges::any_of(graph->classes,
                               [](const RankClass& c) { return c.group(GroupKind::dp).has_node_levels(); });
  }

  CompressionOption option(const GradientCompression& compress, CompressionFormat weights) const {
    CompressionOption result{compress, {}, 0, true, weights};
    const SharedGraph graph = graph_of(result);
    for (const Operation& op : graph->operations) {
      const bool counts = (takes_gradients(budget_) && carries_gradients(op.role)) ||
                          (takes_weights(budget_) && op.role == Role::param_gather);
      if (counts) result.sent += Bytes{op.communication->bytes.value * times_a_step(op)};
    }
    PlanRequest request = request_;
    request.layout = layout_of(result);
    result.step_s = request.search.step_seconds(make_whole_plan(request, graph, policy_));
    return result;
  }

  // Returns the size from which on every parameter gains; kNone where not even the largest does.
  static constexpr std::int64_t kNone = INT64_MAX;
  std::int64_t least_size_that_pays(GradientCompression compress, CompressionFormat weights) const {
    compress.min_elements = 1;
    const auto is_asked_for = compress.is_on() ? is_of_gradients : is_of_weights;
    const std::map<ParameterName, Spent> encoded = seconds_by_parameter({compress, {}, 0, true, weights}, is_asked_for);
    std::map<std::int64_t, bool, std::greater<>> pays;  // by size, the largest first
    for (const auto& [name, spent] : encoded) {
      const Spent& before = plain_.at(name);
      const bool gains = compress.is_on() ? spent.gradients_s < before.gradients_s : spent.weights_s < before.weights_s;
      pays.try_emplace(spent.elements, true).first->second &= gains;
    }
    std::int64_t least = kNone;
    for (const auto& [elements, gains] : pays) {
      if (!gains) break;
      least = elements;
    }
    return least;
  }

 private:
  struct Spent {
    std::int64_t elements = 0;
    double gradients_s = 0, weights_s = 0;
  };

  static Inputs uncompressed(Inputs inputs) {
    inputs.layout.compress = {};
    inputs.layout.compress_weights = CompressionFormat::none;
    return inputs;
  }

  Layout layout_of(const CompressionOption& option) const {
    Layout layout = inputs_.layout;
    layout.compress = option.compress;
    layout.compress_weights = option.weights;
    return layout;
  }

  SharedGraph graph_of(const CompressionOption& option) const {
    const Layout layout = layout_of(option);
    validate(layout, inputs_.model, cluster_.device_count());
    return build_step_graph(inputs_.model, cluster_, layout);
  }

  std::int64_t times_a_step(const Operation& op) const {
    return op.per_micro_batch ? inputs_.layout.layer_groups() : 1;
  }

  // A head that is tied to the embedding of its own stage has no parameter of its own.
  std::int64_t elements_of(const Operation& op) const {
    const bool is_tied = op.subject == Role::head && inputs_.model.tied_embeddings && inputs_.layout.ends_meet();
    std::int64_t elements = 0;
    for (const HeldTensor& tensor :
         held_tensors(inputs_.model, inputs_.layout, op.layer, is_tied ? Role::embedding : op.subject, {})) {
      elements += tensor.elements();
    }
    return elements;
  }

  // What the gradient of every parameter takes between backward and the update, and what gathering its weights takes,
  // each operation alone.
  template <class Predicate>
  std::map<ParameterName, Spent> seconds_by_parameter(const CompressionOption& option,
                                                      const Predicate& is_asked_for) const {
    StepGraph graph = *graph_of(option);
    const CostModel cost(graph, cluster_, profile_, request_.programs);
    choose_algorithms(graph, cost);
    std::map<ParameterName, Spent> spent;
    for (const Operation& op : graph.operations) {
      if (!is_asked_for(op.role)) continue;
      const auto [of, is_new] = spent.try_emplace({op.rank_class, op.layer, op.subject});
      if (is_new) of->second.elements = elements_of(op);
      (is_of_gradients(op.role) ? of->second.gradients_s : of->second.weights_s) +=
          seconds(cost.alone(op)) * static_cast<double>(times_a_step(op));
    }
    return spent;
  }

  Inputs inputs_;
  const Profile& profile_;
  std::string policy_;
  CompressionBudget budget_;
  Cluster cluster_;
  PlanRequest request_;
  std::map<ParameterName, Spent> plain_;
};

// Tries formats of gradients alone and of weights alone; then the best of each beside all of the other.
class CompressionChooser {
 public:
  CompressionChooser(const EncodingCosts& costs, CompressionChoice& choice) : costs_(costs), choice_(choice) {
    choice_.options.push_back(costs_.option({}, CompressionFormat::none));
    least_ = choice_.plain().step_s * (1 - kLeastGainOfCompression);
  }

  void consider_alone(GradientCompression compress, CompressionFormat weights) {
    compress.min_elements = costs_.least_size_that_pays(compress, weights);
    CompressionOption option{compress, {}, 0, true, weights};
    if (compress.min_elements != EncodingCosts::kNone) option = costs_.option(compress, weights);
    add(option);
  }

  void consider_together() {
    const std::vector<CompressionOption> alone = choice_.options;
    const CompressionOption* const gradients =
        shortest(alone, [](const CompressionOption& o) { return o.compress.is_on(); });
    const CompressionOption* const weights =
        shortest(alone, [](const CompressionOption& o) { return o.encodes() && !o.compress.is_on(); });
    if (gradients == nullptr || weights == nullptr) return;
    for (const CompressionOption& other : alone) {
      if (!other.encodes() || !other.is_allowed || other.step_s == 0) continue;
      if (!other.compress.is_on()) add_both(*gradients, other);
      if (other.compress.is_on() && &other != gradients) add_both(other, *weights);
    }
  }

 private:
  template <class Predicate>
  static const CompressionOption* shortest(const std::vector<CompressionOption>& options, const Predicate& counts) {
    const CompressionOption* best = nullptr;
    for (const CompressionOption& option : options) {
      if (!counts(option) || !option.is_allowed || option.step_s == 0) continue;
      if (best == nullptr || option.step_s < best->step_s) best = &option;
    }
    return best;
  }

  // A layout has one smallest size for both.
  void add_both(const CompressionOption& gradients, const CompressionOption& weights) {
    GradientCompression compress = gradients.compress;
    CompressionOption best = costs_.option(compress, weights.weights);
    if (weights.compress.min_elements != compress.min_elements) {
      compress.min_elements = weights.compress.min_elements;
      const CompressionOption other = costs_.option(compress, weights.weights);
      if (other.step_s < best.step_s) best = other;
    }
    add(best);
  }

  void add(CompressionOption option) {
    option.is_allowed = option.error() <= choice_.max_error;
    choice_.options.push_back(option);
    if (!option.is_allowed || option.step_s == 0 || option.step_s > least_) return;
    // Of equal steps the one with the smaller error is taken.
    if (option.step_s == least_ && option.error() >= choice_.best().error()) return;
    least_ = option.step_s;
    choice_.chosen = choice_.options.size() - 1;
  }

  const EncodingCosts& costs_;
  CompressionChoice& choice_;
  double least_ = 0;
};

}  // namespace

double CompressionOption::error() const {
  return std::max(expected_error(compress.format), expected_error(weights));
}

CompressionChoice choose_compression(const Inputs& inputs, const Profile& profile, double max_error,
                                     const std::string& policy, CompressionBudget budget) {
  const int zero = inputs.layout.zero;
  if (budget == CompressionBudget::weights && zero == 0) {
    fail("--compress weights: needs --zero 1, 2 or 3, which gather weights");
  }
  CompressionChoice choice{max_error, policy, {}, 0, budget};
  const EncodingCosts costs(inputs, profile, policy, budget);
  CompressionChooser chooser(costs, choice);
  const bool has_levels = costs.has_levels();
  for (int i = 1; i < kAllCompressionFormats && takes_gradients(budget); ++i) {
    const auto format = static_cast<CompressionFormat>(i);
    if (zero > 1 && !works_without_feedback(format)) continue;
    chooser.consider_alone({.format = format}, CompressionFormat::none);
    if (has_levels && format != CompressionFormat::power_sgd) {
      chooser.consider_alone({.format = format, .between_nodes = true}, CompressionFormat::none);
    }
  }
  for (int i = 1; i < kCompressionFormats && takes_weights(budget) && zero > 0; ++i) {
    const auto format = static_cast<CompressionFormat>(i);
    if (works_without_feedback(format)) chooser.consider_alone({}, format);
  }
  chooser.consider_together();
  return choice;
}

std::string compression_flag_of(const CompressionOption& option) {
  std::string text;
  if (option.compress.is_on()) text = fmt::format("gradients={}", name_of(option.compress));
  if (option.weights != CompressionFormat::none) {
    text += fmt::format("{}weights={}", text.empty() ? "" : ",", name_of(option.weights));
  }
  return text;
}

std::string compression_choice_line(const CompressionChoice& choice) {
  const CompressionOption& best = choice.best();
  if (choice.chosen == 0) {
    return fmt::format("nothing is compressed: no format with an error of at most {} shortens the step of {} by {} %",
                       choice.max_error, time_in_words(best.step_s), 100 * kLeastGainOfCompression);
  }
  const bool names_both = choice.budget != CompressionBudget::gradients;
  return fmt::format("{} for parameters from {} elements on: {} a step instead of {} (predicted with {})",
                     names_both ? compression_flag_of(best) : name_of(best.compress), best.compress.min_elements,
                     time_in_words(best.step_s), time_in_words(choice.plain().step_s), choice.policy);
}

std::string compression_options_text(const CompressionChoice& choice) {
  const bool has_weights = takes_weights(choice.budget);
  std::vector<std::string> heads{"gradients"};
  if (has_weights) heads.emplace_back("weights");
  for (const char* const head : {"error", "from elements", "sent", "step", "saves", ""}) heads.emplace_back(head);
  TextTable table(heads);
  for (std::size_t i = 0; i < choice.options.size(); ++i) {
    const CompressionOption& option = choice.options[i];
    const bool encodes = option.encodes(), pays = option.step_s > 0;
    const double saved = 1 - option.step_s / choice.plain().step_s;
    const auto or_plain = [](bool encoded, std::string name) { return encoded ? std::move(name) : "as they are"; };
    std::vector<std::string> row{or_plain(option.compress.is_on(), name_of(option.compress))};
    if (has_weights) {
      row.push_back(or_plain(option.weights != CompressionFormat::none, std::string(name_of(option.weights))));
    }
    row.push_back(fmt::format("{:.4f}", option.error()));
    row.push_back(encodes && pays ? fmt::format("{}", option.compress.min_elements) : "-");
    row.push_back(pays ? format_bytes(option.sent) : "-");
    row.push_back(pays ? time_in_words(option.step_s) : "-");
    row.push_back(encodes && pays ? fmt::format("{:.1f} %", 100 * saved) : "-");
    row.push_back(i == choice.chosen   ? "chosen"
                  : !option.is_allowed ? fmt::format("error above {}", choice.max_error)
                  : !pays              ? "encoding takes longer than it saves"
                                       : "");
    table.add_row(row);
  }
  return table.to_string();
}

}  // namespace weft
