#!/usr/bin/env bash
# The long walk over changed plans (src/exec/mutation_walk_test.cpp): every plan that the verifier accepts is trained.
#
#   tools/mutation_walk.sh [ROUNDS [SEED]]     after `make all`; a round makes 60 changes to a plan of each of 15 layouts
set -euo pipefail
cd "$(dirname "$0")/.."
export WEFT_WALK_ROUNDS=${1:-10} WEFT_WALK_SEED=${2:-100}
exec "${BUILD:-build/release}/src/exec/exec_test" --gtest_also_run_disabled_tests --gtest_filter=MutationWalk.DISABLED_Long
