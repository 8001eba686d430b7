# The compile and link flags of every target in this project, as the target dlock_flags.

add_library(dlock_flags INTERFACE)
target_compile_options(dlock_flags INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
if(CMAKE_UNITY_BUILD)
  # In a joined file, a type of an unnamed namespace looks like one of a header, and a local name
  # hides a name of another file. The preset `alone` keeps both warnings.
  target_compile_options(dlock_flags INTERFACE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage> -Wno-shadow)
endif()
if(DLOCK_WERROR)
  target_compile_options(dlock_flags INTERFACE -Werror)
endif()
if(DLOCK_SANITIZE)
  target_compile_definitions(dlock_flags INTERFACE DLOCK_SANITIZED=1)
else()
  target_compile_definitions(dlock_flags INTERFACE DLOCK_SANITIZED=0)
endif()

if(DLOCK_SANITIZE)
  # Without the hardening below: fortified calls would bypass the sanitizers' own checks.
  target_compile_options(dlock_flags INTERFACE
    -fsanitize=${DLOCK_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    # The tests' own code does not look for undefined behaviour: with it the tests took half as long
    # again to compile, and each of their processes was slow to load. The inline functions of a header
    # that a test includes are not checked either, because the linker keeps the test's copy.
    $<$<NOT:$<STREQUAL:$<TARGET_PROPERTY:SOURCE_DIR>,${PROJECT_SOURCE_DIR}>>:-fno-sanitize=undefined>
    # When it instruments, g++ 12 sees false errors in its own <regex>.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(dlock_flags INTERFACE -fsanitize=${DLOCK_SANITIZE})
elseif(DLOCK_COVERAGE)
  # Clang counts the branches of the source, and none that a compiler adds. All runs of a program
  # add to one file.
  target_compile_options(dlock_flags INTERFACE -fcoverage-mapping -fprofile-update=atomic
    -fprofile-instr-generate=${PROJECT_BINARY_DIR}/counts/%m.profraw)
  # A process that ends without exit() would not record its counts.
  target_sources(dlock_flags INTERFACE ${PROJECT_SOURCE_DIR}/scripts/cmake/coverage_at_the_end.cpp)
  target_link_options(dlock_flags INTERFACE -fprofile-instr-generate -Wl,--wrap=_exit,--wrap=raise)
elseif(DLOCK_HARDENING)
  target_compile_options(dlock_flags INTERFACE
    -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fPIE)
  target_link_options(dlock_flags INTERFACE
    $<$<NOT:$<BOOL:${DLOCK_STATIC}>>:-pie> -Wl,-z,relro,-z,now)
endif()

# Most of nlohmann_json is never called, so the linker drops it.
target_compile_options(dlock_flags INTERFACE
  $<$<CONFIG:Release>:-ffunction-sections> $<$<CONFIG:Release>:-fdata-sections>)
target_link_options(dlock_flags INTERFACE
  $<$<CONFIG:Release>:-Wl,--gc-sections> $<$<CONFIG:Release>:-Wl,-O1>
  # A distribution strips the symbols itself.
  $<$<AND:$<CONFIG:Release>,$<BOOL:${DLOCK_SEMI_STATIC}>>:-s>)
