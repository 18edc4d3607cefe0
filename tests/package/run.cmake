# The test `package`: install to an empty prefix, build the consumer against it, run it and read what it says.
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY COMMAND_ECHO STDOUT)
endfunction()

set(prefix ${WORK}/prefix)
set(consumer ${WORK}/consumer)
file(REMOVE_RECURSE ${prefix} ${consumer})

set(flags "")
if(SANITIZE)
  set(flags -DCMAKE_CXX_FLAGS=-fsanitize=${SANITIZE})
endif()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix} --config ${CONFIG})
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${consumer} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
    -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_BUILD_TYPE=${CONFIG} ${flags})
run(${CMAKE_COMMAND} --build ${consumer} --config ${CONFIG})

execute_process(COMMAND ${consumer}/consumer OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
if(NOT said STREQUAL "3.00 MiB\n")
  message(FATAL_ERROR "the consumer printed '${said}', expected '3.00 MiB'")
endif()

if(EXISTS ${BUILD}/weft)
  run(${prefix}/bin/weft --version)
endif()
