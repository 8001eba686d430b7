# Disables the tests that emulation.md names, so that ctest names and counts them.
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/emulation.md" lines REGEX "^- `(unit|cli):.+`$")
foreach(line IN LISTS lines)
  string(REGEX REPLACE "^- `(.+)`$" "\\1" test "${line}")
  set_tests_properties("${test}" PROPERTIES DISABLED ON)
endforeach()
