# embed_lua(TARGET SCRIPT HEADER NAME) makes HEADER, for TARGET to include: in namespace dlock NAME,
# the script's text, and NAME_sha1, its SHA-1, which is what Redis knows the script by.
#
# Comments and indentation are left out, so that what is sent is short. Only lines that hold nothing
# but a comment go: a "--" further on may stand in a string. Long brackets are refused, since inside
# them a line means itself.

set(embed_lua_module ${CMAKE_CURRENT_LIST_FILE})

function(embed_lua target script header name)
  set(generated ${PROJECT_BINARY_DIR}/generated)
  add_custom_command(
    OUTPUT ${generated}/${header}
    COMMAND ${CMAKE_COMMAND} -D SCRIPT=${PROJECT_SOURCE_DIR}/${script}
      -D HEADER=${generated}/${header} -D NAME=${name} -P ${embed_lua_module}
    DEPENDS ${PROJECT_SOURCE_DIR}/${script} ${embed_lua_module}
    VERBATIM)
  target_sources(${target} PRIVATE ${generated}/${header})
  target_include_directories(${target} PUBLIC ${generated})
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()

file(READ ${SCRIPT} text)
if(text MATCHES "\\[=*\\[")
  message(FATAL_ERROR "${SCRIPT}: no long brackets ([[ or --[[) please: its lines are stripped")
endif()
string(PREPEND text "\n")
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
