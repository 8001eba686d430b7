# join_by_folder(TARGET [FILES]): if CMAKE_UNITY_BUILD is on, the files of a folder are compiled as
# one, or as several of at most FILES each, which takes a third of the time. The preset `alone`
# compiles each file on its own. Joined files share their unnamed namespace: no two files in a folder
# of `src` define the same name.
function(join_by_folder target)
  set(limit 1000)
  if(ARGC GREATER 1)
    set(limit ${ARGV1})
  endif()
  get_target_property(sources ${target} SOURCES)
  set(count 0)
  foreach(source IN LISTS sources)
    get_filename_component(folder ${source} DIRECTORY)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(MAKE_C_IDENTIFIER "${folder}" group)
    math(EXPR part "${count} / ${limit}")
    math(EXPR count "${count} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP "${group}_${part}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()
