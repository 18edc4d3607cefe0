#include "study/plan/compression_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/table.hpp"
#include "base/text.hpp"
#include "compress/compression_format.hpp"
#include "cost/cost_model.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {
namespace {

using ParameterName = std::tuple<ClassId, std::int32_t, Role>;

bool carries_gradients(Role role) {
  return role == Role::grad_reduce || role == Role::grad_exchange || role == Role::grad_gather ||
         role == Role::node_reduce || role == Role::node_gather;
}

bool is_of_compression(Role role) {
  return role == Role::grad_encode || role == Role::grad_merge || role == Role::grad_decode;
}

std::string time_in_words(double step_s) {
  return format_time(nanos_from_seconds(step_s));
}

class CompressionChooser {
 public:
  CompressionChooser(const Inputs& inputs, const Profile& profile, const std::string& policy)
      : inputs_(uncompressed(inputs)),
        profile_(profile),
        policy_(policy),
        cluster_(inputs.cluster),
        request_(request_of(inputs_, profile)),
        plain_(seconds_by_parameter({})) {}

  // Returns whether gradients are summed inside nodes before they go from one to the other.
  bool has_levels() const {
    const SharedGraph graph = graph_of({});
    return std::ranges::any_of(graph->classes,
                               [](const RankClass& c) { return c.group(GroupKind::dp).levels.size() == 2; });
  }

  CompressionOption option(const GradientCompression& compress) const {
    CompressionOption result{compress, {}, 0, true};
    const SharedGraph graph = graph_of(compress);
    for (const Operation& op : graph->operations) {
      if (carries_gradients(op.role)) result.sent += op.communication->bytes;
    }
    PlanRequest request = request_;
    request.layout.compress = compress;
    result.step_s = request.search.step_seconds(make_whole_plan(request, graph, policy_));
    return result;
  }

  // Returns the size from which on every parameter gains; kNone where not even the largest does.
  static constexpr std::int64_t kNone = INT64_MAX;
  std::int64_t least_size_that_pays(GradientCompression compress) const {
    compress.min_elements = 1;
    const std::map<ParameterName, Spent> encoded = seconds_by_parameter(compress);
    std::map<std::int64_t, bool, std::greater<>> pays;  // by size, the largest first
    for (const auto& [name, spent] : encoded) {
      const bool gains = spent.seconds < plain_.at(name).seconds;
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
    double seconds = 0;
  };

  static Inputs uncompressed(Inputs inputs) {
    inputs.layout.compress = {};
    return inputs;
  }

  SharedGraph graph_of(const GradientCompression& compress) const {
    Layout layout = inputs_.layout;
    layout.compress = compress;
    validate(layout, inputs_.model, cluster_.device_count());
    return build_step_graph(inputs_.model, cluster_, layout);
  }

  // What the gradient of every parameter takes between backward and the update, each operation alone.
  std::map<ParameterName, Spent> seconds_by_parameter(const GradientCompression& compress) const {
    StepGraph graph = *graph_of(compress);
    const CostModel cost(graph, cluster_, profile_, request_.programs);
    choose_algorithms(graph, cost);
    std::map<ParameterName, Spent> spent;
    for (const Operation& op : graph.operations) {
      if (!carries_gradients(op.role) && !is_of_compression(op.role)) continue;
      Spent& of = spent[{op.rank_class, op.layer, op.subject}];
      of.seconds += seconds(cost.alone(op));
      const Operand gradient = op.role == Role::node_reduce ? Operand::payload : Operand::gradient;
      if (const ValueId read = find_read(op, gradient); read.valid()) {
        of.elements = std::max(of.elements, graph.value(read).elements());
      }
    }
    return spent;
  }

  Inputs inputs_;
  const Profile& profile_;
  std::string policy_;
  Cluster cluster_;
  PlanRequest request_;
  std::map<ParameterName, Spent> plain_;
};

}  // namespace

CompressionChoice choose_compression(const Inputs& inputs, const Profile& profile, double max_error,
                                     const std::string& policy) {
  CompressionChoice choice{max_error, policy, {}, 0};
  const CompressionChooser chooser(inputs, profile, policy);
  choice.options.push_back(chooser.option({}));
  double least = choice.plain().step_s * (1 - kLeastGainOfCompression);
  const auto consider = [&](GradientCompression compress) {
    compress.min_elements = chooser.least_size_that_pays(compress);
    CompressionOption option{compress, {}, 0, true};
    if (compress.min_elements != CompressionChooser::kNone) option = chooser.option(compress);
    option.is_allowed = expected_error(compress.format) <= max_error;
    choice.options.push_back(option);
    if (!option.is_allowed || option.step_s == 0 || option.step_s >= least) return;
    least = option.step_s;
    choice.chosen = choice.options.size() - 1;
  };
  const bool has_levels = chooser.has_levels();
  for (int i = 1; i < kAllCompressionFormats; ++i) {
    const auto format = static_cast<CompressionFormat>(i);
    consider({.format = format});
    if (has_levels && format != CompressionFormat::power_sgd) consider({.format = format, .between_nodes = true});
  }
  return choice;
}

std::string compression_choice_line(const CompressionChoice& choice) {
  const CompressionOption& best = choice.best();
  if (choice.chosen == 0) {
    return fmt::format("nothing is compressed: no format with an error of at most {} shortens the step of {} by {} %",
                       choice.max_error, time_in_words(best.step_s), 100 * kLeastGainOfCompression);
  }
  return fmt::format("{} for parameters from {} elements on: {} a step instead of {} (predicted with {})",
                     name_of(best.compress), best.compress.min_elements, time_in_words(best.step_s),
                     time_in_words(choice.plain().step_s), choice.policy);
}

std::string compression_options_text(const CompressionChoice& choice) {
  TextTable table({"gradients", "error", "from elements", "sent", "step", "saves", ""});
  for (std::size_t i = 0; i < choice.options.size(); ++i) {
    const CompressionOption& option = choice.options[i];
    const CompressionFormat format = option.compress.format;
    const bool encodes = option.compress.is_on(), pays = option.step_s > 0;
    const double saved = 1 - option.step_s / choice.plain().step_s;
    table.add_row({encodes ? name_of(option.compress) : "as they are", fmt::format("{:.4f}", expected_error(format)),
                   encodes && pays ? fmt::format("{}", option.compress.min_elements) : "-",
                   pays ? format_bytes(option.sent) : "-", pays ? time_in_words(option.step_s) : "-",
                   encodes && pays ? fmt::format("{:.1f} %", 100 * saved) : "-",
                   i == choice.chosen   ? "chosen"
                   : !option.is_allowed ? fmt::format("error above {}", choice.max_error)
                   : !pays              ? "encoding takes longer than it saves"
                                        : ""});
  }
  return table.to_string();
}

}  // namespace weft
