# The three kinds of targets in this project: one static library per folder of src/,
# one test executable per folder, and the flags that all of them share.

add_library(weft_flags INTERFACE)
target_compile_options(weft_flags INTERFACE -Wall -Wextra -Wconversion -Wshadow
                       # The same simulated times on every machine: no fused multiply-add where one has it.
                       -ffp-contract=off
                       # g++ 12 warns falsely inside std::string's operator+ (GCC bug 105329).
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                       $<$<BOOL:${WEFT_WERROR}>:-Werror>)
if(WEFT_SANITIZE)
  target_compile_options(weft_flags INTERFACE -fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(weft_flags INTERFACE -fsanitize=${WEFT_SANITIZE})
endif()

# weft_library(NAME SOURCES a.cpp ... DEPENDS base ... [LINK fmt::fmt ...])
function(weft_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  add_library(weft_${name} STATIC ${ARG_SOURCES})
  add_library(weft::${name} ALIAS weft_${name})
  target_include_directories(weft_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/weft>)
  list(TRANSFORM ARG_DEPENDS PREPEND weft_)
  target_link_libraries(weft_${name} PUBLIC ${ARG_DEPENDS} ${ARG_LINK}
                        PRIVATE $<BUILD_INTERFACE:weft_flags>)
  set_target_properties(weft_${name} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY WEFT_LIBRARIES weft_${name})
endfunction()

# weft_test(FOLDER SOURCES a_test.cpp ... [LABELS fast] [DEPENDS other folders])
function(weft_test folder)
  if(NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;LABELS;DEPENDS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS fast)
  endif()
  list(TRANSFORM ARG_DEPENDS PREPEND weft_)
  add_executable(${folder}_test ${ARG_SOURCES})
  target_link_libraries(${folder}_test PRIVATE weft_${folder} ${ARG_DEPENDS} GTest::gtest_main weft_flags)
  target_compile_definitions(${folder}_test PRIVATE WEFT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${folder}_test DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 120)
endfunction()
