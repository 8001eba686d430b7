# The tests that faults.md names have the label `fault` beside that of their folder.
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/faults.md" lines REGEX "^- `[a-z]+:.+`$")
foreach(line IN LISTS lines)
  string(REGEX REPLACE "^- `(.+)`$" "\\1" test "${line}")
  string(REGEX REPLACE ":.*" "" folder "${test}")
  set_tests_properties("${test}" PROPERTIES LABELS "${folder};fault")
endforeach()

# It takes longer than any other under the sanitizers, so it begins first.
set_tests_properties("contract:the reference table and the script of Redis answer random requests alike"
  PROPERTIES COST 500 TIMEOUT 900)
