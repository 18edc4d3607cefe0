#include "study/against/profile_fit.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/parallel.hpp"
#include "study/against/fit_constants.hpp"
#include "study/against/robust_step.hpp"

namespace weft {
namespace {

constexpr int kMaxRounds = 4;
constexpr double kLongestStep = 0.35;           // of a logarithm, in a round
constexpr double kDifference = 0.04;            // of a logarithm, for derivatives
constexpr double kLeastGain = 0.01;             // of the loss, or the fit ends
constexpr double kLeastSlope = 0.01;            // of some row, or the constant is not told
constexpr double kShortened[] = {1, 0.5, 0.2};  // of a round's step, what is tried

std::vector<double> sum(std::vector<double> a, const std::vector<double>& b, double times = 1) {
  for (std::size_t k = 0; k < a.size(); ++k) a[k] += times * b[k];
  return a;
}

// Unknowns are the logarithms of constants over what they were.
class ProfileFitter {
 public:
  ProfileFitter(std::span<const MeasuredStep> rows, const Profile& profile, std::size_t jobs)
      : rows_(rows), base_(profile), jobs_(jobs) {
    std::vector<Inputs> inputs;
    for (const MeasuredStep& row : rows) inputs.push_back(row.inputs);
    constants_ = fit_constants(profile, inputs);
  }

  ProfileFit fit() {
    ProfileFit fit;
    std::vector<double> at(constants_.size(), 0);
    fit.before = planned_errors({at});
    std::vector<LinearRow> slopes = derivatives(at);
    drop_untold(slopes, fit.untold);
    at.resize(constants_.size());
    for (int round = 0; round < kMaxRounds; ++round) {
      const auto next = improved(at, slopes);
      if (!next) break;
      at = *next;
      slopes = derivatives(at);
    }
    fit.profile = profile_at(at);
    fit.after = planned_errors({at});
    leave_each_out(at, slopes, fit);
    return fit;
  }

 private:
  Profile profile_at(const std::vector<double>& at) const {
    Profile profile = base_;
    for (std::size_t k = 0; k < at.size(); ++k) constants_[k].write(profile, value_at(k, at[k]));
    return profile;
  }
  double value_at(std::size_t constant, double logarithm) const {
    return std::min(constants_[constant].most, constants_[constant].read(base_) * std::exp(logarithm));
  }

  // By row, with one point for all or one for each.
  std::vector<double> planned_errors(const std::vector<std::vector<double>>& points) const {
    std::vector<double> errors(rows_.size());
    parallel_for(rows_.size(), jobs_, [&](std::size_t i) {
      const MeasuredStep& row = rows_[i];
      const Profile profile = profile_at(points.size() == 1 ? points.front() : points[i]);
      errors[i] =
          predict_run(row.inputs, with_links(profile, row.inputs, row.links), row.policy).step_s / row.step_s - 1;
    });
    return errors;
  }

  // By point and row, the logarithm of predicted over measured. Plans are those of the first point.
  std::vector<std::vector<double>> logarithms(const std::vector<std::vector<double>>& points) const {
    std::vector<Profile> profiles;
    for (const std::vector<double>& point : points) profiles.push_back(profile_at(point));
    std::vector<std::vector<double>> logs(points.size(), std::vector<double>(rows_.size()));
    parallel_for(rows_.size(), jobs_, [&](std::size_t i) {
      const MeasuredStep& row = rows_[i];
      std::vector<Profile> own;
      for (const Profile& profile : profiles) own.push_back(with_links(profile, row.inputs, row.links));
      const std::vector<double> steps = predict_steps(row.inputs, own, row.policy);
      for (std::size_t p = 0; p < steps.size(); ++p) logs[p][i] = std::log(steps[p] / row.step_s);
    });
    return logs;
  }

  std::vector<LinearRow> derivatives(const std::vector<double>& at) const {
    std::vector<std::vector<double>> points{at};
    for (std::size_t k = 0; k < at.size(); ++k) {
      points.push_back(at);
      points.back()[k] -= kDifference;  // downwards: shares end at 1
    }
    const std::vector<std::vector<double>> logs = logarithms(points);
    std::vector<LinearRow> result(rows_.size());
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      result[i].error = logs[0][i];
      for (std::size_t k = 0; k < at.size(); ++k) {
        result[i].slopes.push_back((logs[0][i] - logs[k + 1][i]) / kDifference);
      }
    }
    return result;
  }

  void drop_untold(std::vector<LinearRow>& slopes, std::vector<std::string>& untold) {
    for (std::size_t k = constants_.size(); k-- > 0;) {
      const bool told = std::any_of(slopes.begin(), slopes.end(),
                                    [&](const LinearRow& row) { return std::abs(row.slopes[k]) >= kLeastSlope; });
      if (told) continue;
      untold.push_back(constants_[k].name);
      constants_.erase(constants_.begin() + static_cast<std::ptrdiff_t>(k));
      for (LinearRow& row : slopes) row.slopes.erase(row.slopes.begin() + static_cast<std::ptrdiff_t>(k));
    }
    std::reverse(untold.begin(), untold.end());
  }

  // Shares end at 1, so do their logarithms.
  std::vector<double> bounded(std::vector<double> at) const {
    for (std::size_t k = 0; k < at.size(); ++k) {
      at[k] = std::min(at[k], std::log(constants_[k].most / constants_[k].read(base_)));
    }
    return at;
  }

  std::optional<std::vector<double>> improved(const std::vector<double>& at,
                                              const std::vector<LinearRow>& slopes) const {
    const std::vector<double> step = robust_step(slopes, at, slopes.size(), kLongestStep);
    std::vector<std::vector<double>> tried{at};
    for (const double part : kShortened) tried.push_back(bounded(sum(at, step, part)));
    const std::vector<std::vector<double>> logs = logarithms(tried);
    std::size_t best = 0;
    std::vector<double> losses;
    for (std::size_t p = 0; p < tried.size(); ++p) {
      losses.push_back(robust_loss(logs[p], tried[p]));
      if (losses[p] < losses[best]) best = p;
    }
    if (losses[best] > losses[0] * (1 - kLeastGain)) return std::nullopt;
    return tried[best];
  }

  void leave_each_out(const std::vector<double>& at, const std::vector<LinearRow>& slopes, ProfileFit& fit) const {
    std::vector<std::vector<double>> points;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      points.push_back(bounded(sum(at, robust_step(slopes, at, i, kLongestStep))));
    }
    fit.left_out = planned_errors(points);
    for (std::size_t k = 0; k < constants_.size(); ++k) {
      ProfileFit::Constant constant{constants_[k].name, constants_[k].read(base_), value_at(k, at[k])};
      constant.least = constant.most = constant.after;
      for (const std::vector<double>& point : points) {
        constant.least = std::min(constant.least, value_at(k, point[k]));
        constant.most = std::max(constant.most, value_at(k, point[k]));
      }
      fit.constants.push_back(std::move(constant));
    }
  }

  std::span<const MeasuredStep> rows_;
  const Profile& base_;
  std::size_t jobs_;
  std::vector<FitConstant> constants_;
};

}  // namespace

ProfileFit fit_profile(std::span<const MeasuredStep> rows, const Profile& profile, std::size_t jobs) {
  return ProfileFitter(rows, profile, jobs).fit();
}

}  // namespace weft
