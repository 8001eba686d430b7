# embed_lua(TARGET HEADER NAME FOLDER FILE...) makes HEADER for TARGET to include. It defines in
# namespace dlock: NAME, the concatenated files of FOLDER as one script, and NAME_sha1, the SHA-1 by
# which Redis knows the script.
#
# Comments and indentation are removed, so that the script is short to send. Only lines with nothing
# but a comment are removed, as a "--" further on may be in a string. Long brackets are refused,
# since the lines inside them are literal.

set(embed_lua_module ${CMAKE_CURRENT_LIST_FILE})

function(embed_lua target header name folder)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/${folder}/ OUTPUT_VARIABLE files)
  set(generated ${PROJECT_BINARY_DIR}/generated)
  add_custom_command(
    OUTPUT ${generated}/${header}
    COMMAND ${CMAKE_COMMAND} -D "FILES=${files}"
      -D HEADER=${generated}/${header} -D NAME=${name} -P ${embed_lua_module}
    DEPENDS ${files} ${embed_lua_module}
    VERBATIM)
  target_sources(${target} PRIVATE ${generated}/${header})
  target_include_directories(${target} PUBLIC ${generated})
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()

set(text "\n")
foreach(file IN LISTS FILES)
  file(READ ${file} part)
  if(part MATCHES "\\[=*\\[")
    message(FATAL_ERROR "${file}: no long brackets ([[ or --[[) please: its lines are stripped")
  endif()
  string(APPEND text "${part}\n")
endforeach()
string(REGEX REPLACE "\n[ \t]*--[^\n]*" "" text "${text}")
string(REGEX REPLACE "[ \t]+\n" "\n" text "${text}\n")
string(REGEX REPLACE "\n[ \t]+" "\n" text "${text}")
string(REGEX REPLACE "\n\n+" "\n" text "${text}")
string(REGEX REPLACE "^\n" "" text "${text}")
string(SHA1 sha1 "${text}")

file(WRITE ${HEADER} "#pragma once

#include <string_view>

namespace dlock {

inline constexpr std::string_view ${NAME} = R\"lua(${text})lua\";
inline constexpr std::string_view ${NAME}_sha1 = \"${sha1}\";

}  // namespace dlock
")
