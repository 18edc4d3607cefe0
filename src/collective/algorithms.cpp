#include "collective/algorithms.hpp"

#include <fmt/format.h>

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
  using enum Collective;
  static const std::vector<Generator> kGenerators = {
      {Algorithm::ring, {broadcast, reduce, all_gather, reduce_scatter, all_reduce}, ring_program},
      {Algorithm::tree, {broadcast, reduce, all_reduce}, double_tree_program},
      {Algorithm::direct,
       {broadcast, reduce, gather, scatter, all_gather, reduce_scatter, all_reduce, all_to_all, send_recv, barrier},
       direct_program},
      {Algorithm::bidirectional_ring, {all_gather, reduce_scatter, all_reduce}, bidirectional_ring_program},
      {Algorithm::binomial_tree, {broadcast, reduce, gather, scatter, all_reduce, barrier}, binomial_tree_program},
      {Algorithm::recursive_doubling, {all_gather, all_reduce, barrier}, recursive_doubling_program},
      {Algorithm::recursive_halving, {reduce_scatter, all_reduce}, recursive_halving_program},
      {Algorithm::bruck, {all_gather, all_to_all, barrier}, bruck_program},
      {Algorithm::pairwise, {all_gather, reduce_scatter, all_to_all}, pairwise_program},
      {Algorithm::reduce_broadcast, {all_reduce}, reduce_broadcast_program},
      {Algorithm::parameter_server, {all_reduce}, parameter_server_program},
      {Algorithm::hierarchical,
       {broadcast, reduce, all_gather, reduce_scatter, all_reduce, all_to_all},
       hierarchical_program},
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

template <class Names>
std::string joined(const Names& values) {
  std::string text;
  for (const auto value : values) text += fmt::format("{}{}", text.empty() ? "" : ", ", name_of(value));
  return text;
}

const Generator& checked(const ProgramRequest& request) {
  const std::string_view name = name_of(request.algorithm);
  if (request.algorithm == Algorithm::native) {
    fail("algorithm native: it is the transport library's own call and has no program");
  }
  const Generator* generator = generator_of(request.algorithm, request.kind);
  if (generator == nullptr) {
    fail("algorithm {}: there is no such {}; allowed are {}", name, name_of(request.kind),
         joined(algorithms_for(request.kind)));
  }
  validate({request.kind, request.ranks, request.root, request.ranks}, fmt::format("algorithm {}", name));
  if (request.parts < 1) fail("algorithm {}: {} parts; at least 1 is needed", name, request.parts);
  if (request.algorithm == Algorithm::parameter_server && request.servers < 0) {
    fail("algorithm {}: {} servers; 0 or more are allowed", name, request.servers);
  }
  const bool levels = request.algorithm == Algorithm::hierarchical && request.ranks > 1;
  if (levels && (request.inner < 1 || request.ranks % request.inner != 0)) {
    fail("algorithm {}: inner {} does not divide {} ranks", name, request.inner, request.ranks);
  }
  return *generator;
}

// One rank has nobody to send to, whatever the algorithm.
Program copy_program(const ProgramRequest& request) {
  const std::int64_t helpers = request.algorithm == Algorithm::parameter_server ? request.servers : 0;
  ProgramBuilder builder(std::string(name_of(request.algorithm)), {request.kind, 1, 0, request.parts}, request.in_place,
                         helpers);
  builder.copy(input_of(0, 0), output_of(0, 0), request.parts);
  return std::move(builder).finish();
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
  const Generator& generator = checked(request);
  ProgramRequest precise = request;
  if (request.kind == Collective::barrier) precise.parts = 1;  // there is nothing to cut
  if (request.ranks == 1) return copy_program(precise);
  return generator.make(precise);
}

}  // namespace weft
