# embed_lua(TARGET HEADER NAME FOLDER FILE...) makes HEADER, for TARGET to include: in namespace
# dlock NAME, the text of the script that the files of FOLDER are one after the other, and NAME_sha1,
# its SHA-1, which is what Redis knows the script by.
#
# Comments and indentation are left out, so that what is sent is short. Only lines that hold nothing
# but a comment go: a "--" further on may stand in a string. Long brackets are refused, since inside
# them a line means itself.

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
