# What the sanitizer builds run. `core_tests` builds the tests of the folders that need no device and no network, and
# `ctest --test-dir <build>/tests/core` runs them. With WEFT_SANITIZE_ONLY these are the tests of those folders.
set(core base compress model cluster timeline collective comm exec graph cost plan bound planner sim io)
get_property(folders DIRECTORY ${PROJECT_SOURCE_DIR}/src PROPERTY SUBDIRECTORIES)
add_custom_target(core_tests)
set(core_ctest "")
foreach(folder ${folders})
  cmake_path(GET folder FILENAME name)
  if(name IN_LIST core)
    get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
    list(FILTER targets INCLUDE REGEX "_test$")
    list(FILTER targets EXCLUDE REGEX "_mpi_test$")  # needs a launcher
    foreach(target ${targets})
      add_dependencies(core_tests ${target})
      get_property(shards TARGET ${target} PROPERTY WEFT_SHARDS)
      foreach(shard RANGE 1 ${shards})
        math(EXPR index "${shard} - 1")
        string(APPEND core_ctest "add_test(${target}_${shard} \"$<TARGET_FILE:${target}>\")\n"
               "set_tests_properties(${target}_${shard} PROPERTIES TIMEOUT 600 COST ${shards}"
               " ENVIRONMENT \"GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index};"
               "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/leaks_of_libraries.txt\")\n")
      endforeach()
    endforeach()
  endif()
endforeach()
string(APPEND core_ctest "subdirs(\"${PROJECT_BINARY_DIR}/fuzz\")\n")  # fuzz/ adds its own executables
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/tests/core/CTestTestfile.cmake CONTENT "${core_ctest}")
