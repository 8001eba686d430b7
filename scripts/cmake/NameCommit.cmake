# name_commit(TARGET HEADER) makes HEADER for TARGET to include. It defines dlock::commit_name, the
# current commit, with `+` if files differ from it; empty without git or a repository. Checked in
# each build, written when it differs.

set(name_commit_module ${CMAKE_CURRENT_LIST_FILE})

function(name_commit target header)
  set(generated ${PROJECT_BINARY_DIR}/generated)
  add_custom_target(${target}_commit
    COMMAND ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR} -D HEADER=${generated}/${header}
      -P ${name_commit_module}
    BYPRODUCTS ${generated}/${header}
    VERBATIM)
  add_dependencies(${target} ${target}_commit)
  target_include_directories(${target} PRIVATE ${generated})
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()

cmake_minimum_required(VERSION 3.25)
set(name "")
if(EXISTS ${SOURCE}/.git)  # of its own: a copy of the sources may lie in another project's repository
  execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=12 --exclude=* --dirty=+
    OUTPUT_VARIABLE name OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${HEADER} @ONLY CONTENT "#pragma once

#include <string_view>

namespace dlock {

inline constexpr std::string_view commit_name = \"@name@\";

}  // namespace dlock
")
