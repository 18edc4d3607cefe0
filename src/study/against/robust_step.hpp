// Least absolute deviations of a linear model, with a weak pull to where the unknowns were: one step of a fit that a
// few odd rows do not bend.
#pragma once

#include <cstddef>
#include <vector>

namespace weft {

// What rows say near a point: `error` is the logarithm of predicted over measured, `slopes` its derivative by every
// unknown.
struct LinearRow {
  double error = 0;
  std::vector<double> slopes;
};

// Errors below this count as squares, those above by their size.
inline constexpr double kSmallError = 0.03;
// How far an unknown, a logarithm, may stray before it costs as much as half a row whose error is e times too large.
inline constexpr double kUsualStray = 0.7;

// What a fit minimizes: Huber's loss of the errors, and the squares of how far unknowns strayed.
double robust_loss(const std::vector<double>& errors, const std::vector<double>& strayed);

// Returns the step of all unknowns that minimizes the loss of the linear model. `strayed` is where they are now.
// `left_out`: a row that does not count; rows.size() for none. Every step is at most `longest` in size.
std::vector<double> robust_step(const std::vector<LinearRow>& rows, const std::vector<double>& strayed,
                                std::size_t left_out, double longest);

}  // namespace weft
