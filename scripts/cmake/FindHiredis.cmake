# Hiredis::hiredis. Our own module, because Debian 12's package names a target that its successors
# do not, and because the semi-static build needs the archive.

if(DLOCK_SEMI_STATIC OR DLOCK_STATIC)
  find_library(Hiredis_LIBRARY NAMES libhiredis.a)
else()
  find_library(Hiredis_LIBRARY NAMES hiredis)
endif()
find_path(Hiredis_INCLUDE_DIR NAMES hiredis/hiredis.h)
if(Hiredis_INCLUDE_DIR)
  set(Hiredis_VERSION "")
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS ${Hiredis_INCLUDE_DIR}/hiredis/hiredis.h line REGEX "^#define HIREDIS_${part} ")
    string(REGEX MATCH "[0-9]+" number "${line}")
    list(APPEND Hiredis_VERSION ${number})
  endforeach()
  list(JOIN Hiredis_VERSION . Hiredis_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Hiredis REQUIRED_VARS Hiredis_LIBRARY Hiredis_INCLUDE_DIR)

if(Hiredis_FOUND AND NOT TARGET Hiredis::hiredis)
  add_library(Hiredis::hiredis UNKNOWN IMPORTED)
  set_target_properties(Hiredis::hiredis PROPERTIES
    IMPORTED_LOCATION ${Hiredis_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Hiredis_INCLUDE_DIR})
endif()
