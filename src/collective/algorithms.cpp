#include "collective/algorithms.hpp"

#include "base/error.hpp"
#include "collective/algorithm/generators.hpp"

namespace weft {
namespace {

// One row per generator; what it supports is a list, so that tests and `weft collective list` can walk it.
struct Generator {
  Algorithm algorithm;
  std::vector<Collective> kinds;
  Program (*make)(const ProgramRequest&);
};

const std::vector<Generator>& generators() {
  static const std::vector<Generator> kGenerators = {
      {Algorithm::ring, {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}, ring_program},
  };
  return kGenerators;
}

const Generator* generator_of(Algorithm algorithm, Collective kind) {
  for (const Generator& generator : generators()) {
    if (generator.algorithm != algorithm) continue;
    for (const Collective supported : generator.kinds) {
      if (supported == kind) return &generator;
    }
  }
  return nullptr;
}

}  // namespace

bool supports(Algorithm algorithm, Collective kind) {
  return generator_of(algorithm, kind) != nullptr;
}

std::vector<Algorithm> algorithms_for(Collective kind) {
  std::vector<Algorithm> result;
  for (int value = 0; value <= static_cast<int>(Algorithm::native); ++value) {
    const auto algorithm = static_cast<Algorithm>(value);
    if (supports(algorithm, kind)) result.push_back(algorithm);
  }
  return result;
}

Program make_program(const ProgramRequest& request) {
  const Generator* generator = generator_of(request.algorithm, request.kind);
  if (generator == nullptr) {
    fail("algorithm {}: there is no such {}", name_of(request.algorithm), name_of(request.kind));
  }
  if (request.parts < 1)
    fail("algorithm {}: {} parts; at least 1 is needed", name_of(request.algorithm), request.parts);
  return generator->make(request);
}

}  // namespace weft
